"""A number is told apart from every way of having none, by a real Prometheus and by all that only looks like one."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from slotune.api.v1alpha1 import Prometheus
from slotune.production.looks import take_look
from slotune.production.prometheus import PrometheusReader
from slotune.production.queries import Pods, queries_for
from slotune.production.readings import NoData, NotANumber, Reading, SeveralSeries, Unreachable, Value
from tests.production.answering import Answer, answering, document, result, text

TOKEN = "s3cret-t0ken"
SERIES = {"metric": {}, "value": [1, "2"]}


def now() -> datetime:
    return datetime.now(UTC)


async def ask(url: str, query: str = "up", *, timeout_s: float = 5, token: str | None = None) -> Reading:
    return await PrometheusReader(url, timeout_s, token).scalar(query, now())


async def why(url: str, **how: float | str | None) -> str:
    """The reason of an Unreachable; anything else is an assertion."""
    reading = await ask(url, **how)  # type: ignore[arg-type]  # the test's own keywords
    assert isinstance(reading, Unreachable), reading
    return reading.reason


# A real Prometheus.


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param("vector(0.71)", Value(0.71), id="one series"),
        pytest.param("0.71", Value(0.71), id="a scalar comes in another form"),
        pytest.param("absent_metric", NoData(), id="no series"),
        pytest.param("vector(0) / vector(0)", NotANumber("NaN"), id="NaN is no latency of zero"),
        pytest.param("vector(1) / vector(0)", NotANumber("+Inf"), id="infinity"),
        pytest.param("vector(-1) / vector(0)", NotANumber("-Inf"), id="minus infinity"),
        pytest.param('"0.7"', Value(0.7), id="a string that is a number"),
        pytest.param('"fine"', NotANumber("a text"), id="a string"),
        pytest.param("llamacpp:requests_deferred", SeveralSeries(3), id="three pods"),
        pytest.param(
            'llamacpp:requests_deferred{pod="idle-5d4f8c7b96-abcde"}[1m]', NotANumber("a range of values"), id="a range"
        ),
    ],
)
async def test_a_real_prometheus_is_read(prometheus: str, query: str, want: Reading) -> None:
    assert await ask(prometheus, query) == want


async def test_a_slash_at_the_end_of_the_address_is_fine(prometheus: str) -> None:
    assert await ask(f"{prometheus}/", "vector(1)") == Value(1)


async def test_a_query_is_asked_for_its_moment_and_not_for_now(prometheus: str) -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    assert await PrometheusReader(prometheus, 5).scalar("time()", at) == Value(at.timestamp())


async def test_a_moment_without_a_zone_is_refused(prometheus: str) -> None:
    with pytest.raises(ValueError, match="zone"):
        await PrometheusReader(prometheus, 5).scalar("up", datetime(2020, 1, 1))


async def test_a_query_that_prometheus_cannot_read_is_told_apart_from_prometheus_being_down(prometheus: str) -> None:
    want = f"{prometheus}: it refuses the query (bad_data): try it in Prometheus' own page"
    assert await why(prometheus, query="sum(") == want


async def test_a_query_whose_execution_fails_is_refused(prometheus: str) -> None:
    assert "execution" in await why(prometheus, query="llamacpp:requests_deferred * on() llamacpp:requests_deferred")


async def test_a_working_prometheus_is_reachable(prometheus: str) -> None:
    assert await PrometheusReader(prometheus, 5).unreachable(now()) is None


async def test_the_default_queries_read_llama_servers_counters(prometheus: str) -> None:
    queries = queries_for(Prometheus(url=prometheus), Pods("shop", "chat"))
    look = await take_look(PrometheusReader(prometheus, 5), queries, now())
    numbers = {
        "tokens_per_second": 40,
        "requests_processing": 4,  # two at each of the two pods, the idle Deployment's pod left out
        "requests_deferred": 1,
        "prompt_tokens_per_second": 1500,
    }
    assert look.ttft_p95 is None
    assert look.speed_is_mean
    for name, want in numbers.items():
        reading = getattr(look, name)
        assert isinstance(reading, Value), (name, reading)
        assert reading.value == pytest.approx(want, rel=0.02), name


async def test_pods_that_serve_nothing_are_told_apart_from_pods_that_nobody_scrapes(prometheus: str) -> None:
    settings = Prometheus(url=prometheus)
    reader = PrometheusReader(prometheus, 5)
    served_nothing = await take_look(reader, queries_for(settings, Pods("shop", "idle")), now())
    not_scraped = await take_look(reader, queries_for(settings, Pods("shop", "other")), now())
    assert served_nothing.tokens_per_second == NotANumber("NaN")
    assert not_scraped.tokens_per_second == NoData()


# What is not Prometheus, or not well.


async def test_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "nothing listens there" in await why(f"http://127.0.0.1:{port}")


async def test_a_host_that_does_not_exist() -> None:
    assert "no such host" in await why("http://prometheus.invalid:9090")


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(text("<html>Please log in</html>"), "not as Prometheus does", id="a proxy's page with 200"),
        pytest.param(text(""), "not as Prometheus does", id="an empty page"),
        pytest.param(
            document({"status": "error", "errorType": "internal", "error": "x"}), "(internal)", id="error, 200"
        ),
        pytest.param(document({"status": "success"}), "not as Prometheus does", id="no data"),
        pytest.param(document({"status": "success", "data": None}), "not as Prometheus does", id="null data"),
        pytest.param(document([1, 2]), "not as Prometheus does", id="a list"),
        pytest.param(result("fine"), "not as Prometheus does", id="a result of another form"),
        pytest.param(result([{"metric": {}, "value": [1]}]), "not as Prometheus does", id="half a series"),
        pytest.param(text("[" * 200_000), "not as Prometheus does", id="nesting without end"),
        pytest.param(text('{"data": ' + "9" * 9000 + "}"), "not as Prometheus does", id="a number without end"),
        pytest.param(text("<h1>Unauthorized</h1>", 401), "401: it wants a token", id="401"),
        pytest.param(text("no", 403), "403: it wants a token", id="403"),
        pytest.param(text("no", 404), "path prefix", id="404"),
        pytest.param(text("busy", 503), "503: it does not answer queries now", id="503"),
        pytest.param(document({"status": "error", "errorType": "timeout"}, 503), "(timeout)", id="its own time-out"),
        pytest.param(document({"status": "error", "errorType": TOKEN}, 503), "(unknown error)", id="an odd error type"),
        pytest.param(text("", 302, Location="http://127.0.0.1:1/login"), "it redirects", id="a redirect"),
        pytest.param(text("x" * (1 << 21)), "more than 1 MiB", id="an answer without end"),
        pytest.param(
            text(gzip.compress(b"x" * (1 << 24)).decode("latin-1"), **{"Content-Encoding": "gzip"}),
            "the connection failed",
            id="a broken encoding",
        ),
    ],
)
async def test_what_is_not_prometheus_is_named(answer: Answer, want: str) -> None:
    with answering(answer) as url:
        reason = await why(url)
    assert want in reason
    assert reason.startswith(f"{url}: ")
    assert "log in" not in reason, "a body may hold anything"


async def test_nothing_is_tried_again_in_secret() -> None:
    asked = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        text("busy", 503)(handler)

    with answering(answer) as url:
        await why(url)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param([SERIES, SERIES], SeveralSeries(2), id="two series are not a scalar's pair"),
        pytest.param([{"metric": {}, "value": [1, "1e999"]}], NotANumber("+Inf"), id="too large for a float"),
        pytest.param([{"metric": {}, "histogram": [1, {}]}], NotANumber("a histogram"), id="a native histogram"),
    ],
)
async def test_the_form_of_a_result_is_looked_at(content: object, want: Reading) -> None:
    with answering(result(content)) as url:
        assert await ask(url) == want


async def test_warnings_come_with_the_value_and_are_cut() -> None:
    warnings = ["one\nstore is down", "x" * 999, 3, "b", "c", "d"]
    with answering(result([SERIES], warnings=warnings)) as url:
        reading = await ask(url)
    assert reading == Value(2, ("one store is down", "x" * 200, "b"))


async def test_a_page_for_everything_is_no_reachable_prometheus() -> None:
    with answering(result([SERIES])) as url:
        reading = await PrometheusReader(url, 5).unreachable(now())
    assert reading is not None
    assert "not as Prometheus does" in reading.reason


# The token.


async def test_the_token_travels_in_its_header_alone(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append((handler.path, handler.headers["Authorization"]))
        text(f"you sent {TOKEN}", 401)(handler)

    caplog.set_level(logging.DEBUG)
    with answering(answer) as url:
        reader = PrometheusReader(url, 5, f"{TOKEN}\n")
        reading = await reader.scalar("up", now())
    assert isinstance(reading, Unreachable)
    assert "is it the right one" in reading.reason
    (path, header) = seen[0]
    assert header == f"Bearer {TOKEN}"
    assert TOKEN not in f"{path} {reading} {reader!r} {caplog.text}"


async def test_a_token_that_no_header_takes_is_refused_without_being_shown() -> None:
    with answering(text("never asked")) as url:
        reason = await why(url, token="one\ntwo")
    assert "one line" in reason
    assert "two" not in reason


async def test_the_environment_changes_neither_the_token_nor_the_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    seen = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        result([SERIES])(handler)

    with answering(answer) as url:
        assert await ask(url, token=TOKEN) == Value(2)
    assert seen == [f"Bearer {TOKEN}"]


# Several calls.


async def test_calls_run_beside_each_other() -> None:
    together = threading.Barrier(3, timeout=5)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        together.wait()
        result([SERIES])(handler)

    with answering(answer) as url:
        reader = PrometheusReader(url, 10)
        assert await asyncio.gather(*(reader.scalar("up", now()) for _ in range(3))) == [Value(2)] * 3


async def test_a_prometheus_that_is_down_is_asked_once_per_look() -> None:
    asked = []
    settings = Prometheus(url="http://127.0.0.1:9")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        text("", 503)(handler)

    with answering(answer) as url:
        look = await take_look(PrometheusReader(url, 5), queries_for(settings, Pods("shop", "chat")), now())
    assert len(asked) == 1
    assert isinstance(look.tokens_per_second, Unreachable)
    assert look.requests_deferred == look.tokens_per_second


@pytest.mark.parametrize("timeout_s", [0, -1])
def test_a_limit_of_no_time_is_refused(timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s"):
        PrometheusReader("http://127.0.0.1:9", timeout_s)
