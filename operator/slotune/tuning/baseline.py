"""What runs today, as a candidate: the flags of the pod's llama-server container, whatever form they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.manifests import Manifests
from slotune.api.quantities import parse_quantity
from slotune.api.v1alpha1 import ModelVariant
from slotune.llama.build_defaults import BUILD_11549, BuildDefaults
from slotune.llama.build_evidence import defaults_for
from slotune.llama.build_number import build_of_image
from slotune.llama.candidate import Candidate
from slotune.llama.flag_cures import UNMEASURED
from slotune.llama.flag_reading import Setting, read
from slotune.llama.flags import ModelSource, from_args, model_source, to_args
from slotune.llama.model_facts import ModelFacts
from slotune.tuning.config_files import config_file_notes
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.pod_reading import REFERENCE, Origin, PodReading, read_pod
from slotune.tuning.refusal import RefusedFlagsError, RefusedServerError
from slotune.tuning.server_refusals import refusals
from slotune.tuning.unknown_values import check_references, check_variables

__all__ = ["REDACTED", "Baseline", "baseline_of", "check_server", "read_baseline", "without_values"]

REDACTED = "REDACTED"

SOCKET = ".sock"
"""How an address ends that is a UNIX socket."""

_ANY_CONTEXT = 2**20
"""Tokens: stands for a training context that nobody has looked at. Flags are refused for none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What runs today."""

    candidate: Candidate
    host: str | None
    """None when it is left to the image, which may well say it in a variable of its own."""
    port: int | None
    alias: str | None
    paths: Mapping[str, str]
    """Path inside the container of each variant, as the manifest has it."""
    secrets: tuple[str, ...] = ()
    """Flags that hold a key or token, each with a placeholder: never measured with, never shown, and still needed."""
    reach: tuple[str, ...] = ()
    """Arguments that say who reaches the server and how, as they are written: never measured with, and still needed."""
    origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Where each flag (first spelling) is stated; the last place is the one that counts."""
    defaults: BuildDefaults = BUILD_11549
    """What the server's build does where nothing is stated."""
    threads: int | None = None
    """The container's CPU limit where no ``-t`` is stated: what a trial gets, and what the answer states.

    Without both llama-server takes all cores of the host that it happens to run on (ollama#17916)."""
    notes: tuple[str, ...] = ()

    def flags_for(self, candidate: Candidate) -> list[str]:
        """``candidate`` as arguments of this server: its own path, address and name, and no measuring log level."""
        args = to_args(
            replace(candidate, extra_args=()),
            model_path=self.paths[candidate.variant],
            host=self.host or "",
            port=self.port or 0,
            alias=self.alias or "",
            threads=self.threads,
            draft_path=None if candidate.draft is None else self.paths[candidate.draft],
            defaults=self.defaults,
        )
        unstated = {
            "--host": self.host is None,
            "--port": self.port is None,
            "--alias": self.alias is None,
            "-lv": True,
        }
        kept, skip = [], False
        for argument in args:
            drop = not skip and unstated.get(argument, False)
            if not skip and not drop:
                kept.append(argument)
            skip = drop
        return [*kept, *candidate.extra_args, *self.reach, *self.secrets]


def baseline_of(
    manifests: Manifests, models: Mapping[str, ModelFacts] | None, gpu_class: str, build: int | None = None
) -> Baseline:
    """Read the server's own flags.

    Args:
        manifests: checked manifests.
        models: facts of the weights, by variant; None: nobody has looked at them, so the baseline's context may be
            another one. Whether it is refused does not depend on them.
        gpu_class: the one that it runs on.
        build: what the program itself said; None goes by the image's tag.

    Raises:
        InvalidInputError: as :func:`read_baseline`.
    """
    variants = manifests.deployment.spec.models
    unknown = dict.fromkeys((variant.name for variant in variants), _ANY_CONTEXT)
    return read_baseline(
        manifests.template,
        manifests.container,
        manifests.config_maps,
        variants=variants,
        training_context=unknown if models is None else {name: one.context_length for name, one in models.items()},
        gpu_class=gpu_class,
        gpu_resource=manifests.gpu_classes[gpu_class].spec.resource_name,
        build=build,
    )


def check_server(manifests: Manifests) -> tuple[str, ...]:
    """Notes about the server's flags, without a look at its weights.

    Raises:
        InvalidInputError: as :func:`read_baseline`.
    """
    defaults = baseline_of(manifests, None, next(iter(manifests.gpu_classes))).defaults
    pod = read_pod(manifests.template, manifests.container, manifests.config_maps)
    return (*pod.notes, *defaults.notes, *read(pod.arguments, pod.environment, defaults.build).notes)


def read_baseline(
    template: PodTemplate,
    container: Container,
    config_maps: Mapping[str, Mapping[str, str]],
    *,
    variants: Sequence[ModelVariant],
    training_context: Mapping[str, int],
    gpu_class: str,
    gpu_resource: str | None = None,
    build: int | None = None,
) -> Baseline:
    """Read the flags of the container that is llama-server.

    Args:
        template: the pod that runs today.
        container: one of it.
        config_maps: text by key, by name: those that its variables are taken from.
        variants: ``spec.models``.
        training_context: in tokens, by the name of the variant; only that of the one which runs today is looked at.
        gpu_class: the one that it runs on.
        gpu_resource: resource of that class; None: it has none.
        build: of llama.cpp, where the program itself was asked; None goes by the image's tag.

    Raises:
        RefusedServerError: slotune does not tune such a server.
        RefusedFlagsError: flags are removed, malformed or leave nothing to measure.
        InvalidInputError: a flag is not to be read, or the weights file is none of ``variants``.
    """
    if found := refusals(template, container.name, gpu_resource=gpu_resource, config_maps=config_maps):
        raise RefusedServerError(found)
    where = f"container {container.name}"
    pod = read_pod(template, container, config_maps)
    arguments, environment = pod.arguments, pod.environment
    defaults = defaults_for(arguments, environment, build if build is not None else build_of_image(container.image))
    settings = read(arguments, environment, defaults.build).settings
    check_variables(pod, where, {setting.flag.name for setting in settings if setting.position is not None})
    check_references(pod, where, settings)
    variant = _variant(variants, where, model_source(arguments, environment, defaults.build), pod)
    parsed = from_args(
        arguments,
        variant=variant.name,
        gpu_class=gpu_class,
        training_context=training_context.get(variant.name),
        env=environment,
        defaults=defaults,
        drafts={model.path: model.name for model in variants if model.name != variant.name},
    )
    if parsed.errors:
        raise RefusedFlagsError(f"{where} args", parsed.errors)
    stated = {setting.flag.name for setting in settings}
    secret = [setting for setting in settings if setting.is_secret]
    reach = [setting for setting in settings if setting.flag.name in UNMEASURED]
    return Baseline(
        parsed.baseline,
        parsed.host if "--host" in stated else None,
        parsed.port if "--port" in stated else None,
        parsed.alias,
        {model.name: model.path for model in variants},
        tuple(word for setting in secret for word in without_values(setting.words)),
        # A variable of these stays where it is, and so needs no argument.
        tuple(word for setting in reach if setting.position is not None for word in setting.words),
        _origins(pod, settings),
        defaults,
        None if parsed.baseline.threads is not None else _cpu_limit(container, where),
        (
            *pod.notes,
            *config_file_notes(template, container, pod, config_maps),
            *parsed.notes,
            *_secret_notes(secret),
            *_reach_notes(reach, parsed.host),
        ),
    )


def _origins(pod: PodReading, settings: Sequence[Setting]) -> Mapping[str, tuple[Origin, ...]]:
    found: dict[str, tuple[Origin, ...]] = {}
    for setting in settings:
        if setting.position is not None:
            origin = pod.words[setting.position].origin
        else:
            origin = pod.variables[str(setting.variable)].origin
        found[setting.flag.name] = (*found.get(setting.flag.name, ()), origin)
    return MappingProxyType(found)


def without_values(words: Sequence[str]) -> Iterator[str]:
    """``words`` of a secret flag: a value stays only where it is a reference such as ``$(API_KEY)``."""
    flag, equals, _ = words[0].partition("=")
    yield f"{flag}={REDACTED}" if equals else flag
    for value in words[1:]:
        yield value if REFERENCE.fullmatch(value) else REDACTED


def _secret_notes(settings: Sequence[Setting]) -> tuple[str, ...]:
    flags = sorted({setting.spelling for setting in settings})
    if not flags:
        return ()
    return (f"{', '.join(flags)}: measured without it; where the answer has {REDACTED}, put your own value back",)


def _reach_notes(settings: Sequence[Setting], host: str) -> tuple[str, ...]:
    """What trials go without, and which servers in production slotune can't ask."""
    flags = sorted({setting.spelling for setting in settings})
    if host.endswith(SOCKET):
        flags.append(f"--host {host}")
    if not flags:
        return ()
    without = f"{', '.join(flags)}: measured without it, at a port of the trial's own; production keeps it"
    if host.endswith(SOCKET) or any(setting.flag.name == "--api-key-file" for setting in settings):
        without += ", and slotune asks no server there that wants a key or listens on a socket"
    return (without,)


def _variant(variants: Sequence[ModelVariant], where: str, source: ModelSource, pod: PodReading) -> ModelVariant:
    """The entry of ``spec.models`` that runs today: the one whose path ``-m`` names."""
    if source.path is None:
        if len(variants) == 1:
            return variants[0]
        stated = source.hf_repo or source.url or source.docker_repo
        raise InvalidInputError(
            f"{where} args",
            stated,
            "does not say which of spec.models runs today: state the file with -m PATH, where PATH is that of a model",
        )
    here = pod.path(source.path)
    for variant in variants:
        if pod.path(variant.path) == here:
            return variant
    listed = ", ".join(variant.path for variant in variants)
    raise InvalidInputError(
        f"{where} args -m", str(here), f"is none of spec.models ({listed}): add it there, it is what runs today"
    )


def _cpu_limit(container: Container, where: str) -> int | None:
    """Whole CPUs that the container may use; None when no limit is stated."""
    resources = (container.model_extra or {}).get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    stated = limits.get("cpu") if isinstance(limits, dict) else None
    if stated is None:
        return None
    return max(1, int(parse_quantity(str(stated), f"{where} resources.limits.cpu")))
