"""What happens before the first prompt token is computed: the chat template is filled in, and the text is tokenized."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

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

RULES: Final[tuple[Rule, ...]] = ()
