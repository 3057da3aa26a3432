"""Who owns a field, in the API server's own words.

Server-side apply without force answers 409 with lines such as ``conflict with "kubectl-client-side-apply" using
apps/v1: .spec.template.spec.containers[name="llama"].args``; of several the first is enough for a person to begin with.

With 409 it also answers that the object is another one, or another version of it, than the one that was seen. That is
no matter of owners: whoever looks again knows more.
"""

from __future__ import annotations

import re

from slotune.controller.cluster import ConflictError
from slotune.rollout.facts import Conflict

__all__ = ["conflict_of"]

_MANAGER = re.compile(r'conflicts? with "([^"]+)"')
_OF_OWNERS = "Apply failed"
_FIELD = re.compile(r"(\.(?:spec|metadata)\.[^\s,]+)")


def conflict_of(error: ConflictError) -> Conflict | None:
    """The manager and the field of a refused apply; None when it was refused for what was seen being too old."""
    manager, field = _MANAGER.search(error.message), _FIELD.search(error.message)
    if manager is None and not error.message.startswith(_OF_OWNERS):
        return None
    return Conflict(manager[1] if manager else "another manager", field[1] if field else ".spec.template")
