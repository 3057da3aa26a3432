"""Reading what is worth having and not needed: what the caller may not see is left out, and said once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from slotune.controller.cluster import Cluster, ClusterError, ForbiddenError, NotFoundError, Object, Objects
from slotune.controller.kinds import Kind
from slotune.gathering.look_errors import right

__all__ = ["OptionalReads"]

T = TypeVar("T")


class OptionalReads:
    """Questions whose answer may be none.

    Args:
        cluster: who is asked.
        tell: gets one line for each thing that could not be read.
    """

    def __init__(self, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self._cluster, self._tell = cluster, tell
        self._told: set[str] = set()

    def note(self, line: str) -> None:
        """Say it, unless it was said."""
        if line not in self._told:
            self._told.add(line)
            self._tell(line)

    def lacks(self, missing: str, lost: str) -> None:
        """Say that a right is missing, and what is not known without it."""
        self.note(f"{lost} can't be seen: your account lacks the right to {missing}")

    async def get(self, kind: Kind, namespace: str | None, name: str, *, lost: str) -> Object | None:
        """One object; None when there is none, or it may not be read. ``lost``: what is then not known."""
        missing = right("get", kind, namespace)
        return await self._tried(self._cluster.get(kind, namespace, name), missing, lost)

    async def list(self, kind: Kind, namespace: str | None, fields: str = "", *, lost: str) -> Objects:
        """Several; none when the kind is not there, or they may not be read."""
        missing = right("list", kind, namespace)
        return await self._tried(self._cluster.list(kind, namespace, fields=fields), missing, lost) or []

    async def _tried(self, question: Awaitable[T], missing: str, lost: str) -> T | None:
        try:
            return await question
        except NotFoundError:
            return None
        except ForbiddenError:
            self.lacks(missing, lost)
        except ClusterError as error:
            self.note(f"{lost} can't be seen: {error}")
        return None
