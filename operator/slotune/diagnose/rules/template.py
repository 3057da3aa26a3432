"""What happens before the first prompt token is computed: the chat template is filled in, and the text is tokenized."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Undecided
from slotune.diagnose.rules import work
from slotune.diagnose.symptoms import Symptoms

__all__ = ["ENTRIES", "RULES"]

SLOW_TEMPLATE: Final = Entry(
    id="SLT075",
    code="SlowTemplate",
    item=Item.TEMPLATE,
    title="The chat template and tokenizing take a part of the wait that shows",
    cause="Filling in the template and tokenizing happen on the CPU before a slot is looked for, for the whole prompt "
    "each time, also for the part that a cache serves.",
    first="Try a simpler template (--chat-template-file), and send fewer or shorter tool definitions and turns.",
    avoid="Do not tune the GPU: it has nothing to do meanwhile.",
    verify="TTFT from the send minus prompt_ms of a long prompt comes near to that of a short one.",
    knobs=("extraArgs",),
)

ENTRIES: Final = (SLOW_TEMPLATE,)

FELT_S: Final = 0.05
"""Seconds: tokenizing thousands of tokens takes a few milliseconds, and nobody feels less than this."""
LARGE_PART: Final = 0.1
"""Part of the time to the first token of a prompt alone; below it other causes come first."""


def _slow_template(symptoms: Symptoms) -> Finding | Clear | Undecided:
    probe = symptoms.probe
    if probe is None:
        return Undecided("--probe")
    whole = Evidence(
        Source.PROBE, f"before a prompt of {probe.prompt_tokens:,} tokens is read: {probe.overhead_s:.3f} s"
    )
    if probe.overhead_s < FELT_S:  # an upper bound, whoever else was there
        return Clear(f"all that comes before reading a prompt takes {1e3 * probe.overhead_s:.0f} ms", (whole,))
    if not probe.was_idle:
        return Undecided("--probe while nobody else uses the server")
    reading_s = work.reading_s(probe)
    if probe.short_prompt_overhead_s is None or reading_s is None:
        return Undecided("--probe: no short prompt was answered, or none timed, so the network's part is not known")
    extra_s = max(0.0, probe.overhead_s - probe.short_prompt_overhead_s)
    short = Evidence(Source.PROBE, f"before a prompt of a few tokens is read: {probe.short_prompt_overhead_s:.3f} s")
    first_token_s = probe.overhead_s + reading_s
    if extra_s < FELT_S or extra_s < LARGE_PART * first_token_s:
        return Clear(
            f"the template and tokenizing of {probe.prompt_tokens:,} tokens take {1e3 * extra_s:.0f} ms", (whole, short)
        )
    tokenized = () if probe.tokenize_s is None else (Evidence(Source.PROBE, f"/tokenize: {probe.tokenize_s:.3f} s"),)
    return Finding(
        SLOW_TEMPLATE,
        f"the template and tokenizing of {probe.prompt_tokens:,} tokens take {extra_s:.2f} s of the "
        f"{first_token_s:.2f} s to the first token",
        (whole, short, *tokenized),
        confidence=Confidence.LIKELY,  # sending a longer prompt takes longer as well
        cost=Cost(extra_s, extra_s / first_token_s),
    )


RULES: Final = (Rule(SLOW_TEMPLATE.id, Item.TEMPLATE, _slow_template),)
