"""Input that can't be used, found while manifests become a problem. Each says the field, the value and the cure."""

from __future__ import annotations

__all__ = ["InvalidInputError"]


class InvalidInputError(Exception):
    """Something that the user named can't be used; nothing was started or changed."""

    def __init__(self, field: str, value: object, cure: str) -> None:
        self.field, self.value, self.cure = field, value, cure
        shown = "" if value is None else f" is {value}"
        super().__init__(f"{field}{shown}: {cure}")
