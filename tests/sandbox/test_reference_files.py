"""A recorded reference is on disk whole, for its owner alone, and one that is gone or broken counts as never made."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from slotune.quality.coarse import Likeliest
from slotune.quality.reference import Reference, Walk
from slotune.sandbox.reference_files import ReferenceFiles
from slotune.search.pairs import comparison_candidate, pair_of
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import GPU, QUALITY, candidate, divergence, problem

SPACE = problem([candidate("F16"), candidate("Q4_0")], quality=QUALITY)


def reference(token: int = 5) -> Reference:
    likeliest = Likeliest((token, 1), (-0.5, -1.5))
    return Reference((Walk((1, 2, 3), (token,), (likeliest,)),), top=2, vocabulary=32, tokenizer="t")


def ended(purpose: Purpose, digest: str, variant: str = "F16", outcome: Outcome = Outcome.PASS) -> TrialResult:
    one = comparison_candidate(SPACE, pair_of(candidate(variant)), GPU)
    kept = divergence(0.0, 0.0, 0.0, digest) if purpose is Purpose.QUALITY else None
    verdict = Verdict(outcome, "", "Said", 0.95)
    return TrialResult(Trial(one, 0.0, purpose=purpose), verdict, 1.0, quality=kept, reference=digest)


def test_what_is_kept_comes_back_equal_for_the_same_question_only(tmp_path: Path):
    files = ReferenceFiles(tmp_path / "not" / "there")
    assert files.current(SPACE) is None
    files.keep(SPACE, reference())
    assert files.current(SPACE) == Reference.from_bytes(reference().to_bytes())
    other = replace(SPACE, quality=replace(QUALITY, context="other prompts"))
    assert files.current(other) is None


def test_another_one_replaces_it(tmp_path: Path):
    files = ReferenceFiles(tmp_path)
    files.keep(SPACE, reference(5))
    files.keep(SPACE, reference(6))
    kept = files.current(SPACE)
    assert kept is not None
    assert kept.digest == reference(6).digest
    assert len(list(tmp_path.iterdir())) == 1


def test_nobody_else_may_read_the_prompts_out_of_it(tmp_path: Path):
    ReferenceFiles(tmp_path).keep(SPACE, reference())
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [0o600]


@pytest.mark.parametrize("content", [b"", b"no reference at all", reference().to_bytes()[:-3]])
def test_a_broken_file_is_one_that_was_never_there(tmp_path: Path, content: bytes):
    files = ReferenceFiles(tmp_path)
    files.keep(SPACE, reference())
    next(tmp_path.iterdir()).write_bytes(content)
    assert files.current(SPACE) is None
    files.keep(SPACE, reference())
    assert files.current(SPACE) is not None


def test_a_recording_whose_file_is_gone_is_forgotten_and_its_comparisons_are_kept(tmp_path: Path):
    files = ReferenceFiles(tmp_path)
    load = TrialResult(Trial(candidate(), 1.0), Verdict(Outcome.PASS, "", "Said", 0.95), 1.0)
    seen = [load, ended(Purpose.REFERENCE, reference().digest), ended(Purpose.QUALITY, reference().digest, "Q4_0")]
    assert files.without_lost(SPACE, seen) == [seen[0], seen[2]]
    files.keep(SPACE, reference())
    assert files.without_lost(SPACE, seen) == seen
    failed = ended(Purpose.REFERENCE, "", outcome=Outcome.FAIL)
    assert files.without_lost(SPACE, [failed]) == [failed]
