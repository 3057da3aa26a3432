"""A search as a file comes back whole, has nothing of the machine or the prompts in it, and is refused when damaged."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from slotune.load.demand import Arrivals, Prompt
from slotune.load.device_facts import DeviceFacts
from slotune.search.problem import Measurement
from slotune.search.replay import Comparison, RecordedAnswer, RecordedSearch, replay
from slotune.tuning.search_file import SCHEMA, SearchFileError, from_bytes, read_search, to_bytes
from tests.search.worlds import QUALITY, World, candidate, live, problem

FILE = Path("search.json.gz")
SECRETS = ("--api-key", "sk-0123456789abcdef", "--lora", "/home/somebody/adapters/tone.gguf")


def search(**rest: object) -> RecordedSearch:
    """One with comparisons and sentinels in it."""
    ones = [candidate(slots=1), candidate("Q8_0", slots=8), candidate(slots=8, kv_unified=True)]
    asked = problem(ones, replicas_today=5, quality=QUALITY, measurement=Measurement(sentinel_every=2), **rest)
    decision, results = live(asked, World({ones[0]: 1.2, ones[1]: 3.0, ones[2]: 2.0}))
    return RecordedSearch(asked, tuple(results), RecordedAnswer.from_decision(decision))


def without_paths(recorded: RecordedSearch) -> RecordedSearch:
    models = {name: replace(facts, path="") for name, facts in recorded.problem.models.items()}
    demand = replace(recorded.problem.demand, sampling=())
    return replace(recorded, problem=replace(recorded.problem, models=models, demand=demand))


@pytest.mark.parametrize("packed", [True, False])
def test_a_search_comes_back_as_it_was_written_and_replays_alike(packed):
    written = search(memory_bytes={candidate(slots=1): 5 << 30, candidate("Q8_0", slots=8): 3 << 30})
    read = from_bytes(to_bytes(written, version="1", packed=packed), FILE)
    assert read == without_paths(written)
    assert replay(read).comparison is Comparison.SAME


def test_the_same_search_gives_the_same_bytes():
    assert to_bytes(search(), version="1", packed=True) == to_bytes(search(), version="1", packed=True)


def test_what_was_read_is_written_again_without_a_change():
    once = to_bytes(search(), version="1", packed=False)
    assert to_bytes(from_bytes(once, FILE), version="1", packed=False) == once


def test_a_node_is_a_number_in_it_so_that_what_ran_together_still_did():
    written = search()
    names = ["gpu-7.example", "", "gpu-3.example", "gpu-7.example"]
    device = DeviceFacts("NVIDIA L4", 3, uuids=("GPU-1234",))
    named = tuple(
        replace(result, node=names[at % 4], device=device if at == 0 else None)
        for at, result in enumerate(written.results)
    )
    content = to_bytes(replace(written, results=named), version="1", packed=False)
    assert b"example" not in content
    assert b"GPU-1234" not in content
    assert [r.node for r in from_bytes(content, FILE).results][:4] == ["node-1", "", "node-2", "node-1"]


def test_no_prompt_no_path_no_log_and_no_secret_is_in_it():
    ours = [replace(one, extra_args=SECRETS) for one in (candidate(slots=1), candidate("Q8_0", slots=8))]
    asked = problem(ours, replicas_today=5)
    asked = replace(
        asked,
        demand=replace(
            asked.demand,
            prompts=(Prompt(text="where is my parcel"),),
            arrivals=Arrivals("replay", offsets_s=(0.0, 7.0), input_tokens=(77777, 1)),
            sampling=(("stop", ["dear customer"]),),
        ),
    )
    decision, results = live(asked, World({ours[0]: 1.2, ours[1]: 3.0}))
    spoken = replace(
        results[0],
        log_tail=("loading /srv/models/x.gguf",),
        warnings=("kept /var/lib/slotune/servers/a.log",),
        verdict=replace(results[0].verdict, reason="can't open '/home/somebody/models/x.gguf', 8/s at 12 tok/s/user"),
    )
    recorded = RecordedSearch(asked, (spoken, *results[1:]), RecordedAnswer.from_decision(decision))
    text = to_bytes(recorded, version="1", packed=False).decode()
    for word in ("parcel", "customer", "somebody", "/srv", "/var", "sk-0123", "/models/", "77777"):
        assert word not in text
    assert "…/x.gguf', 8/s at 12 tok/s/user" in text
    read = from_bytes(text.encode(), FILE)
    assert read.problem.demand.identity == asked.demand.identity
    assert replay(read).comparison is Comparison.SAME  # what was hidden was hidden everywhere alike


def test_an_older_file_without_a_field_that_has_a_default_is_still_read():
    document = orjson.loads(to_bytes(search(), version="1", packed=False))
    for result in document["results"]:
        del result["slowest"], result["warnings"]
    assert from_bytes(orjson.dumps(document), FILE).results == search().results


def spoiled(*path: str | int, value: object) -> bytes:
    """A file with one value changed."""
    document = orjson.loads(to_bytes(search(), version="0.0.9", packed=False))
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return orjson.dumps(document)


PACKED = to_bytes(search(), version="1", packed=True)
PLAIN = to_bytes(search(), version="1", packed=False)
CASES: dict[str, tuple[bytes, list[str]]] = {
    "cut while packed": (PACKED[:-100], ["cut off", "copy it again"]),
    "cut by a byte": (PACKED[:-1], ["cut off", "copy it again"]),
    "damaged inside": (PACKED[:60] + b"\0\0\0\0" + PACKED[64:], ["damaged"]),
    "cut while plain": (PLAIN[:-100], ["no JSON, or cut off"]),
    "empty": (b"", ["no JSON, or cut off"]),
    "something else": (b"apiVersion: v1", ["no JSON"]),
    "another JSON": (b'{"kind": "List"}', ["schema", "is missing", "slotune export"]),
    "a list": (b"[]", ["schema", "is missing"]),
    "a report": (spoiled("schema", value="slotune.dev/report/v1"), ["schema", "report/v1", SCHEMA]),
    "a newer version": (spoiled("schema", value="slotune.dev/search/v2"), ["schema", "search/v2", SCHEMA, "(0.0.9)"]),
    "a word for a number": (
        spoiled("problem", "demand", "peak_rate", value="6"),
        ["problem.demand.peak_rate", "export it again"],
    ),
    "a rate of zero": (spoiled("problem", "demand", "peak_rate", value=0.0), ["problem.demand.peak_rate", "above 0"]),
    "an unknown outcome": (
        spoiled("results", 1, "verdict", "outcome", value="Splendid"),
        ["results.1.verdict.outcome", "'Pass'"],
    ),
    "a promise of nothing": (spoiled("problem", "promise", "ttft_s", value=-1.0), ["problem.promise", "above 0"]),
    "an unknown model": (
        spoiled("problem", "candidates", 1, "variant", value="Q2_K"),
        ["problem.candidates.1", "Q2_K", "no such model"],
    ),
    "a result of an unknown GPU class": (
        spoiled("results", 0, "trial", "candidate", "gpu_class", value="h100"),
        ["results.0.trial", "h100"],
    ),
    "a trial at no rate": (spoiled("results", 0, "trial", "rate", value=-2.0), ["results.0.trial.rate", "above 0"]),
    "negative time": (spoiled("results", 0, "gpu_seconds", value=-2.0), ["results.0.gpu_seconds"]),
    "a price below zero": (
        spoiled("problem", "hardware", "l4", "price_per_hour", value="-1"),
        ["problem.hardware.l4", "price"],
    ),
    "no results": (spoiled("results", value=None), ["results", "export it again"]),
    "no server today": (spoiled("problem", "replicas_today", value=0), ["problem.replicas_today", "at least 1"]),
    "a reference that is no model": (
        spoiled("problem", "quality", "reference", value="F32"),
        ["problem.quality.reference", "F32"],
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case)
def test_a_file_that_is_no_search_is_refused_with_the_field_and_the_cure(case):
    raw, words = CASES[case]
    with pytest.raises(SearchFileError) as refused:
        from_bytes(raw, FILE)
    said = str(refused.value)
    assert str(FILE) in said
    assert [word for word in words if word not in said] == []


def test_a_small_file_that_unfolds_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("slotune.tuning.search_file.CONTENT_MAX", 1 << 20)
    with pytest.raises(SearchFileError, match="more than 1 MiB"):
        from_bytes(gzip.compress(b" " * (2 << 20)), FILE)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SearchFileError, match="No such file"):
        read_search(tmp_path / "nowhere.json.gz")
