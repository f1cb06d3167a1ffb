"""A copy of an installed package with patches: a folder of links, in which the files that change are copies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path


def patched(patches: Sequence[str], folder: Path) -> None:
    """Put a package into a folder, for PYTHONPATH, to which patches are applied.

    Args:
        patches: unified diffs of files such as `b/torch/library.py`, all of one package.
        folder: where it is put.
    """
    lines = [line for patch in patches for line in patch.splitlines()]
    changed = {line.removeprefix("+++ b/") for line in lines if line.startswith("+++ b/")}
    (package,) = {name.partition("/")[0] for name in changed}
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.submodule_search_locations is not None
    _link(Path(next(iter(spec.submodule_search_locations))).parent, folder, changed, [package])
    for patch in patches:
        subprocess.run(["git", "apply"], input=patch, text=True, cwd=folder, check=True)


def _link(root: Path, folder: Path, changed: Iterable[str], names: Sequence[str]) -> None:
    """Link what is in a folder of the package, copy the files that change, and go into the folders that have some."""
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
