"""What would decide the rest, as something that a person can do or bring, and never what was given already.

Rules ask for parts of the same log or look, each in its own words, and name the option that brings it. Beside
``--deployment`` neither ``--url`` nor ``--log`` may be given, and a log alone can't be asked anything: then the words
are those of that way to look.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.symptoms import Symptoms
from slotune.report.redaction import said_in_public

__all__ = ["means_of", "still_needed"]

_ITSELF: Final = ""
"""The words themselves."""
_MEANS: Final = tuple(
    (re.compile(pattern), means)
    for pattern, means in (
        (r"--probe(?!.* while )", "--probe"),
        (r"--url URL --probe(?!.* while )", "--url URL --probe"),
        (r"--url URL|an answer of the server", _ITSELF),
        (r"--deployment|its arguments: |the CPU limit of its container", "--deployment NAME"),
        (r"--nvidia-smi", "--nvidia-smi FILE, with what nvidia-smi -q prints while it works"),
        (r"--model", "--model FILE, the weights"),
        (r"(.*: )?a log (with -lv 4 )?that holds|the log's start", "a log with -lv 4 that holds the start"),
        (r"a (longer )?log\b|the server's log|--log", "a log of the server under load, best with -lv 4"),
        (
            r"--url|/slots|/metrics|/props|a (second )?look|two looks|this command once more",
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


_IN_PODS: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"its arguments: --deployment NAME shows them", "its arguments, which its pod hides"),
        (r",? or --deployment NAME", ""),
        (r": --deployment NAME|--deployment: ", ""),
        (r"--deployment \(([^)]*)\)", r"\1"),
        (r" \(--url\)|(?<!^)(?<=: )--url, ", ""),
        (r"^--url, (?:or )?", ""),
        (r"\(--url; ", "("),
        (r": --url \(([^)]*)\)", r": \1"),
        (r": --url$", ": this command once more while it is busy"),
        (r"^--url while ", "this command once more while "),
        (r"^--url: ", "an answer of the server: "),
        (r": --log FILE|(?<=. )\(--log FILE\)", ""),
        (r"--log FILE", "its log"),
        (r"--url( URL)?", "an answer of the server"),
        (r"--deployment( NAME)?", "what its pod shows"),
    )
)
"""Of what is looked at by itself; the last three stand for words that no line above knows."""
_ASKING: Final = re.compile(r"^(?=--probe|--watch)")
"""What only a server can be asked."""


def still_needed(needs: str, symptoms: Symptoms) -> str:
    """A rule's words without the alternatives that were given already and did not decide it."""
    if _says_all(symptoms):
        needs = needs.replace(" with -lv 4", "")
    if symptoms.probe is not None:
        needs = re.sub(r"^--probe, (?:or|and) ", "", needs)
    if symptoms.server is not None:
        needs = needs.replace("--url, ", "")
    if symptoms.pod is not None:
        for pattern, words in _IN_PODS:
            needs = pattern.sub(words, needs)
    elif symptoms.server is None:
        needs = _ASKING.sub("--url URL ", needs)
    return said_in_public(needs)


def means_of(needs: str, symptoms: Symptoms) -> str:
    """What a person can do about it."""
    needs = still_needed(needs, symptoms)
    in_pod = symptoms.pod is not None
    means = next((means for pattern, means in _MEANS if pattern.match(needs)), _ITSELF)
    if means == _ITSELF:
        return needs
    if _says_all(symptoms):
        means = means.replace(", best with -lv 4", "").replace(" with -lv 4", "")
    if (means == "--probe" and symptoms.probe is not None) or (means.startswith("--deployment") and in_pod):
        return needs
    if means.startswith("--url of") and (in_pod or symptoms.server is not None):
        again = f"{'this command' if in_pod else '--url'} once more while the server is busy"
        is_shown = symptoms.server is not None and symptoms.server.metrics is not None
        return again if is_shown else f"{again}, started with --metrics"
    return means
