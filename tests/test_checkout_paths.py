"""The module that a path means, as `check` takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.questions.setup.checkout import module_at


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / "src" / "ropekit"
    (source / "below").mkdir(parents=True)
    for name in ("__init__", "fast", "below/__init__", "below/norm"):
        (source / f"{name}.py").write_text("", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "ropekit"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (".", "ropekit"),
        ("src/ropekit", "ropekit"),
        ("src/ropekit/", "ropekit"),
        ("src/ropekit/__init__.py", "ropekit"),
        ("src/ropekit/fast.py", "ropekit.fast"),
        ("src/ropekit/below", "ropekit.below"),
        ("src/ropekit/below/norm.py", "ropekit.below.norm"),
    ],
)
def test_a_path_is_the_module_in_it(checkout: Path, text: str, module: str) -> None:
    assert module_at(text) == (module, checkout / "src")


def test_a_name_is_no_path(checkout: Path) -> None:
    (checkout / "ropekit").mkdir()
    assert [module_at(name) for name in ("ropekit", "ropekit.fast", "no/such/folder")] == [None, None, None]
