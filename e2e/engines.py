"""A real llama-server with flags of a test's choice, people who use it, and what ``slotune diagnose`` says of it."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from slotune.llama.engine import find_engine
from slotune.sandbox.process import HOST, LlamaProcess, new_alias

__all__ = ["Diagnosis", "Running", "cpu_ticks", "diagnose", "running", "stopped", "text_of"]

WORDS = tuple(
    "river stone cloud paper window garden music bridge winter letter silver mountain candle forest market harbor "  # noqa: SIM905 (a list of words reads as one)
    "engine yellow morning silence journey captain village orange shadow copper feather lantern meadow compass".split()
)
"""About one token each for the models used here."""
LONGEST_S = 120.0


def text_of(words: int, seed: object) -> str:
    """So many words, others for every seed."""
    chosen = random.Random(repr(seed))  # a test's text, not a secret
    return " ".join(chosen.choice(WORDS) for _ in range(words))


@dataclass
class Running:
    """One server and its users."""

    url: str
    log_path: Path
    pid: int
    statuses: list[int] = field(default_factory=list)
    """Of every answer so far."""

    async def ask(self, client: httpx.AsyncClient, prompt: str, tokens: int, **more: Any) -> int:
        """One request to its end; the HTTP status."""
        body = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": True} | more
        answer = await client.post("/completion", json=body)
        self.statuses.append(answer.status_code)
        return answer.status_code

    async def chat(
        self, client: httpx.AsyncClient, messages: Sequence[dict[str, str]], tokens: int, *, stream: bool
    ) -> str:
        """One turn of a conversation, as a chat's client asks for it; the text of the answer."""
        body = {"messages": list(messages), "max_tokens": tokens, "ignore_eos": True, "stream": stream}
        # The server closes a connection behind a stream, which a client that asks at once may not have seen yet.
        headers = {"Connection": "close"} if stream else {}
        async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            self.statuses.append(answer.status_code)
            said = await answer.aread()
        if not stream:
            return str(json.loads(said)["choices"][0]["message"]["content"] or "")
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith(b"data: {")]
        return "".join(part["delta"].get("content") or "" for event in events for part in event["choices"])

    async def until_busy(self, client: httpx.AsyncClient, slots: int) -> None:
        """Wait until so many slots are at work."""
        deadline = time.monotonic() + LONGEST_S
        while True:
            shown = (await client.get("/slots")).json()
            if sum(slot["is_processing"] for slot in shown) >= slots:
                return
            assert time.monotonic() < deadline, f"{slots} slots were never at work at once: {shown}"

    @asynccontextmanager
    async def used_by(self, users: int, prompt: Any, tokens: int, **more: Any) -> AsyncIterator[None]:
        """``users`` who ask again as soon as they are answered; ``prompt(user, turn)`` is what they ask. When the block
        is entered every one of them has been answered once."""
        answered = [asyncio.Event() for _ in range(users)]

        async def user(number: int, client: httpx.AsyncClient) -> None:
            turn = 0
            while True:
                await self.ask(client, prompt(number, turn), tokens, **more)
                answered[number].set()
                turn += 1

        limits = httpx.Limits(max_connections=users, max_keepalive_connections=users)
        async with httpx.AsyncClient(base_url=self.url, timeout=LONGEST_S, limits=limits) as client:
            tasks = [asyncio.create_task(user(number, client)) for number in range(users)]
            everybody = asyncio.gather(*(one.wait() for one in answered))
            try:
                racing: list[asyncio.Future[Any]] = [everybody, *tasks]
                await asyncio.wait(racing, timeout=LONGEST_S, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        await task
                assert everybody.done(), f"not every user was answered within {LONGEST_S} s: {self.statuses}"
                yield
            finally:
                everybody.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(everybody, *tasks, return_exceptions=True)


@asynccontextmanager
async def running(model: Path, directory: Path, *flags: str) -> AsyncIterator[Running]:
    """A server of ``model`` with ``flags`` and its log; it is stopped at the end."""
    alias = new_alias()
    stated = ["--model", str(model), "--alias", alias, "--host", HOST, "--port", "0", "--metrics", "--slots"]
    process = LlamaProcess(
        find_engine("embedded"), [*stated, *flags], directory=directory, alias=alias, startup_limit_s=60
    )
    async with process:
        yield Running(process.server.base_url, process.log_path, process.pid)


def cpu_ticks(pid: int) -> dict[int, int]:
    """CPU time so far of each thread of a process and of its children."""
    ticks = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        ticks[int(task.name)] = int(fields[11]) + int(fields[12])
        for child in (task / "children").read_text().split():
            ticks |= cpu_ticks(int(child))
    return ticks


@contextmanager
def stopped(thread: int) -> Iterator[None]:
    """Hold one thread of a server, as a driver that never answers does: its others go on."""
    _ptrace(_SEIZE, thread)
    try:
        _ptrace(_INTERRUPT, thread)
        os.waitpid(thread, _WALL)
        yield
    finally:
        _ptrace(_DETACH, thread)


_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
"""Requests of ptrace(2): unlike a signal, they stop one thread and not its process."""
_WALL = 0x40000000
"""waitpid(2): a thread that is no child too."""


def _ptrace(request: int, thread: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_long(request), ctypes.c_long(thread), ctypes.c_void_p(0), ctypes.c_void_p(0))
    if libc.ptrace(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace({request}, {thread}): {os.strerror(number)}")


@dataclass(frozen=True)
class Diagnosis:
    """What the command printed."""

    document: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Of the one server, as they stand."""
        (server,) = self.document["servers"]
        found: list[dict[str, Any]] = server["findings"]
        return found

    @property
    def ids(self) -> list[str]:
        """Identifiers, the first finding first."""
        return [one["id"] for one in self.findings]

    @property
    def sentence(self) -> str:
        """Of the first finding."""
        return str(self.findings[0]["sentence"]) if self.findings else ""

    @property
    def alarms(self) -> list[str]:
        """What stands above ``Info``."""
        return [f"{one['id']} {one['sentence']}" for one in self.findings if one["severity"] != "Info"]


async def diagnose(*arguments: str) -> Diagnosis:
    """Run ``slotune diagnose`` as a person does; it must end with 0."""
    command: Sequence[str] = (sys.executable, "-m", "slotune.cli", "diagnose", *arguments, "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), LONGEST_S)
    assert process.returncode == 0, err.decode()
    return Diagnosis(json.loads(out))
