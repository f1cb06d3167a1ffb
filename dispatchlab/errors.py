"""All errors, as one tree: every error has a kind and facts.

`DispatchLabError` is the root, and makes an error of its fields and its sentence. A registration that an engine refuses
is a `RegistrationError`, whose `kind` is one of `ErrorKind` on every engine, however the engine words it; text that
cannot be read is a `ParseError` with its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from typing import ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class DispatchLabError(Exception):
    """Base class of errors that are shown to the user without a traceback.

    A subclass has annotated fields, like a dataclass, and a sentence: a `template`, or `__str__` if the words depend on
    the fields. The constructor, `repr` and pickling are made from the fields.

    >>> from dispatchlab import DispatchLabError, open_registry
    >>> try:
    ...     open_registry("torch-2.13-gpu")
    ... except DispatchLabError as error:
    ...     print(str(error).rpartition("; ")[2])
    did you mean torch-2.13-cpu?
    """

    exit_code: ClassVar[int] = 2
    """What a command ends with that meets such an error."""

    template: ClassVar[str] = ""
    """The sentence, with the names of fields in braces, as `str.format` fills them in."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = (name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar"))
        cls._fields = tuple(dict.fromkeys((*cls._fields, *own)))
        cls._required = tuple(name for name in cls._fields if not hasattr(cls, name))

    def __init__(self, *values: object, **named: object) -> None:
        given, fields = self.__dict__, self._fields
        given.update(zip(fields, values, strict=False), **named)
        if not named and len(self._required) <= len(values) <= len(fields):
            return
        wrong = {*self._required} - given.keys() or given.keys() - fields
        if wrong or len(given) < len(values) + len(named):
            takes = f"{type(self).__name__} takes {', '.join(fields) or 'nothing'}"
            raise TypeError(
                f"{takes}, and was given {len(values)} by position and {', '.join(named) or 'none'} by name"
            )

    def __str__(self) -> str:
        return self.template.format_map({name: getattr(self, name) for name in self._fields})

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({', '.join(fields)})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).__new__, (type(self), *self.args), self.__dict__


class RequestError(DispatchLabError):
    """A request cannot be met, for a reason that no program needs to tell from others.

    Args:
        text: the problem, and what to do.
    """

    text: str

    template = "{text}"


class ErrorKind(StrEnum):
    """The reason why an engine refuses; the same words on every engine.

    >>> from dispatchlab import ErrorKind
    >>> ErrorKind.MISSING_KERNEL == "missing_kernel"
    True
    """

    DUPLICATE_DEF = "duplicate_def"
    SCHEMA_CONFLICT = "schema_conflict"
    ALIAS_KIND_CONFLICT = "alias_kind_conflict"
    SCHEMA_MISMATCH = "schema_mismatch"
    SIGNATURE_MISMATCH = "signature_mismatch"
    DUPLICATE_FALLBACK = "duplicate_fallback"
    DUPLICATE_LIBRARY = "duplicate_library"
    DUPLICATE_PYTHON = "duplicate_python"
    WILDCARD_NAMESPACE = "wildcard_namespace"
    KEY_ON_DEF_BLOCK = "key_on_def_block"
    DEF_IN_IMPL_BLOCK = "def_in_impl_block"
    NAMESPACE_MISMATCH = "namespace_mismatch"
    KEY_MISMATCH = "key_mismatch"
    FALLBACK_OUTSIDE_IMPL = "fallback_outside_impl"
    FALLBACK_WITHOUT_KEY = "fallback_without_key"
    FALLBACK_WITH_NAMESPACE = "fallback_with_namespace"
    UNQUALIFIED_NAME = "unqualified_name"
    META_BESIDE_COMPOSITE = "meta_beside_composite"
    DUPLICATE_KERNEL = "duplicate_kernel"
    DUPLICATE_RULE = "duplicate_rule"
    NOT_FUNCTIONAL = "not_functional"
    LIBRARY_DESTROYED = "library_destroyed"
    CANNOT_INFER_SCHEMA = "cannot_infer_schema"
    TOO_MANY_ARGUMENTS = "too_many_arguments"
    NOT_A_NAME = "not_a_name"
    NOT_A_SCHEMA = "not_a_schema"
    ILLEGAL_OVERLOAD = "illegal_overload"
    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_ALIAS_KIND = "unknown_alias_kind"
    UNKNOWN_BLOCK_KIND = "unknown_block_kind"
    NO_SUCH_SCHEMA = "no_such_schema"
    MISSING_KERNEL = "missing_kernel"
    NO_TENSOR_ARGUMENTS = "no_tensor_arguments"
    AMBIGUOUS_AUTOGRADOTHER = "ambiguous_autogradother"
    FALLTHROUGH_EXECUTED = "fallthrough_executed"
    MISSING_ARGUMENT = "missing_argument"
    EXTRA_ARGUMENT = "extra_argument"
    WRONG_TYPE = "wrong_type"
    WRONG_RETURN = "wrong_return"
    UNBALANCED_STACK = "unbalanced_stack"
    OTHER = "other"

    def __repr__(self) -> str:
        return f"ErrorKind.{self.name}"


class RefusalError(DispatchLabError):
    """An engine refused a request.

    Args:
        kind: why, in the words that all engines share.
        message: the problem, the expectation and what to do.
        facts: the facts behind the refusal, by name; they are compared between two orders.
    """

    kind: ErrorKind
    message: str
    facts: Mapping[str, str] = {}

    template = "{kind}: {message}"


class RegistrationError(RefusalError):
    """A registration or a look-up was refused.

    >>> from dispatchlab import Dispatcher, RegistrationError
    >>> try:
    ...     Dispatcher().find_schema_or_raise("test::foo")
    ... except RegistrationError as error:
    ...     print(error)
    no_such_schema: there is no operator test::foo
    """


class NotCallableError(RegistrationError, TypeError):
    """The value cannot be called, so it is not a kernel; `torch.library` also raises a TypeError."""


class CallError(RefusalError):
    """A call found no kernel, had the wrong arguments, or got the wrong returns.

    >>> from dispatchlab import CallError, Dispatcher, Library, operator
    >>> dispatcher = Dispatcher()
    >>> with Library("test", "DEF", dispatcher=dispatcher) as library:
    ...     _ = library.define("foo(Tensor x) -> Tensor")
    ...     try:
    ...         operator(dispatcher, "test::foo")()
    ...     except CallError as error:
    ...         print(error.kind)
    missing_argument
    """


class ParseError(DispatchLabError):
    """A text could not be read: the expected text, the present text, and the position.

    >>> from dispatchlab import ParseError, parse_name
    >>> try:
    ...     parse_name("test::foo.")
    ... except ParseError as error:
    ...     print(error)
    expected the name of an overload but found the end of the text
      test::foo.
                ^

    Attributes:
        kind: the kind of `ErrorKind` that this is to an engine, `OTHER` for a plain syntax error.
        text: the whole text.
        at: the offset of the first wrong character in `text`, from 0.
        wanted: the expected text.
        found: the present text.
        width: the number of wrong characters from `at`, at least 1.
    """

    text: str
    at: int
    wanted: str
    found: str
    width: int = 1
    kind: ErrorKind = ErrorKind.OTHER

    @property
    def sentence(self) -> str:
        """The first line of the text: the expected and the found text."""
        return f"expected {_cut(self.wanted)} but found {_cut(self.found)}"

    def __str__(self) -> str:
        start = self.text.rfind("\n", 0, self.at) + 1
        end = self.text.find("\n", self.at)
        line = self.text[start : None if end < 0 else end]
        at, width = self.at - start, max(1, self.width)
        if len(line) > _LONGEST_LINE:
            first = max(0, at - _LONGEST_LINE // 2)
            line = line[first : first + _LONGEST_LINE] + ("..." if first + _LONGEST_LINE < len(line) else "")
            at, width = at - first, min(width, _LONGEST_LINE)
            if first:
                line, at = f"...{line}", at + 3
        return f"{self.sentence}\n  {line}\n  {' ' * at}{'^' * width}"


_LONGEST_LINE = 1_000
_LONGEST_QUOTE = 300


def _cut(text: str) -> str:
    """Return the text, shortened in its middle when it is long."""
    if len(text) <= _LONGEST_QUOTE:
        return text
    half = _LONGEST_QUOTE // 2 - 2
    return f"{text[:half]}...{text[-half:]}"


_USUALLY_MEANT = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "rocm": "cuda",
    "amd": "cuda",
    "apple": "mps",
    "intel": "xpu",
    "tpu": "xla",
    "host": "cpu",
    "grad": "requires_grad",
    "dense": "strided",
    "coo": "sparse",
    "null": "none",
    **dict.fromkeys(("torch-2.0", "torch-2.1", "torch-2.2", "torch-2.3"), "torch-2.4"),
}
"""Words of everyday talk, with the name that PyTorch has for the same."""


_LONGEST_COMPARED = 1_000  # comparing takes the square of the length, and a name has no more


def nearest(word: str, known: Iterable[str], *, count: int = 1) -> tuple[str, ...]:
    """Return the names that are similar to `word`, the best first; may be empty.

    Names that differ only in case are always similar.
    """
    from difflib import get_close_matches

    if len(word) > _LONGEST_COMPARED:
        return ()
    names = list(known)
    meant = _USUALLY_MEANT.get(word.casefold())
    same = [name for name in names if name.casefold() in (word.casefold(), meant)]
    close = get_close_matches(word, names, n=count, cutoff=0.6)
    return tuple(dict.fromkeys([*same, *close]))[:count]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean X?"`, or empty text."""
    found = nearest(word, known)
    return f"; did you mean {found[0]}?" if found else ""


def nearest_operators(asked: str, known: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """Return the operators with names similar to a text, the best first; may be empty.

    A name is compared without its overload first: `aten::ad` is near `aten::add`, whatever overloads that has. What
    Python calls an operator, `torch.add` or `torch.ops.aten.add.Tensor`, is read as its name.

    Args:
        asked: the given name.
        known: the operators that there are.
        count: the largest number of results.
    """
    from difflib import SequenceMatcher

    overloads: dict[str, list[str]] = {}
    for name in known:
        overloads.setdefault(_without_overload(name), []).append(name)
    readings = _readings(asked)
    for base, overload in readings:
        if base in overloads:
            full = f"{base}.{overload}"
            if full in overloads[base]:
                return (full,)
            near = nearest(full, overloads[base], count=count) if overload else ()
            return near or (_shown(base, "", overloads[base]),)
    overload = readings[0][1]
    namespace, _, bare = readings[0][0].rpartition("::")
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(bare.casefold())
    scored: list[tuple[float, int, str]] = []
    for base in overloads:
        other_namespace, _, other = base.rpartition("::")
        matcher.set_seq1(other.casefold())
        begins = len(bare) > 1 and other.startswith(bare)
        if not begins and (matcher.real_quick_ratio() < _NEAR or matcher.quick_ratio() < _NEAR):
            continue
        ratio = matcher.ratio()
        if ratio >= _NEAR or begins:
            score = ratio + 0.3 * begins + 0.2 * (other_namespace == namespace)
            scored.append((-score, len(other), base))
    return tuple(_shown(base, overload, overloads[base]) for _, _, base in sorted(scored)[:count])


def _shown(base: str, overload: str, names: list[str]) -> str:
    """Return a similar name with the requested overload, or with the only overload."""
    full = f"{base}.{overload}"
    return full if full in names else names[0] if len(names) == 1 else base


_NEAR = 0.6


def _readings(asked: str) -> list[tuple[str, str]]:
    """Return the names, each with its overload, that a text may mean, likeliest first."""
    if "::" in asked:
        base = _without_overload(asked)
        found = [(base, asked[len(base) + 1 :])]
        if base.startswith(("at::", "torch::", "c10::")):
            found.append(("aten::" + base.rpartition("::")[2], asked[len(base) + 1 :]))
        return found
    if ":" in asked:
        return _readings(asked.replace(":", "::", 1))
    parts = [part for part in asked.split(".") if part]
    if parts[:2] == ["torch", "ops"]:
        parts = parts[2:]
    found = [(parts[0], ".".join(parts[1:]))] if parts else []
    if len(parts) == 1:
        found.append((f"aten::{parts[0]}", ""))
    if len(parts) > 1 and parts[0] != "torch":
        found.append((f"{parts[0]}::{parts[1]}", ".".join(parts[2:])))
    if len(parts) > 1:
        found += [(f"aten::{parts[-1]}", ""), (f"aten::{parts[-2]}", parts[-1])]
    return found or [(asked, "")]


def _without_overload(name: str) -> str:
    namespace, colons, rest = name.rpartition("::")
    return f"{namespace}{colons}{rest.partition('.')[0]}"


_SHOWN = 3


def no_operator(asked: str, known: Iterable[str] = (), *, source: str = "") -> str:
    """Return the sentence of every error about an operator that does not exist.

    Args:
        asked: the name, or a glob that matches nothing.
        known: the operators that there are, for the nearest names.
        source: the source that should have it, such as a file.
    """
    where = f" in {'the installed PyTorch' if source == 'live' else source}" if source else ""
    names = tuple(known)
    if any(character in asked for character in "*?["):
        return f"no operator{where} matches {_cut(asked)}{_namespaces(asked, names)}"
    of_namespace = tuple(name for name in names if name.startswith(f"{asked}::"))
    near = of_namespace[:_SHOWN] or nearest_operators(asked, names, count=_SHOWN)
    return f"there is no operator {_cut(asked)}{where}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def _namespaces(glob: str, names: tuple[str, ...]) -> str:
    """Return the namespace that a glob without a match names, or all namespaces."""
    counts: dict[str, int] = {}
    for name in names:
        namespace = name.partition("::")[0]
        counts[namespace] = counts.get(namespace, 0) + 1
    asked, colons, _ = glob.partition("::")
    if not counts:
        return ""
    if not colons:
        asked = "aten"
    if asked in counts:
        return f"; the namespace {asked} has {counts[asked]:,} operators, which '{asked}::*' lists"
    near = nearest(asked, counts)
    if near:
        return f"; did you mean '{near[0]}::{glob.partition('::')[2]}'?"
    if len(names) <= _SHOWN:
        return f"; it has {', '.join(names)}"
    most = sorted(counts, key=lambda namespace: (-counts[namespace], namespace))
    return f"; its namespace{' is' if len(most) == 1 else 's are'} {first_of(most, _SHOWN)}"


class UnknownOperatorError(DispatchLabError):
    """No operator has this name, or matches this glob.

    Args:
        asked: the name or glob.
        known: the operators that there are.
        source: their source.
    """

    asked: str
    known: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        asked = self.asked if "::" in self.asked else self.asked.replace(":", "::")
        sentence = no_operator(asked, self.known, source=self.source)
        package, colons, _ = asked.partition("::")
        known = {"__main__", *sys.stdlib_module_names, *(name.partition("::")[0] for name in self.known)}
        with suppress(ImportError, ValueError):  # a module without a spec
            if package.isidentifier() and package not in known and find_spec(package) is not None:
                how = f"--from {package} imports{'' if colons else ', and --list lists its operators'}"
                return f"{sentence.partition(';')[0]}; {package} is a package, which {how}"
        if sentence.endswith("?") or not sentence.startswith("there is no"):
            return sentence
        if not self.known:
            return f"{sentence}; it names no operator"
        return f"{sentence}; it has {first_of(self.known, _SHOWN)}"


def first_of(names: Sequence[object], most: int, noun: str = "") -> str:
    """Return the first names and the number of the others: `a, b and 1,200 more operators`.

    Args:
        names: at least one.
        most: how many are shown.
        noun: what the others are, a blank before it; empty when that needs no word.
    """
    more = f" and {len(names) - most:,} more{noun}" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"
