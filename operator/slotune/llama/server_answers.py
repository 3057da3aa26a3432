"""What llama-server's answers to /props, /slots, /v1/models and /metrics say. Reading only, no network.

Endpoints differ between builds, so what a build leaves out is None, unknown names do no harm, and only an answer that
cannot be a llama-server's is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotune.llama.sampling_values import sampling_values
from slotune.llama.template_facts import TemplateFacts, template_facts

__all__ = [
    "MalformedAnswerError",
    "Metrics",
    "ModelMeta",
    "Props",
    "Slot",
    "parse_metrics",
    "parse_model",
    "parse_props",
    "parse_slots",
]

EXCERPT = 300
"""Characters of a foreign answer that an error message shows."""
LARGEST_SAMPLE = 1e15
"""Of /metrics: a billion tokens a second come to less in ten days, and no server is that fast."""
LARGEST_COUNT = 10**15
"""Of slots, tokens, weights and bytes: a thousand times the largest model."""


_SAMPLE = re.compile(r"^(?:llamacpp[:_])?([A-Za-z_][\w:]*)(\{[^}]*\})?\s+(\S+)(?:\s+-?\d+)?\s*$")


class MalformedAnswerError(ValueError):
    """The body is not what any llama-server answers here; the message shows its beginning."""


@dataclass(frozen=True, slots=True)
class Props:
    """/props: what the server believes that it is."""

    total_slots: int
    context_per_slot: int
    """Tokens; the whole pool with a unified cache."""
    model_path: str
    model_alias: str
    build: str
    metrics_enabled: bool
    slots_enabled: bool
    sampling: Mapping[str, object] = field(default_factory=dict)
    """What requests run with that ask for nothing else; see :func:`sampling_values`."""
    template: TemplateFacts | None = None
    """Of the chat template; None when this build does not show it."""
    sleeping: bool = False
    """Idle for so long that the weights were let go (``--sleep-idle-seconds``)."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of /slots. None: this build does not say, or the slot has had no task yet."""

    id: int
    context: int
    processing: bool
    speculative: bool | None = None
    task: int | None = None
    prompt_tokens_processed: int | None = None
    decoded: int | None = None
    prompt_tokens: int | None = None
    """Of the task that it works on, or had last."""
    cached_tokens: int | None = None
    """Those of them that were in its cache."""
    sampling: Mapping[str, object] = field(default_factory=dict)
    """What that task asked for; see :func:`sampling_values`."""


@dataclass(frozen=True, slots=True)
class ModelMeta:
    """/v1/models: facts of the loaded weights."""

    id: str
    vocabulary: int | None = None
    context_trained: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None
    embedding: int | None = None
    """Elements of a row of the input table."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """/metrics. ``values`` has every sample that can be true under its name without ``llamacpp:``, labels in braces."""

    values: Mapping[str, float]
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Samples that can't be true, as they came: ``-nan``, ``-7``."""

    def get(self, name: str) -> float | None:
        """A sample, or None when this build has none or had nothing to divide by (``nan``)."""
        return self.values.get(name)

    @property
    def processing(self) -> int | None:
        """Busy slots."""
        return _whole(self.get("requests_processing"))

    @property
    def deferred(self) -> int | None:
        """Requests that wait for a slot."""
        return _whole(self.get("requests_deferred"))

    @property
    def decodes(self) -> int | None:
        """Calls of llama_decode since the start: the server's heartbeat under load."""
        return _whole(self.get("n_decode_total"))


def parse_props(body: Any) -> Props:
    """/props. Raises MalformedAnswerError."""
    try:
        settings = body["default_generation_settings"]
        params = settings.get("params", settings)  # one level less before 2025
        template = body.get("chat_template")
        return Props(
            total_slots=_integer(body["total_slots"]),
            context_per_slot=_integer(settings["n_ctx"]),
            model_path=str(body.get("model_path", "")),
            model_alias=str(body.get("model_alias", "")),
            build=str(body.get("build_info", "")),
            metrics_enabled=bool(body.get("endpoint_metrics", False)),
            slots_enabled=bool(body.get("endpoint_slots", False)),
            sampling=sampling_values(params) if isinstance(params, dict) else {},
            template=template_facts(template) if isinstance(template, str) and template else None,
            sleeping=body.get("is_sleeping") is True,
        )
    except _NOT_OURS as error:
        raise _malformed("props", body, error) from error


def parse_slots(body: Any) -> tuple[Slot, ...]:
    """/slots. Raises MalformedAnswerError."""
    try:
        if not isinstance(body, list):
            raise TypeError("expected a list")
        return tuple(_slot(entry) for entry in body)
    except _NOT_OURS as error:
        raise _malformed("slots", body, error) from error


def parse_model(body: Any) -> ModelMeta:
    """The first entry of /v1/models. Raises MalformedAnswerError."""
    try:
        entry = body["data"][0]
        meta = entry.get("meta") or {}
        return ModelMeta(
            id=str(entry["id"]),
            vocabulary=_count(meta.get("n_vocab")),
            context_trained=_count(meta.get("n_ctx_train")),
            parameters=_count(meta.get("n_params")),
            size_bytes=_count(meta.get("size")),
            embedding=_count(meta.get("n_embd")),
        )
    except _NOT_OURS as error:
        raise _malformed("models", body, error) from error


def parse_metrics(text: str) -> Metrics:
    """/metrics, Prometheus text. Lines that are no samples are left out.

    Whatever llama-server counts begins at 0, so what is negative is as little a sample as what is not finite.
    """
    values: dict[str, float] = {}
    unusable: dict[str, str] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        name = match[1] + (match[2] or "")
        if math.isfinite(value) and 0 <= value <= LARGEST_SAMPLE:
            values[name] = value
        else:
            unusable[name] = match[3]
    return Metrics(values, unusable)


_NOT_OURS = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)


def _slot(entry: Mapping[str, Any]) -> Slot:
    # An array since b11434, an object before and in the documentation.
    next_token = entry.get("next_token")
    if isinstance(next_token, list):
        next_token = next_token[0] if next_token else None
    params = entry.get("params")
    speculative = entry.get("speculative")
    return Slot(
        id=_integer(entry["id"]),
        context=_integer(entry["n_ctx"]),
        # A number called state before 2025.
        processing=bool(entry["is_processing"] if "is_processing" in entry else entry["state"]),
        speculative=speculative if isinstance(speculative, bool) else None,
        task=_count(entry.get("id_task", entry.get("task_id"))),
        prompt_tokens_processed=_count(entry.get("n_prompt_tokens_processed")),
        decoded=_count(next_token.get("n_decoded")) if next_token else None,
        prompt_tokens=_count(entry.get("n_prompt_tokens")),
        cached_tokens=_count(entry.get("n_prompt_tokens_cache")),
        sampling=sampling_values(params) if isinstance(params, dict) else {},
    )


def _malformed(what: str, body: Any, error: Exception) -> MalformedAnswerError:
    return MalformedAnswerError(f"{what}: not a llama-server's answer ({error!r}): {str(body)[:EXCERPT]}")


def _integer(value: Any) -> int:
    """What has to be there. Raises ValueError, TypeError or OverflowError."""
    number = int(value)
    if abs(number) > LARGEST_COUNT:
        raise ValueError(f"{number:.3g} is more than there can be")
    return number


def _count(value: object) -> int | None:
    """A number of things; None for what is none, such as the task -1 of a slot that never had one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= LARGEST_COUNT else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
