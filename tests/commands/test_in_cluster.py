"""Whoever names a cluster that can't be used, or names nonsense, is told so on one line; nothing is asked of any."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from slotune.cli import main
from slotune.commands.outcomes import ExitCode

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {token: none}}]
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: "%s"}}]
"""

BROKEN = {
    "no YAML": b"clusters: [",
    "no text": b"\xff\xfe\x00\xd8kubeconfig",
    "a list": b"- clusters\n",
    "empty": b"",
    "a certificate that is no base64": (KUBECONFIG % "%%%%").encode(),
    "a certificate that is none": (KUBECONFIG % base64.b64encode(b"hello").decode()).encode(),
    "no contexts": b"apiVersion: v1\nkind: Config\ncurrent-context: here\n",
}

OPERATOR = ["operator", "--trial-image", "slotune:1"]
NONSENSE = {
    "no image": (["operator", "--trial-image", ""], "--trial-image"),
    "two words as an image": (["operator", "--trial-image", "slotune 1"], "--trial-image"),
    "a namespace that is a path": ([*OPERATOR, "--namespace", "a/b?x"], "--namespace"),
    "a namespace in capitals": (["release", "--namespace", "Shop"], "--namespace"),
    "an empty namespace": (["release", "--namespace", ""], "--namespace"),
    "a name that is a path": (["release", "--all-namespaces", "--name", "../chat"], "--name"),
}


@pytest.mark.parametrize("command", [["release", "--all-namespaces"], OPERATOR], ids=["release", "operator"])
@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_kubeconfig_that_cannot_be_read_is_named_with_the_cure(
    command: list[str],
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert main(command) == ExitCode.INVALID_INPUT
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "name a kubeconfig with KUBECONFIG" in said


@pytest.mark.parametrize(("command", "field"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_before_any_cluster_is_asked(
    command: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == ExitCode.INVALID_INPUT
    assert field in capsys.readouterr().err.splitlines()[-1]


def test_one_port_cannot_serve_both_health_and_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPERATOR, "--health-port", "9090"]) == ExitCode.INVALID_INPUT
    assert "choose another one" in capsys.readouterr().err
