"""Everything that is known of one trial in a pod at one moment, and what follows from it without judging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from slotune import __version__
from slotune.api.labels import LOAD_CLIENT
from slotune.api.v1alpha1.candidate import Environment
from slotune.llama.log_lines import LogFacts, parse_log
from slotune.sandbox.judgement import LogRequest, Logs
from slotune.sandbox.pod_facts import ContainerFacts, EventFacts, Exit, JobFacts, PodFacts
from slotune.sandbox.report_stream import ClientLog, parse_client_log, result_from_summary
from slotune.search.trial import Trial, TrialResult

__all__ = [
    "CLIENT_END",
    "CLIENT_NOW",
    "UNSEEN",
    "Case",
    "PodCase",
    "init_log",
    "needed_logs",
    "server_head",
    "server_tail",
]

CLIENT_END = LogRequest(LOAD_CLIENT, tail_lines=1000)
"""A record of 900 KiB takes 156 lines; the rest is for what others write in between."""
CLIENT_NOW = LogRequest(LOAD_CLIENT, tail_lines=20)

_HEAD_BYTES = 256 * 1024
"""A start at -lv 4 logs about 40 KB."""
_TAIL_LINES = 200
_INIT_LINES = 20

UNSEEN = "Unseen"
"""Reason of an end that only the count of restarts tells of."""

_UNREACHABLE = frozenset({"ServerUnreachable", "Wedged"})
"""Codes of a client that lost its server."""


def server_head(container: str, *, previous: bool) -> LogRequest:
    """How the server came up."""
    return LogRequest(container, previous, None, _HEAD_BYTES)


def server_tail(container: str, *, previous: bool) -> LogRequest:
    """What the server said last."""
    return LogRequest(container, previous, _TAIL_LINES)


def init_log(container: str) -> LogRequest:
    """The end of an init container's log."""
    return LogRequest(container, tail_lines=_INIT_LINES)


def needed_logs(
    job: JobFacts | None, pod: PodFacts | None, server_container: str, *, head_known: bool = False
) -> tuple[LogRequest, ...]:
    """The logs that a judgement would read. ``head_known``: how the server came up was read before."""
    if job is None or pod is None:
        return ()
    wanted: list[LogRequest] = []
    server, client = pod.containers.get(server_container), pod.containers.get(LOAD_CLIENT)
    if client is not None and (client.ended or client.running_since):
        wanted.append(CLIENT_END if client.ended else CLIENT_NOW)
    if server is not None:
        over = client is not None and client.ended is not None
        crashed = server.restarts > 0 or server.previous is not None
        if crashed or server.ended is not None or over:
            previous = _is_previous(server)
            wanted += [server_head(server.name, previous=previous), server_tail(server.name, previous=previous)]
        elif server.started and not head_known:
            wanted.append(server_head(server.name, previous=False))
    wanted += [
        init_log(container.name)
        for container in pod.containers.values()
        if container.is_init and container.name != server_container and container.ended and container.ended.exit_code
    ]
    return tuple(wanted)


def _is_previous(server: ContainerFacts) -> bool:
    """Whether the instance that counts is the one before the present. Kubelet may forget that one once the next has
    ended, too; then the next is what there is.
    """
    return server.previous is not None or (server.restarts > 0 and server.ended is None)


@dataclass(frozen=True, kw_only=True)
class PodCase:
    """One pod of the sandbox."""

    job: JobFacts
    pod: PodFacts
    logs: Logs
    events: Sequence[EventFacts]
    capacity_timeout_s: float
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Case(PodCase):
    """One trial in its pod."""

    trial: Trial
    gpu_expected: bool
    server_container: str
    startup_timeout_s: float
    earlier: LogFacts | None = None
    """Of how the server came up, read before."""
    image_id: str = ""
    """Of the image that the search is about."""
    is_generated: bool = True
    """Whether prompts were made up."""

    @cached_property
    def server(self) -> ContainerFacts | None:
        """The sidecar that is llama-server."""
        return self.pod.containers.get(self.server_container)

    @cached_property
    def client(self) -> ContainerFacts | None:
        """The container that sends the requests."""
        return self.pod.containers.get(LOAD_CLIENT)

    @cached_property
    def client_log(self) -> ClientLog:
        """What the client said."""
        text = self.logs.get(CLIENT_END) or self.logs.get(CLIENT_NOW) or ""
        return parse_client_log(text, self.trial)

    @cached_property
    def client_result(self) -> TrialResult | None:
        """What the client found: from its log, or from its termination message when that is all there is."""
        if self.client is None or self.client.ended is None:
            return None
        return self.client_log.result or result_from_summary(self.client.ended.message.encode(), self.trial)

    @cached_property
    def crash(self) -> Exit | None:
        """How the server ended while it was needed. Kubelet starts a sidecar again, so its status alone looks well."""
        server = self.server
        if server is None:
            return None
        if server.previous is not None:
            return server.previous
        if server.ended is None:
            return Exit(0, UNSEEN) if server.restarts else None
        client_end = None if self.client is None else self.client.ended
        if server.restarts and (client_end is not None or not server.ended.exit_code):
            return Exit(0, UNSEEN)  # the instance that is known may have been stopped with the pod
        needed_until = None if client_end is None else client_end.finished_at
        if needed_until is None or server.ended.finished_at is None:
            return None if self.client_result else server.ended
        # Times have no fractions: within one second, the client's word decides what came first.
        lost = self.client_result is None or self.client_result.verdict.code in _UNREACHABLE
        before = server.ended.finished_at < needed_until or (lost and server.ended.finished_at == needed_until)
        return server.ended if before else None

    @cached_property
    def server_parts(self) -> tuple[str, ...]:
        """The log of the instance that counts, its beginning and its end; kubelet's excerpt when it is gone."""
        if self.server is None:
            return ()
        previous = _is_previous(self.server)
        head = self.logs.get(server_head(self.server.name, previous=previous), "")
        tail = self.logs.get(server_tail(self.server.name, previous=previous), "")
        parts = (head, tail) if len(head.encode()) >= _HEAD_BYTES or not head else (head,)
        said = tuple(part for part in parts if part)
        return said or (() if self.crash is None or not self.crash.message else (self.crash.message,))

    @cached_property
    def server_text(self) -> str:
        """The same in one."""
        return "".join(self.server_parts)

    @cached_property
    def server_facts(self) -> LogFacts:
        """What the server's log says about what came up."""
        now = parse_log(self.server_text)
        return self.earlier if self.earlier is not None and not now.ready else now

    @cached_property
    def held_s(self) -> float:
        """Seconds that the GPU was held: from the pod's start, the pull and init containers left out."""
        began = (self.server and self.server.first_start) or self.pod.started_at
        ended = self.client and self.client.ended and self.client.ended.finished_at
        return 0.0 if began is None else max(0.0, ((ended or self.now) - began).total_seconds())

    @cached_property
    def started_at(self) -> str:
        """When the server was started first, RFC 3339; empty when it never was."""
        began = self.server and self.server.first_start
        return began.isoformat(timespec="seconds") if began else ""

    @cached_property
    def environment(self) -> Environment:
        """What a result is true for, as far as the pod says."""
        told = dict(self.client_result.effective) if self.client_result else {}
        build = self.server_facts.build or told.get("build")
        image = self.server.image_id or self.server.image if self.server else ""
        return Environment(
            engine=build[:256] if build else None,
            image=image.removeprefix("docker-pullable://")[:1024] or None,
            node=self.pod.node,
            slotune=__version__,
        )
