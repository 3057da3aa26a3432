"""What is asked: the user's own queries as they are, and llama-server's own counters where there are none.

llama-server counts tokens and seconds, and has no histogram: from its counters follow means over a window, never a
p95. So tokens per second have a default query, and TTFT has none. Of its gauges ``predicted_tokens_seconds`` and
``prompt_tokens_seconds`` are not used: each scrape resets them, so two scrapers spoil each other's numbers. Rates of
counters have no such fault.

Placeholders such as ``$NAMESPACE`` are not replaced in users' queries: a query stands in the manifest that has the
name and the namespace too, and what is sent stays what was written. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from slotune.api.v1alpha1 import Prometheus

__all__ = ["WINDOW", "Pods", "Queries", "longest_range_s", "queries_for", "quoted"]

WINDOW: Final = "5m"
"""Over which rates are taken: four scrapes even at one a minute. A slot's tokens are counted when it is released, so
that a shorter window sees steps."""

_LONGEST_BASE: Final = 58
"""Characters of a pod's name before its five random ones; Kubernetes cuts the rest off (names.SimpleNameGenerator)."""
_HASH: Final = "[4-9bcdf]{1,10}"
"""A ReplicaSet's hash: ten decimal digits at most, each written as one of these ten signs (rand.SafeEncodeString)."""
_RANDOM: Final = "[a-z0-9]{5}"

_STRING: Final = re.compile(r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])*'|`[^`]*`", re.DOTALL)
_COMMENT: Final = re.compile(r"#[^\n]*")
_RANGE: Final = re.compile(r"\[\s*([0-9a-z]+)")
_PART: Final = re.compile(r"([0-9]+)(ms|[smhdwy])")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one Deployment, as they are found by the labels ``namespace`` and ``pod`` of their series."""

    namespace: str
    deployment: str
    template_hash: str | None = None
    """Label ``pod-template-hash`` of one ReplicaSet; pods of all of them when None. A rollout is judged on new pods."""

    def selector(self) -> str:
        """Label matchers, without braces. Prometheus anchors them at both ends.

        A pod of a Deployment with a name beside (``chat-2`` beside ``chat``) is never meant: a hash has no hyphen.
        Of names so long that Kubernetes cuts the hash off, Deployments with one beginning cannot be told apart.
        """
        return f"namespace={quoted(self.namespace)},pod=~{quoted(self._name_pattern())}"

    def _name_pattern(self) -> str:
        base = f"{self.deployment}-"
        if len(base) > _LONGEST_BASE:
            return f"{_literal(base[:_LONGEST_BASE])}{_RANDOM}"
        if self.template_hash is not None:
            return f"{_literal(f'{base}{self.template_hash}-'[:_LONGEST_BASE])}{_RANDOM}"
        if len(base) + 11 > _LONGEST_BASE:  # some hashes are cut, and then no hyphen follows
            return f"{_literal(base)}[4-9bcdf]{{0,10}}-?{_RANDOM}"
        return f"{_literal(base)}{_HASH}-{_RANDOM}"


@dataclass(frozen=True, slots=True)
class Queries:
    """PromQL for one look. Each gives one series at most."""

    ttft_p95: str | None
    """Seconds; None when the user gave no query."""
    tokens_per_second: str
    """Per user."""
    speed_is_mean: bool
    """Whether the speed comes from llama-server's counters: then it is a mean over tokens, not what 95 % see."""
    requests_processing: str
    requests_deferred: str
    prompt_tokens_per_second: str

    @property
    def settle_s(self) -> float:
        """Seconds after a change until no look that decides reaches back before it."""
        deciding = (self.tokens_per_second, *(() if self.ttft_p95 is None else (self.ttft_p95,)))
        return max(longest_range_s(query) for query in deciding)


def queries_for(prometheus: Prometheus, pods: Pods) -> Queries:
    """What is asked for the pods of a Deployment."""
    own = prometheus.tokens_per_second_query
    predicted = _rates("tokens_predicted_total", "tokens_predicted_seconds_total", pods)
    return Queries(
        ttft_p95=prometheus.ttft_query,
        tokens_per_second=predicted if own is None else own,
        speed_is_mean=own is None,
        requests_processing=_mean("requests_processing", pods),
        requests_deferred=_mean("requests_deferred", pods),
        prompt_tokens_per_second=_rates("prompt_tokens_total", "prompt_seconds_total", pods),
    )


def quoted(value: str) -> str:
    """A label value as a PromQL string. JSON's escapes are all among Go's, which PromQL reads."""
    return json.dumps(value, ensure_ascii=False)


def longest_range_s(query: str) -> float:
    """Seconds of the longest range (``[5m]``, ``[1h30m:1m]``) in a query; 0 when it has none.

    Ranges inside recording rules are not seen, and offsets are not added.
    """
    bare = _COMMENT.sub("", _STRING.sub('""', query))
    return max((_seconds(found) for found in _RANGE.findall(bare)), default=0.0)


def _rates(counter: str, seconds: str, pods: Pods) -> str:
    """A counter's growth over that of its seconds, which llama-server adds up over its slots: per slot, so per user.

    NaN while nothing is served, no series while nothing is scraped: the two are told apart.
    """
    among = f"{{{pods.selector()}}}[{WINDOW}]"
    return f"sum(rate(llamacpp:{counter}{among})) / sum(rate(llamacpp:{seconds}{among}))"


def _mean(gauge: str, pods: Pods) -> str:
    return f"sum(avg_over_time(llamacpp:{gauge}{{{pods.selector()}}}[{WINDOW}]))"


def _literal(name: str) -> str:
    """A regular expression (RE2) that matches the name alone."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda sign: f"\\{sign[0]}" if sign[0].isascii() else sign[0], name)


def _seconds(text: str) -> float:
    parts: Iterable[tuple[str, str]] = _PART.findall(text)
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
