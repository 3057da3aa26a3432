"""``slotune export --format search`` and ``slotune replay`` as a person types them; no server is started."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from slotune.cli import main
from slotune.commands.tune import SEARCH_FILE
from slotune.search.problem import Budget
from slotune.search.replay import RecordedAnswer, RecordedSearch
from slotune.search.standing import Standing
from slotune.search.trial import Purpose
from slotune.tuning.search_file import to_bytes
from tests.search.worlds import World, candidate, live, problem

BASELINE, BETTER, BEST = candidate(slots=1), candidate(slots=8), candidate("Q8_0", slots=8)


CAPACITY = {BASELINE: 1.2, BETTER: 2.0, BEST: 3.0}


def search() -> RecordedSearch:
    asked = problem([BASELINE, BETTER, BEST], replicas_today=5)
    decision, results = live(asked, World(CAPACITY))
    return RecordedSearch(asked, tuple(results), RecordedAnswer.from_decision(decision))


RECORDED = search()


def folder(tmp_path: Path, recorded: RecordedSearch) -> Path:
    """The --out of a tune, as far as export reads it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / SEARCH_FILE).write_bytes(to_bytes(recorded, version="1", packed=True))
    return out


def exported(tmp_path: Path, recorded: RecordedSearch) -> Path:
    path = tmp_path / "one.json.gz"
    path.write_bytes(to_bytes(recorded, version="1", packed=True))
    return path


def not_confirmed(recorded: RecordedSearch) -> RecordedSearch:
    """Without the confirmation of the winner: nobody recorded what the search will ask."""
    kept = tuple(r for r in recorded.results if r.trial.purpose is not Purpose.CONFIRM)
    return replace(recorded, results=kept)


@pytest.mark.parametrize("name", ["s.json.gz", "s.json"])
def test_an_exported_search_replays_to_the_recorded_answer(name, tmp_path, capsys):
    file = tmp_path / name
    assert main(["export", str(folder(tmp_path, search())), "--format", "search", "--out", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert main(["replay", str(file)]) == 0
    said = capsys.readouterr().out
    for words in ("answer now", "Found: 2 × l4, 8 slots, Q8_0, $1,168 a month", "regret             $0 a month"):
        assert words in said


def test_without_a_file_to_write_the_search_is_printed_as_json(tmp_path, capsys):
    assert main(["export", str(folder(tmp_path, search())), "--format", "search"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "slotune.dev/search/v1"


def test_machines_get_the_same_in_json_and_yaml(tmp_path, capsys):
    file = str(exported(tmp_path, search()))
    assert main(["replay", file, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["replay", file, "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert (document["comparison"], document["regret"]) == ("Same", "0")
    assert document["now"] == document["then"]
    assert document["cheapest_recorded"]["monthly_cost"] == "1168.00"


def test_an_answer_that_nobody_confirmed_breaks_the_promise_and_is_code_1(tmp_path, capsys, monkeypatch):
    recall = Standing._recall

    def unconfirmed(standing: Standing) -> None:
        recall(standing)
        standing.confirmed = standing.passed

    monkeypatch.setattr(Standing, "_recall", unconfirmed)
    file = str(exported(tmp_path, RECORDED))
    assert main(["replay", file]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "so breaks the promise" in said
    assert "regret not to be told" in said
    assert main(["replay", file, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["comparison"], document["regret"]) == ("BreaksPromise", None)


def test_the_recorded_answer_is_code_1_where_something_cheaper_was_recorded(tmp_path, capsys):
    asked = replace(RECORDED.problem, budget=Budget(trials=2))
    decision, _ = live(asked, World(CAPACITY))
    answer = RecordedAnswer.from_decision(decision)
    assert main(["replay", str(exported(tmp_path, replace(RECORDED, problem=asked, answer=answer)))]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "loses money" in said
    assert "regret $1,752 a month" in said


def test_an_answer_that_loses_money_is_code_1_and_told_in_money(tmp_path, capsys, monkeypatch):
    recorded, todays = search(), replace(search().problem, candidates=(BASELINE,))
    _, others = live(todays, World({BASELINE: 1.2}))
    file = exported(tmp_path, replace(recorded, results=(*recorded.results, *others)))
    monkeypatch.setattr(
        "slotune.commands.replay.without_what_cannot_fit", lambda asked, _: replace(asked, candidates=(BASELINE,))
    )
    assert main(["replay", str(file)]) == 1
    said = capsys.readouterr().out
    assert "loses money" in said
    assert "regret             $1,752 a month" in said


def test_questions_that_nobody_recorded_are_named_and_are_code_4(tmp_path, capsys):
    assert main(["replay", str(exported(tmp_path, not_confirmed(search())))]) == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "not recorded" in said
    assert "8 slots, Q8_0 at 3/s (confirm)" in said


def test_a_damaged_file_is_code_2_and_says_what_to_do(tmp_path, capsys):
    file = exported(tmp_path, search())
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["replay", str(file)]) == 2
    assert "copy it again" in capsys.readouterr().err
    changed = json.loads(gzip.decompress(to_bytes(search(), version="1", packed=True)))
    changed["problem"]["replicas_today"] = "many"
    file.write_text(json.dumps(changed))
    assert main(["replay", str(file)]) == 2
    assert "problem.replicas_today" in capsys.readouterr().err


def test_a_folder_without_a_finished_search_is_refused_with_the_cure(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--format", "search"]) == 2
    assert "--out of a tune that ended" in capsys.readouterr().err
