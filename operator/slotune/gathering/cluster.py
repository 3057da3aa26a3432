"""All that a cluster says about the servers of one Deployment, in one go: pods, events, limits, nodes, logs, servers.

Reading only, with the caller's own rights, and bounded: six pods, and seconds for objects, servers and logs. What can't
be seen is left out and told, for a diagnosis of half the facts is worth more than none; only what nothing could be said
without is an error. One pod that hangs holds no other up.

Servers are asked before logs are read: reading keeps this process busy, and a server would seem slow for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kubernetes.aio.config import ConfigException

from slotune.controller.cluster import ClusterError, ForbiddenError
from slotune.controller.kinds import POD
from slotune.diagnose.evidence import Evidence, Source, shortened
from slotune.diagnose.symptoms import PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.gathering.cluster_reader import ClusterReader, PodPlace
from slotune.gathering.deployment_pods import SeenPod, see_pods
from slotune.gathering.deployments import find_deployment
from slotune.gathering.door import ANOTHER_PROGRAM, KEY_IN_FILE
from slotune.gathering.kubeconfig import ChosenCluster, choose_cluster
from slotune.gathering.look_errors import FIELD, NoClusterError, NotLlamaServerError, UnreachableClusterError, right
from slotune.gathering.optional_reads import OptionalReads
from slotune.gathering.pod_logs import PodLog, read_pod_log
from slotune.gathering.pod_server import Probe, look_at_pod, probe_pod
from slotune.gathering.watching import Watch
from slotune.llama.log_story import LogStory
from slotune.tuning.errors import InvalidInputError

__all__ = ["Wanted", "look_at_deployment", "look_in_cluster"]

OBJECTS_LIMIT_S: Final = 8.0
LOGS_LIMIT_S: Final = 6.0
"""For all logs together."""
LOG_LIMIT_S: Final = 3.0
"""For one that has others wait."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked at, and how."""

    name: str
    """Of a Deployment, or of a LlamaDeployment, whose server is then looked at."""
    container: str | None = None
    """The one that is llama-server; None finds it."""
    api_key: str | None = None
    """Of the servers; None for none."""
    key_file: Path | None = None
    """Where the key was read, for words about it."""
    probe: Probe | None = None
    """Sends a few requests to one server after the other, where it was asked for."""
    watched: Callable[[], AbstractContextManager[Watch | None]] = nullcontext
    """Around the looks at the servers: how long all of them go on, where that was asked for."""
    tell: Callable[[str], None] = lambda _: None
    """Gets a line for each thing that was left out or could not be seen."""


def look_at_deployment(
    name: str,
    namespace: str | None,
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    container: str | None = None,
    api_key: str | None = None,
    key_file: Path | None = None,
    probe: Probe | None = None,
    watched: Callable[[], AbstractContextManager[Watch | None]] = nullcontext,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Symptoms, ...]:
    """The symptoms of each pod, those that are worse off first. Not from within an event loop.

    Args:
        name: see :class:`Wanted`, as for the last six.
        namespace: None takes that of the context, or of the pod that this runs in.
        kubeconfig: None takes the variable KUBECONFIG, the pod that this runs in, or kubectl's own file.
        context: of the kubeconfig; None takes the current one.
        container: of the pods.
        api_key: of the servers.
        key_file: where it was read.
        probe: of one server.
        watched: of all servers together.
        tell: hears what is missing.

    Raises:
        InvalidInputError: nothing could be looked at; its class says why (:mod:`slotune.gathering.look_errors`).
    """
    chosen = choose_cluster(name, kubeconfig, context, os.environ)
    wanted = Wanted(name, container, api_key, key_file, probe, watched, tell)
    return asyncio.run(_connect_and_look(wanted, namespace, chosen))


async def _connect_and_look(wanted: Wanted, namespace: str | None, chosen: ChosenCluster) -> tuple[Symptoms, ...]:
    try:
        reader = await ClusterReader.connect(chosen.paths, chosen.context)
    except ConfigException as error:
        raise NoClusterError(wanted.name, str(error)) from error
    async with reader:
        return await look_in_cluster(reader, namespace or chosen.namespace or reader.namespace, wanted)


async def look_in_cluster(reader: ClusterReader, namespace: str, wanted: Wanted) -> tuple[Symptoms, ...]:
    """As :func:`look_at_deployment`, in a cluster that is connected already."""
    reads = OptionalReads(reader, wanted.tell)
    try:
        async with asyncio.timeout(OBJECTS_LIMIT_S):
            meant = await find_deployment(reader, namespace, wanted.name, reads)
            pods = await see_pods(reader, namespace, meant, wanted.container, reads)
    except TimeoutError as error:
        why = f"the API server does not answer within {OBJECTS_LIMIT_S:g} s"
        raise UnreachableClusterError(wanted.name, why) from error
    except ClusterError as error:
        raise UnreachableClusterError(wanted.name, error.message) from error
    places = [PodPlace(namespace, pod.name, pod.listening) for pod in pods]
    pairs = list(zip(pods, places, strict=True))
    with wanted.watched() as watch:
        looks = await asyncio.gather(*(_look(reader, pod, place, wanted, watch) for pod, place in pairs))
    if watch is not None and watch.enough.is_set():
        wanted = replace(wanted, probe=None)
    probes = [await _probe(reader, place, look, wanted, reads) for place, look in zip(places, looks, strict=True)]
    logs = await _logs(reader, namespace, pods, reads)
    _check_is_server(wanted.name, places, looks, logs)
    return tuple(
        Symptoms(
            name=pod.name,
            log=log if log is not None and log.lines else before,
            server=look,
            probe=probe,
            pod=_with_last_words(pod.facts, before),
            node=pod.node,
            gpu=meant.gpu,
            promise=meant.promise,
            flags=pod.flags,
        )
        for pod, look, probe, (log, before) in zip(pods, looks, probes, logs, strict=True)
    )


async def _look(
    reader: ClusterReader, pod: SeenPod, place: PodPlace, wanted: Wanted, watch: Watch | None
) -> ServerLook | None:
    if not pod.is_running:
        return None
    look = await look_at_pod(reader, place, wanted.api_key, watch)
    if wanted.key_file is None:
        return look
    return replace(look, refused={path: _naming(why, wanted.key_file) for path, why in look.refused.items()})


def _naming(why: str, key_file: Path) -> str:
    return why.replace(KEY_IN_FILE, f"the key in {key_file}")


Logs = tuple[LogStory | None, LogStory | None]
"""(The present log, the one before the restart); None for what is no log of llama-server, or could not be read."""


def _check_is_server(
    name: str, places: Sequence[PodPlace], looks: Sequence[ServerLook | None], logs: Sequence[Logs]
) -> None:
    """Whether anything speaks for llama-server: what answers instead of it, or its logs.

    Raises:
        NotLlamaServerError: other programs answer, and nothing else is known of any of them.
    """
    asked = [(place, look) for place, look in zip(places, looks, strict=True) if look is not None]
    others = [(place, why) for place, look in asked if (why := _another(look))]
    if others and len(others) == len(asked) and not any(log for both in logs for log in both):
        place, why = others[0]
        where = f"at port {place.listening.port} of pod {place.pod} is {why}"
        raise NotLlamaServerError(
            FIELD, name, f"{where}; where another container is llama-server, name it: --container"
        )


def _another(look: ServerLook) -> str:
    """What answers in place of llama-server; empty where nothing does."""
    return next((why for why in look.refused.values() if why.startswith(ANOTHER_PROGRAM)), "")


async def _probe(
    reader: ClusterReader, place: PodPlace, look: ServerLook | None, wanted: Wanted, reads: OptionalReads
) -> ProbeFacts | None:
    """One server after the other: what one is asked is to have the machine to itself."""
    if wanted.probe is None or look is None or look.props is None:
        return None
    try:
        return await probe_pod(reader, place, wanted.api_key, look, wanted.probe)
    except InvalidInputError as error:
        reads.note(f"pod {place.pod} could not be measured: {error.cure}")
        return None


async def _logs(reader: ClusterReader, namespace: str, pods: tuple[SeenPod, ...], reads: OptionalReads) -> list[Logs]:
    """Those of each pod, one pod after the other: memory stays that of one."""
    found: list[Logs] = []
    clock = asyncio.get_running_loop().time
    ends = clock() + LOGS_LIMIT_S
    for pod in pods:
        if not pod.has_started:
            found.append((None, None))
            continue
        left_s = ends - clock()
        if left_s <= 0:
            reads.note(f"the log of pod {pod.name} was not read: those of others took {LOGS_LIMIT_S:g} s")
            found.append((None, None))
            continue
        limit_s = left_s if pod is pods[-1] else min(left_s, LOG_LIMIT_S)
        try:
            now = await read_pod_log(reader, namespace, pod.name, pod.container, limit_s=limit_s)
            before = PodLog(None)
            if pod.has_earlier_log:
                before = await read_pod_log(
                    reader, namespace, pod.name, pod.container, previous=True, limit_s=LOG_LIMIT_S
                )
        except ForbiddenError:
            reads.lacks(right("get", POD, namespace, "log"), "the logs")
            return [*found, *[(None, None)] * (len(pods) - len(found))]
        for log in (now, before):
            if log.note:
                reads.note(log.note)
        found.append((now.story, before.story))
    return found


def _with_last_words(facts: PodFacts, before: LogStory | None) -> PodFacts:
    """With the line that the server ended with before its restart: the present log no longer has it."""
    if before is None or before.failure_line is None:
        return facts
    line = before.failure_line
    said = Evidence(Source.LOG, shortened(f"before the restart: {line.text}"), line.number)
    return replace(facts, events=(said, *facts.events))
