"""What a server runs with: its own word before its arguments, those before a default, and no default unasked."""

from __future__ import annotations

import pytest

from slotune.diagnose.evidence import LONGEST, Source
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line
from tests.diagnose.rules.building import NOTHING, log, of, pod, server, slot


def test_the_log_is_believed_before_the_arguments_and_its_line_is_quoted() -> None:
    line = Line(41, "llama_context: n_batch = 1024")
    story = log(facts={"batch_size": 1024}, fact_lines={"batch_size": line})
    known = settings.batch_size(of(log=story, pod=pod("-b", "4096")))
    assert known is not None
    assert known.value == 1024
    assert str(known.evidence) == "log:41  llama_context: n_batch = 1024"


def test_the_last_of_a_repeated_argument_counts_and_arguments_win_over_variables() -> None:
    known = settings.batch_size(of(pod=pod("-b", "4096", "--batch-size", "64", env={"LLAMA_ARG_BATCH": "7"})))
    assert known is not None
    assert known.value == 64
    assert known.evidence.source is Source.FLAGS
    by_variable = settings.batch_size(of(pod=pod(env={"LLAMA_ARG_BATCH": "7"})))
    assert by_variable is not None
    assert str(by_variable.evidence).endswith("LLAMA_ARG_BATCH=7")


def test_a_default_counts_only_where_all_arguments_are_known() -> None:
    known = settings.ubatch_size(of(pod=pod()))
    assert known is not None
    assert known.value == 512
    assert settings.ubatch_size(NOTHING) is None
    assert settings.ubatch_size(of(server=server())) is None


@pytest.mark.parametrize(
    "hidden",
    [
        of(pod=pod(), log=log(facts={"config_files": ("/etc/llama.cpp/config.ini",)})),
        of(flags=("/bin/sh", "-c", "exec llama-server -ub 64")),
    ],
    ids=["a configuration file", "a shell's words"],
)
def test_what_stands_where_nobody_reads_is_no_default(hidden: Symptoms) -> None:
    assert not settings.has_defaults(hidden)
    assert settings.ubatch_size(hidden) is None


def test_a_value_that_is_no_number_is_not_known() -> None:
    assert settings.ubatch_size(of(pod=pod("-ub", "large"))) is None


@pytest.mark.parametrize(
    ("symptoms", "want"),
    [
        (of(server=server(3)), 3),
        (of(server=server(props=None, slots=(slot(0), slot(1)))), 2),
        (of(log=log(facts={"slots": 6})), 6),
        (of(pod=pod("-np", "8")), 8),
        (of(pod=pod()), 4),
        (of(pod=pod("-np", "-1")), 4),
        (NOTHING, None),
    ],
)
def test_slots_are_counted_by_whoever_says(symptoms: Symptoms, want: int | None) -> None:
    known = settings.slots(symptoms)
    assert (None if known is None else known.value) == want


@pytest.mark.parametrize(
    ("args", "want"),
    [((), True), (("-np", "4"), False), (("-np", "4", "-kvu"), True), (("-no-kvu",), False)],
    ids=["default", "slots alone", "slots that share", "told not to"],
)
def test_slots_share_a_cache_by_default_and_not_once_they_are_counted(args: tuple[str, ...], want: bool) -> None:
    assert settings.is_unified(of(pod=pod(*args))) is want
    assert settings.is_unified(of(server=server())) is None


def test_a_long_argument_is_quoted_no_longer_than_a_line_of_a_log() -> None:
    long = "0." + 400 * "5"
    setting = settings.stated(of(pod=pod("-sps", long)), "-sps")
    assert setting is not None
    assert len(settings.said(setting).text) == LONGEST
