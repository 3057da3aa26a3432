"""Which addresses the node uses: one /16 that nothing on this machine uses or routes to, and that nobody else takes
meanwhile.

Between the look and the route that a node makes there are seconds, and the nodes of two users, or of two cache folders,
know nothing of each other. So a block is held by name before it is looked at. The name is that of an abstract socket:
it has one owner in a network namespace, which is where the addresses are, and the kernel gives it back however its
owner ends.
"""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network

__all__ = ["Addresses", "NoFreeBlockError", "reserved_block"]

_BLOCKS = range(213, 254)
"""Second octets to try. Low ones are what routers and clusters are usually given."""


class NoFreeBlockError(Exception):
    """Every block is in use."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """``10.<block>.0.0/16``, cut up."""

    block: int

    @property
    def all(self) -> str:
        """Everything of the node, for the machine's route to it."""
        return f"10.{self.block}.0.0/16"

    @property
    def services(self) -> str:
        """Cluster addresses of Services."""
        return f"10.{self.block}.0.0/18"

    @property
    def api_service(self) -> str:
        """The first Service address; the Service ``kubernetes`` always gets it."""
        return f"10.{self.block}.0.1"

    @property
    def name_service(self) -> str:
        """Where pods are told to look names up."""
        return f"10.{self.block}.0.10"

    @property
    def pods(self) -> str:
        """Pods."""
        return f"10.{self.block}.64.0/18"

    @property
    def machine(self) -> str:
        """The machine's end of the link, without the prefix length."""
        return f"10.{self.block}.255.1"

    @property
    def node(self) -> str:
        """The node's end of the link, without the prefix length."""
        return f"10.{self.block}.255.2"


@contextlib.contextmanager
def reserved_block() -> Iterator[int]:
    """A block that no route and no address of this machine touches, held until the body ends: by then there has to be
    a route to it, if it is to stay taken.

    Raises:
        NoFreeBlockError: there is none.
    """
    for block in _BLOCKS:
        with _held(block) as is_ours:
            # Looked at while it is held: whoever held it before has made his route by now.
            if is_ours and _is_free(block):
                yield block
                return
    raise NoFreeBlockError(f"no free 10.N.0.0/16 with N from {_BLOCKS[0]} to {_BLOCKS[-1]}: take a node down")


@contextlib.contextmanager
def _held(block: int) -> Iterator[bool]:
    """Whether nobody else holds it, and then nobody else can until the body ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        try:
            holder.bind(f"\0slotune-node-block-{block}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            yield False
            return
        yield True


def _is_free(block: int) -> bool:
    routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], capture_output=True, check=True).stdout)
    links = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    used = [route["dst"] for route in routes if route["dst"] != "default"]
    used += [f"{held['local']}/{held['prefixlen']}" for link in links for held in link["addr_info"]]
    wanted = IPv4Network(Addresses(block).all)
    return not any(wanted.overlaps(IPv4Network(text, strict=False)) for text in used)
