"""One llama-server as a child process: started, watched and ended by whoever holds it, and by nobody else.

The port is not chosen here. A port that was free a moment ago may not be now, so the server binds port 0 and the
kernel says which port *this* process listens on; a foreign server can never be measured by mistake. The log goes
straight to a file: a pipe would need this event loop to drain it while it measures milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from slotune.llama.engine import Engine, clean_environment
from slotune.llama.failures import Failure, classify_failure
from slotune.llama.log_lines import LogFacts, parse_log
from slotune.llama.server_http import LlamaServer, ServerExitedError, StartupTimeoutError, UnexpectedAnswerError
from slotune.sandbox.process_tree import descendants, listening_ports, peak_resident_bytes

__all__ = ["HOST", "LlamaProcess", "LlamaStartError", "ProcessStuckError", "new_alias"]

HOST = "127.0.0.1"
"""Servers under measurement are reachable from this machine only."""

LEASH = Path(__file__).with_name("leash.py")
LOG_FILE = "server.log"
POLL_S = 0.02
KILL_LIMIT_S = 5.0
"""SIGKILL works at once, except on a process that sleeps in a driver."""
MEMORY_INTERVAL_S = 5.0
"""The kernel keeps the peak; asking now and then only serves a server that crashes."""
TAIL_BYTES = 64 * 1024
"""More than llama-server logs from its start to any failure to start."""
HEAD_BYTES = 2 * 1024 * 1024
"""The facts of the start, with room for a chat template or two."""

_LISTENING = re.compile(r"listening on https?://\S+:(\d+)|server is listening, hostname: \S+, port: (\d+)")


class LlamaStartError(Exception):
    """The server did not become ready; ``failure`` is the diagnosis, ``log_tail`` the evidence."""

    def __init__(self, failure: Failure, log_tail: tuple[str, ...]) -> None:
        super().__init__(failure.sentence)
        self.failure = failure
        self.log_tail = log_tail


class ProcessStuckError(Exception):
    """The server survived SIGKILL: it hangs in a driver, and its GPU stays taken. Nothing can be measured there."""


def new_alias() -> str:
    """A model alias that no other server on this machine has."""
    return f"slotune-{secrets.token_hex(4)}"


class LlamaProcess:
    """A ready server inside ``async with``; stopped on the way out, on errors and on cancellation too.

    Args:
        engine: which build runs it.
        args: llama-server's arguments for one candidate, with ``--host`` :data:`HOST` and ``--port 0``.
        directory: gets ``server.log`` and an empty configuration directory; made if need be.
        alias: the ``--alias`` among ``args``; when given, the server must say that it has it.
        startup_limit_s: from start to /health 200.
        stop_limit_s: from SIGTERM to SIGKILL. llama-server drops running requests at SIGTERM, so seconds will do.
        address_space_bytes: ``RLIMIT_AS``; None for no limit. A GPU driver reserves far more than it uses: leave it
            None with a GPU.
        environ: replaces this process's environment.

    Raises (from ``__aenter__``):
        LlamaStartError: it ended, or was not ready in time; nothing is left running.
        UnexpectedAnswerError: what answers is not the server that was started.
    """

    def __init__(
        self,
        engine: Engine,
        args: Sequence[str],
        *,
        directory: Path,
        alias: str | None = None,
        startup_limit_s: float = 600.0,
        stop_limit_s: float = 10.0,
        address_space_bytes: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        self.log_path = directory / LOG_FILE
        self._args = tuple(args)
        self._directory = directory
        self._alias = alias
        self._startup_limit_s = startup_limit_s
        self._stop_limit_s = stop_limit_s
        self._address_space_bytes = address_space_bytes
        self._environ = os.environ if environ is None else environ
        self._popen: subprocess.Popen[bytes] | None = None
        self._server: LlamaServer | None = None
        self._memory_task: asyncio.Task[None] | None = None
        self._memory_peak: int | None = None

    @property
    def server(self) -> LlamaServer:
        """Control calls to the running server."""
        assert self._server is not None, "not started"
        return self._server

    @property
    def arguments(self) -> tuple[str, ...]:
        """llama-server's, as it is started."""
        return self._args

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return self.server.base_url

    @property
    def pid(self) -> int:
        """Of the process that holds the server; the server is below it."""
        assert self._popen is not None, "not started"
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return None if self._popen is None else self._popen.poll()

    @property
    def alive(self) -> bool:
        """Whether the server process runs; says nothing about whether it works."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def memory_peak_bytes(self) -> int | None:
        """Most host memory that was resident, mapped weights included, as last seen; None when unknown."""
        self._note_memory()
        return self._memory_peak

    def log_text(self) -> str:
        """The log: all of it, or its first :data:`HEAD_BYTES` and its end."""
        with self.log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(0)
            if size <= HEAD_BYTES + TAIL_BYTES:
                return log.read().decode(errors="replace")
            head = log.read(HEAD_BYTES)
            log.seek(-TAIL_BYTES, os.SEEK_END)
            return (head + b"\n[...]\n" + log.read()).decode(errors="replace")

    def log_tail(self, lines: int = 40) -> tuple[str, ...]:
        """The last lines of the log."""
        return tuple(self._tail_text().splitlines()[-lines:])

    def log_facts(self) -> LogFacts:
        """What the log says so far."""
        return parse_log(self.log_text())

    def failure(self, *, wedged: bool = False, limit_s: float | None = None) -> Failure:
        """The diagnosis of a server that crashed or hung after it had been ready."""
        return classify_failure(self.exit_code, self._tail_text(), wedged=wedged, limit_s=limit_s)

    async def __aenter__(self) -> Self:
        self._start()
        try:
            await self._become_ready()
            self._memory_task = asyncio.create_task(self._watch_memory())
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End the server; harmless when it has ended. A cancellation meanwhile kills it at once, then goes on.

        Raises:
            ProcessStuckError: it could not be killed.
        """
        popen = self._popen
        if popen is None:
            return
        if self._memory_task is not None:
            self._memory_task.cancel()
        self._note_memory()
        try:
            for number, limit_s in ((signal.SIGTERM, self._stop_limit_s), (signal.SIGQUIT, KILL_LIMIT_S)):
                if popen.poll() is not None:
                    break
                popen.send_signal(number)
                await self._ended_within(limit_s)
        finally:
            self._kill()
            if self._server is not None:
                await self._server.__aexit__(None, None, None)

    def _start(self) -> None:
        assert self._popen is None, "a LlamaProcess starts once"
        configuration = self._directory / "config"
        configuration.mkdir(parents=True, exist_ok=True)
        environ = clean_environment(self._environ)
        # An INI file there changes a benchmark without a trace in the arguments. HOME stays: the GPU driver's cache of
        # compiled kernels lives in it, and a new one at each start would be measured as a slow first request.
        environ["XDG_CONFIG_HOME"] = str(configuration)
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(self._address_space_bytes or 0)]
        with self.log_path.open("wb") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - the engine was named by the user, no shell is involved
                [*leash, *self.engine.command(self._args)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,  # a terminal's Ctrl-C is for slotune, which then stops the server in order
            )

    async def _become_ready(self) -> None:
        deadline = time.monotonic() + self._startup_limit_s
        try:
            port = await self._port(deadline)
            self._server = LlamaServer(f"http://{HOST}:{port}")
            await self._server.wait_ready(deadline - time.monotonic(), lambda: self.alive)
        except ServerExitedError as error:
            raise LlamaStartError(self.failure(), self.log_tail()) from error
        except StartupTimeoutError as error:
            failure = classify_failure(None, self._tail_text(), timed_out=True, limit_s=self._startup_limit_s)
            raise LlamaStartError(failure, self.log_tail()) from error
        if self._alias is not None:
            named = (await self._server.model()).id
            if named != self._alias:
                raise UnexpectedAnswerError(f"{self.base_url} serves {named!r}, not the server that was started")

    async def _port(self, deadline: float) -> int:
        while True:
            if not self.alive:
                raise ServerExitedError("the server ended before it listened")
            if ports := listening_ports(descendants(self.pid)):
                return ports[0]
            # Without /proc, or with a binary whose descriptors are hidden: the log says it once the model is loaded.
            if told := _LISTENING.search(self._tail_text()):
                return int(told[1] or told[2])
            if time.monotonic() >= deadline:
                raise StartupTimeoutError("the server did not listen in time")
            await asyncio.sleep(POLL_S)

    async def _ended_within(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self.alive and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel sets no event; this works in any loop
            await asyncio.sleep(POLL_S)

    def _kill(self) -> None:
        """Make sure that it is gone. Blocks, for it must work while the event loop is being torn down."""
        popen = self._popen
        if popen is None or popen.poll() is not None:
            return
        popen.send_signal(signal.SIGQUIT)
        try:
            popen.wait(KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(popen.pid, signal.SIGKILL)  # its own group: it was started as the leader of a session
            try:
                popen.wait(KILL_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise ProcessStuckError(f"process {popen.pid} survived SIGKILL: see {self.log_path}") from None

    def _tail_text(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace")

    async def _watch_memory(self) -> None:
        while self.alive:
            self._note_memory()
            await asyncio.sleep(MEMORY_INTERVAL_S)

    def _note_memory(self) -> None:
        if self.alive and (peak := peak_resident_bytes(descendants(self.pid))) is not None:
            self._memory_peak = max(peak, self._memory_peak or 0)
