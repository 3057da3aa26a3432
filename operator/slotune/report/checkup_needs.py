"""What would decide the rest, as something that a person can do or bring, and never what was given already.

Rules ask for parts of the same log or look, each in its own words.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.symptoms import Symptoms
from slotune.report.redaction import said_in_public

__all__ = ["means_of", "still_needed"]

_MEANS: Final = tuple(
    (re.compile(pattern), means)
    for pattern, means in (
        (r"--probe(?!.* while )", "--probe"),
        (r"--deployment|its arguments: |the CPU limit of its container", "--deployment NAME"),
        (r"--nvidia-smi", "--nvidia-smi FILE, with what nvidia-smi -q prints while it works"),
        (r"--model", "--model FILE, the weights"),
        (r"(.*: )?a log (with -lv 4 )?that holds|the log's start", "a log with -lv 4 that holds the start"),
        (r"a (longer )?log\b|the server's log|--log", "a log of the server under load, best with -lv 4"),
        (
            r"--url|/slots|/metrics|/props|a (second )?look|two looks",
            "--url of the busy server, started with --metrics",
        ),
    )
)
"""What rules need begins so, and what that comes to."""


_QUIET_SINCE: Final = 9000
"""A build of April 2026: those before it print at their default what is at -lv 4 now."""


def _says_all(symptoms: Symptoms) -> bool:
    """Whether its build is one that says all at its default, and prompts at -lv 4."""
    log = symptoms.log
    if log is None:
        return False
    is_old = log.build is not None and log.build < _QUIET_SINCE
    return is_old or (log.verbosity is None and log.server_lines > 0)


def still_needed(needs: str, symptoms: Symptoms) -> str:
    """A rule's words without the alternatives that were given already and did not decide it."""
    if _says_all(symptoms):
        needs = needs.replace(" with -lv 4", "")
    if symptoms.probe is not None:
        needs = re.sub(r"^--probe, (?:or|and) ", "", needs)
    if symptoms.server is not None:
        needs = needs.replace("--url, ", "")
    if symptoms.pod is not None:
        needs = needs.replace("its arguments: --deployment NAME shows them", "its arguments, which its pod hides")
    return said_in_public(needs)


def means_of(needs: str, symptoms: Symptoms) -> str:
    """What a person can do about it."""
    needs = still_needed(needs, symptoms)
    means = next((means for pattern, means in _MEANS if pattern.match(needs)), needs)
    if _says_all(symptoms):
        means = means.replace(", best with -lv 4", "").replace(" with -lv 4", "")
    if means == "--probe" and symptoms.probe is not None:
        return needs
    if means.startswith("--url") and (server := symptoms.server) is not None:
        again = "--url once more while the server is busy"
        return again if server.metrics is not None else f"{again}, started with --metrics"
    return means
