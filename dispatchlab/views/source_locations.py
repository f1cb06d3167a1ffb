"""Source locations as people read them: without the folder of a build, short enough for a line, and as a link.

`registered at /__w/pytorch/pytorch/aten/src/ATen/core/MetaFallbackKernel.cpp:23` is
`aten/src/ATen/core/MetaFallbackKernel.cpp:23`, and leads to that line of the release.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

from dispatchlab.escape import printable
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.operator_view import NO_KERNEL

_AT = "registered at "
_SITE = re.compile(r"(?P<path>[^\s:][^:\s]*\.\w+):(?P<line>[1-9][0-9]{0,8})")
_INSIDE = r"(?=(?:build/)?(?:aten/src|torch|functorch|c10|caffe2|third_party)/|build/native_aot/)"
_ROOT = re.compile(rf"^(?:.*?/)??{_INSIDE}")
_BUILD = re.compile(rf"(?<![^\s(])/[^\s()]*?/{_INSIDE}")
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/")
_GENERATED = re.compile(r"(?:^|/)(?:build|generated|native_aot)/|^aten/src/ATen/Register\w*\.cpp$|^third_party/")
_OF_PYTORCH = ("aten/", "torch/", "functorch/", "c10/", "caffe2/", "build/aten/", "build/torch/")
_RELEASE = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:\+\w+)?")


_AT_A_PATH = re.compile(r"\bregistered at (?=\S*[^\s:]+\.\w+:[0-9])")
_FALLBACK = f"[{Provenance.FALLBACK}]"
_LINE = re.compile(r":[0-9]+(?= )")


def fallback_of_file(entry: str) -> str:
    """Return a row of a table; a backend fallback without its line, as each backend has its own."""
    return _LINE.sub("", short_debug(entry)) if entry.endswith(_FALLBACK) else entry


@dataclass(frozen=True, slots=True)
class Located:
    """A piece of a debug text: a word, or a source location with the facts to open it.

    Args:
        text: the text to show, without the folder of a build.
        path: the recorded path; empty for a word.
        line: its line; 0 for a word.
    """

    text: str
    path: str = ""
    line: int = 0

    @property
    def is_pytorch(self) -> bool:
        """True when it is a file of PyTorch's, as far as its path shows."""
        return bool(self.path) and self.text.startswith(_OF_PYTORCH)


@lru_cache(maxsize=1 << 14)  # a registry names few files, each many times
def located(debug: str) -> tuple[Located, ...]:
    """Return the words and source locations of a debug text, without `registered at`."""
    return tuple(map(_located, debug.removeprefix(_AT).split()))


def short_debug(debug: str) -> str:
    """Return a debug text, or a sentence with one, without `registered at` and the folders of a build."""
    return " ".join(piece.text for piece in located(printable(debug.replace(_AT, "", 1))))


def short_paths(sentence: str) -> str:
    """Return a sentence with source locations without `registered at` and the folders of a build."""
    return _BUILD.sub("", _AT_A_PATH.sub("", sentence))


def held(row: str) -> str:
    """Return the content of a slot, as a row of a table shows it."""
    return short_debug(row) or NO_KERNEL


def is_pytorch(debug: str) -> bool:
    """Return whether a debug text names a file of PyTorch's."""
    return any(piece.is_pytorch for piece in located(debug)[:1])


def _located(word: str) -> Located:
    found = _SITE.fullmatch(word)
    if found is None:
        return Located(word)
    path = found["path"]
    return Located(f"{_shown_path(path)}:{found['line']}", path, int(found["line"]))


def _shown_path(path: str) -> str:
    shown = path.replace("\\", "/")
    if (installed := _INSTALLED.sub("", shown)) != shown:
        return installed
    if shown.startswith("../"):  # PyTorch 2.4 and 2.5 were built below their checkout
        return shown.lstrip("./")
    if not shown.startswith("/") and shown[1:2] != ":":
        return shown
    return _ROOT.sub("", shown)


def link_of(piece: Located, torch: str) -> str:
    """Return an address to open a source location at; empty when no address is known.

    Files that a build of PyTorch generates are in no repository.

    Args:
        piece: the source location.
        torch: the version of the PyTorch that it is of; empty when that is not known.
    """
    from urllib.parse import quote  # costs start-up, and only terminals have links

    if not piece.path:
        return ""
    if os.path.isfile(piece.path):
        return f"file://{quote(os.path.abspath(piece.path), safe='/')}"
    release = _RELEASE.fullmatch(torch)
    path = piece.text.rpartition(":")[0]
    if release is None or not piece.is_pytorch or _GENERATED.search(path):
        return ""
    tag = f"v{release[1]}.{release[2]}.{release[3]}"
    return f"https://github.com/pytorch/pytorch/blob/{tag}/{quote(path, safe='/')}#L{piece.line}"
