"""The configuration file of each component, as a function from the node's facts to text.

Everything that a real cluster has switched on is on: RBAC and the node authorizer, Pod Security admission, API
priority and fairness, a kubelet that asks who calls it. What differs is commented where it stands.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from e2e.node.addresses import Addresses
from e2e.node.programs import CNI_FOLDER, Programs

__all__ = ["API_PORT", "NODE_NAME", "PAUSE_IMAGE", "Layout", "first_objects", "write_configuration"]

NODE_NAME = "slotune-e2e"
PAUSE_IMAGE = "localhost/busybox:e2e"
API_PORT = 6443


@dataclass(frozen=True, slots=True)
class Layout:
    """What the files are written from."""

    folder: Path
    addresses: Addresses
    cgroup: str
    programs: Programs

    @property
    def keys(self) -> Path:
        """Certificates and keys."""
        return self.folder / "keys"


def write_configuration(layout: Layout) -> None:
    """Write every configuration file into the node's folder."""
    (layout.folder / "cni").mkdir()
    texts = {
        "containerd.toml": _containerd(layout),
        "cni/10-bridge.conflist": _network(layout),
        "kubelet.yaml": _kubelet(layout),
        "kube-proxy.yaml": _proxy(layout),
    }
    # The administrator's one is used from outside; both addresses are the node's own.
    for user in ("admin", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
        texts[f"{user}.kubeconfig"] = _kubeconfig(layout, user)
    for name, text in texts.items():
        path = layout.folder / name
        path.touch(mode=0o600)
        path.write_text(text)


def first_objects(addresses: Addresses) -> str:
    """What a cluster comes with, as JSON to apply.

    The name service is one without a server, so that a pod which looks a name up is refused at once. With no such
    Service at all it would wait, and kubelet would warn about every pod.
    """
    ports = [{"name": name.lower(), "port": 53, "protocol": name} for name in ("UDP", "TCP")]
    metadata = {"namespace": "kube-system", "name": "kube-dns", "labels": {"k8s-app": "kube-dns"}}
    spec = {"clusterIP": addresses.name_service, "ports": ports}
    return json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


def _kubeconfig(layout: Layout, user: str) -> str:
    def inline(name: str) -> str:
        return base64.b64encode((layout.keys / name).read_bytes()).decode()

    server = f"https://{layout.addresses.node}:{API_PORT}"
    cluster = {"server": server, "certificate-authority-data": inline("ca.crt")}
    identity = {"client-certificate-data": inline(f"{user}.crt"), "client-key-data": inline(f"{user}.key")}
    name = "slotune-e2e"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
    )


def _containerd(layout: Layout) -> str:
    # restrict_oom_score_adj: a container's root often lacks CAP_SYS_RESOURCE, and then no pod could be created.
    return f"""version = 2
root = "{layout.folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{layout.folder}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{layout.programs["runc"]}"
  SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_FOLDER}"
  conf_dir = "{layout.folder}/cni"
"""


def _network(layout: Layout) -> str:
    addresses = {
        "type": "host-local",
        "dataDir": f"{layout.folder}/cni-addresses",
        "ranges": [[{"subnet": layout.addresses.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})


def _kubelet(layout: Layout) -> str:
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{layout.folder}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{layout.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(layout.keys / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(layout.keys / "kubelet.crt"),
            "tlsPrivateKeyFile": str(layout.keys / "kubelet.key"),
            "clusterDNS": [layout.addresses.name_service],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "volumePluginDir": f"{layout.folder}/volume-plugins",
            # Images cannot be pulled again, and a test machine's disk may be fuller than a server's.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
        }
    )


def _proxy(layout: Layout) -> str:
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "hostnameOverride": NODE_NAME,
            "clusterCIDR": layout.addresses.pods,
            "clientConnection": {"kubeconfig": f"{layout.folder}/kube-proxy.kubeconfig"},
            # The table of connections is the machine's, not the node's: its size stays as it is.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
    )
