"""Which words, variables and keys have to be written so that a server states a candidate, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from slotune.api.env_words import EnvWords, env_words
from slotune.llama.build_arguments import as_spelled, understood
from slotune.llama.candidate import Candidate
from slotune.llama.flag_cures import SECRET, looks_secret
from slotune.llama.flag_history import FORMER
from slotune.llama.flag_reading import FALSE, TRUE, Setting, read
from slotune.llama.flag_table import BY_ENV, BY_NAME, Flag
from slotune.llama.flags import passed_through, statements
from slotune.llama.speculation import SPECULATION_FLAGS
from slotune.tuning.baseline import REDACTED, Baseline, without_values
from slotune.tuning.pod_reading import REFERENCE, Origin, PodReading, escaped

__all__ = ["Drafts", "Edit", "edits_for"]

_LEFT_ALONE: Final = frozenset({"--slots"})
"""What a person stated about it stays: it shows what goes on and changes nothing. It is on by itself."""

_UNSAID: Final = ("--spec-draft-model", "--spec-draft-ngl", *SPECULATION_FLAGS, "-bs")
"""Flags that have no value which turns them off: a candidate without them needs them to be gone."""

_REPLACED: Final = {"--kv-unified-per-slot": "0"}
"""Flags that another one takes the place of, with the value that turns them off."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One setting that is stated anew."""

    flag: str
    """As the person wrote it; as slotune writes it where nobody did; empty for a switch, whose value it is itself."""
    before: str | None
    """None: nobody stated it."""
    after: str | None
    """None: it is taken out."""
    origin: Origin

    def __str__(self) -> str:
        where = f"ConfigMap {self.origin.source}, key {self.origin.key}" if self.origin.place == "ConfigMap" else None
        place = where or self.origin.place
        if self.after is None:
            return f"{f'{self.flag} {self.before}'.rstrip()} taken out of {place}"
        if not self.before:
            return f"{f'{self.flag} {self.after}'.rstrip()} added to {place}"
        return f"{self.flag} {self.before} → {self.after} in {place}".lstrip()


@dataclass(slots=True)
class Drafts:
    """Edits as they add up. ``slots`` has what each word of ``command`` and ``args`` becomes."""

    pod: PodReading
    only_pod: bool
    commands: list[list[str]]
    arguments: list[list[str]]
    hidden: dict[Origin, str] = field(default_factory=dict)
    """What to show in place of a word that holds a key."""
    edits: list[Edit] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pod: PodReading, *, only_pod: bool) -> Drafts:
        """Nothing changed yet."""
        words = [*pod.launch, *pod.words]
        return cls(
            pod,
            only_pod,
            [[word.written] for word in words if word.origin.place == "command"],
            [[word.written] for word in words if word.origin.place == "args"],
        )

    def command(self, *, public: bool = False) -> tuple[str, ...]:
        """The whole list as it becomes; in public without the keys that stand in it."""
        return self._list(self.commands, "command", public=public)

    def args(self, *, public: bool = False) -> tuple[str, ...]:
        """The whole list as it becomes; in public without the keys that stand in it."""
        return self._list(self.arguments, "args", public=public)

    def _list(self, slots: list[list[str]], place: Literal["command", "args"], *, public: bool) -> tuple[str, ...]:
        shown = [
            [self.hidden[Origin(place, index)]] if public and Origin(place, index) in self.hidden else slot
            for index, slot in enumerate(slots)
        ]
        return tuple(word for slot in shown for word in slot)

    def slot(self, origin: Origin) -> list[str]:
        """What a word of the command line becomes."""
        assert origin.index is not None
        return (self.commands if origin.place == "command" else self.arguments)[origin.index]

    def add(self, flag: Flag, words: tuple[str, ...]) -> None:
        """State what nobody stated: in a variable where all flags are variables, else behind the other words."""
        if self._lives_in_variables() and flag.env is not None:
            value = words[1] if flag.values else _truth(words)
            self.env[flag.env] = escaped(value)
            self.edits.append(Edit(flag.env, None, value, Origin("env", variable=flag.env)))
        else:
            self.append(words, None)

    def append(self, words: tuple[str, ...], before: str | None) -> None:
        """State it behind the other words, where it wins."""
        behind = [words[0], *(escaped(word) for word in words[1:])]
        is_command = bool(self.commands) and not self.arguments
        (self.commands if is_command else self.arguments).append(behind)
        origin = Origin("command" if is_command else "args")
        self.edits.append(Edit(words[0], before, " ".join(words[1:]), origin))

    def _lives_in_variables(self) -> bool:
        stated = [one for name, one in self.pod.variables.items() if name.startswith("LLAMA_ARG_")]
        # What ``env`` sets, clears or unsets is not the container's to say.
        by_env = env_words([word.text for word in self.pod.launch]) != EnvWords()
        return bool(stated) and not self.pod.words and not by_env


def edits_for(pod: PodReading, baseline: Baseline, candidate: Candidate, *, only_pod: bool) -> Drafts:
    """Everything to write so that the server states ``candidate``."""
    drafts = Drafts.of(pod, only_pod=only_pod)
    build = baseline.defaults.build
    stated: dict[str, list[Setting]] = {}
    for setting in read(pod.arguments, pod.environment, build).settings:
        stated.setdefault(setting.flag.name, []).append(setting)
    for setting in (one for settings in stated.values() for one in settings if one.is_secret):
        _hide(drafts, setting)
    for variable in pod.variables.values():
        place, index = variable.origin.place, variable.origin.index
        if index is not None and place in {"command", "args"} and _is_secret(variable.name):
            drafts.hidden[Origin(place, index)] = f"{variable.name}={REDACTED}"
    for flag, words in _wanted(baseline, candidate, stated):
        here = stated.get(flag.name, [])
        if here and flag.name == "-m" and words and pod.path(here[-1].values[0]) == pod.path(words[1]):
            continue
        if here and not _says(here, flag, words):
            _restate(drafts, here, flag, words)
        elif not here and words:
            drafts.add(flag, words)
    return drafts


def _is_secret(name: str) -> bool:
    """Whether a variable that ``env`` sets is a key, or called like one."""
    flag = BY_ENV.get(name)
    return flag.name in SECRET if flag is not None else looks_secret(name.replace("_", "-"))


def _hide(drafts: Drafts, setting: Setting) -> None:
    """Remember the words that must not be shown."""
    if setting.position is None:
        return
    here = drafts.pod.words[setting.position : setting.position + len(setting.words)]
    for word, shown in zip(here, without_values([word.written for word in here]), strict=True):
        drafts.hidden[word.origin] = shown


def _wanted(
    baseline: Baseline, candidate: Candidate, stated: Mapping[str, list[Setting]]
) -> Iterator[tuple[Flag, tuple[str, ...]]]:
    """Each flag to state with its words; no words: it must not be stated."""
    draft_path = None if candidate.draft is None else baseline.paths[candidate.draft]
    groups = statements(
        candidate, model_path=baseline.paths[candidate.variant], threads=baseline.threads, draft_path=draft_path
    )
    if candidate.speculation == "none" and "--spec-type" in stated:
        groups.append(("--spec-type", "none"))
    said = {BY_NAME[group[0]][0].name for group in groups}
    for name in _UNSAID:
        # A variable of a number counts for nothing without the way of speculation that it is a number of.
        is_number = name in SPECULATION_FLAGS and name in stated and stated[name][-1].position is None
        if name in stated and not is_number and name not in said | passed_through(candidate):
            yield BY_NAME[name][0], ()
    needed = {group[0] for group in understood(groups, baseline.defaults)}
    for group in groups:
        flag, _ = BY_NAME[group[0]]
        if flag.name in _LEFT_ALONE:
            continue
        spelled = next(iter(as_spelled(group, baseline.defaults)), ())
        if flag.name in stated or needed & {group[0], *spelled[:1]}:
            yield flag, spelled
    for name, value in _REPLACED.items():
        if name in stated:
            yield BY_NAME[name][0], (name, value)
    if "--spec-default" in stated and candidate.speculation != baseline.candidate.speculation:
        yield BY_NAME["--spec-default"][0], ()


def _says(settings: list[Setting], flag: Flag, words: tuple[str, ...]) -> bool:
    """Whether what counts is stated so already, in whatever spelling."""
    if flag.name == "--spec-type":
        kinds = [kind.strip() for setting in settings for kind in setting.values[0].split(",")]
        return list(dict.fromkeys(kinds)) == words[1].split(",")
    last = settings[-1]
    if not words:
        return False
    if flag.values:
        return _plain(last.values[0]) == _plain(_value(words))
    return last.on == (_truth(words) == "true")


def _value(words: tuple[str, ...]) -> str:
    """The value of a flag; of one that is a switch in this build, what today's has for it."""
    return words[1] if len(words) > 1 else "on" if words else "off"


def _truth(words: tuple[str, ...]) -> str:
    """The value of a variable that says the same as a switch."""
    if not words:
        return "false"
    former = FORMER.get(words[0])
    return "true" if (former.on if former is not None else BY_NAME[words[0]][1]) else "false"


def _plain(value: str) -> str:
    """A value without its freedom of spelling."""
    return "on" if value in TRUE - {"1"} else "off" if value in FALSE - {"0"} else value


def _restate(drafts: Drafts, settings: list[Setting], flag: Flag, words: tuple[str, ...]) -> None:
    """Change the setting that counts where it lives, and take out what it overruled."""
    *earlier, last = settings
    for setting in earlier:
        if setting.position is not None:
            _take_out(drafts, setting)
    if last.position is None:
        _restate_variable(drafts, last, flag, words)
    elif not words:
        _take_out(drafts, last)
        origin = drafts.pod.words[last.position].origin
        drafts.edits.append(Edit(last.spelling, " ".join(last.values), None, Origin(origin.place)))
    else:
        _restate_words(drafts, last, words)


def _take_out(drafts: Drafts, setting: Setting) -> None:
    assert setting.position is not None
    for word in drafts.pod.words[setting.position : setting.position + len(setting.words)]:
        drafts.slot(word.origin).clear()


def _restate_words(drafts: Drafts, setting: Setting, words: tuple[str, ...]) -> None:
    assert setting.position is not None
    here = drafts.pod.words[setting.position : setting.position + len(setting.words)]
    is_switch = len(words) == 1 or len(here) == 1
    if not is_switch and _restate_reference(drafts, here[1].written, setting, words[1]):
        return
    _take_out(drafts, setting)
    flag = words[0] if is_switch else here[0].written
    drafts.slot(here[0].origin)[:] = [flag, *(escaped(word) for word in words[1:])]
    place = Origin(here[0].origin.place)
    if is_switch:
        drafts.edits.append(Edit("", setting.spelling, " ".join(words), place))
    else:
        drafts.edits.append(Edit(setting.spelling, setting.values[0], words[1], place))


def _restate_reference(drafts: Drafts, written: str, setting: Setting, value: str) -> bool:
    """Change the variable that a word is, where nothing else uses it. False: it can't be done there."""
    reference = REFERENCE.fullmatch(written)
    variable = drafts.pod.variables.get(reference[1]) if reference else None
    if variable is None or drafts.pod.uses[variable.name] != 1 or variable.name.startswith("LLAMA_"):
        return False
    if not _write(drafts, variable.origin, value):
        return False
    drafts.edits.append(Edit(variable.name, setting.values[0], value, variable.origin))
    return True


def _restate_variable(drafts: Drafts, setting: Setting, flag: Flag, words: tuple[str, ...]) -> None:
    variable = drafts.pod.variables[str(setting.variable)]
    is_negative = setting.variable == flag.negative_env
    value = _truth(words) if not flag.values else _value(words) if words or flag.name not in _UNSAID else ""
    before = setting.values[0] if setting.values else ("true" if setting.on else "false")
    if not is_negative and not drafts.pod.uses[variable.name] and _write(drafts, variable.origin, value):
        drafts.edits.append(Edit(variable.name, before, value, variable.origin))
    elif words:
        drafts.append(words, before)


def _write(drafts: Drafts, origin: Origin, value: str) -> bool:
    """Write a variable's value at its origin. False: that is no place to write to."""
    if origin.place == "env":
        drafts.env[str(origin.variable)] = escaped(value)
        return True
    if origin.place == "ConfigMap" and not drafts.only_pod and _is_only_use(drafts.pod, origin):
        drafts.config_maps.setdefault(str(origin.source), {})[str(origin.key)] = value
        return True
    return False


def _is_only_use(pod: PodReading, origin: Origin) -> bool:
    """Whether one variable alone has a ConfigMap's key: or another setting would change with it."""
    places = [(variable.origin.source, variable.origin.key) for variable in pod.variables.values()]
    return places.count((origin.source, origin.key)) == 1
