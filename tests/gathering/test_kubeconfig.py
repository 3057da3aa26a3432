"""The cluster is the one that kubectl would take, and a file or a context that is wrong is named with what to do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slotune.gathering.cluster import look_at_deployment
from slotune.gathering.kubeconfig import choose_cluster
from slotune.gathering.look_errors import (
    NoClusterError,
    NoSuchContextError,
    NoSuchDeploymentError,
    NoSuchKubeconfigError,
)
from slotune.tuning.errors import InvalidInputError
from tests.gathering.api_server import api_server
from tests.gathering.pods import deployment

NOWHERE = "https://127.0.0.1:1"


def kubeconfig(path: Path, *contexts: str, current: str | None = None, **clusters: str) -> Path:
    """A file with these contexts, each of the cluster and of the namespace of its name."""
    addresses = dict.fromkeys(contexts, NOWHERE) | clusters
    document: dict[str, Any] = {
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in addresses.items()],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "me", "namespace": f"of-{path.name}-{name}"}}
            for name in contexts
        ],
    } | ({} if current is None else {"current-context": current})
    path.write_text(json.dumps(document))
    return path


def chosen(*files: Path, context: str | None = None, **more: str) -> tuple[str | None, str | None]:
    """(Context, its namespace) by a KUBECONFIG of these files."""
    found = choose_cluster("chat", None, context, {"KUBECONFIG": os.pathsep.join(map(str, files)), **more})
    return found.context, found.namespace


def refused(
    kind: type[InvalidInputError], file: Path | None, context: str | None = None, env: Mapping[str, str] | None = None
) -> str:
    with pytest.raises(kind) as caught:
        choose_cluster("chat", file, context, env or {})
    assert type(caught.value) is kind
    return str(caught.value)


def test_of_several_files_the_first_that_says_something_counts(tmp_path):
    first = kubeconfig(tmp_path / "1", "a", "b")
    second = kubeconfig(tmp_path / "2", "b", "c", current="b")
    third = kubeconfig(tmp_path / "3", "d", current="d")
    assert chosen(first, second, third) == ("b", "of-1-b")
    assert chosen(third, second, first) == ("d", "of-3-d")
    assert chosen(first, second, context="c") == ("c", "of-2-c")


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", None], ids=["empty", "a comment", "a mark", "missing"])
def test_a_file_that_holds_nothing_is_passed_over(tmp_path, content):
    nothing = tmp_path / "nothing"
    if content is not None:
        nothing.write_text(content)
    good = kubeconfig(tmp_path / "good", "a", current="a")
    assert chosen(nothing, good) == chosen(good, nothing) == ("a", "of-good-a")


async def test_several_files_lead_to_the_cluster_as_one_does(tmp_path, monkeypatch):
    (tmp_path / "empty").write_text("")
    async with api_server() as server:
        server.put(deployment())
        first = kubeconfig(tmp_path / "1", "x", current="x", x=server.url)
        last = kubeconfig(tmp_path / "2", "y", current="y")
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "empty"), str(first), str(last)]))
        with pytest.raises(NoSuchDeploymentError, match="namespace of-1-x"):
            await asyncio.to_thread(look_at_deployment, "none", None)


def test_a_context_that_is_not_there_gets_those_that_are(tmp_path):
    file = kubeconfig(tmp_path / "k", "prod", "staging", current="prod")
    assert refused(NoSuchContextError, file, "nope").endswith(f"{file} has no such context: there are prod, staging")
    assert refused(NoSuchContextError, file, "stagin").endswith("did you mean staging?")
    assert "--context is gone" in refused(NoSuchContextError, kubeconfig(tmp_path / "j", "a", current="gone"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": []}, "names cluster a, and there is none of that name"),
        ({"users": None}, "names user me, and there is none of that name"),
        ({"clusters": [{"name": "a", "cluster": {}}]}, "no address (server)"),
        ({"contexts": [{"name": "a", "context": {"user": "me"}}]}, "names no cluster"),
    ],
)
def test_a_context_that_leads_nowhere_says_what_is_missing(tmp_path, change, words):
    file = kubeconfig(tmp_path / "k", "a", current="a")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert words in refused(NoSuchContextError, file)


def test_without_a_current_context_one_is_to_be_chosen(tmp_path):
    file = kubeconfig(tmp_path / "k", "a", "b")
    assert "choose with --context, one of a, b" in refused(NoClusterError, file)
    assert choose_cluster("chat", file, "b", {}).context == "b"


@pytest.mark.parametrize("content", ["", "{}"], ids=["empty", "no contexts"])
def test_files_that_name_no_cluster_are_named(tmp_path, content):
    file = tmp_path / "k"
    file.write_text(content)
    assert f"no cluster is known: {file} holds no context" in refused(NoClusterError, file)


@pytest.mark.parametrize("content", [": not yaml", "words", "[1]", "clusters: {}", "users: [1]", "a: \tb"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path, content):
    file = tmp_path / "k"
    file.write_text(content)
    assert f"--kubeconfig is {file}: is no kubeconfig" in refused(NoSuchKubeconfigError, file)
    assert f"KUBECONFIG is {file}: is no kubeconfig" in refused(
        NoSuchKubeconfigError, None, env={"KUBECONFIG": str(file)}
    )


def test_a_file_that_is_missing_is_named_by_who_names_it(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    assert refused(NoSuchKubeconfigError, gone).startswith(f"--kubeconfig is {gone}: there is no such file")
    said = refused(NoSuchKubeconfigError, None, env={"KUBECONFIG": str(gone)})
    assert said.startswith(f"KUBECONFIG is {gone}: there is no such file: correct the variable")
    said = refused(NoSuchKubeconfigError, None, env={"KUBECONFIG": f"{gone}{os.pathsep}{gone}"})
    assert "none of these files is there" in said
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "set KUBECONFIG" in refused(NoClusterError, None)
    assert "there is no kubeconfig" in refused(NoSuchContextError, None, "prod")
    assert "can't be read" in refused(NoSuchKubeconfigError, tmp_path)


def test_inside_of_a_cluster_no_file_is_needed_but_for_a_context(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert choose_cluster("chat", None, None, inside).files == ()
    assert "there is no kubeconfig" in refused(NoSuchContextError, None, "prod", inside)
