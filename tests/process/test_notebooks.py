"""The notebooks in `examples/` run, and show what they are about."""

from __future__ import annotations

import json
import os
import re
import warnings
from functools import cache
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


@cache
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


def stored(outputs: list[Any]) -> list[dict[str, Any]]:
    """Outputs as a notebook keeps them: without the time that a proof took."""
    text = re.sub(r"<div><dt>elapsed</dt><dd>[^<]*</dd></div>", "", json.dumps(outputs))
    return list(json.loads(text))


def codes(notebook: Any) -> list[Any]:
    """The cells of a notebook that run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


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


@pytest.mark.parametrize("name", sorted(NOTEBOOKS))
def test_a_notebook_is_kept_with_the_outputs_that_it_has_now(name: str) -> None:
    now = executed(name)
    nbformat = pytest.importorskip("nbformat")
    kept = nbformat.read(EXAMPLES / name, as_version=4)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        for number, (cell, ran) in enumerate(zip(codes(kept), codes(now), strict=True), 1):
            cell.outputs, cell.execution_count = nbformat.from_dict(stored(ran.outputs)), number
        nbformat.write(kept, EXAMPLES / name)
    nbformat.validate(kept)
    assert [stored(cell.outputs) for cell in codes(kept)] == [stored(cell.outputs) for cell in codes(now)]
    assert [cell.execution_count for cell in codes(kept)] == list(range(1, len(codes(kept)) + 1))
    assert "elapsed" not in json.dumps([cell.outputs for cell in codes(kept)])


def test_every_notebook_is_tested_and_links_to_the_pages_of_its_subject() -> None:
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == NOTEBOOKS.keys()
    for name in NOTEBOOKS:
        cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
        text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        linked = re.findall(r"\]\(https://dispatchlab\.github\.io/dispatchlab/([\w/]+)\.html(?:#[\w-]+)?\)", text)
        assert len(linked) == text.count("](") >= 2
        pages = {page for page in linked if not page.startswith("notebooks/")}
        assert [page for page in pages if not (EXAMPLES.parent / "docs" / f"{page}.md").is_file()] == []
        assert {page.removeprefix("notebooks/") for page in set(linked) - pages} <= {
            Path(one).stem for one in NOTEBOOKS
        }
