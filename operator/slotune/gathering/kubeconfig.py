"""Which cluster a person means, by the rules of kubectl, found before the client's library reads the same files.

The rules: ``--kubeconfig FILE`` alone, else the files that KUBECONFIG lists, else kubectl's own file. Of several files
the first that has an entry counts, those that are missing or empty are passed over, and the current context is that of
the first file that names one. The library takes the last file's, and says of what is wrong no more than what it tripped
over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from slotune.api.problems import closest
from slotune.gathering.look_errors import MOST_NAMES, NoClusterError, NoSuchContextError, NoSuchKubeconfigError

__all__ = ["ChosenCluster", "choose_cluster"]

VARIABLE: Final = "KUBECONFIG"
OPTION: Final = "--kubeconfig"
_OWN: Final = Path("~/.kube/config")
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"
_SECTIONS: Final = ("contexts", "clusters", "users")

Entries = Mapping[str, Mapping[str, Any]]
"""By name."""


@dataclass(frozen=True, slots=True)
class ChosenCluster:
    """How a cluster is reached."""

    files: tuple[Path, ...] = ()
    """Kubeconfigs that hold something; none inside of the cluster."""
    context: str | None = None
    namespace: str | None = None
    """That the context states."""

    @property
    def paths(self) -> str | None:
        """The files as the client's library takes them."""
        return os.pathsep.join(map(str, self.files)) or None


def choose_cluster(
    name: str, kubeconfig: Path | str | None, context: str | None, environment: Mapping[str, str]
) -> ChosenCluster:
    """The cluster that ``--kubeconfig``, ``--context`` and the environment mean.

    Args:
        name: of the Deployment, for errors.
        kubeconfig: one file; None: by the environment.
        context: None: the current one.
        environment: variables of the process.

    Raises:
        NoSuchKubeconfigError: a file that was named is not there, or can't be read.
        NoSuchContextError: there is no context of that name, or it leads nowhere.
        NoClusterError: nothing says which cluster is meant.
    """
    listed = [one for one in environment.get(VARIABLE, "").split(os.pathsep) if one]
    stated = [Path(kubeconfig)] if kubeconfig is not None else [Path(one) for one in listed]
    if not stated and context is None and environment.get(_IN_A_POD):
        return ChosenCluster()
    found = [one for path in stated or [_OWN] if (one := path.expanduser()).exists()]
    if not found:
        raise _no_file(name, stated, kubeconfig is not None, context)
    source = OPTION if kubeconfig is not None else VARIABLE if listed else None
    documents = {path: held for path in found if (held := _read(path, source))}
    contexts, clusters, users = (_merged(documents, section) for section in _SECTIONS)
    where = os.pathsep.join(map(str, found))
    current = next((str(held["current-context"]) for held in documents.values() if held.get("current-context")), None)
    chosen = current if context is None else context
    if not contexts:
        raise NoClusterError(name, f"{where} holds no context: name a kubeconfig that does with --kubeconfig FILE")
    if chosen is None:
        cure = f"{where} has no current-context: choose with --context, one of {_shown(contexts)}"
        raise NoClusterError(name, cure)
    _check_context(chosen, where, contexts, clusters, users)
    namespace = contexts[chosen].get("namespace")
    return ChosenCluster(tuple(documents), chosen, None if namespace is None else str(namespace))


def _no_file(
    name: str, stated: list[Path], is_option: bool, context: str | None
) -> NoSuchKubeconfigError | NoClusterError | NoSuchContextError:
    shown = os.pathsep.join(map(str, stated))
    if is_option:
        return NoSuchKubeconfigError(OPTION, shown, "there is no such file: name the kubeconfig of the cluster")
    if stated:
        what = "there is no such file" if len(stated) == 1 else "none of these files is there"
        return NoSuchKubeconfigError(VARIABLE, shown, f"{what}: correct the variable, or give --kubeconfig FILE")
    if context is not None:
        return NoSuchContextError("--context", context, f"there is no kubeconfig: {_OWN} is not there: set {VARIABLE}")
    return NoClusterError(name, f"{_OWN} is not there: run it inside of a cluster, or set {VARIABLE}")


def _read(path: Path, source: str | None) -> Mapping[str, Any]:
    """What a file holds; nothing of one that is empty."""
    field = source or OPTION
    try:
        held = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NoSuchKubeconfigError(field, path, f"can't be read ({error.strerror}): name a kubeconfig") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" (line {mark.line + 1})"
        raise NoSuchKubeconfigError(field, path, f"is no kubeconfig: it is no YAML{place}: name one") from error
    if held is None:
        return {}
    if not isinstance(held, dict) or not all(_is_section(held.get(section)) for section in _SECTIONS):
        cure = "is no kubeconfig: one has lists of clusters, users and contexts: name such a file"
        raise NoSuchKubeconfigError(field, path, cure)
    return held


def _is_section(held: Any) -> bool:
    """Whether it is a list of named things, or not there."""
    return held is None or (isinstance(held, list) and all(isinstance(one, dict) and one.get("name") for one in held))


def _merged(documents: Mapping[Path, Mapping[str, Any]], section: str) -> Entries:
    """What the first file says that has an entry of the name."""
    found: dict[str, Mapping[str, Any]] = {}
    for held in documents.values():
        for one in held.get(section) or ():
            inner = one.get(section.removesuffix("s"))
            found.setdefault(str(one["name"]), inner if isinstance(inner, dict) else {})
    return found


def _check_context(chosen: str, where: str, contexts: Entries, clusters: Entries, users: Entries) -> None:
    """Whether the context is there and leads to a cluster and a user. Raises NoSuchContextError."""
    if chosen not in contexts:
        meant = closest(chosen, list(contexts))
        there = f"did you mean {meant}?" if meant else f"there {_are(contexts)}"
        raise NoSuchContextError("--context", chosen, f"{where} has no such context: {there}")
    for key, held in (("cluster", clusters), ("user", users)):
        stated = contexts[chosen].get(key)
        if stated is None and key == "user":
            continue
        if str(stated) not in held:
            missing = f"names no {key}" if stated is None else f"names {key} {stated}, and there is none of that name"
            cure = f"it {missing} in {where}: correct it, or choose another"
            raise NoSuchContextError("--context", chosen, cure)
    if not clusters[str(contexts[chosen]["cluster"])].get("server"):
        cure = f"its cluster has no address (server) in {where}: correct it, or choose another"
        raise NoSuchContextError("--context", chosen, cure)


def _are(names: Iterable[str]) -> str:
    every = list(names)
    return f"{'is' if len(every) == 1 else 'are'} {_shown(every)}"


def _shown(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every[:MOST_NAMES]) + (f" and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else "")
