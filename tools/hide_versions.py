"""Copy this checkout without what it holds of some versions of PyTorch, to see that an unknown one is measured.

Run it from the root of the checkout: `python tools/hide_versions.py FOLDER --keep torch-2.9`, or `--hide torch-2.14
torch-2.15`. With `--compare PYTHON`, a Python whose PyTorch is hidden in the copy, it compares what both say of that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.model.measured import CACHE, NO_MEASURE  # noqa: E402  # of this checkout
from dispatchlab.model.profile import bundled_profile, bundled_profiles, version_of  # noqa: E402  # likewise
from dispatchlab.records.file import bundled_names, open_bundled, python_layer_of  # noqa: E402  # likewise
from dispatchlab.records.stored import bundle_bytes  # noqa: E402  # likewise
from tests.live.answers import SECTIONS, Answers  # noqa: E402  # likewise
from tools import add_version, bundle_registries, defect_programs, library_rules  # noqa: E402  # likewise


def hide(folder: Path, kept: Collection[str]) -> None:
    """Copy what git knows of the checkout, with what it holds of some versions alone.

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
    _leave_out(folder, [name for name in bundled_profiles() if name not in kept])


def _leave_out(folder: Path, gone: Collection[str]) -> None:
    """Remove what the tests of a copy hold of some versions, which its pages are made of, too."""

    def copied(file: Path) -> Path:
        return folder / file.relative_to(ROOT)

    for name in gone:
        for file in (add_version.HISTORIES / f"{name}.json.xz", add_version.FIGURES / f"{name}.json"):
            copied(file).unlink()
    versions = {name.removeprefix("torch-") for name in gone}
    for file in (add_version.PRINTS, defect_programs.OUTCOMES):
        held = json.loads(file.read_text(encoding="utf-8"))
        kept = {name: of for name, of in held.items() if name.removeprefix("torch-") not in versions}
        copied(file).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    rules = {
        rule: {text: left for text, has in outcomes.items() if (left := [one for one in has if one not in versions])}
        for rule, outcomes in library_rules.known().items()
    }
    copied(library_rules.DATA).write_text(library_rules.data_text(rules), encoding="utf-8")


def differences(
    folder: Path, python: Path, sections: Collection[str], count: str = ""
) -> Iterator[tuple[str, int, list[str]]]:
    """Compare what a copy says of the PyTorch of an environment with what this checkout says.

    Args:
        folder: the copy.
        python: the Python of the environment.
        sections: those of `tests.live.answers`.
        count: how many answers of a section; as many as usual where it is left out.

    Returns:
        Each section, how many answers it has, and what differs, each in a line.
    """

    def answers(checkout: Path, section: str) -> Answers:
        variables = {name: value for name, value in os.environ.items() if name != NO_MEASURE}
        variables |= {"PYTHONPATH": str(checkout), CACHE: str(folder / ".cache"), "PYTHONHASHSEED": "0"}
        command = [str(python), "-m", "tests.live.answers", section, *([count] if count else [])]
        done = subprocess.run(command, cwd=checkout, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        found: Answers = json.loads(done.stdout)
        return found

    for section in sections:
        ours, theirs = (answers(checkout, section) for checkout in (ROOT, folder))
        both = sorted({*ours, *theirs})
        differ = [name for name in both if ours.get(name) != theirs.get(name)]
        yield section, len(both), [f"{name}: {ours.get(name)} here, {theirs.get(name)} there" for name in differ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the copy, and compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="where the copy is made")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--keep", nargs="+", choices=bundled_profiles(), help="the versions that stay")
    which.add_argument("--hide", nargs="+", choices=bundled_profiles(), help="the versions that go")
    parser.add_argument("--compare", type=Path, metavar="PYTHON", help="compare what both say of its PyTorch")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS], help="what is compared")
    asked = parser.parse_args(arguments)
    hide(asked.folder, asked.keep or [name for name in bundled_profiles() if name not in asked.hide])
    failed = False
    for section, count, differ in differences(asked.folder, asked.compare, asked.sections) if asked.compare else ():
        print(f"{section}: {count} answers, {len(differ)} differ", *differ[:5], sep="\n  ", flush=True)  # noqa: T201
        failed |= bool(differ) or not count
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
