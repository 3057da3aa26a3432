"""``slotune survey``: what mounted model files are, for the operator to read from the log.

Each file is read whole, for its digest: what is measured holds for the bytes that it was measured with. Nothing is kept
from one survey to the next.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from slotune.llama.gguf_facts import UnreadableModelError, read_facts
from slotune.llama.model_facts import ModelFacts
from slotune.sandbox.survey_report import SurveyError, survey_frames
from slotune.tuning.errors import InvalidInputError

__all__ = ["survey"]

MOST_FILES = 20
"""GGUF files that an error lists."""
MOST_LOOKED_AT = 10_000
"""Entries of a directory that are looked at to find them."""


def survey(models: Sequence[str], inside_image: Sequence[str] = ()) -> int:
    """Print what is known of each ``NAME=PATH``. 0 also when files are missing or broken: that is what was found.

    Args:
        models: variants and their files.
        inside_image: names of variants that no volume of the pod holds.
    """
    found = {name: _look_at(path, name in inside_image) for name, path in map(_named, models)}
    for line in survey_frames(found):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


def _named(model: str) -> tuple[str, Path]:
    name, equals, path = model.partition("=")
    if not (name and equals and path):
        raise InvalidInputError("--model", model, "must be NAME=PATH")
    return name, Path(path)


def _look_at(path: Path, inside_image: bool) -> ModelFacts | SurveyError:
    if inside_image:
        return SurveyError(
            "InsideImage",
            str(path),
            f"{path} is on no volume of the pod, so it is a file of the server's image, which slotune can't read: "
            "mount the model from a claim, an image volume, or an emptyDir that an init container fills",
        )
    try:
        if not path.is_file():
            return _missing(path)
        return read_facts(path)
    except UnreadableModelError as error:
        return SurveyError("Unreadable", str(path), str(error))
    except OSError as error:
        cure = "let the pod's user read it (securityContext.runAsUser or fsGroup)"
        return SurveyError("Unreadable", str(path), f"{path}: {error.strerror or error}: {cure}")


def _missing(path: Path) -> SurveyError:
    place = next((parent for parent in path.parents if parent.is_dir()), Path("/"))
    files = _files_in(place)
    there = f"there are {', '.join(files)}" if files else "there is no GGUF file"
    return SurveyError("NotFound", str(path), f"{path} is not there; in {place} {there}: correct spec.models", files)


def _files_in(place: Path) -> tuple[str, ...]:
    names = []
    for number, entry in enumerate(place.iterdir()):
        if entry.suffix == ".gguf":
            names.append(entry.name)
        if number >= MOST_LOOKED_AT:
            break
    return tuple(sorted(names)[:MOST_FILES])
