"""The long tests of tests/test_cli_permute.py, which the quick tier leaves out."""

from __future__ import annotations

import json

import pytest

from tests import test_cli_permute
from tests.test_cli_permute import permute

folder = test_cli_permute.folder


@pytest.mark.usefixtures("folder")
def test_the_report_names_the_reductions_and_the_walk_of_everything_has_none() -> None:
    bounded = json.loads(permute("many.yaml", "--walk", "graph", "--max-states", "100", "--format", "json").stdout)
    proved = json.loads(permute("many.yaml", "--format", "json").stdout)
    assert (bounded["verdict"], bounded["reductions"], bounded["neighbourhoods"]) == ("incomplete", [], 0)
    assert (proved["verdict"], proved["reductions"]) == ("order-independent", ["neighbourhoods"])
    assert proved["neighbourhoods"] > 1
    assert f"reductions: neighbourhoods ({proved['neighbourhoods']})\n" in permute("many.yaml", "--details").stdout
