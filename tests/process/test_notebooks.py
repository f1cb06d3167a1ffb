"""The notebooks in `examples/` run, and what they show are tables."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.test_html_notebook import Reader

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NOTEBOOKS = {
    "first_proof.ipynb": ("expected: ", "actual: ", "fn_of_package_b [kernel]", "order-independent"),
    "a_kernel_that_does_not_run.ipynb": ("Kernels of shop::norm", "call \u2192 AutogradCPU", "with_a_gradient"),
    "an_upgrade.ipynb": (
        "12 changed, 7 of them break callers",
        "Kernels of aten::linalg_lu_solve.out",
        "Registrations that are refused",
        "Calls that find something else",
    ),
}
"""The notebooks, and texts that their tables have."""


def executed(name: str) -> Any:
    """A notebook with its outputs; the test is skipped where notebooks cannot run."""
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install 'dispatchlab[notebooks]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'dispatchlab[notebooks]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'dispatchlab[notebooks]'")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that run it
        nbclient.NotebookClient(
            notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
        ).execute()
    return notebook


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_a_notebook_runs_and_shows_tables(name: str) -> None:
    outputs = [output for cell in executed(name).cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    pages = [Reader(output.data["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert sum("table" in page.names for page in pages) >= 2
    shown = "\n".join(page.text for page in pages)
    for text in NOTEBOOKS[name]:
        assert text in shown


def test_every_notebook_is_tested_and_is_kept_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install 'dispatchlab[notebooks]'")
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == NOTEBOOKS.keys()
    for name in NOTEBOOKS:
        notebook = nbformat.read(EXAMPLES / name, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
