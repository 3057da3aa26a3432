"""What the server runs with: its own word first (log, /props, /slots), then its arguments, then its build's default.

A default counts only where all arguments are known and no configuration file stands behind them; else nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.build_number import build_of_image, build_of_text
from slotune.llama.flag_reading import Setting, read

__all__ = [
    "ITS_ARGUMENTS",
    "Number",
    "arguments",
    "batch_size",
    "has_defaults",
    "is_unified",
    "number",
    "said",
    "slots",
    "stated",
    "told",
    "ubatch_size",
]

ITS_ARGUMENTS: Final = "its arguments: --deployment NAME shows them"
"""What decides where only arguments can."""
PROGRAMS: Final = frozenset({"llama-server", "llama-server.exe"})


@dataclass(frozen=True, slots=True)
class Number:
    """One setting, and who said so."""

    value: int
    evidence: Evidence


def arguments(symptoms: Symptoms) -> tuple[Setting, ...] | None:
    """All that the server was started with, variables first; None: not known, so a default can't be told."""
    pod = symptoms.pod
    words = symptoms.flags or (pod.args if pod is not None else ())
    env = pod.env if pod is not None else {}
    if not words and pod is None:
        return None
    if words and not words[0].startswith("-") and PurePosixPath(words[0]).name not in PROGRAMS:
        return None  # a shell, say, that has the server's arguments in a script
    return read(words, env, _build(symptoms)).settings


def stated(symptoms: Symptoms, flag: str) -> Setting | None:
    """The one that counts of what was stated for ``flag`` (its first spelling); None: none that is known."""
    found = [setting for setting in arguments(symptoms) or () if setting.flag.name == flag]
    return found[-1] if found else None


def said(setting: Setting) -> Evidence:
    """The argument or variable itself. Only for flags whose value is no secret and no text of a user."""
    words = setting.words if setting.variable is None else ("=".join((setting.variable, *setting.values[:1])),)
    return Evidence(Source.FLAGS, " ".join(words)[:LONGEST])


def has_defaults(symptoms: Symptoms) -> bool:
    """Whether what was not stated is known to be the build's default."""
    hidden = symptoms.log is not None and bool(symptoms.log.facts.config_files)
    return not hidden and arguments(symptoms) is not None


def number(symptoms: Symptoms, flag: str, default: int | None = None, *, fact: str | None = None) -> Number | None:
    """A whole number: the log's ``fact`` (a field of LogFacts), else what was stated, else ``default``.

    None: nobody said, or it was stated as something that is no whole number.
    """
    if fact is not None and (logged := told(symptoms, fact)) is not None:
        return logged
    setting = stated(symptoms, flag)
    if setting is not None:
        value = setting.values[0] if setting.values else ""
        return Number(int(value), said(setting)) if value.removeprefix("-").isdecimal() else None
    if default is None or not has_defaults(symptoms):
        return None
    return Number(default, Evidence(Source.FLAGS, f"{flag} is not stated: {default}"))


def told(symptoms: Symptoms, fact: str) -> Number | None:
    """A number that the log states, with its line where that is known."""
    log = symptoms.log
    value = None if log is None else getattr(log.facts, fact)
    if log is None or not isinstance(value, int):
        return None
    line = log.fact_lines.get(fact)
    if line is None:
        return Number(value, Evidence(Source.LOG, f"{fact} = {value}"))
    return Number(value, Evidence.of_line(line))


def slots(symptoms: Symptoms) -> Number | None:
    """Requests that may run at once."""
    server = symptoms.server
    if server is not None and server.props is not None:
        count = server.props.total_slots
        return Number(count, Evidence(Source.PROPS, f"total_slots {count}"))
    if server is not None and server.slots:
        return Number(len(server.slots), Evidence(Source.SLOTS, counted(len(server.slots), "slot")))
    known = number(symptoms, "-np", defaults_of(_build(symptoms)).auto_slots, fact="slots")
    if known is None or known.value > 0:
        return known
    auto = defaults_of(_build(symptoms)).auto_slots  # -np -1 asks for it
    return Number(auto, known.evidence)


def is_unified(symptoms: Symptoms) -> bool | None:
    """Whether the slots share one KV cache; None: nobody said."""
    if symptoms.log is not None and symptoms.log.facts.kv_unified is not None:
        return symptoms.log.facts.kv_unified
    setting = stated(symptoms, "-kvu")
    if setting is not None:
        return setting.on
    if not has_defaults(symptoms):
        return None
    count = number(symptoms, "-np")
    if count is not None and count.value > 0:
        return False
    return defaults_of(_build(symptoms)).auto_unified


def batch_size(symptoms: Symptoms) -> Number | None:
    """Most prompt tokens in a step."""
    return number(symptoms, "-b", defaults_of(_build(symptoms)).batch_size, fact="batch_size")


def ubatch_size(symptoms: Symptoms) -> Number | None:
    """Most tokens that are computed at a time."""
    return number(symptoms, "-ub", defaults_of(_build(symptoms)).ubatch_size, fact="ubatch_size")


def _build(symptoms: Symptoms) -> int | None:
    """By its log, by its own word, by the tag of its image."""
    if symptoms.log is not None and symptoms.log.build is not None:
        return symptoms.log.build
    props = None if symptoms.server is None else symptoms.server.props
    if props is not None and (number := build_of_text(props.build)) is not None:
        return number
    return build_of_image(None if symptoms.pod is None else symptoms.pod.image)
