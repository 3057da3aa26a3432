"""``slotune bench`` and ``slotune export``: one verdict on a running server, and a winner ready to apply."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from slotune.cli import main
from slotune.llama.engine import find_engine
from slotune.sandbox.process import LlamaProcess, new_alias
from tests.commands.manifests import manifest
from tests.tiny_models import write_tiny_model

pytestmark = [pytest.mark.alone, pytest.mark.engine]

on_the_server = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a tiny model on a real server, which every bench leaves running."""
    folder = tmp_path_factory.mktemp("bench")
    model = write_tiny_model(folder / "f16.gguf")
    alias = new_alias()
    args = ["-m", str(model), "--host", "127.0.0.1", "--port", "0", "--alias", alias]
    args += ["-np", "2", "-c", "512", "-t", "1", "--metrics", "--slots", "-lv", "4", "-fit", "off"]
    async with LlamaProcess(find_engine("embedded"), args, directory=folder / "server", alias=alias) as process:
        yield process.base_url


def bench(file: Path, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slotune.cli", "bench", "-f", str(file), "--url", url, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@on_the_server
async def test_a_running_server_gets_one_verdict_and_is_left_running(tmp_path, server):
    done = bench(manifest(tmp_path, model=False), server, "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["trial"]["verdict"]["outcome"] == "Pass"
    assert document["trial"]["candidate"]["parallel_slots"] == 2
    again = bench(manifest(tmp_path, model=False), server)
    assert again.returncode == 0
    assert again.stdout.startswith("Pass")


@on_the_server
async def test_a_promise_that_the_server_breaks_is_a_fail_with_exit_code_3(tmp_path, server):
    done = bench(manifest(tmp_path, model=False, slo__ttftP95="1ms"), server)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("Fail")


@on_the_server
async def test_the_server_gets_its_share_of_the_peak(tmp_path, server):
    done = bench(manifest(tmp_path, model=False), server, "--replicas", "4", "-o", "yaml")
    assert yaml.safe_load(done.stdout)["trial"]["rate"] == 5.0


@on_the_server
async def test_requests_that_no_slot_can_hold_are_refused_before_anything_is_sent(tmp_path, server):
    prompts = {"synthetic": {"inputTokens": {"mean": 600}}}
    done = bench(manifest(tmp_path, model=False, workload__inline__prompts=prompts), server)
    assert done.returncode == 2
    assert "--ctx-size" in done.stderr


def test_the_winner_is_exported_as_a_patch_as_flags_and_for_docker(tuned, capsys):
    out = tuned.out
    assert main(["export", str(out)]) == 0
    own = yaml.safe_load(capsys.readouterr().out)
    assert own["metadata"]["name"] == "tiny"
    assert own["spec"]["template"]["spec"]["containers"][0]["name"] == "server"
    assert main(["export", str(out), "--deployment", "chat", "--container", "main"]) == 0
    patch = yaml.safe_load(capsys.readouterr().out)
    assert patch["metadata"]["name"] == "chat"
    container = patch["spec"]["template"]["spec"]["containers"][0]
    assert container["name"] == "main"
    assert main(["export", str(out), "--format", "args"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words == container["args"]
    assert words[words.index("-m") + 1] == "/models/f16.gguf"
    assert main(["export", str(out), "--format", "docker"]) == 0
    docker = capsys.readouterr().out
    assert "docker run" in docker
    assert "--gpus" not in docker  # the class computes on the CPU
