"""Every rule is asked, what explains most comes first, and nothing that was not looked at is called healthy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.catalogue import ENTRIES
from slotune.diagnose.checkup import Checked, Checkup, Outcome, Rule, check_up, order
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory

SERVER = Symptoms("chat.log", LogStory("chat.log", LogFacts(), lines=1))


def entry(number: int = 1, item: Item = Item.GPU) -> Entry:
    return Entry(f"SLT{number:03d}", f"Cause{number}", item, "Title", "Cause.", "First.", "Avoid.", "Verify.")


def finding(
    number: int = 1, item: Item = Item.GPU, severity: Severity = Severity.WARNING, cost: Cost | None = None
) -> Finding:
    return Finding(
        entry(number, item),
        f"cause {number}",
        (Evidence(Source.LOG, "a line", 7),),
        severity,
        Confidence.CERTAIN,
        cost or Cost(),
    )


def rule(said: Finding | Clear | Undecided, item: Item = Item.GPU) -> Rule:
    return Rule("SLT001", item, lambda _: said)


def checked(checkup: Checkup, item: Item) -> Checked:
    (one,) = [one for one in checkup.checked if one.item is item]
    return one


CLEAR = Clear("33 of 33 layers are on CUDA0")
OPEN = Undecided("a log with -lv 4")


@pytest.mark.parametrize(
    ("said", "want"),
    [
        pytest.param([], Outcome.UNDECIDED, id="no rule looked"),
        pytest.param([CLEAR], Outcome.CLEAR, id="the only rule is clear"),
        pytest.param([CLEAR, OPEN], Outcome.UNDECIDED, id="one of two could not tell"),
        pytest.param([CLEAR, OPEN, finding()], Outcome.FOUND, id="one found something"),
    ],
)
def test_an_item_is_clear_only_when_every_rule_says_so(
    said: Sequence[Finding | Clear | Undecided], want: Outcome
) -> None:
    assert checked(check_up(SERVER, [rule(one) for one in said]), Item.GPU).outcome is want


def test_every_item_of_the_checklist_is_answered_in_its_order() -> None:
    checkup = check_up(SERVER, [rule(CLEAR, Item.HEALTH), rule(CLEAR, Item.GPU)])
    assert [one.item for one in checkup.checked] == list(Item)


def test_what_would_decide_is_said_once_and_counted_for_each_rule() -> None:
    one = checked(check_up(SERVER, [rule(OPEN), rule(CLEAR), rule(OPEN)]), Item.GPU)
    assert one.undecided == (OPEN,)
    assert one.open == (OPEN, OPEN)


def test_a_rule_sees_the_symptoms_and_nothing_else() -> None:
    seen: list[Symptoms] = []

    def look(symptoms: Symptoms) -> Clear:
        seen.append(symptoms)
        return CLEAR

    check_up(SERVER, [Rule("SLT001", Item.GPU, look)])
    assert seen == [SERVER]


@pytest.mark.parametrize(
    ("severities", "want"),
    [
        pytest.param([], None, id="nothing could be looked at"),
        pytest.param([Severity.INFO], True, id="something worth knowing"),
        pytest.param([Severity.INFO, Severity.WARNING], False, id="something to change"),
        pytest.param([Severity.CRITICAL], False, id="it does not serve"),
    ],
)
def test_a_server_with_nothing_above_info_is_healthy(severities: Sequence[Severity], want: bool | None) -> None:
    rules = [rule(finding(number, severity=severity)) for number, severity in enumerate(severities)]
    assert check_up(SERVER, rules).is_healthy is want


EIGHT = tuple(Item)[:8]
UNOWED = Clear("no speed is owed to users", unasked=True)


def about_all(said: Clear, *items: Item) -> list[Rule]:
    """A rule of each item: ``said`` for these, and no decision for the others."""
    return [rule(said if item in items else OPEN, item) for item in Item]


def test_a_server_is_healthy_when_half_of_the_questions_were_looked_at_however_many_rules_they_have() -> None:
    assert check_up(SERVER, about_all(CLEAR, *EIGHT)).is_healthy is True
    assert check_up(SERVER, about_all(CLEAR, *EIGHT[1:])).is_healthy is None
    many_of_one = [rule(CLEAR, Item.HEALTH)] * 40
    assert check_up(SERVER, [*about_all(CLEAR, *EIGHT[1:]), *many_of_one]).is_healthy is True, "an eighth question"
    assert check_up(SERVER, [*about_all(CLEAR, *EIGHT[2:]), *many_of_one]).is_healthy is None
    still_open = [rule(OPEN, Item.GPU)] * 40
    assert check_up(SERVER, [*about_all(CLEAR, *EIGHT), *still_open]).is_healthy is True


def test_that_nothing_is_owed_is_no_look_at_the_server() -> None:
    one = check_up(SERVER, [*about_all(CLEAR, *EIGHT[1:]), rule(UNOWED, Item.LOAD)])
    assert (checked(one, Item.LOAD).decided, checked(one, Item.LOAD).looked_at) == (1, False)
    assert one.is_healthy is None


@pytest.mark.parametrize(
    ("said", "want"),
    [
        pytest.param(OPEN, None, id="nobody knows"),
        pytest.param(CLEAR, True, id="on its GPU"),
        pytest.param(finding(severity=Severity.INFO), True, id="on the CPU, which may be meant"),
    ],
)
def test_a_server_is_not_healthy_until_something_shows_where_its_model_is_computed(
    said: Finding | Clear | Undecided, want: bool | None
) -> None:
    one = check_up(SERVER, [*about_all(CLEAR, *Item), Rule("SLT001", Item.GPU, lambda _: said, tells_place=True)])
    assert one.is_healthy is want
    assert bool(one.doubt) is (want is None)


def test_what_explains_most_comes_first_within_what_is_wrong() -> None:
    known = finding(1, Item.LOGGING, Severity.INFO, Cost(ttft_share=1.0))
    small = finding(2, Item.GPU, cost=Cost(speed_share=0.1))
    large = finding(3, Item.CLIENT, cost=Cost(ttft_share=0.8, speed_share=0.05))
    nothing = finding(4, Item.QUEUE, cost=Cost(ttft_share=0.0))
    uncounted = finding(5, Item.GPU)
    dead = finding(6, Item.HEALTH, Severity.CRITICAL)
    assert order([known, small, large, nothing, uncounted, dead]) == (dead, large, small, uncounted, nothing, known)


def test_a_cause_that_could_not_be_counted_is_not_taken_for_a_small_one_unless_it_is_merely_possible() -> None:
    tiny, large = finding(1, cost=Cost(speed_share=0.02)), finding(2, cost=Cost(speed_share=0.5))
    sure = finding(3)
    likely, possible = (replace(finding(4), confidence=one) for one in (Confidence.LIKELY, Confidence.POSSIBLE))
    assert order([tiny, sure, large]) == (large, sure, tiny)
    assert order([tiny, likely, large]) == (large, likely, tiny)
    assert order([possible, tiny, large]) == (large, tiny, possible)


@pytest.mark.parametrize("symptom", [12, 13])
@pytest.mark.parametrize("cause", [1, 2, 3, 10, 85])
def test_a_named_cause_comes_before_the_symptom_that_counts_it_and_behind_what_explains_more(
    symptom: int, cause: int
) -> None:
    counted = finding(symptom, Item.KERNELS, cost=Cost(speed_share=0.4))
    named = finding(cause, Item.DEVICE)
    less, more = (finding(80, Item.LOGGING, cost=Cost(speed_share=share)) for share in (0.3, 0.9))
    assert order([less, counted, named, more]) == (more, named, counted, less)
    assert order([less, named]) == (less, named), "without it nobody knows how much it explains"


def test_refused_requests_count_like_time() -> None:
    few, many = finding(31, Item.MEMORY, cost=Cost(refused_share=0.02)), finding(36, Item.MEMORY)
    most = finding(32, Item.MEMORY, cost=Cost(refused_share=0.6))
    assert order([few, many, most]) == (most, many, few)


WITHOUT_AN_ANSWER = (31, 32, 34, 36, 110, 111, 114, 115, 116, 117, 201, 202, 203, 204, 205, 206, 207, 209, 212, 213)
"""Numbers of what refuses requests, cuts them off, loses them, or keeps the server from taking any."""


@pytest.mark.parametrize("number", WITHOUT_AN_ANSWER)
def test_requests_that_fail_come_before_what_only_costs_time_within_one_severity(number: int) -> None:
    slow = finding(80, Item.LOGGING, cost=Cost(speed_share=0.9))
    failing = finding(number, Item.HEALTH)
    dead = finding(1, Item.GPU, Severity.CRITICAL)
    assert order([slow, failing, dead]) == (dead, failing, slow)


def test_all_else_is_ordered_by_what_it_costs() -> None:
    slow = finding(80, Item.LOGGING, cost=Cost(speed_share=0.9))
    rest = [one for one in ENTRIES if int(one.removeprefix("SLT")) not in WITHOUT_AN_ANSWER]
    assert len(rest) == len(ENTRIES) - len(WITHOUT_AN_ANSWER)
    assert [one for one in rest if order([finding(int(one.removeprefix("SLT"))), slow])[0] != slow] == []


def test_equal_weights_come_in_the_order_of_the_checklist_and_then_of_the_identifiers() -> None:
    late, early, same = finding(1, Item.CLIENT), finding(9, Item.GPU), finding(3, Item.GPU)
    assert order([late, early, same]) == (same, early, late)


def test_a_cost_that_is_no_number_is_one_that_is_not_known() -> None:
    odd = finding(1, Item.GPU, cost=Cost(ttft_share=float("nan"), speed_share=float("inf")))
    known = finding(2, Item.CLIENT, cost=Cost(ttft_share=0.1))
    assert odd.cost.weight == finding(1).cost.weight
    assert order([odd, known]) == (known, odd)


COSTS = st.builds(
    Cost,
    ttft_share=st.none() | st.floats(),
    speed_share=st.none() | st.floats(0, 1),
    refused_share=st.none() | st.floats(0, 1),
)
FINDINGS = st.lists(
    st.builds(finding, st.integers(1, 999), st.sampled_from(Item), st.sampled_from(Severity), COSTS),
    unique_by=lambda one: one.id,
    max_size=6,
)


@given(FINDINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_rules_does_not_matter(found: list[Finding], chance: random.Random) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)
    assert [one.id for one in order(shuffled)] == [one.id for one in order(found)]


@given(FINDINGS)
def test_nothing_that_was_found_is_lost(found: list[Finding]) -> None:
    checkup = check_up(SERVER, [rule(one, one.entry.item) for one in found])
    assert sorted(one.id for one in checkup.findings) == sorted(one.id for one in found)
    assert sorted(one.id for item in checkup.checked for one in item.findings) == sorted(one.id for one in found)
