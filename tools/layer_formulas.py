"""Write dispatchlab/layers/formulas.py: the formulas of the layers' operators, from PyTorch 2.13's derivatives.yaml.

Run it from the root of the checkout, with PyTorch 2.13 installed: `python tools/layer_formulas.py`. A test compares.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.codegen.emit.layer_formulas import module_of_the_layers  # noqa: E402  # of this checkout
from dispatchlab.codegen.read.derivatives import derivatives_beside, load_derivatives  # noqa: E402
from dispatchlab.codegen.read.native_functions import load_native_functions  # noqa: E402

MODULE = ROOT / "dispatchlab" / "layers" / "formulas.py"
VERSION = "2.13"


def text() -> str:
    """The module, from the files of the installed torchgen."""
    package = find_spec("torchgen.packaged")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("torchgen comes with PyTorch, and there is none: pip install 'dispatchlab[torch]'")
    (folder,) = package.submodule_search_locations
    file = Path(folder) / "ATen" / "native" / "native_functions.yaml"
    beside = derivatives_beside(file)
    if beside is None:
        raise SystemExit(f"there is no derivatives.yaml that belongs to {file}")
    natives = load_native_functions(file)
    return module_of_the_layers(natives, load_derivatives(beside, natives), version=VERSION)


if __name__ == "__main__":
    MODULE.write_text(text(), encoding="utf-8")
