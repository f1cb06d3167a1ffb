"""Search the def of a missing operator: in sources nearby, in installed packages, in other versions of PyTorch."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

from dispatchlab.model.failure import Position
from dispatchlab.registries.file import bundled_names, open_bundled

_SOURCES: Final = (".py", ".cpp", ".cc", ".cu", ".mm")
_MOST_FILES: Final = 400
_MOST_BYTES: Final = 400_000
OTHER_PACKAGES: Final[dict[str, str]] = tomllib.loads(
    (files("dispatchlab.live.failure") / "packages.toml").read_text(encoding="utf-8")
)


def find_definition(folder: str, namespace: str, name: str) -> Position | None:
    """Return the line of a source below a folder that defines an operator."""
    whole = re.compile(rf"""["']{re.escape(namespace)}::{re.escape(name)}["'(.]""")
    library = re.compile(
        rf"""(?:Library\(\s*["']{re.escape(namespace)}["']|TORCH_LIBRARY\w*\(\s*{re.escape(namespace)}\b)"""
    )
    part = re.compile(rf"""\bdef(?:ine)?\(\s*f?["']{re.escape(name)}\b""")
    for path in _sources(folder):
        text = path.read_text(encoding="utf-8", errors="replace")
        if name not in text or namespace not in text:
            continue
        opened = library.search(text) is not None
        for number, line in enumerate(text.splitlines(), 1):
            defines = re.search(r"custom_op|triton_op|define\(", line) is not None and whole.search(line)
            if defines or (opened and part.search(line)):
                return Position(os.path.relpath(path, folder), number, "", line.strip())
    return None


def _sources(folder: str) -> Iterator[Path]:
    seen = 0
    for root, folders, names in os.walk(folder):
        folders[:] = [
            f for f in folders if not f.startswith((".", "__")) and f not in ("site-packages", "node_modules")
        ]
        for file in sorted(names):
            path = Path(root, file)
            seen += 1
            if seen > _MOST_FILES:
                return
            with suppress(OSError):
                if file.endswith(_SOURCES) and path.stat().st_size < _MOST_BYTES:
                    yield path


def package_of(namespace: str) -> tuple[str, bool]:
    """Return the package that is known to define a namespace, and whether it is installed but not imported."""
    package = OTHER_PACKAGES.get(namespace, namespace)
    with suppress(Exception):
        spec = importlib.util.find_spec(package)
        if spec is not None:
            return package, package not in sys.modules
    return (package if namespace in OTHER_PACKAGES else ""), False


def last_version_with(operator: str) -> str:
    """Return the newest recorded PyTorch with an operator or overload; empty if there is none."""
    for name in reversed(bundled_names()):
        registry = open_bundled(name)
        if registry.operator(operator) is not None or any(n.startswith(f"{operator}.") for n in registry.names):
            return name
    return ""
