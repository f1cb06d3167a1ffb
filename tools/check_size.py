"""Fail when the package has more lines of Python, or more rooms, than `[tool.size-ceiling]` in pyproject.toml.

A commit may lower a number. It may raise one only with a line in CHANGELOG.md that says what for.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Compare the package with its ceiling, and say what is too large."""
    ceiling = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["size-ceiling"]
    package = ROOT / "dispatchlab"
    files = [path for path in package.rglob("*.py") if path.name != "_built_version.py"]  # the build writes that one
    found = {
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "rooms": sum((path / "__init__.py").is_file() for path in package.iterdir()),
    }
    over = [
        f"{found[name]:,} {name}, and the ceiling is {ceiling[name]:,}" for name in found if found[name] > ceiling[name]
    ]
    print(f"the package has {found['lines']:,} lines in {found['rooms']} rooms")  # noqa: T201
    for text in over:
        print(f"the package has {text}: take something out", file=sys.stderr)  # noqa: T201
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
