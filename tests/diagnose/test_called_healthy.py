"""What real servers show is enough to call them healthy, or it is not: by logs of a real one, and by its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import NO_PLACE, Checkup, check_up
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.gathering.server import look_at
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import probe
from tests.gathering.standing_in import METRICS, PROPS, page, said, stand_in

LOGS = Path(__file__).resolve().parents[1] / "llama" / "logs"
HALF = "that is less than half"


def story(name: str, *, without: str = "\0") -> LogStory:
    """Of a log, or of what is left of it without some lines."""
    reader = LogReader(name)
    lines = (LOGS / name).read_text().splitlines(keepends=True)
    reader.feed("".join(line for line in lines if without not in line).encode())
    (told,) = reader.finish()
    return told


async def idle() -> ServerLook:
    """What an idle server shows by its address."""
    metrics = {**METRICS, "requests_processing": 0, "requests_deferred": 0}
    props = {**PROPS, "chat_template": "{% for m in messages %}{{ m }}{% endfor %}"}
    async with stand_in({"/metrics": page(metrics), "/props": said(props)}) as server:
        return await look_at(server.url, None, between_s=0.01, limit_s=3.0)


def checked(**seen: object) -> Checkup:
    return check_up(Symptoms("server", **seen), ALL_RULES)  # type: ignore[arg-type]  # parts by their names


@pytest.mark.parametrize("name", ["all_defaults.log", "flash_attention_off.log", "unified_pool.log", "old_b4450.log"])
def test_a_log_that_says_where_the_model_lies_is_enough(name: str) -> None:
    assert checked(log=story(name)).is_healthy is True


def test_the_start_alone_at_the_default_level_is_not_enough() -> None:
    one = checked(log=story("log_level_three.log"))
    assert (one.is_healthy, one.doubt) == (None, HALF)


def test_nor_are_requests_at_the_default_level_which_does_not_say_where_the_model_lies() -> None:
    one = checked(log=story("served_three.log", without="exceeds the available context size"))
    assert (one.is_healthy, one.doubt) == (None, NO_PLACE)


async def test_an_idle_server_is_not_called_healthy_by_its_address_with_a_probe_or_without() -> None:
    look = await idle()
    assert [checked(server=look, probe=one).is_healthy for one in (None, probe())] == [None, None]
    assert checked(server=look, probe=probe()).doubt == HALF


async def test_its_log_makes_it_so() -> None:
    assert checked(server=await idle(), log=story("all_defaults.log")).is_healthy is True


def test_where_it_is_computed_is_told_by_its_device_or_by_a_speed_that_its_device_explains() -> None:
    assert [rule.id for rule in ALL_RULES if rule.tells_place] == ["SLT001", "SLT012"]
