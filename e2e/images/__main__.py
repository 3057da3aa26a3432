"""``python -m e2e.images [--name NODE]``: build the images, and load them into a node that is up."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from e2e.images.build import build_images, load_images
from e2e.node.lifecycle import standing
from e2e.node.places import node_name
from e2e.node.programs import MissingProgramsError, find_programs


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.images", description=__doc__)
    parser.add_argument("--name", default=node_name(), help="of the node (default: %(default)s)")
    chosen = parser.parse_args(argv)
    begun = time.monotonic()

    def tell(line: str) -> None:
        print(f"images: {line} after {time.monotonic() - begun:.1f} s", file=sys.stderr)

    try:
        layout = build_images(tell)
        record, how = standing(chosen.name)
        if record is not None and how == "up":
            load_images(layout, find_programs()["ctr"], record.containerd_socket)
            tell(f"loaded into {chosen.name}")
    except (MissingProgramsError, subprocess.CalledProcessError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
