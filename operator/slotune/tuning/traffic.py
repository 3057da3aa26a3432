"""From a workload as it is declared to the demand that a server must carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slotune.api.manifests import Manifests
from slotune.api.quantities import parse_decimal, parse_duration
from slotune.api.v1alpha1.workload import LlamaWorkloadSpec, Sampling
from slotune.load.demand import Arrivals, Demand, Prompt, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.load.prompts import parse_prompts, read_prompts
from slotune.load.recorded import parse_arrivals, read_arrivals
from slotune.tuning.errors import InvalidInputError

__all__ = ["busiest_part", "demand_of", "demand_of_workload"]

BUSY_WINDOW_S = 600.0
"""Ten minutes: long enough for a steady rate, short enough for a peak."""
BUSY_ARRIVALS = 300
"""With so many, the fullest window of a steady crowd is about 12 % above its mean by chance, not 50 %."""


def demand_of(manifests: Manifests) -> Demand:
    """The demand with its estimates and its identity.

    Raises:
        InputFileError: a prompt or trace file is missing or broken.
        InvalidInputError: the traffic contradicts itself.
    """
    return demand_of_workload(
        manifests.workload,
        seed=manifests.deployment.spec.measurement.seed,
        prompts=manifests.prompts,
        trace=manifests.trace,
        directory=manifests.directory,
    )


def demand_of_workload(
    workload: LlamaWorkloadSpec,
    *,
    seed: int,
    prompts: bytes | None,
    trace: bytes | None,
    directory: Path = Path(),
) -> Demand:
    """The demand with its estimates and its identity.

    Args:
        workload: the traffic as it is declared.
        seed: of the sample that is kept of many prompts.
        prompts: what the ConfigMap's or Secret's key holds that it names.
        trace: what the ConfigMap's key holds that it names.
        directory: files are named relative to it.

    Raises:
        InputFileError: a prompt or trace file is missing or broken.
        InvalidInputError: the traffic contradicts itself.
    """
    recorded = _recorded(workload, trace, directory)
    demand = Demand(
        peak_rate=_peak_rate(workload, recorded),
        output_tokens=workload.output.tokens,
        arrivals=_arrivals(workload, recorded),
        synthetic=_synthetic(workload),
        prompts=_prompts(workload, prompts, seed, directory),
        ignore_eos=workload.output.ignore_eos,
        sampling=_sampling(workload.sampling),
    )
    return with_estimates(demand)


def _peak_rate(workload: LlamaWorkloadSpec, recorded: Arrivals | None) -> float:
    """Requests per second of the whole fleet at the peak.

    Users with a think time reach at most count / think time: the rate if answers took no time. The
    slower the answers, the lower the true rate, so the promise is tested at the harder end.
    """
    load = workload.load
    if load.request_rate is not None:
        return float(parse_decimal(load.request_rate, "load.requestRate"))
    if load.users is not None:
        think = float(parse_duration(load.users.think_time, "load.users.thinkTime"))
        if think <= 0:
            raise InvalidInputError(
                "load.users.thinkTime",
                load.users.think_time,
                "must be above 0: users who never pause have no highest rate; give load.requestRate instead",
            )
        return load.users.count / think
    assert recorded is not None, "a rule of the workload"
    return (len(recorded.offsets_s) - 1) / recorded.offsets_s[-1]


def busiest_part(recorded: Arrivals) -> Arrivals:
    """The busiest :data:`BUSY_WINDOW_S` of a recording, lengths with it; all of it when it is shorter.

    The mean of a day says nothing about its busy hour, and the promise is owed at the peak. A window with few arrivals
    is busy by chance, so it is widened until it holds :data:`BUSY_ARRIVALS`.
    """
    offsets = recorded.offsets_s
    window = BUSY_WINDOW_S
    while window < offsets[-1]:
        first, last = _fullest(offsets, window)
        if last - first + 1 >= BUSY_ARRIVALS:
            cut = slice(first, last + 1)
            return replace(
                recorded,
                offsets_s=tuple(at - offsets[first] for at in offsets[cut]),
                input_tokens=recorded.input_tokens[cut],
                output_tokens=recorded.output_tokens[cut],
            )
        window *= 2
    return recorded


def _fullest(offsets_s: Sequence[float], window_s: float) -> tuple[int, int]:
    """First and last index of the arrivals of the fullest window of that length."""
    best, first = (0, 0), 0
    for last, at in enumerate(offsets_s):
        while at - offsets_s[first] > window_s:
            first += 1
        if last - first > best[1] - best[0]:
            best = (first, last)
    return best


def _recorded(workload: LlamaWorkloadSpec, held: bytes | None, directory: Path) -> Arrivals | None:
    trace = workload.load.trace
    if trace is None:
        return None
    if trace.file is not None:
        return busiest_part(read_arrivals(_resolved(directory, trace.file.path)))
    assert held is not None
    assert trace.config_map_key_ref is not None
    reference = trace.config_map_key_ref
    source = f"ConfigMap/{reference.name} {reference.key}"
    return busiest_part(parse_arrivals(held.splitlines(), source=source))


def _arrivals(workload: LlamaWorkloadSpec, recorded: Arrivals | None) -> Arrivals:
    match workload.arrival_process:
        case "Replay":
            assert recorded is not None, "a rule of the workload"
            return recorded
        case "Constant":
            return Arrivals("constant")
        case "Gamma":
            return Arrivals("gamma", workload.burstiness)
        case "Poisson":
            return Arrivals("poisson")


def _prompts(workload: LlamaWorkloadSpec, held: bytes | None, seed: int, directory: Path) -> tuple[Prompt, ...]:
    prompts = workload.prompts
    if prompts.file is not None:
        return read_prompts(_resolved(directory, prompts.file.path), seed=seed).prompts
    reference = prompts.config_map_key_ref or prompts.secret_key_ref
    if reference is None:
        return ()
    assert held is not None
    kind = "ConfigMap" if prompts.config_map_key_ref is not None else "Secret"
    source = f"{kind}/{reference.name} {reference.key}"
    return parse_prompts(held.splitlines(), source=source, seed=seed).prompts


def _synthetic(workload: LlamaWorkloadSpec) -> SyntheticPrompts | None:
    made = workload.prompts.synthetic
    if made is None:
        return None
    prefix = made.shared_prefix
    return SyntheticPrompts(
        input_tokens_mean=made.input_tokens.mean,
        input_tokens_stddev=made.input_tokens.stddev,
        input_tokens_max=made.input_tokens.max,
        shared_prefix_tokens=0 if prefix is None else prefix.tokens,
        prefix_groups=1 if prefix is None else prefix.groups,
        zipf_exponent=1.0 if prefix is None else float(parse_decimal(prefix.zipf_exponent, "zipfExponent")),
    )


def _sampling(sampling: Sampling | None) -> tuple[tuple[str, Any], ...]:
    """Request fields of llama-server, in its own names."""
    if sampling is None:
        return (("temperature", 0.0),)
    stated = sampling.model_dump(exclude_none=True)
    return tuple((name, float(value) if isinstance(value, str) else value) for name, value in stated.items())


def _resolved(directory: Path, path: str) -> Path:
    """A path of the manifest, relative to the manifest."""
    return directory / path
