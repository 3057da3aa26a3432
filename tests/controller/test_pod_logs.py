"""Logs of pods: what kubelet says in place of a log is none."""

from __future__ import annotations

from slotune.controller.pod_logs import read_logs
from slotune.sandbox.judgement import LogRequest
from tests.controller.fake_cluster import FakeCluster

BEFORE, NOW = LogRequest("llama", previous=True), LogRequest("llama")


async def test_the_log_of_an_instance_that_was_removed_is_left_out() -> None:
    cluster = FakeCluster()
    cluster.container_logs["models", "pod", "llama", True] = "unable to retrieve container logs for containerd://0f"
    cluster.container_logs["models", "pod", "llama", False] = "main: loading model"
    assert await read_logs(cluster, "models", "pod", [BEFORE, NOW]) == {NOW: "main: loading model"}
