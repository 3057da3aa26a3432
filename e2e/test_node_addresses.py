"""Nodes that are brought up at the same moment get different addresses, whoever brings them up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from e2e.node import addresses
from e2e.node.addresses import NoFreeBlockError, reserved_block
from e2e.node.places import CHECKOUT

HOLD = """
import sys
from e2e.node.addresses import reserved_block
with reserved_block() as block:
    print(block, flush=True)
    sys.stdin.read()
"""

Holder = subprocess.Popen[str]


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    """Processes of others that hold a block each until their input ends."""
    command, pipe = [sys.executable, "-c", HOLD], subprocess.PIPE
    with (
        subprocess.Popen(command, cwd=CHECKOUT, stdin=pipe, stdout=pipe, text=True) as one,
        subprocess.Popen(command, cwd=CHECKOUT, stdin=pipe, stdout=pipe, text=True) as two,
    ):
        yield [one, two]
        one.kill()
        two.kill()


def block_of(holder: Holder) -> int:
    """What it says that it holds."""
    assert holder.stdout is not None
    return int(holder.stdout.readline())


def test_two_processes_at_the_same_moment_hold_different_blocks(holders: list[Holder]) -> None:
    held = {block_of(one) for one in holders}

    with reserved_block() as ours:
        assert len(held | {ours}) == 3


def test_a_block_is_free_again_after_a_kill(holders: list[Holder]) -> None:
    blocks = [block_of(one) for one in holders]
    for one in holders:
        one.kill()
        one.wait()

    with reserved_block() as ours:
        assert ours <= min(blocks)


def test_many_that_choose_at_once_never_choose_the_same() -> None:
    count = 8
    together, all_hold = Barrier(count), Barrier(count, timeout=30)

    def reserve(_: int) -> int:
        together.wait(30)
        with reserved_block() as block:
            all_hold.wait()
            return block

    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(reserve, range(count)))

    assert len(set(found)) == count


def test_with_every_block_in_use_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_block() as taken:
        monkeypatch.setattr(addresses, "_BLOCKS", range(taken, taken + 1))

        with pytest.raises(NoFreeBlockError, match="take a node down"), reserved_block():
            pass


def test_a_failure_of_the_holder_gives_the_block_back() -> None:
    with pytest.raises(ZeroDivisionError), reserved_block() as block:
        raise ZeroDivisionError

    with reserved_block() as again:
        assert again <= block
