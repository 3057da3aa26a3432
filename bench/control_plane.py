"""A real API server with its etcd and nothing else, on the loopback, which writes down who asked it for what."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["ControlPlane", "control_plane"]

START_LIMIT_S = 120.0
SUBJECT = "slotune"
"""The user whose requests are written down."""

_AUDIT_POLICY = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {{level: Metadata, users: [{SUBJECT}], verbs: [watch], omitStages: [RequestReceived, ResponseComplete]}}
- {{level: Metadata, users: [{SUBJECT}], omitStages: [RequestReceived, ResponseStarted]}}
- {{level: None}}
"""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One API server."""

    client: httpx.Client
    """An administrator's."""
    kubeconfig: Path
    """For the user whose requests are written down; it may do everything."""
    audit: Path
    pid: int
    """Of the API server."""

    def apply(self, path: str, manifest: dict[str, Any]) -> None:
        """Server-side apply."""
        query = {"fieldManager": "bench", "force": "true"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        answer = self.client.patch(path, params=query, content=json.dumps(manifest), headers=headers)
        answer.raise_for_status()

    def requests(self) -> list[str]:
        """What the user has asked so far, such as ``patch llamadeployments/status``. A watch counts when it begins."""
        if not self.audit.exists():
            return []
        lines = self.audit.read_bytes().split(b"\n")[:-1]  # what follows the last line break is still being written
        return [_request(json.loads(line)) for line in lines]


@contextmanager
def control_plane(programs: Path, folder: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver of ``programs`` run during the block, with their data in ``folder``."""
    etcd, peers, port = _free_port(), _free_port(), _free_port()
    tokens = {name: secrets.token_hex(16) for name in ("admin", SUBJECT)}
    (folder / "tokens.csv").write_text("".join(f"{token},{name},{name}\n" for name, token in tokens.items()))
    (folder / "audit.yaml").write_text(_AUDIT_POLICY)
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    commands = [
        [
            str(programs / "etcd"),
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
        ],
        [
            str(programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=AlwaysAllow",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={folder / 'audit.yaml'}",
            f"--audit-log-path={folder / 'audit.log'}",
        ],
    ]
    address = f"https://127.0.0.1:{port}"
    certificate = folder / "apiserver.crt"  # it signs itself, so it is its own authority
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(address, certificate, tokens[SUBJECT])))
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
                # They end with this process, however it ends.
                tied = ["setpriv", "--pdeathsig", "KILL", *command]
                running.append(subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        headers = {"Authorization": f"Bearer {tokens['admin']}"}
        _wait_for(certificate, running, folder)
        trust = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=address, verify=trust, headers=headers, timeout=60, trust_env=False) as client:
            _wait_until_ready(client, running, folder)
            yield ControlPlane(client, kubeconfig, folder / "audit.log", running[-1].pid)
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _request(event: dict[str, Any]) -> str:
    asked = event.get("objectRef", {"resource": event["requestURI"]})
    return f"{event['verb']} {'/'.join(filter(None, (asked['resource'], asked.get('subresource'))))}"


def _kubeconfig(address: str, certificate: Path, token: str) -> dict[str, Any]:
    name = "bench"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": address, "certificate-authority": str(certificate)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _wait_for(file: Path, running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not file.exists():
        _check(running, folder, deadline)
        time.sleep(0.1)


def _wait_until_ready(client: httpx.Client, running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            if client.get("/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        _check(running, folder, deadline)
        time.sleep(0.1)


def _check(running: list[subprocess.Popen[bytes]], folder: Path, deadline: float) -> None:
    ended = [process for process in running if process.poll() is not None]
    if ended or time.monotonic() > deadline:
        logs = {path.name: path.read_text()[-2000:] for path in sorted(folder.glob("*.log"))}
        raise RuntimeError(f"the API server did not come up: {logs}")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
