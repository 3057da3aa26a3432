"""Why a server is not tuned, and what is looked at to find out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.llama.flag_reading import FlagProblem, Setting
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.pod_reading import PodReading

__all__ = ["Refusal", "RefusedFlagsError", "RefusedServerError", "ServerPod"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a server is not tuned."""

    reason: str
    """CamelCase word, for a condition."""
    field: str
    """Where it stands, from the top of the Deployment or of ``spec.template``."""
    value: str | None
    """What stands there; None when something is missing."""
    cure: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" is {self.value}"
        return f"{self.field}{shown}: {self.cure}"


class RefusedServerError(InvalidInputError):
    """A server that slotune does not tune; has every reason."""

    def __init__(self, found: Sequence[Refusal]) -> None:
        first = found[0]
        super().__init__(first.field, first.value, first.cure)
        self.args = ("\n".join(str(refusal) for refusal in found),)
        self.refusals = tuple(found)


class RefusedFlagsError(InvalidInputError):
    """Arguments that llama-server does not take, or that nothing can be measured with; has all of them."""

    def __init__(self, field: str, problems: Sequence[FlagProblem]) -> None:
        super().__init__(field, None, "; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)

    def also_in(self, other: RefusedFlagsError) -> RefusedFlagsError | None:
        """Only what ``other`` has against the same arguments, too; None when that is nothing."""
        common = [problem for problem in self.problems if problem in other.problems]
        return RefusedFlagsError(self.field, common) if common else None


@dataclass(frozen=True, slots=True)
class ServerPod:
    """What the checks look at: a server's pod, with whatever is known of it."""

    template: PodTemplate
    named: str | None
    """``spec.container``."""
    container: Container | None
    """llama-server's; None when it can't be told."""
    deployment: Mapping[str, Any]
    """Empty when there is none yet."""
    gpu_resource: str | None
    claim_templates: Mapping[str, Mapping[str, Any]]
    reading: PodReading | None
    config_maps: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Text by key, by name, as far as they are known."""
    settings: tuple[Setting, ...] = field(repr=False)

    @property
    def where(self) -> str:
        """How a sentence begins that is about the server."""
        return f"container {self.container.name}" if self.container is not None else "spec.template"

    def stated(self, *flags: str) -> Iterator[tuple[Setting, str]]:
        """Each setting of the flags that is on, with its field."""
        for setting in self.settings:
            if setting.flag.name in flags and setting.on:
                yield setting, f"{self.where} {'args' if setting.variable is None else f'env {setting.variable}'}"
