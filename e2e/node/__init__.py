"""A real single-node Kubernetes inside namespaces of its own, on one machine, as root.

Everything of the node (etcd, the control plane, containerd, kubelet, kube-proxy and every pod) lives in one process
namespace, one mount namespace and one network namespace. So nothing of it can touch the machine's firewall rules,
mounts or ports, and ending one process ends it all, even after a crash. The obvious other way, starting the same
programs beside everything else on the machine, needs a list of what to undo that is never quite complete.

What remains outside, and is recorded before it is made: a folder, a cgroup, one network link (``record.py``).
"""
