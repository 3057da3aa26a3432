"""What runs today, as a candidate: the flags of the pod's llama-server container, whatever form they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from slotune.api.manifests import Manifests
from slotune.llama.candidate import Candidate
from slotune.llama.flags import FlagError, from_args
from slotune.llama.model_facts import ModelFacts
from slotune.tuning.errors import InvalidInputError

__all__ = ["Baseline", "baseline_of"]

SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})


@dataclass(frozen=True, slots=True)
class Baseline:
    """What runs today."""

    candidate: Candidate
    host: str
    port: int
    alias: str | None
    paths: Mapping[str, str]
    """Path inside the container of each variant, as the manifest has it."""
    notes: tuple[str, ...] = ()

    def path_of(self, variant: str) -> str:
        """The path that ``-m`` gets for ``variant``."""
        return self.paths[variant]


def baseline_of(manifests: Manifests, models: Mapping[str, ModelFacts]) -> Baseline:
    """Read the server's own flags.

    Raises:
        InvalidInputError: a flag is unknown, removed or malformed, or the weights file is none of ``spec.models``.
    """
    spec = manifests.deployment.spec
    where = f"container {manifests.container.name}"
    gpu_class = next(iter(manifests.gpu_classes))
    arguments = _arguments(manifests, where)
    paths = {variant.name: variant.path for variant in spec.models}
    try:
        parsed = from_args(
            arguments,
            variant=spec.models[0].name,
            gpu_class=gpu_class,
            context_length={name: facts.context_length for name, facts in models.items()},
        )
    except FlagError as error:
        raise InvalidInputError(f"{where} args", error.flag, error.cure) from error
    return Baseline(parsed.candidate, parsed.host, parsed.port, parsed.alias, paths, parsed.notes)


def _arguments(manifests: Manifests, where: str) -> list[str]:
    """``args`` behind whatever flags ``command`` holds."""
    command = list(manifests.container.command or ())
    if command and PurePosixPath(command[0]).name in SHELLS:
        raise InvalidInputError(
            f"{where} command", None, "runs a shell, which hides the flags: write llama-server's flags into args"
        )
    return [*command[1:], *(manifests.container.args or ())]
