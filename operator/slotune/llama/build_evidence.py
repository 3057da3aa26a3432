"""Which build an image that does not say is taken for: the newest one that takes the flags that it runs with.

A server that runs today takes its own flags. So ``-fa`` without a value, or ``--no-mmap``, says more about the build
than a guess does; and whatever is assumed is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from slotune.llama.build_defaults import NEWEST_KNOWN, BuildDefaults, defaults_of
from slotune.llama.flag_history import FLASH_ATTENTION_VALUE, FORMER, REMOVED_FLAGS
from slotune.llama.flag_reading import read
from slotune.llama.flag_settings import Setting
from slotune.llama.flag_table import canonical_spelling

__all__ = ["defaults_for"]


def defaults_for(args: Sequence[str], env: Mapping[str, str], build: int | None) -> BuildDefaults:
    """Defaults of a server's build; of an unknown one (None) those that are assumed, with a note.

    Args:
        args: after the program's name.
        env: the container's variables.
        build: number of the build, where anything says it.
    """
    reading = read(args, env, None)
    newest = min(_newest_with(reading.settings), default=None)
    if build is not None or newest is None:
        return defaults_of(build)
    latest, spelling = newest
    if len(read(args, env, latest).problems) > len(reading.problems):
        return defaults_of(None)  # it has flags of later builds, too, so no build is known to take them all
    early = defaults_of(latest)
    note = (
        f"Nothing says which build of llama.cpp the image is of. {spelling} is known up to b{latest}, so defaults and "
        f"rules of b{latest} are assumed: an image whose tag has the build, such as server-b{NEWEST_KNOWN}, leaves "
        "nothing to assume."
    )
    return replace(early, notes=(note, *early.notes))


def _newest_with(settings: Sequence[Setting]) -> Iterator[tuple[int, str]]:
    """Newest build that is known to take each form that later ones refuse, with the form."""
    for setting in settings:
        if setting.position is None:
            continue
        name = canonical_spelling(setting.words[0])
        if name in REMOVED_FLAGS:
            yield REMOVED_FLAGS[name].present, setting.spelling
        elif name in FORMER:
            yield FORMER[name].absent - 1, setting.spelling
        elif setting.flag.name == "-fa" and len(setting.words) == 1:
            yield FLASH_ATTENTION_VALUE.absent, f"{setting.spelling} without a value"
