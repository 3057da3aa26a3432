"""Users who share a step share one reading of the weights, and each brings its own keys and values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.roofline_many import Many
from slotune.diagnose.symptoms import GPUFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.server_answers import Metrics
from tests.diagnose.server_logs import Asked, log_of

ON_GPU = 4403.49 * 2**20
PER_TOKEN = 131072


def known(symptoms: Symptoms) -> Roofline:
    found = roofline_of(symptoms)
    assert isinstance(found, Roofline)
    return found


def several(symptoms: Symptoms) -> Many:
    found = known(symptoms).several
    assert found is not None
    return found


def counted(users: float, **more: float) -> ServerLook:
    values = {"n_busy_slots_per_decode": users, "tokens_predicted_total": 6000.0, **more}
    return ServerLook("http://127.0.0.1:8080", metrics=Metrics({"tokens_predicted_seconds_total": 100.0, **values}))


def test_four_users_in_a_step_read_the_weights_once() -> None:
    """Each 400 prompt tokens and half of 200: 4.6 GB and four times 66 MB a step."""
    found = several(Symptoms("s", log=log_of(asked=[Asked(400, 200, 80, at_once=4)])))
    step = ON_GPU + 4 * 500 * PER_TOKEN
    assert (found.users, found.is_most) == (4, True)
    assert found.step_bytes == pytest.approx(step, rel=1e-6)
    assert found.at_most_each == pytest.approx(1008e9 / step, rel=1e-5)
    assert found.at_most_together == pytest.approx(4 * 1008e9 / step, rel=1e-5)
    assert found.seen_each == pytest.approx(80, rel=1e-3)
    assert "with up to 4 users in a step, which reads 4.88 GB, at most 206.6 tokens/s each, 826.3 together" in (
        found.sentence
    )
    assert "80 each" in found.sentence


def test_counters_say_how_many_there_are_on_average_and_what_they_get() -> None:
    log = log_of(asked=[Asked(400, 200, 80)])
    found = several(Symptoms("s", log=log, server=counted(2.5)))
    assert found.at_most_together == pytest.approx(2.5 * 1008e9 / (ON_GPU + 2.5 * 500 * PER_TOKEN), rel=1e-4)
    assert (found.seen_each, found.seen_together) == (60.0, 150.0)
    assert "with 2.5 users in a step on average" in found.sentence
    assert "60 each, 150 together (28.5 %)" in found.sentence


def test_one_user_in_a_step_is_no_crowd() -> None:
    assert known(Symptoms("s", log=log_of(asked=[Asked(400, 200, 80)]))).several is None
    assert known(Symptoms("s", log=log_of(), server=counted(1.0))).several is None
    assert known(Symptoms("s", log=log_of())).several is None


def test_many_users_are_bound_by_arithmetic() -> None:
    """8.03 B weights less two tables of 128,256 x 4,096: each token takes 14 GFLOP, an L4 has 242 TFLOP/s."""
    found = several(Symptoms("s", log=log_of(devices=("NVIDIA L4",), caches=""), server=counted(400.0)))
    assert found.at_most_together == pytest.approx(242e12 / (2 * (8.03e9 - 2 * 128256 * 4096)), rel=1e-6)


def test_guesses_that_came_true_count_for_each() -> None:
    asked = Asked(400, 200, 200, accepted=133, drafted=199, at_once=4)
    found = several(Symptoms("s", log=log_of(asked=[asked])))
    assert found.at_most_each == pytest.approx(1008e9 * 199 / 66 / (ON_GPU + 4 * 500 * PER_TOKEN), rel=1e-4)


def test_an_unknown_device_leaves_what_was_seen() -> None:
    found = several(Symptoms("s", log=log_of(devices=(), asked=[Asked(400, 200, 80, at_once=2)])))
    assert found.at_most_each is None
    assert "is not known; seen by its log: 80 each" in found.sentence


def test_the_contexts_of_users_are_those_of_their_requests_not_a_probes() -> None:
    log = log_of(asked=[Asked(400, 200, 80)])
    probe = ProbeFacts(4, 30000, 0.01, prefill_tokens_per_s=3000.0, decode_step_s=0.02)
    found = several(Symptoms("s", log=log, server=counted(2.0), probe=probe))
    assert found.step_bytes == pytest.approx(ON_GPU + 2 * 500 * PER_TOKEN, rel=1e-6)


@given(users=st.floats(1.1, 64), more=st.floats(1.01, 4))
def test_more_users_get_less_each_and_no_less_together(users: float, more: float) -> None:
    log = log_of(asked=[Asked(400, 200, 80, count=1)])
    few, many = (
        several(Symptoms("s", log=log, server=counted(count), gpu=GPUFacts("mine", 300e9)))
        for count in (users, users * more)
    )
    assert few.at_most_each is not None
    assert many.at_most_each is not None
    assert few.at_most_together is not None
    assert many.at_most_together is not None
    assert many.at_most_each < few.at_most_each
    assert many.at_most_together > few.at_most_together


def test_the_mean_of_many_does_not_hide_one_users_bound() -> None:
    found = known(replace(Symptoms("s", log=log_of(asked=[Asked(400, 200, 80, at_once=4)]))))
    assert found.decode.at_most == pytest.approx(1008e9 / (ON_GPU + 500 * PER_TOKEN), rel=1e-4)
