"""A candidate as llama-server's arguments, and a user's own arguments as a candidate.

Out: every setting is stated, so that nothing depends on the defaults of a build. In: what is not stated becomes what
the build would have done, and each time that is a surprise there is a note. What slotune does not tune is passed
through word by word. For every valid candidate ``from_args(to_args(c)).candidate == c``; valid means what llama-server
can hold: with split caches a context of whole 256-token blocks, ``ubatch <= batch``, no saving of idle slots without
``cache_ram_mib``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from slotune.llama.baseline_reading import BaselineReader
from slotune.llama.build_arguments import understood
from slotune.llama.build_defaults import BUILD_11549, BuildDefaults
from slotune.llama.candidate import Candidate
from slotune.llama.flag_cures import DROPPED, MODEL_FLAGS, UNMEASURED
from slotune.llama.flag_reading import FlagProblem, Reading, Setting, read
from slotune.llama.flag_table import BY_NAME, Flag
from slotune.llama.kv_cells import context_flag
from slotune.llama.speculation import SPECULATION_FLAGS, speculation_statements

__all__ = [
    "BUILD_11549",
    "EMITTED",
    "BuildDefaults",
    "ConflictingArgumentError",
    "FlagProblem",
    "ModelSource",
    "ParsedServer",
    "UnusableArgumentsError",
    "from_args",
    "model_source",
    "passed_through",
    "stated_twice",
    "statements",
    "to_args",
]

EMITTED: tuple[Flag, ...] = tuple(
    BY_NAME[name][0]
    for name in (
        "-m", "--host", "--port", "-a", "-ngl", "-fit", "-np", "-c", "-kvu", "-b", "-ub", "-fa", "-ctk", "-ctv",
        "-t", "-tb", "--cache-prompt", "-cram", "--cache-idle-slots", "--cache-reuse", "--metrics", "--slots",
        "--spec-type", "--spec-draft-model", "--spec-draft-ngl", *SPECULATION_FLAGS, "-bs", "-lv",
    )
)  # fmt: skip
"""The closed set that :func:`to_args` writes; an engine that takes these can run every candidate without extras."""

OWN_VERBOSITY = ("4",)
"""At this level the log shows buffers, layers and kernels."""

_OF_ONE_WAY = frozenset({"--spec-draft-model", "--spec-draft-ngl", *SPECULATION_FLAGS})
"""Flags that a candidate has only with the way of speculation that they belong to; else they are passed through."""

_BESIDE = frozenset({"-tb", "--spec-draft-ngl", "--spec-ngram-mod-n-min"})
"""Flags that a user's own server may state where :func:`to_args` would: then its word stands."""

_OWN = frozenset(flag.name for flag in EMITTED) - _OF_ONE_WAY


class UnusableArgumentsError(ValueError):
    """Arguments of a user's server that no baseline can be made of; has all problems."""

    def __init__(self, problems: Sequence[FlagProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ConflictingArgumentError(ValueError):
    """``extra_args`` of a candidate state what the candidate states itself."""

    def __init__(self, flag: str) -> None:
        super().__init__(f"extra_args: {flag} is a setting of the candidate; set it there and leave it out here")
        self.flag = flag


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a server's weights come from. The first that is not None counts, in this order."""

    path: str | None = None
    hf_repo: str | None = None
    """``user/model[:quantization]``, fetched from Hugging Face."""
    hf_file: str | None = None
    """One file of ``hf_repo``."""
    url: str | None = None
    docker_repo: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether any is stated. Without one llama-server becomes a router."""
        return any((self.path, self.hf_repo, self.url, self.docker_repo))


@dataclass(frozen=True, slots=True)
class ParsedServer:
    """A user's own server."""

    candidate: Candidate | None
    """The baseline; None when there are errors."""
    model: ModelSource
    host: str
    port: int
    alias: str | None
    """First of the names that it answers to; None: it uses the model's."""
    extra_args: tuple[str, ...]
    """What slotune does not tune, in order, as it was written; those of the environment first, as arguments."""
    secret_args: tuple[str, ...] = field(default=(), repr=False)
    """API keys and tokens: for the server's process only, never stored or shown."""
    notes: tuple[str, ...] = ()
    """Sentences: what a reader of the arguments would not expect."""
    errors: tuple[FlagProblem, ...] = ()

    @property
    def baseline(self) -> Candidate:
        """The candidate. Raises UnusableArgumentsError when there are errors."""
        if self.candidate is None:
            raise UnusableArgumentsError(self.errors)
        return self.candidate


def to_args(
    candidate: Candidate,
    *,
    model_path: str,
    host: str,
    port: int,
    alias: str,
    threads: int | None = None,
    draft_path: str | None = None,
    defaults: BuildDefaults = BUILD_11549,
) -> list[str]:
    """The arguments that run ``candidate``, without the program's name.

    Args:
        model_path: of the candidate's weights file, as the server sees it.
        host: address to listen on.
        port: 0 lets the system choose (the embedded engine then says which).
        alias: name that the server answers to.
        threads: used where the candidate has none of its own; None: llama-server's default, all cores of the host.
        draft_path: of the weights file of its draft model; needed where it has one.
        defaults: of the build that gets them. An early one gets no flag that it does not know, as far as its defaults
            do the same; see :func:`slotune.llama.build_arguments.unsupported` for what no argument can say to it.

    Raises:
        ConflictingArgumentError: ``extra_args`` state a setting that the candidate has.
    """
    groups = statements(candidate, model_path=model_path, threads=threads, draft_path=draft_path)
    reach = [("--host", host), ("--port", str(port)), ("--alias", alias)]
    words = [word for group in understood([groups[0], *reach, *groups[1:]], defaults) for word in group]
    return [*words, "-lv", *OWN_VERBOSITY, *candidate.extra_args]


def statements(
    candidate: Candidate, *, model_path: str, threads: int | None = None, draft_path: str | None = None
) -> list[tuple[str, ...]]:
    """Every setting of ``candidate`` as a flag with its value, the weights first; arguments as of :func:`to_args`."""
    extra = _checked_extras(candidate)
    threads = candidate.threads if candidate.threads is not None else threads
    groups: list[tuple[str, ...]] = [("-m", model_path)]
    groups += [("-ngl", candidate.gpu_layers), ("-fit", "off")]
    groups += [("-np", str(candidate.parallel_slots)), ("-c", str(context_flag(candidate)))]
    groups += [("-kvu" if candidate.kv_unified else "-no-kvu",)]
    groups += [("-b", str(candidate.batch_size)), ("-ub", str(candidate.ubatch_size))]
    groups += [("-fa", candidate.flash_attention)]
    groups += [("-ctk", candidate.cache_type_k), ("-ctv", candidate.cache_type_v)]
    if threads is not None:
        groups += [("-t", str(threads))]
        if "-tb" not in extra:
            groups += [("-tb", str(threads))]
    groups += [("--cache-prompt" if candidate.cache_prompt else "--no-cache-prompt",)]
    groups += [("--cache-ram", str(candidate.cache_ram_mib))]
    groups += [("--cache-idle-slots" if candidate.cache_idle_slots else "--no-cache-idle-slots",)]
    groups += [("--cache-reuse", str(candidate.cache_reuse)), ("--metrics",), ("--slots",)]
    groups += [said for said in speculation_statements(candidate, draft_path) if said[0] not in extra & _BESIDE]
    if candidate.backend_sampling:
        groups += [("-bs",)]
    return groups


def passed_through(candidate: Candidate) -> frozenset[str]:
    """First spellings of the flags in ``extra_args``."""
    return frozenset(name for name, _ in _extras(candidate.extra_args))


def stated_twice(candidate: Candidate) -> str | None:
    """The flag of ``extra_args``, as it is spelled there, that states what ``candidate`` states itself; None: none."""
    own = {said[0] for said in speculation_statements(candidate, "")} | MODEL_FLAGS | _OWN
    return next((spelling for name, spelling in _extras(candidate.extra_args) if name in own - _BESIDE), None)


def from_args(
    args: Sequence[str],
    *,
    variant: str,
    gpu_class: str,
    training_context: int | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
    defaults: BuildDefaults = BUILD_11549,
    drafts: Mapping[str, str] = MappingProxyType({}),
) -> ParsedServer:
    """The server that ``args`` and ``env`` describe. Reports every problem and raises for none.

    Args:
        args: after the program's name, as the container has them.
        variant: name of the model variant that the server runs.
        gpu_class: name of the GPU class that it runs on.
        training_context: the model's, in tokens; needed only where ``-c`` is not stated or 0.
        env: the container's variables; arguments win over them.
        defaults: what the server's build does where nothing is stated; its number says which flags exist.
        drafts: names of model variants by their path: a draft model among them is a setting of the candidate, and any
            other is passed through.
    """
    reading = read(args, env, defaults.build)
    reader = BaselineReader(_by_flag(reading), defaults, training_context, drafts)
    model = _model(reader)
    if not model.is_known:
        cure = "state -m PATH: without a model llama-server is a router for others"
        reader.problems.append(FlagProblem("-m", "is missing", cure))
    host = reader.text("--host") or defaults.host
    port = reader.number("--port", defaults.port, 0, 65535)
    candidate = reader.candidate(variant, gpu_class)
    extra = [*reader.extra_threads]
    secret: list[str] = []
    for setting in reading.settings:
        name = setting.flag.name
        if setting.is_secret:
            secret += setting.words
        elif name in UNMEASURED or (setting.words[1:] == OWN_VERBOSITY and name == "-lv"):
            continue
        elif name in DROPPED:
            reader.notes.append(f"{setting.spelling} is left out: {DROPPED[name]}.")
        elif name not in _OWN | MODEL_FLAGS | {"--spec-default"} | reader.taken:
            extra += setting.words
    problems = (*reading.problems, *reader.problems)
    return ParsedServer(
        candidate=None if problems else replace(candidate, extra_args=tuple(extra)),
        model=model,
        host=host,
        port=port,
        alias=next((name.strip() for name in (reader.text("-a") or "").split(",") if name.strip()), None),
        extra_args=tuple(extra),
        secret_args=tuple(secret),
        # What would be surprising about a server that cannot be read is guesswork.
        notes=reading.notes if problems else (*reading.notes, *dict.fromkeys(reader.notes)),
        errors=problems,
    )


def model_source(
    args: Sequence[str], env: Mapping[str, str] = MappingProxyType({}), build: int | None = None
) -> ModelSource:
    """Where the weights of the server with ``args`` come from: to find its variant before :func:`from_args`."""
    return _model(BaselineReader(_by_flag(read(args, env, build)), BUILD_11549, None))


def _by_flag(reading: Reading) -> dict[str, list[Setting]]:
    stated: dict[str, list[Setting]] = {}
    for setting in reading.settings:
        stated.setdefault(setting.flag.name, []).append(setting)
    return stated


def _model(reader: BaselineReader) -> ModelSource:
    return ModelSource(
        path=reader.text("-m"),
        hf_repo=reader.text("-hf"),
        hf_file=reader.text("-hff"),
        url=reader.text("-mu"),
        docker_repo=reader.text("-dr"),
    )


def _checked_extras(candidate: Candidate) -> frozenset[str]:
    """First spellings of the flags in ``extra_args``; none may state what the candidate states itself."""
    if (spelling := stated_twice(candidate)) is not None:
        raise ConflictingArgumentError(spelling)
    return passed_through(candidate)


@functools.lru_cache(maxsize=64)  # all candidates of a search have the same
def _extras(extra_args: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(First spelling, spelling) of each flag."""
    return tuple((setting.flag.name, setting.spelling) for setting in read(extra_args, {}).settings)
