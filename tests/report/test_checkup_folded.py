"""What was not looked at comes to a few things to bring, and no check is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.finding import Undecided
from slotune.diagnose.symptoms import Symptoms
from slotune.gathering.log_file import read_log
from slotune.report.checkup_folded import Open, fold
from tests.report.test_checkup_needs import LOOK, REFUSED, SHOWN, of_a_pod

LOGS = Path(__file__).resolve().parents[1] / "llama" / "logs"


def of_log(name: str) -> Symptoms:
    (story,) = read_log(LOGS / name)
    return Symptoms(name, log=story)


def folded(symptoms: Symptoms, *beside: Open) -> list[tuple[str, tuple[Open, ...]]]:
    return fold(check_up(symptoms, ALL_RULES), symptoms, beside)


SEEN = {
    "a log from its start": of_log("all_defaults.log"),
    "a log with requests": of_log("served_five.log"),
    "a log at the default level": of_log("log_level_three.log"),
    "an address": Symptoms("http://chat:8080", server=SHOWN),
    "an address that hides its metrics": Symptoms("http://chat:8080", server=LOOK),
    "nothing": Symptoms("chat"),
    **{f"a pod, {number}": symptoms for number, symptoms in enumerate(of_a_pod())},
}


@pytest.mark.parametrize("symptoms", SEEN.values(), ids=SEEN)
def test_every_open_check_stands_with_one_thing_and_the_first_thing_decides_most(symptoms: Symptoms) -> None:
    things = folded(symptoms)
    asked = [said for rule in ALL_RULES if isinstance(said := rule.check(symptoms), Undecided)]
    counts = [len(what) for _, what in things]
    assert sum(counts) == len(asked)
    assert counts == sorted(counts, reverse=True)
    assert len({words for words, _ in things}) == len(things)
    assert len(things) <= 9


def test_of_an_address_the_log_decides_most() -> None:
    words, what = folded(SEEN["an address"])[0]
    assert words == "--log FILE (from its start on, -lv 4, with requests in it)"
    assert len(what) > 30


def test_a_probe_is_not_taken_for_what_a_look_can_decide() -> None:
    things = dict(folded(SEEN["a log from its start"]))
    assert "Template" in {one.whose for one in things["--url URL --probe"]}
    assert "Template" not in {one.whose for one in things["--url URL, while it is busy"]}


def test_a_watch_is_one_thing_however_long_it_is_to_last() -> None:
    asked = [Open("Queue", f"--watch {seconds}: it tells one from the other", is_check=False) for seconds in (5, 60)]
    assert dict(folded(SEEN["an address"], *asked))["--watch 60"] == tuple(asked)


def test_of_a_whole_log_another_one_is_wanted_for_what_it_does_not_hold() -> None:
    words = [words for words, _ in folded(SEEN["a log from its start"])]
    assert "a log (-lv 4, with requests in it)" in words
    assert "--log" not in " ".join(words)


@pytest.mark.parametrize("symptoms", of_a_pod())
def test_of_a_pod_nothing_is_wanted_that_cannot_stand_beside_deployment(symptoms: Symptoms) -> None:
    assert [words for words, _ in folded(symptoms) if REFUSED.search(words)] == []


def test_what_is_told_beside_the_checklist_goes_with_the_thing_that_decides_it_and_counts_for_no_check() -> None:
    roofline = Open("Roofline", "its device's memory bandwidth: --bandwidth", is_check=False)
    things = dict(folded(SEEN["an address"], roofline))
    assert roofline in things["--gpu-class NAME (or --bandwidth BYTES)"]


def test_what_nothing_known_decides_is_told_in_its_own_words() -> None:
    odd = Open("Roofline", "a look into the room where it stands", is_check=False)
    named = Open("Roofline", "what the maker says of it", is_check=False)
    things = folded(SEEN["an address"], odd, named)
    assert (named.needs, (named,)) in things
    assert odd.needs not in dict(things), "a look is something to bring"
