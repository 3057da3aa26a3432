"""Why a comparison could not be made, one class per cause that somebody acts on."""

from __future__ import annotations

__all__ = [
    "ContextTooSmallError",
    "DamagedAnswerError",
    "OtherModelError",
    "QualityError",
    "TooFewPromptsError",
    "UnfitServerError",
]


class QualityError(Exception):
    """Quality could not be measured; subclasses say why. No message has anything of a prompt in it."""


class UnfitServerError(QualityError):
    """The server can't be asked for probabilities: too old a build, or another kind of server. A newer image helps."""


class DamagedAnswerError(QualityError):
    """What should be probabilities are none (not a number, or more than 1 in sum): weights or KV cache are damaged.

    Of a candidate this is a verdict, see ``verdict.quality_gate.judge_damaged``; of a reference there is none to have.
    """


class OtherModelError(QualityError):
    """The candidate has other tokens than the reference: it is another model altogether, so nothing can be compared."""


class ContextTooSmallError(QualityError):
    """The server's context does not hold the longest prompt of the reference."""

    def __init__(self, needed: int, context: int | None = None) -> None:
        has = "" if context is None else f", and has {context}"
        super().__init__(f"the server needs a context of {needed} tokens to walk through the reference{has}")
        self.needed = needed
        self.context = context


class TooFewPromptsError(QualityError):
    """Fewer than two prompts are left to compare on."""
