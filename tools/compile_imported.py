"""Compiles what slotune imports, and nothing else, so that it starts quickly from a file system that is read-only.

Bytecode of everything would be a quarter of the image, half of it for clients of Kubernetes APIs that are never used;
none at all doubles the time to the first reconcile, and the load client of each trial would compile on the CPU that it
measures with. So every module of slotune is imported once, and what is loaded then is what gets compiled.
"""

from __future__ import annotations

import importlib
import pkgutil
import py_compile
import sys
import sysconfig
from pathlib import Path

import slotune


def import_everything() -> list[str]:
    """Imports each module of slotune; returns those that need an extra that is not installed."""
    left_out: list[str] = []
    for module in pkgutil.walk_packages(slotune.__path__, "slotune.", onerror=left_out.append):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] == "slotune":
                raise
            left_out.append(module.name)
    return left_out


def loaded_sources(below: Path) -> list[Path]:
    """Source files of loaded modules that are inside ``below``."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = {Path(file) for file in files if file is not None and file.endswith(".py")}
    return sorted(path for path in paths if path.is_relative_to(below))


def main() -> int:
    """Writes bytecode that is never compared with its source: in an image neither changes."""
    left_out = import_everything()
    sources = loaded_sources(Path(sysconfig.get_path("purelib")))
    for path in sources:
        py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    print(f"compiled {len(sources)} modules; not installed here: {', '.join(left_out) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
