"""Runs one command so that nothing of it outlives the process that asked for it, not even after kill -9.

    python -I -S leash.py PARENT_PID ADDRESS_SPACE_BYTES COMMAND...

It stands between slotune and the server because no flag on the server itself is enough: the kernel's parent-death
signal is lost when the command is a set-user-ID or capability binary, says nothing to the children of a wrapper script,
and fires when the *thread* that forked ends. The leash waits for that signal, asks whether its parent is really gone,
and then kills all that it started, adopted grandchildren included. It has no other job and imports nothing of slotune:
it starts in 20 ms and holds a few MB.

SIGTERM and SIGINT go on to the command; SIGQUIT kills everything now. Its exit status is the command's. On systems
without ``prctl`` it looks once a second.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Both from linux/prctl.h."""

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
"""As a shell exits when it cannot run a command."""


def main(argv: Sequence[str]) -> NoReturn:
    """Run ``argv`` as the module says; never returns."""
    parent, address_space, command = int(argv[0]), int(argv[1]), list(argv[2:])
    awaited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGALRM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    if not _prctl(PR_SET_PDEATHSIG, signal.SIGHUP):
        signal.setitimer(signal.ITIMER_REAL, 1, 1)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # it died before the line above
        os._exit(EXIT_NOT_FOUND)
    leash = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, address_space, leash)

    while True:
        number = signal.sigwait(awaited)
        if number == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                _kill_children(None)
                _end_like(status)
        elif number in (signal.SIGTERM, signal.SIGINT):
            os.kill(child, number)
        elif number == signal.SIGQUIT or os.getppid() != parent:
            _kill_children(child)
            _end_like(signal.SIGKILL)


def _become(command: list[str], address_space: int, leash: int) -> NoReturn:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the leash itself be killed
    if os.getppid() != leash:  # it died before the line above
        os._exit(EXIT_NOT_FOUND)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash would write tens of GB of weights to disk
    if address_space:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    # Python ignores these two, and an ignored signal stays ignored in the command.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execvp(command[0], command)  # noqa: S606 - running the command is the whole point
    except OSError as error:
        os.write(2, f"slotune: cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE)


def _prctl(option: int, value: int) -> bool:
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (AttributeError, OSError):  # not Linux
        return False


def _reap(child: int) -> int | None:
    """Collect all that ended; the wait status of ``child`` if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _kill_children(running: int | None) -> None:
    """Kill and collect children until there are none: those of a killed child become ours, being its subreaper.

    ``running`` is the command while it was not collected; its number belongs to nobody afterwards.
    """
    while True:
        listed = _children()
        for pid in listed if listed is not None else filter(None, [running]):
            os.kill(pid, signal.SIGKILL)  # works on one that has ended, too, until it is collected
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int] | None:
    """Direct children, or None where the kernel has no list."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return None


def _end_like(status: int) -> NoReturn:
    """Exit as the command did: with its code, or by its signal."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    # Only this one: a request to end that came too late must not become the reason.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


if __name__ == "__main__":
    main(sys.argv[1:])
