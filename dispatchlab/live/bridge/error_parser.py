"""Parse PyTorch's error texts: the kind of the refusal, and its facts.

A fragment of the text, which PyTorch has not changed for years, identifies the kind; a text that no fragment
matches has the kind `ErrorKind.OTHER`.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

from dispatchlab.errors import ErrorKind, RegistrationError


def refusal(text: str) -> RegistrationError:
    """Return the error for PyTorch's text; its message is PyTorch's text without the C++ stack."""
    shown = without_backtrace(text)
    kind = kind_of(shown)
    return RegistrationError(kind, shown, facts_of(kind, shown))


def without_backtrace(text: str) -> str:
    """Return an error text of PyTorch without its C++ stack."""
    return text.split("\nException raised from", 1)[0].rstrip()


def kind_of(text: str) -> ErrorKind:
    """Return the kind of refusal that a text reports; `OTHER` for an unknown one."""
    return next((kind for fragment, kind in _FRAGMENTS if fragment in text), ErrorKind.OTHER)


def facts_of(kind: ErrorKind, text: str) -> dict[str, str]:
    """Return the readable facts in a text of this kind, by the names that every engine uses."""
    pattern = _FACTS.get(kind)
    found = pattern.search(text) if pattern is not None else None
    return {name: value for name, value in found.groupdict().items() if value is not None} if found else {}


_TEXTS = tomllib.loads((files("dispatchlab.live.bridge") / "error_texts.toml").read_text(encoding="utf-8"))
_FRAGMENTS = tuple((fragment, ErrorKind[kind]) for fragment, kind in _TEXTS["fragments"])
_FACTS = {ErrorKind[kind]: re.compile(pattern) for kind, pattern in _TEXTS["facts"].items()}
