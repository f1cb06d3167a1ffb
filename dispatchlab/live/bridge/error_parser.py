"""Parse PyTorch's error texts: the kind of the refusal, and its facts.

A fragment of the text, which PyTorch has not changed for years, identifies the kind; a text that no fragment
matches has the kind `ErrorKind.OTHER`.
"""

from __future__ import annotations

import re

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


# The first that occurs in the text decides, so a fragment that is part of another stands behind it.
_FRAGMENTS: tuple[tuple[str, ErrorKind], ...] = (
    ("with the same name and overload name multiple times", ErrorKind.DUPLICATE_DEF),
    ("doesn't match the expected function schema", ErrorKind.SCHEMA_MISMATCH),
    ("Mismatch in kernel C++ signatures", ErrorKind.SIGNATURE_MISMATCH),
    ("multiple backend fallbacks for the same dispatch key", ErrorKind.DUPLICATE_FALLBACK),
    ("Only a single TORCH_LIBRARY can be used", ErrorKind.DUPLICATE_LIBRARY),
    ("with the wildcard namespace", ErrorKind.WILDCARD_NAMESPACE),
    ("bad optional access", ErrorKind.WILDCARD_NAMESPACE),
    ("!dispatch_key_.has_value()", ErrorKind.KEY_ON_DEF_BLOCK),
    ("Did you mean to call this function inside", ErrorKind.FALLBACK_OUTSIDE_IMPL),
    ("Cannot define an operator inside of a", ErrorKind.DEF_IN_IMPL_BLOCK),
    ("does not match namespace of enclosing", ErrorKind.NAMESPACE_MISMATCH),
    ("is inconsistent with the dispatch key of the enclosing", ErrorKind.KEY_MISMATCH),
    ("apply to only a single namespace", ErrorKind.FALLBACK_WITH_NAMESPACE),
    ("dispatch_key.has_value()", ErrorKind.FALLBACK_WITHOUT_KEY),
    ("couldn't infer schema either", ErrorKind.CANNOT_INFER_SCHEMA),
    ("We should not register a meta kernel directly", ErrorKind.META_BESIDE_COMPOSITE),
    ("already has a `__torch_dispatch__` rule", ErrorKind.DUPLICATE_RULE),
    (" fake impl registered at", ErrorKind.DUPLICATE_KERNEL),
    (" DispatchKey::Meta implementation via", ErrorKind.DUPLICATE_KERNEL),
    ("already has an implementation for this device type", ErrorKind.META_BESIDE_COMPOSITE),
    ("there's already a kernel registered from python", ErrorKind.DUPLICATE_KERNEL),
    ("<DispatchKey.Autocast", ErrorKind.DUPLICATE_KERNEL),  # a KeyError of register_autocast
    ("for non-functional operator", ErrorKind.NOT_FUNCTIONAL),
    ("Library object has been destroyed", ErrorKind.LIBRARY_DESTROYED),
    ("'_OpNamespace'", ErrorKind.NO_SUCH_SCHEMA),
    ("has no overload name", ErrorKind.NO_SUCH_SCHEMA),
    ("Trying to override a python impl", ErrorKind.DUPLICATE_PYTHON),
    ("already registered in ", ErrorKind.DUPLICATE_PYTHON),
    ("duplicate registration", ErrorKind.DUPLICATE_PYTHON),
    ("both a fallback and a decomp", ErrorKind.DUPLICATE_PYTHON),
    ("arguments but this PyTorch build only supports", ErrorKind.TOO_MANY_ARGUMENTS),
    ("but function schema was given", ErrorKind.NOT_A_NAME),
    ("but only the operator name was given", ErrorKind.NOT_A_SCHEMA),
    ("is not a legal overload name", ErrorKind.ILLEGAL_OVERLOAD),
    ("could not parse dispatch key", ErrorKind.UNKNOWN_KEY),
    ("Could not find schema for", ErrorKind.NO_SUCH_SCHEMA),
    ("Could not run", ErrorKind.MISSING_KERNEL),
    ("There were no tensor arguments", ErrorKind.NO_TENSOR_ARGUMENTS),
    ("mapped to AutogradOther", ErrorKind.AMBIGUOUS_AUTOGRADOTHER),
    ("fallthrough_kernel was executed", ErrorKind.FALLTHROUGH_EXECUTED),
    (" does not exist", ErrorKind.NO_SUCH_SCHEMA),
)

_FACTS: dict[ErrorKind, re.Pattern[str]] = {
    ErrorKind.DUPLICATE_DEF: re.compile(
        r"register an operator \((?P<schema>.*)\) with the same name .*"
        r"Duplicate registration: (?P<debug>.*)\. Original registration: (?P<other_debug>.*)$",
        re.DOTALL,
    ),
    ErrorKind.SCHEMA_MISMATCH: re.compile(
        r"\n  operator: (?P<operator>.*)\n  expected schema: (?P<def_schema>.*)\n    (?P<def_debug>.*)"
        r"\n  inferred schema: (?P<inferred_schema>.*)\n    (?P<inferred_debug>.*)\n  reason: (?P<reason>.*)$"
    ),
    ErrorKind.SIGNATURE_MISMATCH: re.compile(
        r"\n  operator: (?P<operator>.*)\n(?:    .*\n)?  kernel 1: (?P<other_signature>.*)\n"
        r"    dispatch key: (?P<other_key>.*)\n    (?P<other_debug>.*)\n"
        r"  kernel 2: (?P<signature>.*)\n    dispatch key: (?P<key>.*)\n    (?P<debug>.*?)\s*$"
    ),
    ErrorKind.DUPLICATE_FALLBACK: re.compile(
        r"same dispatch key (?P<key>\w+); previous registration (?P<other_debug>.*), new registration (?P<debug>.*)$"
    ),
    ErrorKind.DUPLICATE_LIBRARY: re.compile(
        r"register the namespace (?P<namespace>\w+);.* Previous registration of TORCH_LIBRARY was (?P<other_debug>.*)"
        r"; latest registration was (?P<debug>.*)$",
        re.DOTALL,
    ),
    ErrorKind.NO_SUCH_SCHEMA: re.compile(r"Could not find schema for (?P<operator>\S+?)\.(?:\s|$)"),
    ErrorKind.ILLEGAL_OVERLOAD: re.compile(r"(?P<overload>\S+) is not a legal overload name"),
    ErrorKind.TOO_MANY_ARGUMENTS: re.compile(r"schema has (?P<count>\d+) arguments"),
    ErrorKind.UNKNOWN_KEY: re.compile(r"could not parse dispatch key: (?P<key>.*)$"),
}
