"""Make the bundle of registries, with their Python layers, out of recordings: one of each version, on the public wheel.

    python tools/bundle_registries.py torch-2.4.dlreg ... torch-2.15.dlreg torch-2.13-cpu.dlreg

A recording is made by `dispatchlab record --all -o torch-X.Y.dlreg`, and is named as its registry is to be called. What
is bundled already and not given stays as it is, so that a new version is added by its recording alone. `--python` takes
the Python layers of recordings alone, and says which of them have another registry than the bundled one. Equal
registries give equal bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import write_file
from dispatchlab.model.python_layer import PythonLayer
from dispatchlab.records.file import open_registry
from dispatchlab.records.model import Recorded
from dispatchlab.records.stored import StoredRegistries, bundle_bytes

BUNDLE = Path(__file__).parents[1] / "dispatchlab" / "records" / "data" / "registries.dlregs"


def main(arguments: list[str]) -> int:
    """Write the bundle; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the bundle of registries out of recordings.")
    parser.add_argument("recordings", nargs="*", type=Path, metavar="torch-X.Y.dlreg")
    parser.add_argument(
        "-o", "--output", type=Path, default=BUNDLE, help="the bundle; default: the one of this checkout"
    )
    parser.add_argument("--only", action="store_true", help="bundle these alone, and nothing that is bundled already")
    parser.add_argument("--python", action="store_true", help="take the Python layers alone")
    asked = parser.parse_args(arguments)
    registries: dict[str, Recorded] = {}
    layers: dict[str, PythonLayer] = {}
    try:
        if asked.output.exists() and not asked.only:
            bundle = StoredRegistries(asked.output.read_bytes(), str(asked.output))
            registries |= {name: bundle.registry(name).load() for name in bundle.names}
            layers |= {name: layer for name in bundle.names if (layer := bundle.registry(name).python) is not None}
        for path in asked.recordings:
            recorded = open_registry(path).load()
            _print(f"{path.stem}: PyTorch {recorded.torch}, {len(recorded):,} operators")
            if recorded.python is not None:
                layers[path.stem] = recorded.python
            if asked.python and registries.get(path.stem, recorded) != recorded:
                _print(f"{path.stem}: its registry is not the one that is bundled, which stays")
            else:
                registries[path.stem] = recorded
        data = bundle_bytes(registries, layers)
        write_file(asked.output, data)
        _print(f"{asked.output}: {len(registries)} registries, {len(layers)} Python layers, {len(data):,} bytes")
    except DispatchLabError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _print(line: str) -> None:
    print(line)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
