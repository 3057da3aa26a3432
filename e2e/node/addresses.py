"""Which addresses the node uses: one /16 that nothing on this machine uses or routes to."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

__all__ = ["Addresses", "NoFreeBlockError", "free_block"]

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


def free_block() -> int:
    """A block that no route and no address of this machine touches.

    Raises:
        NoFreeBlockError: there is none.
    """
    routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], capture_output=True, check=True).stdout)
    links = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    used = [route["dst"] for route in routes if route["dst"] != "default"]
    used += [f"{held['local']}/{held['prefixlen']}" for link in links for held in link["addr_info"]]
    return _first_free([IPv4Network(text, strict=False) for text in used])


def _first_free(used: Sequence[IPv4Network]) -> int:
    for block in _BLOCKS:
        wanted = ipaddress.IPv4Network(Addresses(block).all)
        if not any(wanted.overlaps(network) for network in used):
            return block
    raise NoFreeBlockError(f"no free 10.N.0.0/16 with N from {_BLOCKS[0]} to {_BLOCKS[-1]}: take a node down")
