"""``slotune diagnose``: look at a server, its log or both, check it, and say what was found.

The exit code is 0 whatever that is. A Deployment of a cluster is looked at by
:mod:`slotune.commands.diagnose_deployment`, which needs a package that a laptop may not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from slotune import __version__
from slotune.commands.diagnose_helps import Helps, read_helps
from slotune.commands.diagnose_watch import seconds_of, watching
from slotune.commands.exit_codes import ExitCode
from slotune.commands.writing import print_document
from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.contradictions import without_contradictions
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import ProbeFacts, ServerLook, Symptoms
from slotune.gathering.address import base_address
from slotune.gathering.door import SilentServerError, WrongKeyError
from slotune.gathering.log_file import read_log
from slotune.gathering.own_machine import look_at_process, process_behind
from slotune.gathering.server import look_at
from slotune.report.checkup import Examined, checkup_text
from slotune.report.checkup_document import checkup_document
from slotune.report.checkup_sections import sections_of
from slotune.tuning.errors import InvalidInputError

__all__ = ["Asked", "Looked", "announce", "diagnose", "only_one", "run_diagnosis"]

MOST_NAMES = 5
"""Servers of a log that an error lists."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed."""

    url: str | None = None
    log: str | None = None
    deployment: str | None = None
    namespace: str | None = None
    container: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    watch: str | None = None
    probe: bool = False
    api_key_file: Path | None = None
    nvidia_smi: Path | None = None
    proc: Path | None = None
    model: Path | None = None
    files: tuple[str, ...] = ()
    name: str | None = None
    gpu_class: str | None = None
    bandwidth: str | None = None
    price_per_hour: str | None = None
    everything: bool = False
    """The whole checklist, not only what it comes to."""

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            InvalidInputError: the first thing that is wrong.
        """
        if self.deployment is not None:
            other = "--url" if self.url is not None else "--log" if self.log is not None else None
            if other is not None:
                cure = "reads the logs of its pods, and asks them, by itself: leave it or --deployment out"
                raise InvalidInputError(f"{other} beside --deployment", None, cure)
        elif self.url is None and self.log is None:
            cure = "say where to look: --url URL, --log FILE (- for standard input), or --deployment NAME"
            raise InvalidInputError("diagnose", None, cure)
        else:
            for flag, value in (
                ("--namespace", self.namespace),
                ("--container", self.container),
                ("--context", self.context),
                ("--kubeconfig", self.kubeconfig),
            ):
                if value is not None:
                    raise InvalidInputError(flag, value, "is of a cluster: give --deployment NAME with it")
        self._check_asking()
        if self.log == "-" and "-" in self.files:
            raise InvalidInputError("--file", "-", "standard input holds the log: name a file for the manifest")

    def _check_asking(self) -> None:
        """Of what only a server can be asked. Raises InvalidInputError."""
        if self.watch is not None:
            seconds_of(self.watch)
        if self.url is not None or self.deployment is not None:
            return
        if self.watch is not None:
            raise InvalidInputError("--watch", self.watch, "a log can't be watched: give --url URL of its server")
        if self.probe:
            raise InvalidInputError("--probe", None, "a log can't be asked anything: give --url URL of its server")
        if self.api_key_file is not None:
            raise InvalidInputError("--api-key-file", self.api_key_file, "is for a server: give --url URL with it")


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of looking."""

    servers: tuple[Symptoms, ...]
    """At least one."""
    notes: tuple[str, ...] = ()
    """What could not be looked at."""
    how_to_choose: str = ""
    """How to look at one alone of several."""


def diagnose(asked: Asked, output: str) -> int:
    """Look at a running server, a log or both, and print what was found."""
    return run_diagnosis(asked, output, _look)


def run_diagnosis(asked: Asked, output: str, look: Callable[[Asked, Helps], Looked]) -> int:
    """Check what was typed, read the files beside it, look, judge, and print.

    Raises:
        InvalidInputError: something that was named can't be used.
    """
    asked.check()
    try:
        helps = read_helps(
            nvidia_smi=asked.nvidia_smi,
            proc=asked.proc,
            model=asked.model,
            api_key_file=asked.api_key_file,
            files=asked.files,
            name=asked.name,
            gpu_class=asked.gpu_class,
            bandwidth=asked.bandwidth,
            price_per_hour=asked.price_per_hour,
        )
        looked = look(asked, helps)
        for flag, path, of_what in (
            ("--nvidia-smi", asked.nvidia_smi, "machine"),
            ("--proc", asked.proc, "process"),
        ):
            if path is not None and len(looked.servers) > 1:
                cure = f"it is of one {of_what}, and there are {len(looked.servers)} servers: {looked.how_to_choose}"
                raise InvalidInputError(flag, path, cure)
        agreed = [without_contradictions(helps.added_to(symptoms)) for symptoms in looked.servers]
        examined = [_examine(symptoms) for symptoms, _ in agreed]
        left_out = [note for _, notes in agreed for note in notes]
        _print(examined, (*helps.notes, *looked.notes, *left_out), output, everything=asked.everything)
    except KeyboardInterrupt:
        sys.stderr.write("slotune: stopped; nothing was changed\n")
        return ExitCode.INTERRUPTED
    return ExitCode.FOUND


def only_one(flag: str, named: Sequence[str] | None) -> str | None:
    """What was named behind ``flag``. Raises InvalidInputError: it was given more than once."""
    if named is not None and len(named) > 1:
        cure = f"is given {len(named)} times: give one; files of one server go in as one: cat A B | slotune diagnose"
        raise InvalidInputError(flag, None, f"{cure} {flag} -")
    return named[0] if named else None


def _look(asked: Asked, helps: Helps) -> Looked:
    url = None if asked.url is None else base_address(asked.url)
    stories = () if asked.log is None else read_log("-" if asked.log == "-" else Path(asked.log))
    notes = [f"{story.source}: {note}" for story in stories for note in story.notes]
    if url is None:
        servers = tuple(Symptoms(story.source, log=story) for story in stories)
        return Looked(servers, tuple(notes), how_to_choose="give the log of one")
    if len(stories) > 1:
        names = ", ".join(story.source for story in stories[:MOST_NAMES])
        cure = f"it holds lines of {len(stories)} servers ({names}): give the log of the one at --url"
        raise InvalidInputError("--log", asked.log, cure)
    log = stories[0] if stories else None
    process = process_behind(url)
    before = None if process is None else look_at_process(process)
    try:
        look, probe = uvloop.run(_ask(url, helps.key, asked, notes.append))
    except SilentServerError as error:
        if log is None:
            raise
        notes.append(f"{url}: {error.cure}; what follows is from its log")
        refused = dict.fromkeys(error.silent_s, error.cure)
        look, probe = ServerLook(url, silent_s=error.silent_s, refused=refused), None
    after = None if process is None else look_at_process(process)
    host = None if before is None else HostFacts(before, after)
    return Looked((Symptoms(look.url, log=log, server=look, probe=probe, host=host),), tuple(notes))


async def _ask(
    url: str, key: str | None, asked: Asked, note: Callable[[str], None]
) -> tuple[ServerLook, ProbeFacts | None]:
    with watching(asked.watch, announce, note, probe=asked.probe) as watch:
        try:
            look = await look_at(url, key, watch=watch)
        except WrongKeyError as error:
            raise InvalidInputError(error.field, asked.api_key_file, error.cure) from error
    if watch is not None and look.metrics is None and look.slots is None and not look.silent_s:
        note("--watch had nothing to look at again: start the server with --metrics (and without --no-slots)")
    if not asked.probe or (watch is not None and watch.enough.is_set()):
        return look, None
    from slotune.gathering.probe import ProbeError, probe_server  # noqa: PLC0415  (half of a look's time)

    try:
        return look, await probe_server(url, key, look, announce=announce, note=note)
    except ProbeError as error:  # what the look found still stands
        note(str(error))
        return look, None


def announce(line: str) -> None:
    """Say it before it happens, where it does not get into what is printed."""
    sys.stderr.write(f"slotune: {line}\n")
    sys.stderr.flush()


def _examine(symptoms: Symptoms) -> Examined:
    return Examined(symptoms, check_up(symptoms, ALL_RULES), sections_of(symptoms))


def _print(examined: Sequence[Examined], notes: Sequence[str], output: str, *, everything: bool) -> None:
    if output == "table":
        console = Console(highlight=False)
        text = checkup_text(examined, width=console.width, notes=notes, everything=everything)
        console.print(text, soft_wrap=True)
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = checkup_document(examined, notes=notes, generated_at=now, version=__version__)
    print_document(document, output, stream=sys.stdout)
