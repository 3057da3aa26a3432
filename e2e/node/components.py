"""Which programs the node starts, in which order, and how each shows that it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.node.configuration import API_PORT, NODE_NAME, Layout

__all__ = ["Component", "components"]


@dataclass(frozen=True, slots=True)
class Component:
    """One program of the node."""

    name: str
    command: Sequence[str]
    ready: Sequence[str] = ()
    """A command that succeeds once the program serves; none when nothing waits for it."""


def components(layout: Layout) -> list[Component]:
    """Every program, in the order of starting."""
    folder, programs = layout.folder, layout.programs
    kubectl = [programs["kubectl"], "--kubeconfig", str(folder / "admin.kubeconfig")]
    return [
        Component(
            "containerd",
            [programs["containerd"], "--config", str(folder / "containerd.toml")],
            [programs["ctr"], "--address", str(folder / "containerd.sock"), "version"],
        ),
        Component(
            "etcd",
            # In memory, as /run is: the data die with the node, and the disk of a test machine may be slow.
            [programs["etcd"], "--data-dir", "/run/etcd", "--unsafe-no-fsync"],
        ),
        Component("kube-apiserver", _apiserver(layout), [*kubectl, "get", "--raw", "/readyz"]),
        Component("kube-controller-manager", _controller_manager(layout)),
        Component(
            "kube-scheduler",
            [
                programs["kube-scheduler"],
                f"--kubeconfig={folder}/kube-scheduler.kubeconfig",
                f"--authentication-kubeconfig={folder}/kube-scheduler.kubeconfig",
                f"--authorization-kubeconfig={folder}/kube-scheduler.kubeconfig",
                "--leader-elect=false",
            ],
        ),
        Component(
            "kubelet",
            [
                programs["kubelet"],
                f"--config={folder}/kubelet.yaml",
                f"--kubeconfig={folder}/kubelet.kubeconfig",
                f"--root-dir={folder}/kubelet",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={layout.addresses.node}",
            ],
        ),
        Component(
            "kube-proxy",
            [programs["kube-proxy"], f"--config={folder}/kube-proxy.yaml"],
        ),
    ]


def _apiserver(layout: Layout) -> list[str]:
    keys = layout.keys
    return [
        layout.programs["kube-apiserver"],
        f"--advertise-address={layout.addresses.node}",
        f"--secure-port={API_PORT}",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--service-cluster-ip-range={layout.addresses.services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={keys}/ca.crt",
        f"--requestheader-client-ca-file={keys}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys}/front-proxy-client.crt",
        f"--proxy-client-key-file={keys}/front-proxy-client.key",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        f"--kubelet-client-certificate={keys}/apiserver-kubelet.crt",
        f"--kubelet-client-key={keys}/apiserver-kubelet.key",
        "--kubelet-preferred-address-types=InternalIP",  # the node's name is in no DNS
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
    ]


def _controller_manager(layout: Layout) -> list[str]:
    keys, kubeconfig = layout.keys, layout.folder / "kube-controller-manager.kubeconfig"
    return [
        layout.programs["kube-controller-manager"],
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--cluster-cidr={layout.addresses.pods}",
        f"--service-cluster-ip-range={layout.addresses.services}",
        f"--root-ca-file={keys}/ca.crt",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        "--use-service-account-credentials=true",
    ]
