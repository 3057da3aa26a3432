"""Bringing the node up, taking it down, and saying how it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import dataclass

from e2e.node.clearing import clear
from e2e.node.configuration import NODE_NAME
from e2e.node.launching import NodeError, Tell, launch
from e2e.node.processes import boot_id, is_alive
from e2e.node.programs import Programs, find_programs
from e2e.node.record import Record, locked, read_record

__all__ = ["Node", "NodeError", "bring_up", "set_gpus", "standing", "take_down"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is up."""

    record: Record
    programs: Programs


def bring_up(name: str = "e2e", *, gpus: int = 1, tied: bool = False, tell: Tell = lambda _: None) -> Node:
    """The node called ``name``, brought up unless it is up already.

    Args:
        name: Several nodes may be up at once under different names; lower-case letters and digits, at most 8.
        gpus: How many ``nvidia.com/gpu`` the node claims to have.
        tied: End the node when this process ends, however it ends.
        tell: Gets a line for each step.

    Raises:
        MissingProgramsError: something has to be installed.
        NodeError: a step failed. Nothing is left of the node but its logs, whose folder the message names.
    """
    if os.geteuid() != 0:
        raise NodeError(
            "a node has pods with namespaces and mounts of their own, which only root can make: run as root"
        )
    if not (name.isascii() and name.isalnum() and name.islower() and len(name) <= 8):
        raise NodeError(f"name {name!r}: use at most 8 lower-case letters and digits")
    programs = find_programs()
    with locked():
        record = read_record(name)
        if record is not None and _is_up(record):
            tell(f"{name} is up already")
            set_gpus(Node(record, programs), gpus)
            return Node(record, programs)
        if record is not None:
            tell(f"clearing away what is left of an earlier {name}")
            clear(record)
        try:
            return Node(launch(name, programs, gpus, tied, tell), programs)
        except BaseException as error:
            # Ctrl-C too: a second one must not cut the clearing short.
            previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                if record := read_record(name):
                    clear(record, keep_logs=isinstance(error, NodeError))
            finally:
                signal.signal(signal.SIGINT, previous)
            raise


def take_down(name: str = "e2e") -> bool:
    """Remove everything of the node, whatever state it is in; whether there was anything."""
    with locked():
        record = read_record(name)
        if record is None:
            return False
        clear(record)
        return True


def standing(name: str = "e2e") -> tuple[Record | None, str]:
    """The record and how the node is, in one line."""
    record = read_record(name)
    if record is None:
        return None, "down"
    if not _is_up(record):
        return record, "crashed: `down` clears it away, `up` does so too"
    ended = record.folder / "ended"
    if ended.exists():
        return record, f"damaged: {ended.read_text().strip()}; logs in {record.logs}"
    return record, "up"


def set_gpus(node: Node, count: int) -> None:
    """Let the node claim ``count`` GPUs. kubelet keeps the number, but forgets it when it starts again."""
    counts = {"nvidia.com/gpu": str(count)}
    patch = json.dumps({"status": {"capacity": counts, "allocatable": counts}})
    command = [node.programs["kubectl"], "--kubeconfig", str(node.record.kubeconfig), "patch", "node", NODE_NAME]
    subprocess.run(
        [*command, "--subresource=status", "--type=merge", "-p", patch], stdout=subprocess.DEVNULL, check=True
    )


def _is_up(record: Record) -> bool:
    alive = record.first is not None and record.boot == boot_id() and is_alive(record.first)
    return alive and record.ready
