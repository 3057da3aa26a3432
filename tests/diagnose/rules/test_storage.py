"""Where weights come from is told by the driver's name, and who waits for it by times; nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.memory import RULES
from slotune.diagnose.rules.storage import Storage, storage_of
from slotune.gathering.log_file import read_log
from slotune.llama.log_story import LogStory
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, of, pod, server

GIB = 2**30
NFS = {"/models": "nfs"}
HEAD = "0.00.100.000 I build_info: b11549-abcdef0\n0.00.110.000 I srv   main: loading model\n"


def log(folder: Path, loaded: str, *requests: tuple[int, float]) -> LogStory:
    """Of a server that was up at a time; each request has (prompt tokens, milliseconds)."""
    text = f"{HEAD}{loaded} I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'\n"
    text += f"{loaded} I srv  main: model loaded\n"
    speeds = "( 1.00 ms per token, 1.00 tokens per second)"
    for task, (tokens, ms) in enumerate(requests):
        head = f"9.01.000.000 I slot print_timing: id  0 | task {task} | "
        text += f"9.01.000.000 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0\n"
        text += f"{head}prompt eval time = {ms:10.2f} ms / {tokens:5d} tokens {speeds}\n"
        text += f"{head}       eval time =     100.00 ms /    11 tokens {speeds}\n"
        text += f"9.01.000.000 I slot      release: id  0 | task {task} | stop processing: n_tokens = {tokens + 10}, "
        text += "truncated = 0\n"
    path = folder / "server.log"
    path.write_text(text)
    (story,) = read_log(path)
    return story


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("nfs", Storage.SHARE),
        ("persistentVolumeClaim (nfs)", Storage.SHARE),
        ("persistentVolumeClaim (csi file.csi.azure.com)", Storage.SHARE),
        ("azureFile", Storage.SHARE),
        ("persistentVolumeClaim (csi efs.csi.aws.com)", Storage.SHARE),
        ("persistentVolumeClaim (csi fsx.csi.aws.com)", Storage.SHARE),
        ("persistentVolumeClaim (csi rook-ceph.cephfs.csi.ceph.com)", Storage.SHARE),
        ("persistentVolumeClaim (csi rook-ceph.rbd.csi.ceph.com)", Storage.NETWORK_DISK),
        ("persistentVolumeClaim (csi ebs.csi.aws.com)", Storage.NETWORK_DISK),
        ("awsElasticBlockStore", Storage.NETWORK_DISK),
        ("persistentVolumeClaim (csi pd.csi.storage.gke.io)", Storage.NETWORK_DISK),
        ("persistentVolumeClaim (csi driver.longhorn.io)", Storage.NETWORK_DISK),
        ("persistentVolumeClaim (csi csi.juicefs.com)", Storage.OBJECT_STORE),
        ("persistentVolumeClaim (csi blob.csi.azure.com)", Storage.OBJECT_STORE),
        ("flexVolume azure/blobfuse", Storage.OBJECT_STORE),
        ("csi s3.csi.aws.com", Storage.OBJECT_STORE),
        ("csi ch.ctrox.csi.s3-driver", Storage.OBJECT_STORE),
        ("csi csi-rclone", Storage.OBJECT_STORE),
        ("persistentVolumeClaim (csi csi.trident.netapp.io)", Storage.NETWORK),
        ("persistentVolumeClaim (local)", Storage.NODE),
        ("persistentVolumeClaim (csi topolvm.io)", Storage.NODE),
        ("emptyDir", Storage.NODE),
        ("emptyDir (memory)", Storage.NODE),
        ("hostPath", Storage.NODE),
        ("image", Storage.NODE),
        ("persistentVolumeClaim", None),
        ("persistentVolumeClaim (class nfs-fast)", None),
        ("csi example.com", None),
        ("csi secrets-store.csi.k8s.io", None),
    ],
)
def test_storage_is_known_by_its_driver(kind: str, want: Storage | None) -> None:
    assert storage_of(kind) is want


def test_a_share_costs_the_start_and_is_worth_knowing(tmp_path: Path) -> None:
    slow, large = log(tmp_path, "5.00.000.000"), server(model=ModelMeta("m", size_bytes=30 * 10**9))
    got = found(RULES, "SLT035", of(pod=pod(volumes=NFS), log=slow, server=large), Severity.INFO)
    assert "on a share over the network (nfs)" in got.sentence
    assert "up 300 s after its start" in got.sentence
    assert "100 MB a second" in got.sentence
    assert "first requests" not in got.sentence


def test_a_share_that_made_no_start_long_is_no_finding(tmp_path: Path) -> None:
    assert is_clear(RULES, "SLT035", of(pod=pod(volumes=NFS), log=log(tmp_path, "0.12.000.000")))
    assert is_clear(RULES, "SLT035", of(pod=pod(volumes=NFS, ready_after_s=14.0)))
    found(RULES, "SLT035", of(pod=pod(volumes=NFS, ready_after_s=500.0)), Severity.INFO)


@pytest.mark.parametrize(
    ("image", "args", "says"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-b11434", (), "--load-mode none"),
        ("ghcr.io/ggml-org/llama.cpp:server-b6000", (), "--no-mmap"),
        ("ghcr.io/ggml-org/llama.cpp:server-b6000", ("--no-mmap",), None),
        ("ghcr.io/ggml-org/llama.cpp:server-b6000", ("-dio",), None),
        ("ghcr.io/ggml-org/llama.cpp:server-b6000", ("--mlock",), None),
        ("ghcr.io/ggml-org/llama.cpp:server-b11434", ("-lm", "mlock"), None),
        ("ghcr.io/ggml-org/llama.cpp:server-b11434", ("-lm", "none"), None),
    ],
)
def test_no_flag_is_advised_that_this_build_refuses(image: str, args: tuple[str, ...], says: str | None) -> None:
    got = found(RULES, "SLT035", of(pod=pod(*args, volumes=NFS, image=image)), Severity.INFO)
    assert ("mmap" in (got.first or ""), "--load-mode" in (got.first or "")) == (
        says == "--no-mmap",
        says == "--load-mode none",
    )


def test_a_first_prompt_that_waited_for_its_pages_is_found(tmp_path: Path) -> None:
    prompts = ((500, 9000.0), *((500, 1000.0),) * 8)
    story = log(tmp_path, "0.02.000.000", *prompts)
    got = found(RULES, "SLT035", of(pod=pod("--no-warmup", volumes=NFS), log=story))
    assert got.cost.ttft_s == pytest.approx(8.0, abs=0.1)
    assert "--no-warmup" in (got.first or "")
    assert is_clear(RULES, "SLT035", of(pod=pod(volumes=NFS), log=story)), "with the warm-up it was something else"
    assert is_clear(RULES, "SLT035", of(pod=pod("--warmup", volumes=NFS), log=story))
    even = log(tmp_path, "0.02.000.000", *((500, 1000.0),) * 9)
    assert is_clear(RULES, "SLT035", of(pod=pod("--no-warmup", volumes=NFS), log=even))


def test_a_log_alone_decides_by_its_times(tmp_path: Path) -> None:
    assert is_clear(RULES, "SLT035", of(log=log(tmp_path, "0.12.000.000")))
    slow = log(tmp_path, "5.00.000.000")
    assert is_undecided(RULES, "SLT035", of(log=slow)), "how much it read nobody says"
    large = server(model=ModelMeta("m", size_bytes=30 * 10**9))
    assert found(RULES, "SLT035", of(log=slow, server=large), Severity.INFO).confidence is Confidence.POSSIBLE
    larger = server(model=ModelMeta("m", size_bytes=300 * 10**9))
    assert is_clear(RULES, "SLT035", of(log=slow, server=larger))


def test_weights_on_the_node_are_clear() -> None:
    assert is_clear(RULES, "SLT035", of(pod=pod(volumes={"/models": "hostPath", "/scratch": "nfs"})))
    assert is_clear(RULES, "SLT035", of(pod=pod(volumes={"/data": "nfs"})))


def test_what_is_behind_a_claim_is_not_guessed_and_what_would_tell_is_said(tmp_path: Path) -> None:
    claim = pod(volumes={"/models": "persistentVolumeClaim (class nfs-fast)"})
    needs = ask(RULES, "SLT035", of(pod=claim)).needs  # type: ignore[union-attr]  # undecided, or it fails
    assert "a log with time stamps that holds the server's start" in needs
    assert "PersistentVolumes" in needs
    assert is_clear(RULES, "SLT035", of(pod=claim, log=log(tmp_path, "0.12.000.000")))
    assert is_undecided(RULES, "SLT035", NOTHING)
