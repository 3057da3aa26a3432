"""Bad input gets one clear message and exit code 2, and nothing is started, written or changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slotune.cli import main
from tests.commands.manifests import manifest

ARGS = "template__spec__containers__0__args"
IMAGE = "template__spec__containers__0__image"
OF_B11434 = "ghcr.io/ggml-org/llama.cpp:server-b11434"
OLD_FLAG = ["-m", "/models/f16.gguf", "--no-mmap"]


def tune(tmp_path: Path, file: Path) -> int:
    return main(
        ["tune", "-f", str(file), "--models-dir", str(tmp_path), "--engine", "embedded", "--out", str(tmp_path / "out")]
    )


def remove(tmp_path: Path) -> None:
    (tmp_path / "f16.gguf").unlink()


def prompts_of(tokens: int) -> dict[str, object]:
    return {"synthetic": {"inputTokens": {"mean": tokens}}}


def truncate(tmp_path: Path) -> None:
    path = tmp_path / "f16.gguf"
    path.write_bytes(path.read_bytes()[:-4096])


def scribble(tmp_path: Path) -> None:
    (tmp_path / "f16.gguf").write_bytes(b"this is no model at all, it only has its name" * 10)


def empty(tmp_path: Path) -> None:
    (tmp_path / "f16.gguf").write_bytes(b"")


def write_latin1(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_bytes('{"text": "schön"}\n'.encode("latin-1"))


def write_broken_line(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"text": "a secret question"}\n{"text": \n')


def write_long_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"text": "word " * 40_000}) + "\n")


FROM_FILE = {"workload__inline__prompts": {"file": {"path": "prompts.jsonl"}}}
LONG = {"workload__inline__prompts": prompts_of(3000)}

CASES = {
    "a model file that is not there": (
        {},
        remove,
        ["spec.models[0].path", "--models-dir"],
    ),
    "a truncated model file": ({}, truncate, ["f16.gguf", "cut off", "download it again"]),
    "a file that is no model": ({}, scribble, ["f16.gguf", "GGUF"]),
    "an empty model file": ({}, empty, ["f16.gguf"]),
    "a price of zero": (None, None, ["spec.pricePerHour", "0"]),
    "prompts that are not UTF-8": (FROM_FILE, write_latin1, ["prompts.jsonl:1", "UTF-8"]),
    "prompts with a broken line": (FROM_FILE, write_broken_line, ["prompts.jsonl:2", "JSON"]),
    "a prompt file that is not there": (FROM_FILE, None, ["prompts.jsonl", "can't be read"]),
    "prompts longer than the model's context": (LONG, None, ["3004", "2048"]),
    "real prompts longer than the model's context": (FROM_FILE, write_long_prompts, ["2048"]),
    "prompts longer than the allowed context": (
        {
            "search__space__contextSizePerSlot": [256],
            "workload__inline__prompts": prompts_of(500),
        },
        None,
        ["spec.search.space.contextSizePerSlot", "256", "504"],
    ),
    "an unknown flag": ({ARGS: ["-m", "/models/f16.gguf", "--paralell", "4"]}, None, ["--paralell", "--parallel"]),
    "a removed flag": ({IMAGE: OF_B11434, ARGS: OLD_FLAG}, None, ["--no-mmap", "removed", "-lm none"]),
    "a flag of early builds in an image that does not say its own": ({ARGS: OLD_FLAG}, None, ["--engine", "--no-mmap"]),
    "a model that is none of the variants": (
        {ARGS: ["-m", "/models/x.gguf"]},
        None,
        ["/models/x.gguf", "spec.models"],
    ),
    "a shell that hides the flags": (
        {"template__spec__containers__0__command": ["sh", "-c", "llama-server -m x"]},
        None,
        ["command", "shell"],
    ),
    "a flag that the embedded engine does not take": (
        {ARGS: ["-m", "/models/f16.gguf", "-c", "256", "--jinja"]},
        None,
        ["--engine", "--jinja", "--engine PATH"],
    ),
    "too few requests to ever pass": ({"measurement__confidence": "0.99"}, None, ["requestsPerRun"]),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_bad_input_names_the_field_and_the_cure_and_changes_nothing(case, tmp_path, capsys):
    changes, spoil, words = CASES[case]
    file = manifest(tmp_path, **(changes or {}))
    if changes is None:
        file.write_text(file.read_text().replace("0.10", "0"))
    if spoil is not None:
        spoil(tmp_path)
    before = sorted(tmp_path.iterdir())
    code = tune(tmp_path, file)
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.out == ""
    assert all(word in said.err for word in words), said.err
    assert "Traceback" not in said.err
    assert "secret" not in said.err
    assert sorted(tmp_path.iterdir()) == before


def test_every_command_refuses_a_manifest_that_is_not_there(tmp_path, capsys):
    for command in (["tune"], ["plan"], ["validate"], ["bench", "--url", "http://127.0.0.1:1"]):
        assert main([*command, "-f", str(tmp_path / "none.yaml")]) == 2
        assert "none.yaml" in capsys.readouterr().err


def test_an_engine_that_is_not_there_is_named_with_the_cure(tmp_path, capsys):
    code = main(["tune", "-f", str(manifest(tmp_path)), "--models-dir", str(tmp_path), "--engine", "/no/llama-server"])
    assert code == 2
    assert "/no/llama-server" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://[::1", "http://127.0.0.1:99999"]
)
def test_an_address_that_is_none_is_refused(url, tmp_path, capsys):
    assert main(["bench", "-f", str(manifest(tmp_path)), "--url", url]) == 2
    assert "--url" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_refused_before_anything_is_sent(tmp_path, capsys):
    assert main(["bench", "-f", str(manifest(tmp_path)), "--url", "http://127.0.0.1:9"]) == 2
    assert "no llama-server answers" in capsys.readouterr().err


def test_export_of_a_folder_without_an_answer_says_so(tmp_path, capsys):
    assert main(["export", str(tmp_path)]) == 2
    assert "decision.json" in capsys.readouterr().err


def test_files_that_cannot_be_written_are_named_without_a_traceback(demo_model, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    command = ["engine", "requantize", str(demo_model), "--to", "Q8_0", "--out", str(tmp_path / "file")]
    assert main(command) == 2
    assert "file" in capsys.readouterr().err


def test_an_empty_path_is_refused(tmp_path, capsys):
    for more in (["-f", ""], ["-f", str(manifest(tmp_path)), "--out", ""]):
        with pytest.raises(SystemExit) as stopped:
            main(["tune", *more])
        assert stopped.value.code == 2
        assert "is empty" in capsys.readouterr().err


def test_the_shipped_examples_can_be_checked_as_one_folder(capsys):
    assert main(["validate", "-f", "examples"]) == 0
    assert "support-chat: valid" in capsys.readouterr().out
