"""Any file may come: the good ones are sampled with bounded memory, the bad ones are told where and how."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotune.load import jsonl
from slotune.load.demand import Prompt
from slotune.load.jsonl import InputFileError
from slotune.load.prompts import parse_prompts, read_prompts


def write(folder: Path, content: bytes) -> Path:
    path = folder / "prompts.jsonl"
    path.write_bytes(content)
    return path


def test_every_shape_of_a_prompt_is_read(tmp_path: Path) -> None:
    lines = [
        '"plain"',
        '{"prompt": "named", "max_tokens": 7, "source": "ignored"}',
        '{"text": "also named"}',
        '{"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}], "max_tokens": 3}',
        '{"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}',
    ]
    read = read_prompts(write(tmp_path, "\n".join(lines).encode()))
    assert read.prompts[0] == Prompt(text="plain")
    assert read.prompts[1] == Prompt(text="named", max_tokens=7)
    assert read.prompts[2] == Prompt(text="also named")
    messages = read.prompts[3].messages
    assert messages is not None
    assert messages[1] == {"role": "user", "content": "hi"}
    assert read.prompts[3].max_tokens == 3
    assert (read.lines, read.sampled) == (5, False)


def test_blank_lines_a_byte_order_mark_and_crlf_are_fine(tmp_path: Path) -> None:
    read = read_prompts(write(tmp_path, b'\xef\xbb\xbf"a"\r\n\r\n   \r\n"b"\r\n'))
    assert [prompt.text for prompt in read.prompts] == ["a", "b"]


def test_the_digest_is_that_of_the_prompts_and_not_of_line_ends(tmp_path: Path) -> None:
    one = read_prompts(write(tmp_path, b'"a"\n"b"\n')).digest
    assert read_prompts(write(tmp_path, b'"a"\r\n\r\n"b"')).digest == one
    assert read_prompts(write(tmp_path, b'"a"\n"c"\n')).digest != one


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", None, "holds no prompt"),
        (b"\n \n", None, "holds no prompt"),
        (b'"a"\n{"prompt": "b"\n', 2, "no JSON"),
        (b'"a"\nsecret\n', 2, "no JSON"),
        (b'"a"\n"secret \xff"\n', 2, "not UTF-8 at byte 9 of the line: save the file as UTF-8"),
        ('"secret"\n'.encode("utf-16"), 1, "UTF-8"),
        (b"[\n", 1, "one JSON value per line"),
        (b"17\n", 1, "a JSON number is no prompt"),
        (b'["secret"]\n', 1, "a JSON list is no prompt"),
        (b"null\n", 1, "a JSON null is no prompt"),
        (b'""\n', 1, "is empty: remove the line"),
        (b'{"text": "  "}\n', 1, "text is empty: remove the line"),
        (b'{"prompt": 5}\n', 1, "prompt is a JSON number: it must be a string"),
        (b'{"question": "secret"}\n', 1, "has none"),
        (b'{"prompt": "secret", "text": "secret"}\n', 1, "has prompt and text"),
        (b'{"prompt": "secret", "max_tokens": 0}\n', 1, "max_tokens must be a whole number above 0"),
        (b'{"prompt": "secret", "max_tokens": true}\n', 1, "max_tokens must be a whole number above 0"),
        (b'{"messages": []}\n', 1, "at least one message"),
        (b'{"messages": [{"content": "secret"}]}\n', 1, "message 1 needs a role"),
        (b'{"messages": [{"role": "user", "content": 5}]}\n', 1, "content of message 1"),
        (b'{"messages": [{"role": "user", "content": ""}]}\n', 1, "every message is empty"),
        (b'"\\ud800"\n', 1, "no JSON"),
    ],
)
def test_a_bad_file_is_told_where_and_how_and_never_quoted(
    tmp_path: Path, content: bytes, line: int | None, problem: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputFileError) as caught:
        read_prompts(path)
    assert caught.value.line == line
    place = f"{path}:{line}: " if line else f"{path}: "
    assert str(caught.value).startswith(place)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value).removeprefix(str(path))
    assert caught.value.__cause__ is None


def test_a_missing_file_and_a_folder_are_told_apart_from_bad_ones(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"No such file or directory.*name a readable JSONL file"):
        read_prompts(tmp_path / "nothing")
    with pytest.raises(InputFileError, match="Is a directory"):
        read_prompts(tmp_path)


def test_a_file_without_line_ends_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 100)
    with pytest.raises(InputFileError, match="longer than 100 bytes: write one JSON value per line"):
        read_prompts(write(tmp_path, b'"' + b"x" * 1000 + b'"'))


def test_a_broken_line_is_found_even_where_the_sample_would_leave_it_out() -> None:
    lines = [b'"a"'] * 5000 + [b"{"]
    with pytest.raises(InputFileError, match="many:5001"):
        parse_prompts(lines, source="many", limit=5)


def test_a_sample_is_the_same_for_the_same_seed_and_in_file_order() -> None:
    lines = [f'"{number:05}"'.encode() for number in range(3000)]
    one = parse_prompts(lines, source="many", limit=50, seed=1)
    texts = [prompt.text for prompt in one.prompts]
    assert texts == sorted(text for text in texts if text)
    assert parse_prompts(lines, source="many", limit=50, seed=1) == one
    assert parse_prompts(lines, source="many", limit=50, seed=2).prompts != one.prompts
    assert (one.lines, one.sampled, len(one.prompts)) == (3000, True, 50)


def test_every_line_has_the_same_chance_to_be_sampled() -> None:
    lines = [f'"{number}"'.encode() for number in range(100)]
    hits = [0] * 100
    for seed in range(400):
        for prompt in parse_prompts(lines, source="many", limit=10, seed=seed).prompts:
            hits[int(prompt.text or "")] += 1
    assert sum(hits) == 4000
    # 40 each; a standard deviation is 6.
    assert min(hits) > 15
    assert max(hits) < 70


def test_a_million_lines_take_no_more_memory_than_the_sample() -> None:
    def lines() -> Iterator[bytes]:
        for number in range(1_000_000):
            yield b'{"prompt": "number %d"}' % number

    tracemalloc.start()
    try:
        # Tracing makes each line slow; a tenth shows the same growth.
        few = parse_prompts((line for line, _ in zip(lines(), range(100_000), strict=False)), source="many", limit=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert few.lines == 100_000
    assert peak < 4 << 20
    all_of_them = parse_prompts(lines(), source="many", limit=1000)
    assert (all_of_them.lines, len(all_of_them.prompts)) == (1_000_000, 1000)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit is 0"):
        parse_prompts([b'"a"'], source="x", limit=0)


def test_prompts_survive_a_round_through_json() -> None:
    text = 'quotes " and \\ and ü and \n'
    assert parse_prompts([json.dumps(text).encode()], source="x").prompts[0].text == text
