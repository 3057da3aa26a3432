"""Who is who in the cluster: its authorities, a certificate for each component, the key that signs service tokens."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.node.addresses import Addresses

__all__ = ["make_certificates"]

_DAYS = "30"


def make_certificates(folder: Path, addresses: Addresses, node_name: str, openssl: str) -> None:
    """Put ``NAME.crt`` and ``NAME.key`` of every component into ``folder``, with ``sa.key`` and ``sa.pub``."""
    folder.mkdir()
    # The system's own configuration would add extensions, and twice the same one makes no certificate.
    (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = names\n[names]\n")
    may_sign = _added(["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"])
    # The second one is for the API server as a proxy in front of other API servers.
    for authority in ("ca", "front-proxy-ca"):
        _run(openssl, *_new_key(folder, authority), "-subj", f"/CN=slotune-e2e-{authority}", *may_sign)
    _sign(openssl, folder, "front-proxy-client", "/CN=front-proxy-client", authority="front-proxy-ca")
    server = [f"IP:{address}" for address in ("127.0.0.1", addresses.node, addresses.api_service)]
    server += [f"DNS:kubernetes.default{rest}" for rest in ("", ".svc", ".svc.cluster.local")]
    _sign(openssl, folder, "apiserver", "/CN=kube-apiserver", server)
    # The group system:masters stands above RBAC: for the administrator, and for logs and exec through the kubelet.
    _sign(openssl, folder, "admin", "/O=system:masters/CN=admin")
    _sign(openssl, folder, "apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    _sign(openssl, folder, "kubelet", f"/O=system:nodes/CN=system:node:{node_name}", [f"IP:{addresses.node}"])
    for component in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _sign(openssl, folder, component, f"/CN=system:{component}")
    _run(openssl, "genrsa", "-out", str(folder / "sa.key"), "2048")
    _run(openssl, "rsa", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub"))


def _sign(
    openssl: str, folder: Path, name: str, subject: str, alternatives: Sequence[str] = (), *, authority: str = "ca"
) -> None:
    extensions = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth,serverAuth"]
    if alternatives:
        extensions.append(f"subjectAltName={','.join(alternatives)}")
    signer = ["-CA", str(folder / f"{authority}.crt"), "-CAkey", str(folder / f"{authority}.key")]
    _run(openssl, *_new_key(folder, name), *signer, "-subj", subject, *_added(extensions))


def _new_key(folder: Path, name: str) -> list[str]:
    command = ["req", "-x509", "-config", str(folder / "openssl.cnf"), "-days", _DAYS]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    return [*command, *curve, "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]


def _added(extensions: Sequence[str]) -> list[str]:
    return [word for extension in extensions for word in ("-addext", extension)]


def _run(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
