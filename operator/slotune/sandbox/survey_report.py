"""What a survey found in the model files, over its pod's log: facts, or what is wrong with each file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from slotune.llama.model_facts import ModelFacts
from slotune.sandbox.report_stream import frames, payloads

__all__ = ["SurveyError", "survey_frames", "survey_from_log"]

_KIND = "survey"


@dataclass(frozen=True, slots=True)
class SurveyError:
    """Why nothing is known of one model file."""

    code: Literal["NotFound", "InsideImage", "Unreadable"]
    path: str
    message: str
    """What is wrong, and the cure."""
    files: tuple[str, ...] = ()
    """GGUF files that lie beside it, or where it was looked for."""


_Found = dict[str, ModelFacts | SurveyError]
_FOUND: TypeAdapter[_Found] = TypeAdapter(_Found)


def survey_frames(found: Mapping[str, ModelFacts | SurveyError]) -> Iterator[bytes]:
    """Lines for the log."""
    return frames(_KIND, _FOUND.dump_json(dict(found)))


def survey_from_log(text: str) -> _Found | None:
    """What the log says, by variant; None when it is not all there."""
    payload = payloads(text, [_KIND])[_KIND]
    if not payload:
        return None
    try:
        return _FOUND.validate_json(payload)
    except ValidationError:
        return None
