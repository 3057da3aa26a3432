"""Where the weights are read from, and how: mapped page by page, or read whole before it serves."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import shown, stated
from slotune.diagnose.symptoms import Symptoms

__all__ = ["WEIGHTS_FROM_SLOW_STORAGE", "read_whole", "weights_from_slow_storage"]

_NETWORK: Final = frozenset(
    {"nfs", "cephfs", "glusterfs", "azurefile", "cifs", "smb", "efs", "filestore", "iscsi", "rbd", "gcsfuse", "s3"}
)
"""Words of kinds of volumes (``nfs``, ``csi efs.csi.aws.com``) whose pages come over a network at the first touch."""
_WHOLE: Final = (("none",), ("dio",))
"""Ways of loading (-lm) after which all weights are memory of the process. One that may not lock pages maps them."""
_LOCAL: Final = frozenset({"emptydir", "hostpath", "local", "configmap", "secret", "image", "projected", "downwardapi"})

WEIGHTS_FROM_SLOW_STORAGE: Final = Entry(
    id="SLT035",
    code="WeightsFromSlowStorage",
    item=Item.MEMORY,
    title="The weights are read over a network when they are touched first",
    cause="A mapped file is read page by page when a page is used for the first time, so the first requests after a "
    "start wait for the network, although the server says that it is ready.",
    first="Keep the file on the node (a local volume, or an image volume), or read it whole before serving: "
    "--load-mode none.",
    avoid="Do not judge the server by its first requests, and do not let it serve users before them.",
    verify="The first long prompt after a restart takes as long as the tenth.",
    knobs=("extraArgs",),
)


def weights_from_slow_storage(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the weights are mapped from a network."""
    pod, path = symptoms.pod, _model_path(symptoms)
    if pod is None or not path.startswith("/"):
        where = "where the model file lies: -m PATH in the arguments"
        return Undecided("--deployment: the volumes of its pods" if pod is None else where)
    mounts = [mount for mount in pod.volumes if PurePosixPath(path).is_relative_to(mount)]
    if not mounts:
        return Clear("the model file is part of the image, or of the container")
    mount = max(mounts, key=len)
    kind = pod.volumes[mount]
    told = Evidence(Source.POD, f"{mount} is of {kind}"[:LONGEST])
    words = set(re.findall(r"[a-z0-9]+", kind.lower()))
    if not words & _NETWORK:
        if words & _LOCAL:
            return Clear("the model file lies on the node", (told,))
        return Undecided(f"what kind of storage is behind {mount} ({kind})")
    whole = read_whole(symptoms)
    if whole is not None:
        return Clear("the file is read whole before it serves", (whole, told))
    return Finding(
        WEIGHTS_FROM_SLOW_STORAGE,
        f"the weights are mapped from {kind}, so the first requests after a start wait for the network",
        (told,),
        Severity.INFO,
        Confidence.LIKELY,
    )


def _model_path(symptoms: Symptoms) -> str:
    """As stated, or as the server says; empty when neither does."""
    setting = stated(symptoms).get("-m")
    if setting is not None and setting.values:
        return setting.values[0]
    props = None if symptoms.server is None else symptoms.server.props
    return "" if props is None else props.model_path


def read_whole(symptoms: Symptoms) -> Evidence | None:
    """The argument by which all weights are read into memory of the process, in place of being mapped."""
    settings = stated(symptoms)
    if "--no-mmap" in settings:
        return shown(settings["--no-mmap"])
    mode = settings.get("-lm")
    return shown(mode) if mode is not None and mode.values[:1] in _WHOLE else None
