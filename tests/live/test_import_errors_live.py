"""A package that cannot be imported: which exception, from which line, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dispatchlab.live.bridge.torch import ImportFailedError, TorchBrokenError, import_package, torch

pytest.importorskip("torch", reason="imports packages into the installed PyTorch, and there is none")

BROKEN = {
    "dl_raises": (
        "import os\n\nraise RuntimeError('no driver\\nat all')\n",
        "RuntimeError: no driver, raised at {file}:3\nat all",
    ),
    "dl_needs": (
        "import dl_absent.sub\n",
        "ModuleNotFoundError: No module named 'dl_absent', raised at {file}:1; dl_needs needs it: install dl_absent",
    ),
    "dl_lacks": (
        "\nfrom dl_lacks import _C\n",
        "ImportError: cannot import name '_C' from ",
    ),
    "dl_refuses": (
        "import sys\nraise ImportError('built for another PyTorch')\n",
        "ImportError: built for another PyTorch, raised at {file}:2",
    ),
    "dl_older": (
        "import email\nimport email.absent.sub\n",
        "ModuleNotFoundError: No module named 'email.absent', raised at {file}:2; dl_older needs it, and the installed "
        "email has no such module",
    ),
    "dl_unknown": (
        "from importlib.metadata import version\nversion('dl-unknown')\n",
        "PackageNotFoundError: No package metadata was found for dl-unknown, raised at {file}:2; install dl_unknown, "
        "in its checkout with `pip install -e .`",
    ),
    "dl_syntax": ("def f(:\n", "SyntaxError: invalid syntax (dl_syntax.py, line 1)"),
    "dl_twice": (
        "import torch\nlibrary = torch.library.Library('dl_twice', 'DEF')\ntry:\n    library.define('a(Tens')\n"
        "finally:\n    library._destroy()\n",
        "RuntimeError: ",
    ),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_an_installed_package_that_raises_is_not_to_be_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, reason = BROKEN[name]
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportFailedError) as caught:
        import_package(name)
    sys.modules.pop(name, None)
    assert str(caught.value).startswith(f"{name} cannot be imported: {reason.format(file=file)}")
    assert "leave it out" not in str(caught.value)
    if name == "dl_refuses":
        assert "pip install" not in str(caught.value)
    if name == "dl_lacks":
        assert f", raised at {file}:2; if dl_lacks is a checkout, `pip install -e .` builds what it lacks" in str(
            caught.value
        )
    if name == "dl_twice":
        assert f", raised at {file}:4" in str(caught.value)


def test_a_package_that_is_not_there_is_to_be_installed_and_a_module_of_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dl_there").mkdir()
    (tmp_path / "dl_there" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ImportFailedError,
        match=r"No module named 'dl_absent'; install it, in its checkout with `pip install -e .`, or leave it out$",
    ):
        import_package("dl_absent.sub")
    with pytest.raises(ImportFailedError, match=r"; dl_there is installed and has no such module$"):
        import_package("dl_there.sub")


def test_a_pytorch_that_is_installed_and_cannot_be_imported_is_not_to_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> None:
        raise OSError(f"libcudart of {name}: cannot open shared object file")

    monkeypatch.setattr("dispatchlab.live.bridge.torch.import_module", broken)
    with pytest.raises(TorchBrokenError) as caught:
        torch.__wrapped__()
    assert str(caught.value).startswith(
        "the live engine needs PyTorch; it is installed, but importing it raises OSError: libcudart of torch: "
        f"cannot open shared object file, raised at {__file__}:"
    )
    assert str(caught.value).endswith("; if PyTorch needs another module test_import_errors_live, rename this file")
    assert "pip install" not in str(caught.value)
