"""The right pods and no others are asked about, in PromQL that nobody can break out of."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1 import Prometheus
from slotune.production.queries import Pods, longest_range_s, queries_for, quoted

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
HASHES = st.text("456789bcdf", min_size=1, max_size=10)
RANDOMS = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=5, max_size=5)


def pod_name(deployment: str, template_hash: str, random: str) -> str:
    """As Kubernetes names a Deployment's pods: what goes before the random signs is cut at 58."""
    return f"{deployment}-{template_hash}-"[:58] + random


def pattern(pods: Pods) -> str:
    """The regular expression for pods, as Prometheus reads it."""
    found = re.search(r'pod=~"(.*)"$', pods.selector())
    assert found
    return found[1].replace("\\\\", "\\")


def selects(pods: Pods, pod: str) -> bool:
    return re.fullmatch(pattern(pods), pod) is not None


def queries(**settings: str) -> Prometheus:
    return Prometheus(url="http://prometheus.monitoring:9090", **settings)


@given(NAMES, HASHES, RANDOMS)
def test_every_pod_of_a_deployment_is_selected_however_long_its_name(name: str, template: str, random: str) -> None:
    pod = pod_name(name, template, random)
    assert selects(Pods("shop", name), pod)
    assert selects(Pods("shop", name, template), pod)


@given(NAMES.filter(lambda name: len(name) <= 30), NAMES.filter(lambda name: len(name) <= 30), HASHES, RANDOMS)
def test_no_pod_of_another_deployment_is_selected(name: str, other: str, template: str, random: str) -> None:
    hash_like = re.fullmatch(rf"{re.escape(name)}-[4-9bcdf]{{1,10}}", other)
    if name != other and not hash_like:
        assert not selects(Pods("shop", name), pod_name(other, template, random))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param("chat-2-5d4f8c7b96-x7k2p", id="a deployment with a longer name"),
        pytest.param("my-chat-5d4f8c7b96-x7k2p", id="a deployment with a name before it"),
        pytest.param("chat-0", id="a StatefulSet's pod"),
        pytest.param("chat-1a0e3f2b4c-x7k2p", id="a trial's pod"),
        pytest.param("chat", id="a bare pod"),
        pytest.param("chat-5d4f8c7b96-x7k2p-extra", id="a longer name"),
    ],
)
def test_a_pod_that_only_begins_alike_is_left_out(pod: str) -> None:
    assert not selects(Pods("shop", "chat"), pod)


def test_a_rollout_is_judged_on_its_own_pods() -> None:
    new = Pods("shop", "chat", "6b7c8d9f54")
    assert selects(new, "chat-6b7c8d9f54-x7k2p")
    assert not selects(new, "chat-5d4f8c7b96-x7k2p")


def test_a_dot_in_a_name_is_a_dot_alone() -> None:
    assert Pods("shop", "chat.v2").selector() == r'namespace="shop",pod=~"chat\\.v2-[4-9bcdf]{1,10}-[a-z0-9]{5}"'
    assert not selects(Pods("shop", "chat.v2"), "chatxv2-5d4f8c7b96-x7k2p")


@given(st.text(st.characters(codec="utf-8")))
def test_no_label_value_breaks_out_of_its_quotes(value: str) -> None:
    text = quoted(value)
    inside = re.sub(r"\\.", "", text[1:-1])
    assert text[0] == text[-1] == '"'
    assert not {'"', "\\", "\n"} & set(inside)


def test_the_default_speed_comes_from_counters_and_is_a_mean() -> None:
    asked = queries_for(queries(), Pods("shop", "chat"))
    pods = 'namespace="shop",pod=~"chat-[4-9bcdf]{1,10}-[a-z0-9]{5}"'
    assert asked.tokens_per_second == (
        f"sum(rate(llamacpp:tokens_predicted_total{{{pods}}}[5m]))"
        f" / sum(rate(llamacpp:tokens_predicted_seconds_total{{{pods}}}[5m]))"
    )
    assert asked.speed_is_mean
    assert asked.ttft_p95 is None


def test_a_users_query_is_sent_as_it_was_written() -> None:
    ttft, speed = 'max(ttft:p95{ns="$NAMESPACE"})', "min(speed:p5)"
    asked = queries_for(queries(ttft_query=ttft, tokens_per_second_query=speed), Pods("shop", "chat"))
    assert (asked.ttft_p95, asked.tokens_per_second, asked.speed_is_mean) == (ttft, speed, False)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("up", 0),
        ("sum(rate(a[5m])) / sum(rate(b[1h30m]))", 5400),
        ("max_over_time(rate(a[2m])[10m:30s])", 600),
        ('histogram_quantile(0.95, sum by (le) (rate(a{pod=~"chat-[0-9]{9}d"}[90s])))', 90),
        ("a{b='[9d]'} # [8d]\n+ rate(c[ 500ms ])", 0.5),
        (r'a{b="\"[9d]"}', 0),
        ("rate(a[1w])", 604_800),
    ],
)
def test_the_longest_range_of_a_query_is_found(query: str, want: float) -> None:
    assert longest_range_s(query) == want


def test_a_look_settles_when_its_longest_deciding_range_has_passed() -> None:
    pods = Pods("shop", "chat")
    assert queries_for(queries(), pods).settle_s == 300
    assert queries_for(queries(ttft_query="a[10m]", tokens_per_second_query="b[1m]"), pods).settle_s == 600
