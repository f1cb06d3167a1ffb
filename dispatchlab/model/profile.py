"""Profiles: the facts by which the dispatchers of two versions of PyTorch differ, as data from a file.

Keys are texts here, so that a profile can be written and read of a PyTorch whose keys this package does not know. The
lab engine makes a semantics from a profile; only the profile decides how `torch-2.13` and similar models behave.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from dispatchlab.errors import DispatchLabError, did_you_mean

FORMAT = 1
"""The number that a file begins with; another one is refused."""

MAX_BYTES = 4 * 2**20
"""Larger files are refused unread; the profile of PyTorch 2.13 has a hundredth of it."""

KERNEL, FALLBACK = "kernel", "fallback"
"""The levels of the precedence that are no alias keys: a kernel at the slot's own key, and the backend fallback."""

COMPOSITE = "CompositeImplicitAutograd"
"""The alias key whose kernel makes way for others, see `Profile.takes_composite`."""

SIGNATURE_LIVES = ("kernel", "operator", "never")
"""How long the C++ signature of a kernel is held against other kernels; see `Profile.signature_life`."""


class ProfileError(DispatchLabError):
    """A file is not a profile, or contradicts itself.

    Args:
        path: the file.
        reason: a clause about the content and the expected content.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


@dataclass(frozen=True, slots=True)
class BuiltinFallback:
    """A backend fallback that PyTorch ships.

    Args:
        kind: `fallthrough` or `kernel`.
        debug: its debug text, `registered at ...`.
    """

    kind: str
    debug: str


Names = tuple[str, ...]
"""Names of keys, in an order that the field gives a meaning to."""


@dataclass(frozen=True)
class Profile:
    """The facts about one PyTorch's dispatcher that differ between versions.

    Args:
        torch: its version, such as `2.13.0+cpu`.
        keys: every key that exists, with its number, ascending: functionality keys, instances for each backend, and
            alias keys, without markers such as `QuantizedUndefined`. Dumps list kernels in this order.
        runtime: the keys that have a slot in an operator's table, in the order of the slots; `Undefined` is the first.
        parsed: the keys that a registration can name by a text.
        aliases: for an alias key, the runtime keys that a single kernel at it fills, including `Undefined`.
        precedence: the sources of a slot, the best first: `kernel`, alias keys, and `fallback`.
        takes_composite: a key -> the runtime keys that lose the kernel of CompositeImplicitAutograd when this key has
            a kernel, beyond its own slot: of a backend its autograd key, of CompositeExplicitAutograd nearly all.
        ambiguous: for a runtime key, the keys whose kernels make it ambiguous with a CompositeImplicitAutograd kernel.
        refresh_on_register: a key -> the runtime keys whose slots are recomputed when a kernel is registered there.
        refresh_on_release: the slots that are refreshed after a release.
        full_refresh_without_key: registering a kernel without a key recomputes every slot.
        fallbacks: a key -> the backend fallback that PyTorch ships there.
        replaceable_fallbacks: the keys where a fallback replaces the present one, including PyTorch's own; the
            release of any of them empties the key. Every other key refuses a second fallback.
        signature_life: one of `SIGNATURE_LIVES`: as long as the kernel is registered; as long as the operator
            exists, and even when the kernel is refused; or never.
        refusal_leaves_traces: whether the writes of a refused registration stay.
        tags_outlive_def: whether the tags of a released def stay while the operator has kernels.
        fallback_without_slot: a fallback at a functionality key such as `Dense` is accepted, and serves no operator.
        kernels_in_wildcard_block: whether an IMPL library of the namespace `_` can have kernels of named operators.
        several_defs: an operator can be defined again by an equal schema.
        warn_each_override: warn of every override of a kernel, not only of the first in a process.
        not_probed: the fields that were not measured, and have the values of `DEFAULTS`.
    """

    torch: str
    keys: Mapping[str, int]
    runtime: Names
    parsed: Names
    aliases: Mapping[str, Names]
    precedence: Names
    takes_composite: Mapping[str, Names]
    ambiguous: Mapping[str, Names]
    refresh_on_register: Mapping[str, Names]
    refresh_on_release: Mapping[str, Names]
    full_refresh_without_key: bool
    fallbacks: Mapping[str, BuiltinFallback]
    replaceable_fallbacks: Names
    signature_life: str
    refusal_leaves_traces: bool
    tags_outlive_def: bool
    fallback_without_slot: bool
    kernels_in_wildcard_block: bool
    several_defs: bool
    warn_each_override: bool
    not_probed: Names = ()

    @property
    def name(self) -> str:
        """The name of its semantics: `torch-` and the first two numbers of the version."""
        version = version_of(self.torch)
        return f"torch-{version[0]}.{version[1]}" if version is not None else f"torch-{self.torch}"


DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "full_refresh_without_key": True,
        "replaceable_fallbacks": ("AutogradPrivateUse1",),
        "signature_life": "operator",
        "refusal_leaves_traces": True,
        "tags_outlive_def": True,
        "fallback_without_slot": True,
        "kernels_in_wildcard_block": False,
        "several_defs": False,
        "warn_each_override": False,
    }
)
"""What PyTorch 2.13 does, for the fields that a probe may leave out; it names them in `not_probed`. Of rules that were
not probed, none is known to hold.

Of keys in a default, those that the PyTorch has count.
"""


_FOLDER = os.path.join(os.path.dirname(__file__), "profiles")
_SUFFIX = ".json"


def version_of(text: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version such as `2.13.0+cpu` or `torch-2.13`; None without numbers."""
    found = re.match(r"(?:torch-)?(\d{1,6})\.(\d{1,6})(?!\d)", text)
    return (int(found[1]), int(found[2])) if found else None


def torch_name(text: str) -> str:
    """Return `torch-2.13` for `2.13`, and every other text as it is."""
    return f"torch-{text}" if re.fullmatch(r"\d+\.\d+", text) else text


NEWEST = frozenset({"latest", "newest", "main", "nightly", "stable"})
"""Words that stand for the newest version elsewhere; here a version has its number."""


@cache
def bundled_profiles() -> tuple[str, ...]:
    """Return the names of the profiles that come with dispatchlab, such as `torch-2.13`, the oldest PyTorch first."""
    names = [name.removesuffix(_SUFFIX) for name in os.listdir(_FOLDER) if name.endswith(_SUFFIX)]
    return tuple(sorted(names, key=lambda name: (version_of(name) or (0, 0), name)))


def _bundled_value(name: str) -> dict[str, Any]:
    """Return a bundled profile: a missing field is as in the next version, and null removes a field."""
    with open(os.path.join(_FOLDER, f"{name}{_SUFFIX}"), encoding="utf-8") as stream:
        value: dict[str, Any] = json.load(stream)
    if name == bundled_profiles()[-1]:
        return value
    after = _bundled_value(bundled_profiles()[bundled_profiles().index(name) + 1])
    for part, one in value.items():
        if isinstance(one, dict):
            value[part] = {key: each for key, each in {**after[part], **one}.items() if each is not None}
    return {**after, **value}


@cache
def bundled_profile(name: str) -> Profile:
    """Return a profile that comes with dispatchlab; `name` is one of `bundled_profiles`."""
    value = _bundled_value(name)
    del value["profile"]
    for part in {*_MAPPINGS, "keys"}:
        value[part] = {key: value[part][key] for key in sorted(value[part], key=value["keys"].__getitem__)}
    fallbacks = value.pop("fallbacks")
    fallbacks = {key: BuiltinFallback(**fallbacks[key]) for key in value["runtime"] if key in fallbacks}
    made = {part: _tuples(one) for part, one in value.items()}  # unchecked: tests read these files with all checks
    return Profile(**{**DEFAULTS, **made, "fallbacks": MappingProxyType(fallbacks)})


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return MappingProxyType({key: tuple(one) if isinstance(one, list) else one for key, one in value.items()})
    return value


def nearest_profile(version: tuple[int, int]) -> str:
    """Return the bundled profile of the nearest version, the newer of two."""

    def distance(name: str) -> int:
        major, minor = version_of(name) or (0, 0)
        return abs((major - version[0]) * 10**6 + minor - version[1])

    return min(reversed(bundled_profiles()), key=distance)


def semantics_names() -> tuple[str, ...]:
    """Return the names of all semantics: `strict`, one for each bundled profile, `pr35061`."""
    return ("strict", *bundled_profiles(), "pr35061")


CALLS = "torch-2.13"
"""The PyTorch whose key sets calls have, of whatever version the registrations are."""


TORCH = "torch"
"""What users call the model of the installed PyTorch; see `resolved_semantics`."""


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Return the profile in a file.

    Raises:
        ProfileError: the file cannot be read, is not a profile, or contradicts itself.
        OtherFileError: it is another file of dispatchlab.
    """
    from dispatchlab.files import ReadError, json_value, read_file  # a bundled profile needs none of these

    name = os.fspath(path)
    try:
        data = read_file(name, limit=MAX_BYTES, what="profiles")
    except OSError as error:
        raise ProfileError(name, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise ProfileError(name, error.reason) from None
    try:
        value = json_value(data, name)
    except ReadError as error:
        _other_kind(name)
        where = f" on line {error.line}, column {error.column}" if error.line else ""
        raise ProfileError(
            name, f"{error.reason}{where}; write a profile with `dispatchlab doctor --measure FILE`"
        ) from None
    if not isinstance(value, dict) or "profile" not in value:
        _other_kind(name)
    return profile_of(value, name)


def _other_kind(path: str) -> None:
    from dispatchlab.files import FileKind, OtherFileError, content_of

    found = content_of(path)
    if found is not None and found.kind is not FileKind.PROFILE:
        raise OtherFileError(path, found, (FileKind.PROFILE,))


def profile_of(value: object, path: str = "the profile") -> Profile:
    """Return the profile in a JSON value.

    Args:
        value: a result of `profile_value`.
        path: its name in errors.

    Raises:
        ProfileError: it is none, or contradicts itself.
    """
    if not isinstance(value, dict) or "profile" not in value:
        found = f'expected an object that begins with "profile": {FORMAT} but found {_shown(value)}'
        raise ProfileError(path, found)
    if value["profile"] != FORMAT:
        found = f"it has the format {_shown(value['profile'])}, and this dispatchlab reads format {FORMAT}"
        raise ProfileError(path, found)
    given = {name: one for name, one in value.items() if name != "profile"}
    known = [one.name for one in fields(Profile)]
    facts: dict[str, Any] = dict(DEFAULTS)
    for name, one in given.items():
        if name not in known:
            raise ProfileError(path, f"it has an unknown field {_shown(name)}{did_you_mean(name, known)}")
        try:
            facts[name] = _read_field(name, one)
        except TypeError as error:
            raise ProfileError(path, f"expected {error} as {name} but found {_shown(one)}") from None
    for name in known:
        if name not in given and name not in DEFAULTS and name != "not_probed":
            raise ProfileError(path, f"the field {name} is missing")
    left_out = DEFAULTS.keys() - given.keys()
    if "replaceable_fallbacks" in left_out:
        facts["replaceable_fallbacks"] = tuple(key for key in facts["replaceable_fallbacks"] if key in facts["keys"])
    facts["not_probed"] = tuple(sorted({*facts.get("not_probed", ()), *left_out}))
    made = Profile(**facts)
    if wrong := _contradiction(made):
        raise ProfileError(path, wrong)
    return made


def profile_value(profile: Profile) -> dict[str, object]:
    """Return the profile as a JSON value; `profile_of` reads it."""
    value: dict[str, object] = {"profile": FORMAT}
    for each_field in fields(Profile):
        one = getattr(profile, each_field.name)
        if each_field.name == "fallbacks":
            one = {key: {"kind": each.kind, "debug": each.debug} for key, each in one.items()}
        value[each_field.name] = dict(one) if isinstance(one, Mapping) else one
    return value


def profile_text(profile: Profile, *, after: Profile | None = None) -> str:
    """Return the file of a profile: a line for each field, and in a mapping one for each key.

    Args:
        profile: the profile.
        after: for a bundled profile, the profile of the next version; equal fields are left out.
    """
    from dispatchlab.escape import json_document

    lines = []
    same = {} if after is None else {**profile_value(after), "profile": None, "torch": None}
    for name, one in profile_value(profile).items():
        if name in same and one == same[name]:
            continue
        if isinstance(one, dict):
            if isinstance(was := same.get(name), dict):
                gone = dict.fromkeys(key for key in was if key not in one)
                one = {key: each for key, each in one.items() if each != was.get(key)} | gone
            rows = ",".join(f"\n  {json_document(key)}: {json_document(each)}" for key, each in one.items())
            lines.append(f'"{name}": {{{rows}{chr(10) if rows else ""}}}')
        else:
            lines.append(f'"{name}": {json_document(one)}')
    return "{" + ",\n".join(lines) + "}\n"


_TEXTS = ("torch", "signature_life")
_NAMES = ("runtime", "parsed", "precedence", "replaceable_fallbacks", "not_probed")
_MAPPINGS = ("aliases", "takes_composite", "ambiguous", "refresh_on_register", "refresh_on_release")


def _read_field(name: str, value: object) -> object:
    """Return the value of a field.

    Raises:
        TypeError: it does not have the field's type; the argument is the expected type.
    """
    if name in _TEXTS:
        return _of_type(value, str, "a text")
    if name in _NAMES:
        return _names(value)
    if name not in (*_MAPPINGS, "keys", "fallbacks"):
        return _of_type(value, bool, "true or false")
    rows: dict[str, Any] = _of_type(value, dict, "an object")
    match name:
        case "keys":
            made: dict[str, object] = {key: _of_type(one, int, "numbers") for key, one in rows.items()}
        case "fallbacks":
            made = {key: _fallback(one) for key, one in rows.items()}
        case _:
            made = {key: _names(one) for key, one in rows.items()}
    return MappingProxyType(made)


def _of_type(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise TypeError(what)
    return value


def _names(value: object) -> Names:
    if not isinstance(value, list | tuple):
        raise TypeError("a list of names")
    if not all(isinstance(one, str) for one in value) or len({*value}) != len(value):
        raise TypeError("a list of different names")
    return tuple(value)


def _fallback(value: object) -> BuiltinFallback:
    match value:
        case {"kind": "fallthrough" | "kernel" as kind, "debug": str(debug), **more} if not more:
            return BuiltinFallback(kind, debug)
        case _:
            raise TypeError("a kind, fallthrough or kernel, and a debug text")


def _contradiction(profile: Profile) -> str:
    """Return a sentence about fields that contradict each other; empty without a contradiction."""
    numbers = [*profile.keys.values()]
    if sorted({*numbers}) != numbers:
        return "the numbers of keys must ascend"
    if profile.runtime[:1] != ("Undefined",):
        return "the first of the runtime keys must be Undefined"
    if profile.signature_life not in SIGNATURE_LIVES:
        return f"expected one of {', '.join(SIGNATURE_LIVES)} as signature_life but found {profile.signature_life!r}"
    if {*profile.precedence} != (levels := {*profile.aliases, KERNEL, FALLBACK}):
        wrong = ", ".join(sorted({*profile.precedence} ^ levels))
        return f"the precedence must have kernel, every alias key and fallback; look at {wrong}"
    if (profile.precedence[0], profile.precedence[-1]) != (KERNEL, FALLBACK):
        return "the precedence must begin with kernel and end with fallback"
    slots = {*profile.runtime}
    mappings = {name: getattr(profile, name) for name in _MAPPINGS}
    named: dict[str, Iterable[str]] = {name: getattr(profile, name) for name in ("parsed", "replaceable_fallbacks")}
    named |= {"runtime": profile.runtime, "fallbacks": profile.fallbacks, **mappings}
    named |= {f"ambiguous of {slot}": keys for slot, keys in profile.ambiguous.items()}
    for what, names in named.items():
        if wrong := ", ".join(name for name in names if name not in profile.keys):
            return f"{what} names {wrong}, which is not among the keys"
    filled = {
        f"{name} of {key}": rows for name in mappings if name != "ambiguous" for key, rows in mappings[name].items()
    }
    filled |= {name: named[name] for name in ("ambiguous", "fallbacks", "replaceable_fallbacks")}
    for what, names in filled.items():
        if wrong := ", ".join(name for name in names if name not in slots):
            return f"{what} names {wrong}, which is not among the runtime keys"
    for name in profile.not_probed:
        if name not in DEFAULTS:
            return f"not_probed names {name}, which is no field with a default{did_you_mean(name, DEFAULTS)}"
    return ""


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, dict | list) else f"{type(value).__name__} of {len(value)}"
    return text if len(text) <= 80 else f"{text[:77]}..."
