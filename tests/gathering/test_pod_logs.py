"""The log of a pod: its beginning and its end, that of the instance before, and none where none can be."""

from __future__ import annotations

import pytest

from slotune.diagnose.evidence import Source
from slotune.gathering import cluster, pod_logs
from tests.gathering.looking import LOGS, POD, START
from tests.gathering.pods import container_status, crashed, pod


async def test_a_crash_loop_has_its_end_and_its_last_words(look):
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = container_status(ready=False, restartCount=4, state=waiting, lastState=crashed(1))
    look.server.put(pod(statuses=[status], conditions=[{"type": "Ready", "status": "False"}]))
    # While it waits, kubelet gives the same log for both.
    look.server.logs |= dict.fromkeys([(POD, False), (POD, True)], (LOGS / "compute_too_big.log").read_bytes())
    [found] = await look.take()
    assert found.server is None
    assert found.pod is not None
    assert (found.pod.restarts, found.pod.last_exit, found.pod.ready) == (4, ("Error", 1), False)
    assert found.log is not None
    assert found.log.failure is not None
    assert [str(one) for one in found.pod.events] == ["pod  waiting: CrashLoopBackOff: back-off"]


async def test_the_line_before_a_restart_is_kept_beside_the_new_log(look):
    look.server.put(pod(statuses=[container_status(restartCount=1, lastState=crashed(1))]))
    look.server.logs[POD, True] = (LOGS / "compute_too_big.log").read_bytes()
    [found] = await look.take()
    assert found.log is not None
    assert found.log.failure is None
    assert found.pod is not None
    first = found.pod.events[0]
    assert first.source is Source.LOG
    assert first.text.startswith("before the restart: ")


async def test_a_pod_that_never_started_has_no_log(look):
    look.server.logs.clear()
    look.server.put(pod(statuses=[], phase="Pending", conditions=[]))
    [found] = await look.take()
    assert (found.log, found.server) == (None, None)


async def test_a_log_is_not_asked_for_where_no_container_started(look):
    look.server.put(pod(statuses=[], phase="Pending", conditions=[]))
    [found] = await look.take()
    assert (found.log, look.told) == (None, [])


async def test_a_log_of_another_program_is_none(look):
    look.server.logs[POD, False] = b"GET / 200\n" * 100
    [found] = await look.take()
    assert found.log is None


LINE = b"9.00.000.%03d I slot      release: id  0 | task %d | stop processing: n_tokens = 9, truncated = 0\n"


@pytest.mark.parametrize("overlap", [True, False])
async def test_of_a_long_log_the_beginning_and_the_end_are_read_and_no_line_twice(look, monkeypatch, overlap):
    body = b"".join(LINE % (number % 1000, number) for number in range(400))
    whole = START + body
    beginning = len(whole) - (20 if overlap else 200) * len(LINE % (1, 100))
    monkeypatch.setattr(pod_logs, "HEAD_BYTES", beginning)
    monkeypatch.setattr(pod_logs, "TAIL_LINES", (100,))
    look.server.logs[POD, False] = whole
    [found] = await look.take()
    assert found.log is not None
    lines = len(whole.splitlines())
    if overlap:
        assert found.log.lines == lines
        assert look.told == []
    else:
        assert found.log.lines < lines
        assert any("the middle was not read" in line for line in look.told)
    assert found.log.starts == 1


async def test_a_log_that_takes_too_long_counts_as_far_as_it_was_read(look, monkeypatch):
    monkeypatch.setattr(cluster, "LOGS_LIMIT_S", 0.0)
    [found] = await look.take()
    assert found.log is None
    assert look.told == [f"the log of pod {POD} was not read: those of others took 0 s"]
