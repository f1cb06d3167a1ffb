"""Copy this checkout without what it holds of some versions of PyTorch, to see that an unknown one is measured.

Run it from the root of the checkout: `python tools/hide_versions.py FOLDER --keep torch-2.9`, or `--hide torch-2.14
torch-2.15`; then compare what the commands of both say with a PyTorch that is hidden in the copy.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.model.profile import bundled_profile, bundled_profiles, version_of  # noqa: E402  # of this checkout
from dispatchlab.records.file import bundled_names, open_bundled, python_layer_of  # noqa: E402  # likewise
from dispatchlab.records.stored import bundle_bytes  # noqa: E402  # likewise
from tools import add_version, bundle_registries  # noqa: E402  # likewise


def hide(folder: Path, kept: Collection[str]) -> None:
    """Copy what git knows of the checkout, with the profiles and registries of some versions alone.

    Args:
        folder: it is made.
        kept: the names of their profiles; the registries of all their builds stay.
    """
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    profiles = folder / add_version.PROFILES.relative_to(ROOT)
    for path in profiles.iterdir():
        path.unlink()
    add_version.store_profiles({name: bundled_profile(name) for name in kept}, profiles)
    versions = {*map(version_of, kept)}
    registries = {name: open_bundled(name) for name in bundled_names() if version_of(name) in versions}
    layers = {name: layer for name, it in registries.items() if (layer := python_layer_of(it)) is not None}
    data = bundle_bytes({name: it.load() for name, it in registries.items()}, layers)
    (folder / bundle_registries.BUNDLE.relative_to(ROOT)).write_bytes(data)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the copy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="where the copy is made")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--keep", nargs="+", choices=bundled_profiles(), help="the versions that stay")
    which.add_argument("--hide", nargs="+", choices=bundled_profiles(), help="the versions that go")
    asked = parser.parse_args(arguments)
    hide(asked.folder, asked.keep or [name for name in bundled_profiles() if name not in asked.hide])


if __name__ == "__main__":
    main()
