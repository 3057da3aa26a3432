"""Recordings come in several dialects; what can't be replayed is told where and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slotune.load import recorded
from slotune.load.jsonl import InputFileError
from slotune.load.recorded import parse_arrivals, read_arrivals


def parse(*rows: object) -> recorded.Arrivals:
    lines = [json.dumps(row).encode() for row in rows]
    return parse_arrivals(lines, source="log")


def test_times_start_at_zero_and_are_sorted_with_their_lengths() -> None:
    arrivals = parse(
        {"timestamp_s": 12.5, "input_tokens": 2, "output_tokens": 20},
        {"timestamp_s": 10.0, "input_tokens": 1, "output_tokens": 10},
    )
    assert arrivals.process == "replay"
    assert arrivals.offsets_s == (0.0, 2.5)
    assert (arrivals.input_tokens, arrivals.output_tokens) == ((1, 2), (10, 20))


def test_every_dialect_of_time_is_understood() -> None:
    want = (0.0, 1.5)
    assert parse({"timestamp_ms": 500}, {"timestamp_ms": 2000}).offsets_s == want
    iso = parse({"timestamp": "2026-10-06T12:00:00.5Z"}, {"timestamp": "2026-10-06T14:00:02+02:00"})
    assert iso.offsets_s == want


def test_the_names_that_published_traces_use_are_understood() -> None:
    arrivals = parse(*({"timestamp_ms": t, "input_length": 9, "output_length": 4, "hash_ids": [1]} for t in (0, 1000)))
    assert (arrivals.offsets_s, arrivals.input_tokens, arrivals.output_tokens) == ((0.0, 1.0), (9, 9), (4, 4))


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "holds 0 arrivals"),
        ([{"timestamp_s": 1}], "holds 1 arrivals"),
        ([{"timestamp_s": 1}, {"timestamp_s": 1}], "same time"),
        ([{"timestamp_s": 1}, 7], "log:2: has no usable time"),
        ([{"timestamp_s": 1}, {"time": 7}], "log:2: has no usable time"),
        ([{"timestamp_s": 1, "timestamp_ms": 1}], "log:1: has no usable time"),
        ([{"timestamp_s": "1"}], "log:1: has no usable time"),
        ([{"timestamp": 1000}], "log:1: has no usable time.*no unit"),
        ([{"timestamp": "yesterday"}], "log:1: has no usable time"),
        ([{"timestamp_s": True}], "log:1: has no usable time"),
        ([{"timestamp_s": 1, "input_tokens": 0}], "log:1: input_tokens must be a whole number above 0"),
        ([{"timestamp_s": 1, "output_tokens": 1.5}], "log:1: output_tokens must be a whole number above 0"),
        ([{"timestamp_s": 1, "input_tokens": 1}, {"timestamp_s": 2}], "input_tokens stands on 1 of 2 lines"),
    ],
)
def test_a_bad_recording_is_told_where_and_how(rows: list[object], problem: str) -> None:
    with pytest.raises(InputFileError, match=problem):
        parse(*rows)


def test_a_recording_that_is_too_long_is_refused_instead_of_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "ARRIVAL_LIMIT", 2)
    with pytest.raises(InputFileError, match="log:3: more than 2 arrivals: cut it to its busiest hour"):
        parse(*({"timestamp_s": t} for t in range(4)))


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.jsonl"
    path.write_text('{"timestamp_s": 0}\n\n{"timestamp_s": 2}\n')
    assert read_arrivals(path).offsets_s == (0.0, 2.0)
    with pytest.raises(InputFileError, match="No such file"):
        read_arrivals(tmp_path / "nothing")
