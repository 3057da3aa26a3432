"""No kind of build is forgotten: flags and defaults of every build are those of one that is thought of."""

from __future__ import annotations

import re
from dataclasses import replace

from slotune.llama.build_defaults import NEWEST_KNOWN, OLDEST_KNOWN, defaults_of
from slotune.llama.flag_history import ADDED, FORMER, FORMER_VARIABLES, REMOVED_FLAGS
from slotune.llama.flag_reading import read
from slotune.tuning.possible_builds import possible_builds

FLAGS = [word for name in (*ADDED, *FORMER, *REMOVED_FLAGS) for word in (name, "1")] + ["-fa", "-b", "1"]
VARIABLES = dict.fromkeys(FORMER_VARIABLES, "on") | {"LLAMA_ARG_MMAP": "on", "LLAMA_ARG_NO_KV_OFFLOAD": "0"}


def kind_of(build: int | None) -> str:
    """All that depends on the build, without its number."""
    reading = read(FLAGS, VARIABLES, build)
    told = [*map(str, reading.problems), *(setting.words for setting in reading.settings)]
    plain = replace(defaults_of(build), build=None, notes=(), unsure={})
    return re.sub(rf"b{build}\b", "b", f"{told} {plain}")


def test_every_build_is_like_one_that_is_thought_of():
    thought_of = {kind_of(build) for build in possible_builds("llama.cpp:server")}
    every = {kind_of(build) for build in range(OLDEST_KNOWN - 10, NEWEST_KNOWN + 10)}
    assert every <= thought_of
    assert len(every) > 10


def test_a_tag_leaves_its_own_build_and_one_of_today():
    assert possible_builds("ghcr.io/ggml-org/llama.cpp:server-b6000") == (6000, NEWEST_KNOWN)
    assert possible_builds(None)[0] is None
