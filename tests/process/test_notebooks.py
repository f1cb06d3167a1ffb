"""The notebooks in `examples/` run, and show what they are about."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.test_html_notebook import Reader

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NOTEBOOKS = {
    "first_proof.ipynb": ("One order (-)", "The other order (+)", "fn_of_package_b [kernel]", "order-independent"),
    "a_kernel_that_does_not_run.ipynb": ("Kernels of shop::norm", "call -> AutogradCPU", "with_a_gradient"),
    "an_upgrade.ipynb": (
        "12 changed; 7 break callers",
        "Kernels of aten::linalg_lu_solve.out",
        "Refused registrations",
    ),
}
"""The notebooks, and texts that their outputs have."""


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
def test_a_notebook_runs_and_shows_its_results(name: str) -> None:
    outputs = [output for cell in executed(name).cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    pages = [Reader(output.data["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert len(pages) >= 2
    assert all("summary" in page.names for page in pages)
    assert any(
        ("ol" if name == "first_proof.ipynb" else "table") in page.names for page in pages
    )  # both orders, as lists
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
