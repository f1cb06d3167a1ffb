"""Programs that fail for one cause in several ways: it is found, its line names what it must, and so do its fixes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.why_programs import Variation, variations

pytest.importorskip("torch")

FILES = sorted((Path(__file__).parent / "why_variations").glob("*.txt"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each program runs in a fork")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_variation_gets_its_cause(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.why_programs", str(file), str(tmp_path / "answers.json")]
    root = Path(__file__).parents[2]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, timeout=600)
    found = {name: rest for name, *rest in json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))}
    wrong = {v.name: said for v in variations(file) if (said := what_is_wrong(v, *found[v.name]))}
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())


def what_is_wrong(variation: Variation, code: int, answer: dict[str, Any] | None) -> str:
    """Return what an answer lacks; empty when it is right."""
    if variation.code == "right":
        return "" if (code, answer) == (0, None) else f"exit {code}, {answer}"
    if answer is None:
        return f"exit {code} without an answer"
    if answer["code"] != variation.code:
        return f"{answer['code']} in place of {variation.code}: {answer['cause']}"
    missing = [word for word in variation.cause if word not in answer["cause"]]
    if missing:
        return f"{missing} not in: {answer['cause']}"
    fixes = [f"{fix['fix']['text']}(tried: {fix['outcome']})" for fix in answer["fixes"]]
    wanted, tried, _ = variation.fix.partition("(tried: works)")
    kept = [fix for fix in fixes if wanted in fix and (not tried or fix.endswith("(tried: works)"))]
    return "" if kept else f"no fix holds {variation.fix!r}: {fixes}"
