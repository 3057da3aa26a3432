"""How answers compare is told with its bounds, beside the word that it gates and does not rank."""

from __future__ import annotations

from dataclasses import replace

from slotune.report.answers import answers_lines, answers_note, answers_rows, asked_of_answers, winners_answers
from slotune.report.reasons import reason_groups
from slotune.report.text import ending_text, plain
from slotune.report.trials import trial_row
from tests.report.compared import answers_compared
from tests.report.page import read
from tests.report.samples import worked_example
from tests.report.test_html import page, section, words


def test_what_is_owed_names_both_limits_and_the_reference() -> None:
    asked = asked_of_answers(answers_compared().problem)
    assert asked == "Balanced: mean KLD up to 0.05 and the same first choice in at least 90 % of steps, against F16"


def test_every_pair_that_was_offered_has_one_row_and_a_state() -> None:
    rows = answers_rows(answers_compared().decision)
    assert [(row.label, row.state, row.kind) for row in rows] == [
        ("F16 with KV cache f16", "the reference", ""),
        ("Q8_0 with KV cache f16", "holds", "kept"),
        ("Q8_0 with KV cache q4_0", "holds", "kept"),
        ("Q4_0 with KV cache f16", "too different", "missed"),
        ("Q4_0 with KV cache q8_0", "not decided", "unknown"),
    ]
    assert [row.label for row in rows if row.is_todays] == ["F16 with KV cache f16"]
    differs, untold = rows[3], rows[4]
    assert (differs.mean_kld, differs.top1) == ("0.19 (≤ 0.19)", "100 % (≥ 99 %)")
    assert differs.reason == ""  # the numbers say it
    assert "so near to a limit" in untold.reason


def test_the_winners_numbers_stand_beside_its_others_and_those_of_the_rest_below() -> None:
    sample = answers_compared()
    of_winner = "mean KLD 0.0031 (at most 0.0031, 95 % sure), top-1 100 % (at least 99 %)"
    assert winners_answers(sample.problem, sample.decision) == f"{of_winner} · Balanced"
    lines = answers_lines(sample.problem, sample.decision)
    assert lines[0].endswith("It gates, it does not rank.")
    assert not any(of_winner in line for line in lines)
    assert any(line.startswith("Q4_0 with KV cache f16: too different: mean KLD 0.19") for line in lines)


def test_the_noise_that_the_numbers_stand_above_is_told() -> None:
    note = answers_note(answers_compared().decision)
    assert "lower bound" in note
    assert "differs from itself by 0 after a restart, over 1,024 steps of 64 prompts" in note
    assert "differs from itself" not in answers_note(replace(answers_compared().decision, noise_floor=None))


def test_a_pair_that_failed_is_a_reason_of_its_own_with_the_numbers() -> None:
    sample = answers_compared()
    groups = {group.title: group for group in reason_groups(sample.problem, sample.decision)}
    failed = groups["Answers differ too much from the reference's"]
    assert [row.label for row in failed.rows] == ["Q4_0"]
    assert "Balanced allows 0.05" in failed.rows[0].reason
    assert groups["Whether its answers hold is not known"].undecided


def test_a_look_at_answers_is_a_line_without_load_among_the_trials() -> None:
    sample = answers_compared()
    rows = [
        trial_row(sample.problem, result, number, {})
        for number, result in enumerate(sample.results, 1)
        if result.trial.purpose.asks_answers
    ]
    assert [(row.label, row.load, row.purpose, row.outcome) for row in rows[:3]] == [
        ("F16 with KV cache f16", "answers", "the reference's answers", "–"),
        ("F16 with KV cache f16", "answers", "noise floor", "Pass"),
        ("Q8_0 with KV cache f16", "answers", "do the answers hold?", "Pass"),
    ]


def test_the_page_has_a_table_of_pairs_and_says_that_it_is_no_ranking() -> None:
    shown = section(read(page(answers_compared())), "Do the answers hold?")
    said = words(shown)
    assert len(shown.all("tr")) == 6
    assert "which of them is better" in said
    cells = [[words(cell) for cell in row.all("td")] for row in shown.all("tr")]
    assert ["Q4_0 with KV cache f16", "too different", "0.19 (≤ 0.19)", "100 % (≥ 99 %)"] in cells


def test_where_nobody_looks_nothing_is_said_of_answers() -> None:
    sample = worked_example()
    assert sample.problem.quality is None
    assert answers_lines(sample.problem, sample.decision) == []
    assert winners_answers(sample.problem, sample.decision) == ""
    assert "Do the answers hold?" not in page(sample)
    ending = plain(ending_text(sample.problem, sample.decision, flags=(), findings={}, width=80, out="out"))
    assert "KLD" not in ending
