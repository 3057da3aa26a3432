"""What choosing the next token costs: samplers run on the CPU, once per token and request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import settings, work
from slotune.diagnose.rules.placement import build_of
from slotune.diagnose.symptoms import ServerLook, Symptoms

__all__ = ["ENTRIES", "RULES"]

EXPENSIVE_SAMPLING: Final = Entry(
    id="SLT070",
    code="ExpensiveSampling",
    item=Item.SAMPLING,
    title="Requests ask for samplers that cost time at every token",
    cause="Penalties, DRY, Mirostat, grammars and token probabilities run on the CPU over the vocabulary for every "
    "token of every request; penalties alone cost 25 to 33 % of tokens/s (ggml-org/llama.cpp#23708). Builds before "
    "b9731 sort the whole vocabulary for probabilities, 8.6 ms a token at 128,000 entries (ggml-org/llama.cpp#24796).",
    first="Leave out what the answers do not need: repeat_penalty 1, presence_penalty 0, frequency_penalty 0, "
    "dry_multiplier 0, mirostat 0, no n_probs.",
    avoid="Do not compare with llama-bench, which samples nothing: measure with the sampling of production.",
    verify="Tokens/s of one request with and without the parameter, on the idle server.",
    knobs=("backendSampling",),
)

ENTRIES: Final = (EXPENSIVE_SAMPLING,)

FELT: Final = 0.05
"""Part of a token's time from which a sampler is felt; below it machines differ by more."""
ROUNDED: Final = 1e-4
"""Parameters are single-precision numbers: 1.1 comes back as 1.100000023841858."""
COST_S: Final[Mapping[str, float]] = {
    "penalty": 8e-9,
    "dry_multiplier": 10e-9,
    "mirostat": 75e-9,
    "n_probs": 10e-9,
    "a grammar": 10e-9,
    "a json schema": 10e-9,
}
"""Seconds of CPU time per token and entry of the vocabulary, by what the words about it hold: medians on build 11549
with a vocabulary of 49,152, against the same answer without. xtc costs nothing that shows."""
PROBABILITIES_SORTED_IN_PART: Final = 9731
"""First build that sorts only the probabilities that were asked for (ggml-org/llama.cpp#24796)."""
SORTED_WHOLE_S: Final = 67e-9
"""What earlier builds take more for n_probs, per token and entry: 8.56 ms for a vocabulary of 128,000 (the same)."""
_OPTIONAL: Final = ("penalty", "dry_multiplier", "mirostat")
"""What answers can do without; who wants probabilities or a grammar has a use for them."""

_PENALTIES: Final[Mapping[str, float]] = {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Parameter to the value that does nothing, which is llama.cpp's default."""
_PER_TOKEN: Final[Mapping[str, float]] = {
    "dry_multiplier": 0.0,
    "mirostat": 0.0,
    "n_probs": 0.0,
}
_TEXTS: Final = ("grammar", "json_schema")
_FLAGS: Final[Mapping[str, str]] = {
    "--repeat-penalty": "repeat_penalty",
    "--presence-penalty": "presence_penalty",
    "--frequency-penalty": "frequency_penalty",
    "--dry-multiplier": "dry_multiplier",
    "--mirostat": "mirostat",
}
_FLAGS_OF_TEXTS: Final = ("--grammar", "--grammar-file", "-j", "-jf")


def _expensive(symptoms: Symptoms) -> Finding | Clear | Undecided:
    server = symptoms.server
    params: Mapping[str, object] = {} if server is None else server.sampling
    asked = server is not None and server.request_params_seen
    found = _costly(params)
    evidence: tuple[Evidence, ...] = ()
    if found and server is not None:
        where = server.sampling_source
        source = where.source if where is not None else Source.SLOTS if asked else Source.PROPS
        evidence = tuple(Evidence(source, one) for one in found)
    elif not asked:
        found, evidence = _stated(symptoms)
    if not found:
        if not asked:
            return Undecided("--url while requests run: /slots shows what they ask for")
        return _plain(server)
    whose = "requests run with" if asked else "unless a request says otherwise it runs with"
    words = f"{whose} {', '.join(found)}"
    cost = _cost(symptoms, found, tuple(COST_S))
    if cost is not None:
        words += f": about {100 * cost:.0f} % of the time of a token"
    sorts_whole = _sorts_whole(symptoms, found)
    to_save = _cost(symptoms, found, (*_OPTIONAL, "n_probs") if sorts_whole else _OPTIONAL)
    return Finding(
        EXPENSIVE_SAMPLING,
        words,
        evidence if sorts_whole is None else (*evidence, sorts_whole),
        Severity.WARNING if to_save is not None and to_save >= FELT else Severity.INFO,
        Confidence.LIKELY if asked else Confidence.POSSIBLE,
        Cost(speed_share=cost),
        None
        if sorts_whole is None
        else f"Update to b{PROBABILITIES_SORTED_IN_PART} or later, which sorts only the "
        "probabilities that are asked for; or leave n_probs (logprobs) out.",
    )


def _plain(server: ServerLook | None) -> Clear:
    """Of requests whose parameters are seen. /slots never shows grammars, nor what they are made of: so that is said,
    and needs no more, since who asks for one has a use for it."""
    shown = [slot for slot in (server.slots if server is not None else None) or () if slot.sampling]
    of = "the requests" if not shown else f"the request in {len(shown)} slot{'s' if len(shown) > 1 else ''}"
    source = None if server is None else server.sampling_source
    return Clear(
        f"{of} asked for no penalties, DRY, Mirostat or probabilities; whether for a grammar or a schema, /slots does "
        "not show",
        () if source is None else (source,),
    )


def _sorts_whole(symptoms: Symptoms, found: tuple[str, ...]) -> Evidence | None:
    """The build, where it sorts the whole vocabulary for every token whose probabilities are asked for."""
    build = build_of(symptoms)
    if build is None or build[0] >= PROBABILITIES_SORTED_IN_PART or not any("n_probs" in words for words in found):
        return None
    return build[1]


def _costly(params: Mapping[str, object]) -> tuple[str, ...]:
    """``repeat_penalty 1.3``: what costs time, in words that hold no text of a user."""
    chain = params.get("samplers")
    named = chain if isinstance(chain, list | tuple) else None
    penalize = (named is None or "penalties" in named) and params.get("repeat_last_n") != 0
    found = []
    for names, counts in ((_PENALTIES, penalize), (_PER_TOKEN, True)):
        for name, neutral in names.items():
            value = params.get(name)
            if counts and isinstance(value, int | float) and abs(value - neutral) > ROUNDED:
                found.append(f"{name} {round(value, 3):g}")
    for name in _TEXTS:
        size = params.get(name)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            found.append(f"a {name.replace('_', ' ')} of {size:,} characters")
        elif isinstance(size, str) and size:
            found.append(f"a {name.replace('_', ' ')}")
    return tuple(found)


def _stated(symptoms: Symptoms) -> tuple[tuple[str, ...], tuple[Evidence, ...]]:
    """The same, where only the arguments are known."""
    params: dict[str, object] = {}
    evidence = []
    for flag, name in _FLAGS.items():
        setting = settings.stated(symptoms, flag)
        value = None if setting is None or not setting.values else _number(setting.values[0])
        if setting is not None and value is not None and _costly({name: value}):
            params[name] = value
            evidence.append(settings.said(setting))
    for flag in _FLAGS_OF_TEXTS:
        if settings.stated(symptoms, flag) is not None:
            params["grammar"] = flag
            evidence.append(Evidence(Source.FLAGS, flag))  # its value may hold a user's text
    return _costly(params), tuple(evidence)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(symptoms: Symptoms, found: tuple[str, ...], counted: tuple[str, ...]) -> float | None:
    """Part of a token's time that those of ``found`` take that are counted; None where it can't be told."""
    model = None if symptoms.server is None else symptoms.server.model
    speed = work.user_speed(symptoms)
    if model is None or model.vocabulary is None or speed is None:
        return None
    each = sum(COST_S[one] for one in counted if any(one in words for words in found))
    if "n_probs" in counted and _sorts_whole(symptoms, found) is not None:
        each += SORTED_WHOLE_S
    busy = None if symptoms.server is None else work.busy_slots(symptoms.server)
    # The samplers of a step run one slot after another, so everybody waits for those of all.
    in_a_step = 1.0 if busy is None else max(1.0, busy.value)
    return min(1.0, each * model.vocabulary * in_a_step * speed.value)


RULES: Final = (Rule(EXPENSIVE_SAMPLING.id, Item.SAMPLING, _expensive),)
