"""A copy of the installed PyTorch with patches: a folder of links, in which the files that change are copies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path


def patched_torch(patches: Sequence[Path], folder: Path) -> None:
    """Put a `torch` into a folder, for PYTHONPATH, to which patches are applied.

    Args:
        patches: unified diffs of files such as `b/torch/library.py`.
        folder: where it is put.
    """
    lines = [line for patch in patches for line in patch.read_text(encoding="utf-8").splitlines()]
    changed = {line.removeprefix("+++ b/") for line in lines if line.startswith("+++ b/")}
    spec = find_spec("torch")
    assert changed, "no patch changes a file"
    assert spec is not None, "no PyTorch is installed"
    assert spec.origin is not None
    _link(Path(spec.origin).parents[1], folder, changed, ["torch"])
    for patch in patches:
        subprocess.run(["git", "apply", str(patch.resolve())], cwd=folder, check=True)


def _link(root: Path, folder: Path, changed: Iterable[str], names: Sequence[str]) -> None:
    """Link what is in a folder of PyTorch, copy the files that change, and go into the folders that have some."""
    within = "/".join(names)
    (folder / within).mkdir()
    for path in (root / within).iterdir():
        name = f"{within}/{path.name}"
        if name in changed:
            (folder / name).write_bytes(path.read_bytes())
        elif any(file.startswith(f"{name}/") for file in changed):
            _link(root, folder, changed, [*names, path.name])
        elif path.name != "__pycache__":
            (folder / name).symlink_to(path)
