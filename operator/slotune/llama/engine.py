"""Which llama-server runs a candidate: a binary, or the real llama.cpp server inside this Python.

Both take the same arguments (``Engine.command``), so everything above sees one engine. The embedded one is the
``xllamacpp`` wheel: llama.cpp's own HTTP server behind a Python class that reads neither flags nor environment;
``serve`` gives it llama-server's command line, log level, exit codes and signals.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from slotune.llama.engine_flags import ENGINE_FLAGS, EngineFlagError, apply_settings, parse_arguments

__all__ = [
    "EmbeddedEngineMissingError",
    "Engine",
    "EngineError",
    "EngineNotFoundError",
    "EngineNotRunnableError",
    "clean_environment",
    "find_engine",
    "serve",
]

TEARDOWN_LIMIT_S = 10.0
"""A wedged llama.cpp never ends its loop, and a real llama-server then ignores SIGTERM (ggml-org/llama.cpp#27388)."""

VERSION_LIMIT_S = 20.0
"""``llama-server --version`` initialises its GPU first; seconds on a cold driver."""

_INSTALL = "pip install 'slotune[engine]'"
_UNTRUSTED = re.compile(r"^(LLAMA_|AIP_|HF_TOKEN$)|^(https?|all|no|ftp)_proxy$", re.IGNORECASE)


class EngineError(Exception):
    """No engine can run; the message says which cure there is."""


class EngineNotFoundError(EngineError):
    """The path given for the engine does not exist, or ``auto`` found no engine at all."""


class EngineNotRunnableError(EngineError):
    """The path given for the engine is no executable file, or the system cannot start it."""


class EmbeddedEngineMissingError(EngineError):
    """The embedded engine was asked for, but the wheel that holds it is not installed."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One llama.cpp server build and how to start it."""

    kind: Literal["embedded", "binary"]
    build: str
    """As the engine names itself, e.g. ``b11549`` or ``11434 (abc1234)``; equal builds measure alike."""
    path: str | None = None
    """The executable; None for the embedded engine."""

    def command(self, args: Sequence[str]) -> list[str]:
        """The command line that serves with llama-server's arguments ``args``."""
        if self.path is not None:
            return [self.path, *args]
        # -P: a file called like a module in the current directory must not run instead of slotune.
        return [sys.executable, "-P", "-m", "slotune.llama.engine", *args]

    def describe(self) -> str:
        """Kind and build in one line: part of every trial's key, so it names no path."""
        return f"{'xllamacpp' if self.kind == 'embedded' else 'llama-server'} {self.build}"


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without what would change a benchmark behind its flags.

    Dropped: ``LLAMA_*`` (every flag has such a variable, and a Service called ``llama-arg`` makes some up), ``AIP_*``
    (llama-server then overrides its port), proxies, and the Hugging Face token, which a benchmark never needs.
    """
    return {name: value for name, value in environ.items() if not _UNTRUSTED.search(name)}


def find_engine(choice: str) -> Engine:
    """The engine for ``--engine``: ``auto`` (llama-server on PATH, else embedded), ``embedded``, or a path.

    Raises:
        EngineNotFoundError: the path does not exist, or ``auto`` found nothing.
        EngineNotRunnableError: the path is no executable, or does not answer ``--version``.
        EmbeddedEngineMissingError: ``embedded`` without the engine extra.
    """
    if choice == "embedded":
        return _embedded()
    if choice == "auto":
        if found := shutil.which("llama-server"):
            return _binary(Path(found))
        try:
            return _embedded()
        except EmbeddedEngineMissingError as error:
            raise EngineNotFoundError(
                f"engine auto: no llama-server on PATH and no embedded engine: put llama-server on PATH, or {_INSTALL}"
            ) from error
    return _binary(Path(choice).expanduser().absolute())  # a bare name would be looked for on PATH


def _embedded() -> Engine:
    if importlib.util.find_spec("xllamacpp") is None:
        raise EmbeddedEngineMissingError(f"engine embedded: the package xllamacpp is not installed: {_INSTALL}")
    return Engine("embedded", importlib.metadata.version("xllamacpp"))


def _binary(path: Path) -> Engine:
    if not path.exists():
        raise EngineNotFoundError(
            f"engine {path}: no such file: give the path of llama-server, or use auto or embedded"
        )
    if not path.is_file() or not os.access(path, os.X_OK):
        raise EngineNotRunnableError(f"engine {path}: not an executable file: name the llama-server binary itself")
    try:
        told = subprocess.run(  # noqa: S603 - the user named this very program as the engine
            [str(path), "--version"],
            env=clean_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineNotRunnableError(f"engine {path}: cannot run it with --version: {error}") from error
    text = told.stdout.decode(errors="replace")
    if told.returncode != 0:
        last = text.strip().splitlines()[-1:] or ["it printed nothing"]
        raise EngineNotRunnableError(
            f"engine {path}: --version ended with exit code {told.returncode}: {last[0][:300]}: is this llama-server, "
            "and are its libraries installed?"
        )
    version = re.search(r"^version: *(.+?) *$", text, re.MULTILINE)
    if version is None:
        raise EngineNotRunnableError(f"engine {path}: --version names no version: is this llama-server?")
    return Engine("binary", version[1], str(path))


def serve(argv: Sequence[str]) -> int:
    """Run the embedded llama-server with llama-server's own flags until SIGTERM or SIGINT; the exit code.

    0 after a signal and for ``--help``; 1 for a refused flag, a model that cannot be loaded or a port that is taken
    (the log on stderr says which, in llama-server's words); 2 when the engine extra is not installed. While the model
    loads, a signal ends the process at once, as it does a real llama-server.
    """
    if any(word in ("-h", "--help", "--usage") for word in argv):
        sys.stdout.write(_usage())
        return 0
    try:
        settings = parse_arguments(argv)
    except EngineFlagError as error:
        return _refuse(error)
    xllamacpp = _loaded()
    if xllamacpp is None:
        return 2
    params = xllamacpp.CommonParams()
    try:
        apply_settings(settings, params, xllamacpp)
    except EngineFlagError as error:
        return _refuse(error)

    sys.stderr.write(f"slotune engine: xllamacpp {importlib.metadata.version('xllamacpp')}\n")
    sys.stderr.flush()
    # The wheel holds the interpreter's lock while it loads: a Python handler would run minutes late.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        return 1  # its log has the cause, and "exiting due to …" as the last line

    with _signals_as_bytes(signal.SIGTERM, signal.SIGINT) as arrived:
        _wait_for_loop(server.listening_address)
        sys.stderr.write(f"slotune engine: serving {server.listening_address}\n")
        sys.stderr.flush()
        os.read(arrived, 1)
    # The destructor waits for llama.cpp's loop and holds the interpreter's lock meanwhile, so only a watchdog
    # outside Python can end a wedged one.
    faulthandler.dump_traceback_later(TEARDOWN_LIMIT_S, exit=True)
    del server
    faulthandler.cancel_dump_traceback_later()
    return 0


def _loaded() -> ModuleType | None:
    """The wheel's module; None, said on stderr with the cure, when it cannot be had."""
    try:
        return importlib.import_module("xllamacpp")  # 100 MB of native code, only this process needs it
    except ModuleNotFoundError:
        sys.stderr.write(f"slotune engine: the package xllamacpp is not installed: {_INSTALL}\n")
    except ImportError as error:  # it is there, but a library that it needs is not: a bare Debian has no libgomp
        sys.stderr.write(
            f"slotune engine: the package xllamacpp cannot be loaded ({error}): install the missing library "
            "(libgomp1 on Debian)\n"
        )
    return None


def _refuse(error: EngineFlagError) -> int:
    sys.stderr.write(f"{error}\n{_usage()}")
    return 1


def _usage() -> str:
    taken = " ".join(flag.names[0] for flag in ENGINE_FLAGS)
    return (
        f"slotune engine: the embedded llama-server takes what slotune sets: {taken}. "
        "For any other flag name a llama-server of your own with --engine PATH.\n"
    )


@contextlib.contextmanager
def _signals_as_bytes(*numbers: signal.Signals) -> Iterator[int]:
    """A descriptor that becomes readable when one of the signals arrives.

    A process-directed signal may land on any of llama.cpp's threads; ``signal.pause`` in this one would sleep on.
    After the block a signal ends the process at once: a second Ctrl-C is not held up by a slow teardown.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    previous = signal.set_wakeup_fd(writable)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    try:
        yield readable
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(previous)
        os.close(readable)
        os.close(writable)


def _wait_for_loop(address: str) -> None:
    """Return once llama.cpp's loop has answered a question.

    Its constructor comes back before the loop has begun, and a loop that is told to stop before it began never stops.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # An HTTPError is an answer too (--no-slots); a socket file or a lost connection is no reason not to serve.
    with contextlib.suppress(OSError), direct.open(f"{address}/slots", timeout=TEARDOWN_LIMIT_S):
        pass


if __name__ == "__main__":
    raise SystemExit(serve(sys.argv[1:]))
