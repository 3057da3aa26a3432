"""Which slot a request gets, and how much of its prompt is there already.

Prompts are a group's shared prefix and then something unique, so the longest common prefix of two prompts is the
prefix length when they are of one group, and nothing otherwise.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Slots"]

SIMILARITY = 0.10
"""``-sps``: an idle slot is preferred when it shares more than this part of the new prompt (b11434)."""
LEAST_KEPT = 0.25
"""A host cache entry is ignored when less than this part of it would be kept (b11434)."""
NOTHING = -1


class Slots:
    """Idle slots in the order of their last use, what each still holds, and the prompt cache in host memory."""

    def __init__(self, slots: int, *, reuse: bool, host_tokens: float, save_idle: bool) -> None:
        self.idle: OrderedDict[int, None] = OrderedDict((slot, None) for slot in range(slots))
        self.reuse = reuse
        self.host_tokens = host_tokens if reuse else 0.0
        self.save_idle = save_idle and self.host_tokens > 0
        self.group = [NOTHING] * slots
        self.held = [0] * slots
        self.saved = [False] * slots
        self.copied = 0
        """Tokens copied to or from the host by the last :meth:`take`."""
        self._host: OrderedDict[int, list[int]] = OrderedDict()
        self._host_used = 0

    def take(self, group: int, prompt: int, prefix: int) -> tuple[int, int]:
        """(slot, cached tokens) for a prompt: the most similar idle slot, else the one unused for longest."""
        self.copied = 0
        if self.save_idle:
            for slot in self.idle:
                self._save(slot)
        slot = NOTHING
        if self.reuse and prefix > SIMILARITY * prompt:
            slot = next((s for s in self.idle if self.group[s] == group), NOTHING)
        if slot == NOTHING:
            slot = next(iter(self.idle))
            if self.host_tokens:
                self._save(slot)
                self._load(slot, group, prefix)
        del self.idle[slot]
        cached = min(prefix, prompt - 1) if self.reuse and self.group[slot] == group else 0
        self.group[slot], self.held[slot], self.saved[slot] = group, prompt, False
        return slot, cached

    def release(self, slot: int, tokens: int, *, lost: bool = False) -> None:
        """A slot is idle again and holds ``tokens``; nothing when its sequence was lost."""
        self.held[slot] = 0 if lost else tokens
        if lost:
            self.group[slot] = NOTHING
        self.idle[slot] = None

    def forget_idle(self) -> int:
        """Purge what idle slots hold, for a pool that is full; answers the tokens freed."""
        freed = 0
        for slot in self.idle:
            freed += self.held[slot]
            self.held[slot], self.group[slot] = 0, NOTHING
        return freed

    def _save(self, slot: int) -> None:
        tokens = self.held[slot]
        if self.group[slot] == NOTHING or self.saved[slot] or not 0 < tokens <= self.host_tokens:
            return
        self._host.setdefault(self.group[slot], []).append(tokens)
        self._host.move_to_end(self.group[slot])
        self._host_used += tokens
        self.saved[slot] = True
        self.copied += tokens
        while self._host_used > self.host_tokens:
            oldest = next(iter(self._host))
            self._drop(oldest)

    def _load(self, slot: int, group: int, prefix: int) -> None:
        """Loading is a move: the entry leaves the host."""
        entries = self._host.get(group)
        if not entries or prefix < LEAST_KEPT * entries[0]:
            return
        self.copied += entries[0]
        self.group[slot] = group
        self._drop(group)

    def _drop(self, group: int) -> None:
        entries = self._host[group]
        self._host_used -= entries.pop(0)
        if not entries:
            del self._host[group]
