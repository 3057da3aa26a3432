"""``python -m e2e.node up|down|status|gpus``: the node, for looking around by hand and for the tests."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from e2e.node.lifecycle import Node, NodeError, bring_up, set_gpus, standing, take_down
from e2e.node.places import node_name
from e2e.node.programs import MissingProgramsError, find_programs


def main(argv: list[str] | None = None) -> int:
    """The exit code: 0 done, 1 not (the message says why), 3 for ``status`` of a node that is not up."""
    parser = argparse.ArgumentParser(prog="python -m e2e.node", description=__doc__)
    parser.add_argument("--name", default=node_name(), help="$E2E_NODE, or %(default)s")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="bring the node up and print its kubeconfig; clears a crashed one away first")
    up.add_argument("--gpus", type=int, default=1, help="nvidia.com/gpu that it claims to have (default: %(default)s)")
    verbs.add_parser("down", help="remove the node and everything of it")
    verbs.add_parser("status", help="say how the node is")
    verbs.add_parser("gpus", help="claim another number of GPUs").add_argument("count", type=int)
    chosen = parser.parse_args(argv)
    begun = time.monotonic()
    try:
        match chosen.verb:
            case "up":
                node = bring_up(chosen.name, gpus=chosen.gpus, tell=_tell)
                _tell(f"up after {time.monotonic() - begun:.1f} s: export KUBECONFIG={node.record.kubeconfig}")
                print(node.record.kubeconfig)
            case "down":
                was = take_down(chosen.name)
                _tell(f"down after {time.monotonic() - begun:.1f} s" if was else "there was none")
            case "gpus":
                set_gpus(_node(chosen.name), chosen.count)
            case _:
                record, how = standing(chosen.name)
                print(how if record is None else f"{how}\nkubeconfig {record.kubeconfig}\nlogs {record.logs}")
                return 0 if how == "up" else 3
    except (NodeError, MissingProgramsError, TimeoutError) as error:
        _tell(str(error))
        return 1
    except subprocess.CalledProcessError as error:
        _tell(f"{error}: {error.stderr or ''}".strip())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _node(name: str) -> Node:
    record, how = standing(name)
    if record is None or how.startswith("crashed"):
        raise NodeError(f"the node is {how}")
    return Node(record, find_programs())


def _tell(line: str) -> None:
    print(f"node: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
