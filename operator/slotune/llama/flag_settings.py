"""What a person stated, flag by flag, and what can't stay as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from slotune.llama.flag_cures import SECRET, looks_secret
from slotune.llama.flag_table import BY_NAME, Flag

__all__ = ["FALSE", "TRUE", "FlagProblem", "Setting"]

TRUE = frozenset({"on", "enabled", "true", "1"})
FALSE = frozenset({"off", "disabled", "false", "0"})


@dataclass(frozen=True, slots=True)
class FlagProblem:
    """One argument or variable that cannot stay as it is."""

    flag: str
    """As it was written."""
    what: str
    cure: str
    value: str | None = None

    def __str__(self) -> str:
        shown = self.flag if self.value is None else f"{self.flag} {self.value}"
        return f"{shown}: {self.what}; {self.cure}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One flag that was stated."""

    flag: Flag
    words: tuple[str, ...] = field(repr=False)
    """The arguments that state it, as they were written; may hold a secret."""
    values: tuple[str, ...] = field(default=(), repr=False)
    on: bool = True
    """False: the negation of a switch."""
    variable: str | None = None
    """Environment variable that states it; None: an argument does."""
    position: int | None = None
    """Index of its first word in the arguments; None: a variable states it."""

    @property
    def spelling(self) -> str:
        """As a person wrote it, without a value that stands in the same word."""
        return self.variable or self.words[0].partition("=")[0]

    @property
    def is_known(self) -> bool:
        """Whether it is a flag of today's llama-server."""
        return self.flag.name in BY_NAME

    @property
    def is_secret(self) -> bool:
        """Whether its value must never be stored or shown."""
        return self.flag.name in SECRET or (not self.is_known and looks_secret(self.spelling))
