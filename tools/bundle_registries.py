"""Make the bundles of registries and of Python layers out of recordings: one of each version, on the public wheel.

    python tools/bundle_registries.py torch-2.4.dlreg ... torch-2.15.dlreg torch-2.13-cpu.dlreg

A recording is made by `dispatchlab record --all -o torch-X.Y.dlreg`, and is named as its registry is to be called. What
is bundled already and not given stays as it is, so that a new version is added by its recording alone. `--python` puts
the Python layers of recordings into their bundle alone, and says which of them have another registry than the bundled
one. Equal registries give equal bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dispatchlab.atomic_write import write_file
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.python_layer import PythonLayer
from dispatchlab.registry.bundle import Bundle, bundle_bytes, by_version
from dispatchlab.registry.file import load_registry
from dispatchlab.registry.model import Registry
from dispatchlab.registry.python_parts import PythonLayers, python_layers_bytes

DATA = Path(__file__).parents[1] / "dispatchlab" / "registry" / "data"
BUNDLE, LAYERS = DATA / "registries.dlregs", DATA / "python_layers.dlregs"


def main(arguments: list[str]) -> int:
    """Write the bundle; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the bundle of registries out of recordings.")
    parser.add_argument("recordings", nargs="*", type=Path, metavar="torch-X.Y.dlreg")
    parser.add_argument(
        "-o", "--output", type=Path, default=BUNDLE, help="the bundle; default: the one of this checkout"
    )
    parser.add_argument("--only", action="store_true", help="bundle these alone, and nothing that is bundled already")
    parser.add_argument("--layers", type=Path, default=LAYERS, help="the bundle of Python layers")
    parser.add_argument("--python", action="store_true", help="write the Python layers alone")
    asked = parser.parse_args(arguments)
    registries: dict[str, Registry] = {}
    try:
        if asked.output.exists() and not asked.only:
            bundle = Bundle(asked.output.read_bytes(), str(asked.output))
            registries |= {name: bundle.registry(name).load() for name in bundle.names}
        layers: dict[str, PythonLayer] = {}
        if asked.layers.exists() and not asked.only:
            stored = PythonLayers(asked.layers.read_bytes(), str(asked.layers))
            layers |= {name: stored.layer(name).load() for name in stored.names}
        for path in asked.recordings:
            found = load_registry(path)
            _print(f"{path.stem}: PyTorch {found.torch}, {len(found):,} operators")
            if asked.python and registries.get(path.stem, found) != found:
                _print(f"{path.stem}: its registry is not the one that is bundled, which stays")
            registries[path.stem] = found
            if found.python is not None:
                layers[path.stem] = found.python
        if not asked.python:
            data = bundle_bytes(registries)
            write_file(asked.output, data)
            _print(f"{asked.output}: {len(registries)} registries, {len(data):,} bytes")
        data = python_layers_bytes({name: layers[name] for name in sorted(layers, key=by_version, reverse=True)})
        write_file(asked.layers, data)
        _print(f"{asked.layers}: {len(layers)} Python layers, {len(data):,} bytes")
    except DispatchLabError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _print(line: str) -> None:
    print(line)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
