"""Nothing that was measured is lost when a process dies, and nothing is made up."""

from __future__ import annotations

import gzip

import orjson
import pytest

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.ledger import Ledger, LedgerBusyError, LedgerUnreadableError, LedgerUnwritableError
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import candidate


def result(slots: int = 1, rate: float = 1 / 3) -> TrialResult:
    return TrialResult(
        Trial(candidate(slots=slots), rate, 1, 0.9, 2, Purpose.CONFIRM, 12.5),
        Verdict(Outcome.PASS, "it held", "PromiseKept", 0.9, 100, 1, 98.5, 0.04, 0.03, 0.5, None, 12.0),
        31.25,
        probe=IdleProbe(0.002, 170.0, 0.015),
        latencies=Latencies(ttft_p50_s=0.2, ttft_quantiles_s=(0.1, 0.2, 0.3)),
        attribution=Attribution(0.1, 0.2, 0.0, 0.002, None, 1.5),
        effective=(("slots", "4"),),
        warnings=("one",),
    )


def test_what_goes_in_comes_out_exactly(tmp_path):
    with Ledger(tmp_path / "out") as ledger:
        ledger.add("ctx", result())
        assert ledger.results("ctx") == [result()]


def test_results_of_another_question_are_left_alone(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.add("before", result(1))
        ledger.add("after", result(2))
        assert ledger.results("after") == [result(2)]
        assert ledger.results("before") == [result(1)]


def test_a_half_written_last_line_costs_that_trial_only(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.add("ctx", result(1))
        whole = ledger.path.read_bytes()
        ledger.add("ctx", result(2))
        ledger.path.write_bytes(ledger.path.read_bytes()[: len(whole) + 40])
        assert ledger.results("ctx") == [result(1)]
        ledger.add("ctx", result(3))
        assert ledger.results("ctx") == [result(1), result(3)]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    with Ledger(tmp_path) as ledger:
        ledger.add("ctx", result(1))
        ledger.path.write_bytes(b"{}\n" + ledger.path.read_bytes())
        with pytest.raises(LedgerUnreadableError, match=r"line 1 .* delete that line"):
            ledger.results("ctx")


def test_two_processes_do_not_write_one_directory(tmp_path):
    with Ledger(tmp_path), pytest.raises(LedgerBusyError, match="--out"), Ledger(tmp_path):
        pass
    with Ledger(tmp_path):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerUnwritableError, match="--out"), Ledger(tmp_path / "file"):
        pass


def test_the_record_of_each_request_is_kept_without_prompt_text(tmp_path):
    run = RunResult(seed=5, rate=2.0, records=[RequestRecord(0, 3, 0.5, RequestStatus.OK, first_token_s=0.75)])
    with Ledger(tmp_path) as ledger:
        ledger.add("ctx", result(), [run])
        key = result().trial.key("ctx")
        with gzip.open(tmp_path / "records" / f"{key}.jsonl.gz") as file:
            (line,) = [orjson.loads(text) for text in file]
    assert (line["run"], line["seed"], line["status"], line["first_token_s"]) == (0, 5, "ok", 0.75)
