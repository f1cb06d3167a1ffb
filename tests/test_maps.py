"""The maps of the code lead somewhere: those in every package's `__init__`, and the table in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for path in (ROOT / "dispatchlab").rglob("__init__.py"))


def _named(package: Path) -> set[str]:
    """What the docstring of a package explains, as `name: what it is`, or names in backticks."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    explained = re.findall(r"((?:\w+, )*\w+)(?:\.py)?:", docstring)
    return {name for names in explained for name in names.split(", ")} | set(re.findall(r"`(\w+)`", docstring))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_the_map_of_a_package_names_each_of_its_modules(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert sorted((modules | packages) - _named(package)) == []


def _rows() -> list[tuple[str, list[str]]]:
    """The rows of CONTRIBUTING's table: what somebody wants, and the paths that it names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| I want to | go to |")[2].partition("\n\n")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [
        (wish.strip(), re.findall(r"`((?:dispatchlab|docs|scenarios|tests|benchmarks|tools)/[^`]*)`", place))
        for wish, place in cells
    ]


def test_every_row_of_contributing_names_a_place_that_exists() -> None:
    rows = _rows()
    assert len(rows) > 30
    assert [wish for wish, places in rows if not places] == []
    assert [place for _, places in rows for place in places if not list(ROOT.glob(place.rstrip("/")))] == []
