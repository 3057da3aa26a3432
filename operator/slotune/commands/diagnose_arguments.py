"""What there is to type behind ``slotune diagnose``: three ways to look at a server, and what helps to judge it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from slotune.commands.argument_types import deployment, namespace, not_empty, object_name

__all__ = ["add_diagnose"]


def add_diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command; whoever calls sets what it runs."""
    diagnose = commands.add_parser(
        "diagnose",
        help="say why a server is slow, and what to change",
        description="Look at a running llama-server, at its log, or at a Deployment of a cluster, and say where the "
        "time goes: findings with their evidence, what explains most first, then what else was looked at, what was "
        "not, and what would decide it. Nothing is changed. The exit code is 0 whatever is found.",
    )
    # A value such as -3G is a wrong number, told by whoever reads it, and no unknown option.
    diagnose._negative_number_matcher = re.compile(r"-[.0-9]")
    _ways(diagnose)
    _manners(diagnose)
    _helps(diagnose)
    _prints(diagnose)
    return diagnose


def _manners(diagnose: argparse.ArgumentParser) -> None:
    manners = diagnose.add_argument_group("how to look at a server that runs (--url, --deployment)")
    manners.add_argument(
        "--probe",
        action="store_true",
        help="also send a few short requests, one at a time and only while it is idle; said before it is done (without "
        "it, nothing but read-only pages is asked for)",
    )
    manners.add_argument(
        "--watch",
        metavar="SECONDS",
        help="look a dozen times in so long, instead of twice in half a second: 60 tells a server that hangs from one "
        "that works, and a queue that stays from one that goes; Ctrl-C ends it with what is known by then",
    )
    manners.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="file that holds the server's API key, if it wants one"
    )


def _prints(diagnose: argparse.ArgumentParser) -> None:
    prints = diagnose.add_argument_group("what is printed")
    prints.add_argument(
        "--explain",
        metavar="FINDING",
        help="look at nothing: print what is known of a finding, e.g. SLT036 or GPUMemoryFull",
    )
    prints.add_argument(
        "--all",
        action="store_true",
        help="each item of the checklist with what decided it, and all that would decide the rest, which are folded to "
        "a few lines without it",
    )
    prints.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="table: for people (default); json, yaml: all that is known, docs/diagnosis.md has the fields",
    )


def _ways(diagnose: argparse.ArgumentParser) -> None:
    ways = diagnose.add_argument_group("where to look (--log and --url of one server go together)")
    ways.add_argument("--url", metavar="URL", help="a running llama-server, e.g. http://127.0.0.1:8080")
    ways.add_argument(
        "--log",
        action="append",
        type=not_empty,
        metavar="FILE",
        help="what llama-server logged, text or JSON lines; - for standard input: kubectl logs POD | slotune diagnose "
        "--log -",
    )
    ways.add_argument(
        "--deployment",
        type=deployment,
        metavar="NAME",
        help="a Deployment of a cluster: its pods, events, nodes, logs",
    )
    ways.add_argument(
        "-n", "--namespace", type=namespace, metavar="NAME", help="namespace of the Deployment (default: the context's)"
    )
    ways.add_argument(
        "--container",
        type=object_name,
        metavar="NAME",
        help="the container that is llama-server, where several are, or nothing says which is",
    )
    ways.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")
    ways.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="how to reach the cluster (default: as kubectl does)"
    )


def _helps(diagnose: argparse.ArgumentParser) -> None:
    helps = diagnose.add_argument_group("what helps to judge")
    helps.add_argument(
        "--nvidia-smi",
        type=Path,
        metavar="FILE",
        help="output of `nvidia-smi -q`, `nvidia-smi` or a query as CSV, taken where the server computes",
    )
    helps.add_argument(
        "--proc",
        type=Path,
        metavar="FILE",
        help="what /proc and the cgroup say of the server's memory, taken where it runs: docs/diagnosis.md has the "
        "command",
    )
    helps.add_argument("--model", type=Path, metavar="FILE", help="the weights (GGUF): what a token has to read")
    helps.add_argument(
        "-f",
        "--file",
        action="append",
        type=not_empty,
        metavar="FILE",
        help="manifest with a LlamaDeployment: what is owed, and the GPUClass; repeatable",
    )
    helps.add_argument("--name", help="the LlamaDeployment of the manifest to take when there are several")
    helps.add_argument(
        "--gpu-class",
        metavar="NAME",
        help="what the server runs on: a GPUClass of the manifest, or without one a well-known device: 'RTX 4090'",
    )
    helps.add_argument(
        "--bandwidth", metavar="BYTES", help="memory bandwidth of the device in bytes a second, e.g. 300G or 300GB/s"
    )
    helps.add_argument(
        "--price-per-hour",
        metavar="PRICE",
        help="price of one device per hour, e.g. 0.80: in the GPUClass's currency where there is one, else in dollars",
    )
