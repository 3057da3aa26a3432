"""The only door to Prometheus: one query in, one reading out, in bounded time, and nothing is ever raised.

The client library (prometheus-api-client 0.7.2) is used for the query alone, since the rest of it is easily used
wrongly: it waits for ever unless told otherwise, retries for seconds in secret, writes label values into queries
unescaped, takes any page for a healthy Prometheus, fails with a KeyError on an error that came with status 200, and
puts whole answers into its exceptions. Each of these has a test in ``tests/production``.

Every call has its own session on its own thread. Its outcome is a :data:`~slotune.production.readings.Reading`, so a
caller cannot mistake "no answer" for "all is well". Messages have the address and the cure; bodies and tokens stay out
of them, and out of logs.
"""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.exceptions import InvalidHeader, JSONDecodeError, SSLError, Timeout, TooManyRedirects
from urllib3.exceptions import HTTPError, NameResolutionError
from urllib3.exceptions import TimeoutError as WaitedTooLongError
from urllib3.util.retry import Retry

from slotune.production.bounded_http import AnswerTooLargeError, BoundedAdapter, Line, bounded_session
from slotune.production.lanes import Lanes
from slotune.production.readings import NoData, NotANumber, Reading, SeveralSeries, Unreachable, Value

__all__ = ["LARGEST_ANSWER", "PrometheusReader"]

LARGEST_ANSWER: Final = 1 << 20
"""Bytes. One series is some hundred; a query that gives thousands is wrong, and is not read to its end."""
WARNINGS_KEPT: Final = 3
WARNING_LENGTH: Final = 200

_LANES: Final = Lanes()
"""Of this process: whoever asks, threads that wait for the silent are few."""
_NOT_PROMETHEUS: Final = "it answers, but not as Prometheus does: does the address lead to a proxy or a log-in page?"
_NO_RETRY: Final = Retry(0, read=False)
_STATUS: Final = re.compile(r"HTTP Status Code (\d{3})\b")
_ERROR_TYPE: Final = re.compile(r"[a-z_]{1,32}")


class PrometheusReader:
    """Asks one Prometheus.

    Args:
        url: base address of its HTTP API; a path prefix and a slash at the end are fine.
        timeout_s: for a whole query, from the name's look-up to the last byte.
        token: bearer token, sent in a header and shown nowhere; blanks and line breaks around it are dropped.
        ca_file: certificate authority that signed Prometheus' certificate; the public ones when None.
    """

    def __init__(self, url: str, timeout_s: float, token: str | None = None, *, ca_file: str | None = None) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}: it must be above 0 seconds")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        self._verify: str | bool = ca_file or True

    async def scalar(self, query: str, at: datetime) -> Reading:
        """What ``query`` gives at ``at``: a Value only for exactly one series with a finite number.

        Takes ``timeout_s`` at most, once a thread has taken it up; a cancelled call leaves no thread behind that waits.

        Raises:
            ValueError: ``at`` has no time zone, so it could be any of two dozen moments.
        """
        if at.tzinfo is None:
            raise ValueError(f"at is {at.isoformat()}: a time with its zone is needed, such as datetime.now(UTC)")
        line = Line()
        try:
            return await _LANES.ask(self.url, lambda: self._ask(query, at.timestamp(), line), self.timeout_s)
        except TimeoutError:
            return self._unreachable(self._too_slow())
        finally:
            line.cut()

    async def unreachable(self, at: datetime) -> Unreachable | None:
        """Why this Prometheus cannot answer any query; None when it can. Worth asking before a rollout relies on it.

        A query without data is asked. The library's own check takes any page that a proxy serves for Prometheus.
        """
        match await self.scalar("vector(1)", at):
            case Value(value=1.0):
                return None
            case Unreachable() as reading:
                return reading
            case _:
                return self._unreachable(_NOT_PROMETHEUS)

    def _ask(self, query: str, at: float, line: Line) -> Reading:
        """One query on this thread."""
        warnings: list[str] = []
        refused: list[str] = []

        def note(response: requests.Response, **_: Any) -> None:
            """Keep what the library drops: warnings, and the kind of an error."""
            try:
                answer = json.loads(response.content)
            except (ValueError, RecursionError):
                return
            if isinstance(answer, dict):
                warnings.extend(_shortened(answer.get("warnings")))
                kind = answer.get("errorType")
                if answer.get("status") == "error":
                    refused.append(kind if isinstance(kind, str) and _ERROR_TYPE.fullmatch(kind) else "unknown error")

        adapter = BoundedAdapter(line, LARGEST_ANSWER)
        with bounded_session(adapter, verify=self._verify) as session:
            session.hooks["response"].append(note)
            client = PrometheusConnect(
                self.url, headers=self._headers, retry=_NO_RETRY, session=session, timeout=math.ceil(self.timeout_s)
            )
            session.mount(self.url, adapter)  # the library has just put its own one there
            try:
                result = client.custom_query(query, params={"time": f"{at:.3f}", "timeout": f"{self.timeout_s:.3f}"})
            except PrometheusApiClientException as error:
                return self._unreachable(_answered(str(error), refused, bool(self._headers)))
            except JSONDecodeError:
                return self._unreachable(_NOT_PROMETHEUS)
            except (OSError, HTTPError) as error:  # all of requests' own errors are OSErrors
                return self._unreachable(self._failed(error))
            except (LookupError, TypeError, ValueError, RecursionError):  # status 200, but no result below "data"
                return self._unreachable(_refused(refused[0]) if refused else _NOT_PROMETHEUS)
        return _reading(result, tuple(warnings[:WARNINGS_KEPT])) or self._unreachable(_NOT_PROMETHEUS)

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"{self.url}: {why}")

    def _too_slow(self) -> str:
        return f"no whole answer within {self.timeout_s:g} s"

    def _failed(self, error: Exception) -> str:
        """Why no answer came. Texts of errors stay out: they hold addresses with queries, and headers with tokens."""
        causes = tuple(_causes(error))

        def any_is(*kinds: type[BaseException]) -> bool:
            return any(isinstance(cause, kinds) for cause in causes)

        for kinds, why in (
            ((AnswerTooLargeError,), f"more than {LARGEST_ANSWER >> 20} MiB came back: the query must give one series"),
            ((TooManyRedirects,), "it redirects: give the address that answers by itself, with https if it wants that"),
            ((InvalidHeader,), "the token does not fit into a header: store the bare token, one line of ASCII"),
            ((NameResolutionError, socket.gaierror), "no such host: is the Service's name complete?"),
            ((ConnectionRefusedError,), "nothing listens there: is the port right, and does Prometheus run?"),
            ((ssl.SSLCertVerificationError,), "its certificate is not trusted"),
            ((SSLError, ssl.SSLError), "no TLS there: does it want http in place of https?"),
            ((Timeout, WaitedTooLongError, TimeoutError), self._too_slow()),
        ):
            if any_is(*kinds):
                return why
        return f"the connection failed ({type(causes[-1]).__name__})"


def _reading(result: Any, warnings: tuple[str, ...]) -> Reading | None:
    """What the library calls the result: a list of series, or one [time, text] for scalars and strings; None for
    what no Prometheus gives."""
    reading: Reading | None = None
    match result:
        case []:
            reading = NoData(warnings)
        case [int() | float(), str() as text] | [{"value": [_, str() as text]}]:
            reading = _number(text, warnings)
        case [{"values": _}]:
            reading = NotANumber("a range of values")
        case [{"histogram": _} | {"histograms": _}]:
            reading = NotANumber("a histogram")
        case [dict(), dict(), *_]:
            reading = SeveralSeries(len(result))
    return reading


def _number(text: str, warnings: tuple[str, ...]) -> Reading:
    try:
        value = float(text)
    except ValueError:
        return NotANumber("a text")
    if value != value:  # noqa: PLR0124 - NaN alone is unlike itself
        return NotANumber("NaN")
    if value in (float("inf"), float("-inf")):
        return NotANumber("+Inf" if value > 0 else "-Inf")
    return Value(value, warnings)


def _answered(text: str, refused: list[str], has_token: bool) -> str:
    """A sentence for an answer that is not 200. ``text`` is the library's, which goes on with the whole body."""
    found = _STATUS.match(text)
    status = found[1] if found else "an unknown status"
    if refused:
        return _refused(refused[0])
    if status in {"401", "403"}:
        cure = "is it the right one?" if has_token else "name one in bearerTokenSecretRef"
        return f"{status}: it wants a token: {cure}"
    if status == "404":
        return "404: Prometheus' API is not below this address: is a path prefix missing?"
    return f"{status}: it does not answer queries now"


def _refused(kind: str) -> str:
    cure = ": try it in Prometheus' own page" if kind in {"bad_data", "execution"} else ""
    return f"it refuses the query ({kind}){cure}"


def _shortened(warnings: Any) -> list[str]:
    if not isinstance(warnings, list):
        return []
    texts = (" ".join(text.split()) for text in warnings if isinstance(text, str))
    return ["".join(sign for sign in text if sign.isprintable())[:WARNING_LENGTH] for text in texts]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, the first cause last. Few libraries in this chain are left, so it is short."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
