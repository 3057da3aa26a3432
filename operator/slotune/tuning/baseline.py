"""What runs today, as a candidate: the flags of the pod's llama-server container, whatever form they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from slotune.api.manifests import Manifests
from slotune.api.v1alpha1 import ModelVariant
from slotune.llama.candidate import Candidate
from slotune.llama.flags import ModelSource, from_args, model_source, to_args
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

    def flags_for(self, candidate: Candidate) -> list[str]:
        """``candidate`` as arguments of this server: its own path, address and name, and no measuring log level."""
        args = to_args(
            candidate,
            model_path=self.paths[candidate.variant],
            host=self.host,
            port=self.port,
            alias=self.alias or "",
        )
        drop = {"-lv"} if self.alias else {"-lv", "--alias"}
        kept, skip = [], False
        for argument in args:
            if not skip and argument not in drop:
                kept.append(argument)
            skip = not skip and argument in drop
        return kept


def baseline_of(manifests: Manifests, models: Mapping[str, ModelFacts]) -> Baseline:
    """Read the server's own flags.

    Raises:
        InvalidInputError: a flag is unknown, removed or malformed, or the weights file is none of ``spec.models``.
    """
    spec = manifests.deployment.spec
    where = f"container {manifests.container.name}"
    arguments, environment = _arguments(manifests, where), _environment(manifests)
    variant = _variant(manifests, where, model_source(arguments, environment))
    parsed = from_args(
        arguments,
        variant=variant.name,
        gpu_class=next(iter(manifests.gpu_classes)),
        training_context=models[variant.name].context_length,
        env=environment,
    )
    if parsed.errors:
        raise InvalidInputError(f"{where} args", None, "; ".join(str(problem) for problem in parsed.errors))
    return Baseline(
        parsed.baseline,
        parsed.host,
        parsed.port,
        parsed.alias,
        {model.name: model.path for model in spec.models},
        parsed.notes,
    )


def _variant(manifests: Manifests, where: str, source: ModelSource) -> ModelVariant:
    """The entry of ``spec.models`` that runs today: the one whose path ``-m`` names."""
    variants = manifests.deployment.spec.models
    if source.path is None:
        if len(variants) == 1:
            return variants[0]
        stated = source.hf_repo or source.url or source.docker_repo
        raise InvalidInputError(
            f"{where} args",
            stated,
            "does not say which of spec.models runs today: state the file with -m PATH, where PATH is that of a model",
        )
    here = PurePosixPath(source.path)
    for variant in variants:
        if PurePosixPath(variant.path) == here:
            return variant
    listed = ", ".join(variant.path for variant in variants)
    raise InvalidInputError(
        f"{where} args -m", source.path, f"is none of spec.models ({listed}): add it there, it is what runs today"
    )


def _arguments(manifests: Manifests, where: str) -> list[str]:
    """``args`` behind whatever flags ``command`` holds."""
    command = list(manifests.container.command or ())
    if command and PurePosixPath(command[0]).name in SHELLS:
        raise InvalidInputError(
            f"{where} command", command[0], "is a shell, which hides the flags: write llama-server's flags into args"
        )
    return [*command[1:], *(manifests.container.args or ())]


def _environment(manifests: Manifests) -> dict[str, str]:
    """Variables whose values are written in the manifest; those from Secrets are none of llama-server's flags."""
    return {entry.name: entry.value for entry in manifests.container.env or () if entry.value is not None}
