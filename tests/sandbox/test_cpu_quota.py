"""A CPU limit that stops the server is said, whichever version of control groups counts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slotune.sandbox.cpu_quota import QuotaCounts, quota_counts, quota_warning

STAT = "usage_usec 12\nnr_periods 600\nnr_throttled 120\nthrottled_usec 99\n"


def machine(root: Path, membership: str, **stats: str) -> Path:
    (root / "proc" / "7").mkdir(parents=True)
    (root / "proc" / "7" / "cgroup").write_text(membership)
    for place, text in stats.items():
        folder = root / "sys" / "fs" / "cgroup" / place.replace("__", "/").replace("_", ",")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.stat").write_text(text)
    return root


@pytest.mark.parametrize(
    ("membership", "place"),
    [
        ("0::/pods/one\n", "pods__one"),
        ("0::/\n", "."),
        ("0::/../../of/the/host\n", "."),
        ("5:memory:/a\n4:cpu,cpuacct:/docker/1\n0::/\n", "cpu_cpuacct__docker__1"),
        ("4:cpu,cpuacct:/of/the/host\n", "cpu_cpuacct"),
    ],
)
def test_the_counters_are_found_in_either_version_and_in_a_container(
    tmp_path: Path, membership: str, place: str
) -> None:
    assert quota_counts(7, machine(tmp_path, membership, **{place: STAT})) == QuotaCounts(600, 120)


@pytest.mark.parametrize("text", ["usage_usec 12\n", "", "nr_periods x\nnr_throttled y\n"])
def test_a_group_without_a_quota_says_nothing(tmp_path: Path, text: str) -> None:
    assert quota_counts(7, machine(tmp_path, "0::/\n", **{".": text})) is None


def test_a_process_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert quota_counts(7, tmp_path) is None


def test_reading_this_machine_never_fails() -> None:
    counts = quota_counts(os.getpid())
    assert counts is None or counts.throttled <= counts.periods


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        (QuotaCounts(100, 5), QuotaCounts(700, 125), "in 120 of 600 periods"),
        (QuotaCounts(100, 5), QuotaCounts(700, 10), None),
        (QuotaCounts(100, 5), QuotaCounts(100, 5), None),
        (None, QuotaCounts(700, 125), None),
        (QuotaCounts(700, 125), None, None),
    ],
    ids=["held back", "hardly ever", "had no work", "unknown before", "unknown after"],
)
def test_being_held_back_is_said_when_it_happens_often(
    before: QuotaCounts | None, after: QuotaCounts | None, want: str | None
) -> None:
    warning = quota_warning(before, after)
    assert warning is None if want is None else want in (warning or "")
