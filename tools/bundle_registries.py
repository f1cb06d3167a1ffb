"""Make the bundle of registries out of recordings: one of each version, on the public wheel, in a process of its own.

    python tools/bundle_registries.py torch-2.4.dlreg ... torch-2.15.dlreg torch-2.13-cpu.dlreg

A recording is made by `dispatchlab record --all -o torch-X.Y.dlreg`, and is named as its registry is to be called. What
is bundled already and not given stays as it is, so that a new version is added by its recording alone. Equal registries
give equal bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dispatchlab.atomic_write import write_file
from dispatchlab.errors import DispatchLabError
from dispatchlab.registry.bundle import Bundle, bundle_bytes
from dispatchlab.registry.file import load_registry
from dispatchlab.registry.model import Registry

BUNDLE = Path(__file__).parents[1] / "dispatchlab" / "registry" / "data" / "registries.dlregs"


def main(arguments: list[str]) -> int:
    """Write the bundle; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the bundle of registries out of recordings.")
    parser.add_argument("recordings", nargs="*", type=Path, metavar="torch-X.Y.dlreg")
    parser.add_argument(
        "-o", "--output", type=Path, default=BUNDLE, help="the bundle; default: the one of this checkout"
    )
    parser.add_argument("--only", action="store_true", help="bundle these alone, and nothing that is bundled already")
    asked = parser.parse_args(arguments)
    registries: dict[str, Registry] = {}
    try:
        if asked.output.exists() and not asked.only:
            bundle = Bundle(asked.output.read_bytes(), str(asked.output))
            registries |= {name: bundle.registry(name).load() for name in bundle.names}
        for path in asked.recordings:
            registries[path.stem] = load_registry(path)
            print(f"{path.stem}: PyTorch {registries[path.stem].torch}, {len(registries[path.stem]):,} operators")  # noqa: T201
        data = bundle_bytes(registries)
        write_file(asked.output, data)
    except DispatchLabError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(f"{asked.output}: {len(registries)} registries, {len(data):,} bytes")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
