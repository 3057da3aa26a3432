"""How far away a volume is: on the node, on a disk over the network, on a share, or in an object store.

By the names of in-tree volume types and of CSI drivers, as their own CSIDriver objects have them. A driver that is not
here is not guessed.
"""

from __future__ import annotations

import enum
import re
from typing import Final

__all__ = ["Storage", "storage_of"]


class Storage(enum.Enum):
    """Where its bytes come from; the value says it in words."""

    NODE = "on the node"
    NETWORK_DISK = "on a disk over the network"
    SHARE = "on a share over the network"
    OBJECT_STORE = "in an object store"
    NETWORK = "behind a network"
    """On a disk or a share: the driver has both."""

    @property
    def is_remote(self) -> bool:
        """Whether bytes that are not cached on the node come over a network."""
        return self is not Storage.NODE


_WORDS: Final = (
    (
        Storage.OBJECT_STORE,
        "s3 gcsfuse blobfuse blobfuse2 goofys geesefs rclone juicefs ossfs oss obs cosfs objectivefs",
    ),
    (
        Storage.SHARE,
        (
            "nfs nfs3 nfs4 cephfs glusterfs azurefile cifs smb efs filestore fsx lustre wekafs beegfs gpfs "
            "spectrumscale quobyte nas cpfs seaweedfs moosefs isilon manila parallelstore hdfs virtiofs"
        ),
    ),
    (
        Storage.NETWORK_DISK,
        (
            "iscsi rbd ebs awselasticblockstore azuredisk pd gcepersistentdisk cinder longhorn fc storageos linstor "
            "drbd mayastor vspherevolume scaleio evs blockvolume dobs linodebs photonpersistentdisk nvmeof"
        ),
    ),
    (Storage.NETWORK, "portworx portworxvolume pxd trident purestorage powerstore vast harvester"),
    (Storage.NODE, "emptydir hostpath local localpv image topolvm lvm localdisk directpv openlocal carina"),
)
_STORAGE: Final = tuple((storage, frozenset(words.split())) for storage, words in _WORDS)
_KNOWN: Final = {
    "ebs.csi.aws.com": Storage.NETWORK_DISK,
    "efs.csi.aws.com": Storage.SHARE,
    "fsx.csi.aws.com": Storage.SHARE,
    "fsx.openzfs.csi.aws.com": Storage.SHARE,
    "s3.csi.aws.com": Storage.OBJECT_STORE,
    "file.csi.azure.com": Storage.SHARE,
    "disk.csi.azure.com": Storage.NETWORK_DISK,
    "blob.csi.azure.com": Storage.OBJECT_STORE,
    "localdisk.csi.acstor.io": Storage.NODE,
    "pd.csi.storage.gke.io": Storage.NETWORK_DISK,
    "filestore.csi.storage.gke.io": Storage.SHARE,
    "gcsfuse.csi.storage.gke.io": Storage.OBJECT_STORE,
    "lustre.csi.storage.gke.io": Storage.SHARE,
    "parallelstore.csi.storage.gke.io": Storage.SHARE,
    "driver.longhorn.io": Storage.NETWORK_DISK,
    "csi.juicefs.com": Storage.OBJECT_STORE,
    "csi.ovirt.org": Storage.NETWORK_DISK,
    "csi.hetzner.cloud": Storage.NETWORK_DISK,
    "csi.vsphere.vmware.com": Storage.NETWORK_DISK,
    "csi.trident.netapp.io": Storage.NETWORK,
    "cinder.csi.openstack.org": Storage.NETWORK_DISK,
    "manila.csi.openstack.org": Storage.SHARE,
    "dobs.csi.digitalocean.com": Storage.NETWORK_DISK,
    "linodebs.csi.linode.com": Storage.NETWORK_DISK,
    "csi.scaleway.com": Storage.NETWORK_DISK,
    "block.csi.vultr.com": Storage.NETWORK_DISK,
    "blockvolume.csi.oraclecloud.com": Storage.NETWORK_DISK,
    "fss.csi.oraclecloud.com": Storage.SHARE,
    "nfs.csi.k8s.io": Storage.SHARE,
    "smb.csi.k8s.io": Storage.SHARE,
    "hostpath.csi.k8s.io": Storage.NODE,
    "image.csi.k8s.io": Storage.NODE,
    "topolvm.io": Storage.NODE,
    "topolvm.cybozu.com": Storage.NODE,
    "local.csi.openebs.io": Storage.NODE,
    "zfs.csi.openebs.io": Storage.NODE,
    "io.openebs.csi-mayastor": Storage.NETWORK_DISK,
    "linstor.csi.linbit.com": Storage.NETWORK_DISK,
    "diskplugin.csi.alibabacloud.com": Storage.NETWORK_DISK,
    "nasplugin.csi.alibabacloud.com": Storage.SHARE,
    "ossplugin.csi.alibabacloud.com": Storage.OBJECT_STORE,
    "csi.weka.io": Storage.SHARE,
    "beegfs.csi.netapp.com": Storage.SHARE,
    "pxd.portworx.com": Storage.NETWORK,
    "ru.yandex.s3.csi": Storage.OBJECT_STORE,
}
"""Drivers by their whole name; of Rook and Ceph the namespace stands before it."""


def storage_of(kind: str) -> Storage | None:
    """Of a kind of volume in the words of :func:`slotune.gathering.volume_kinds.volume_kinds`; None: not known.

    The class of a claim is a name that somebody chose, and tells nothing.
    """
    words = re.sub(r"\(class [^)]*\)", "", kind).strip()
    words = re.sub(r"^persistentVolumeClaim ?\(?", "", words).removesuffix(")").strip()
    if words.startswith(("emptyDir", "ephemeral")):
        return Storage.NODE if words.startswith("emptyDir") else None
    interface, _, driver = words.partition(" ")
    if interface in {"csi", "flexVolume"}:
        name = driver.split(" ")[0].lower()
        known = _KNOWN.get(name)
        return known if known is not None else _by_words(name)
    return _by_words(interface.lower())


def _by_words(name: str) -> Storage | None:
    """By a word of the name; the domain that it ends in is the maker's, and may be called anything."""
    for part in name.split("."):
        for word in (part, *re.split(r"[^a-z0-9]+", part)):
            if (found := next((storage for storage, words in _STORAGE if word in words), None)) is not None:
                return found
    return None
