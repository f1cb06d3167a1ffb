"""Profiles: the file says what the value says, and a wrong file is refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.files import FileKind, OtherFileError, content_of
from dispatchlab.model.profile import (
    DEFAULTS,
    MAX_BYTES,
    ProfileError,
    bundled_profile,
    bundled_profiles,
    profile_of,
    profile_text,
    read_profile,
)

FOLDER = Path(__file__).parents[1] / "dispatchlab" / "model" / "profiles"
TORCH = bundled_profile("torch-2.13")


@pytest.mark.parametrize("name", bundled_profiles())
def test_a_bundled_profile_is_written_as_it_is_read(name: str) -> None:
    profile, at = bundled_profile(name), bundled_profiles().index(name)
    assert profile.name == name
    assert profile_of(json.loads(profile_text(profile))) == profile
    after = bundled_profile(bundled_profiles()[at + 1]) if profile.name != bundled_profiles()[-1] else None
    path = FOLDER / f"{name}.json"
    assert profile_text(profile, after=after) == path.read_text()
    found = content_of(path)
    assert found is not None
    assert found.kind is FileKind.PROFILE


def test_the_bundled_profiles_are_those_that_were_measured() -> None:
    """Keys, slots, keys that are parsed and builtin fallbacks, as published wheels show them."""
    found = {
        name: (len(profile.keys), len(profile.runtime), len(profile.parsed), len(profile.fallbacks))
        for name in bundled_profiles()
        for profile in [bundled_profile(name)]
    }
    assert found == found | {
        "torch-2.4": (142, 130, 101, 33),
        "torch-2.5": (143, 131, 102, 34),
        "torch-2.6": (143, 131, 103, 35),
        "torch-2.7": (144, 132, 104, 36),
        "torch-2.8": (150, 138, 106, 38),
        "torch-2.9": (150, 138, 108, 38),
        **dict.fromkeys(("torch-2.10", "torch-2.11", "torch-2.12"), (150, 138, 108, 39)),
        "torch-2.13": (149, 137, 107, 38),
    }


def test_what_was_not_probed_has_the_documented_default_and_is_listed() -> None:
    value = json.loads(profile_text(TORCH))
    for name in DEFAULTS:
        del value[name]
    read = profile_of(value)
    assert read.not_probed == tuple(sorted(DEFAULTS))
    assert {name: getattr(read, name) for name in DEFAULTS} == dict(DEFAULTS)
    assert replace(read, not_probed=()) == TORCH
    assert profile_of(json.loads(profile_text(read))) == read


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(value: dict[str, Any]) -> None:
        value[name] = change(value[name])

    return apply


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda value: value.pop(name) and None


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "format": (changed("profile", lambda _: 7), "it has the format 7, and this dispatchlab reads format 1"),
    "missing": (without("runtime"), "the field runtime is missing"),
    "unknown": (lambda value: value.update(paresd=[]), "it has an unknown field 'paresd'; did you mean parsed?"),
    "boolean": (changed("several_defs", lambda _: 1), "expected true or false as several_defs but found 1"),
    "text": (changed("torch", lambda _: 7), "expected a text as torch but found 7"),
    "names": (changed("parsed", lambda _: "CPU"), "expected a list of names as parsed but found 'CPU'"),
    "name": (changed("parsed", lambda _: [1]), "expected a list of different names as parsed but found list of 1"),
    "twice": (
        changed("runtime", lambda keys: [*keys, "CPU"]),
        "expected a list of different names as runtime but found list of 138",
    ),
    "number": (
        changed("keys", lambda keys: keys | {"CPU": "1"}),
        "expected numbers as keys but found dict of 149",
    ),
    "order": (changed("keys", lambda keys: keys | {"CPU": 2}), "the numbers of keys must ascend"),
    "first slot": (changed("runtime", lambda keys: keys[1:]), "the first of the runtime keys must be Undefined"),
    "life": (
        changed("signature_life", lambda _: "ever"),
        "expected one of kernel, operator, never as signature_life but found 'ever'",
    ),
    "levels": (
        changed("precedence", lambda levels: [*levels[:2], *levels[3:]]),
        "the precedence must have kernel, every alias key and fallback; look at CompositeExplicitAutograd",
    ),
    "ends": (
        changed("precedence", lambda levels: [*levels[1:], levels[0]]),
        "the precedence must begin with kernel and end with fallback",
    ),
    "unknown key": (
        changed("parsed", lambda keys: [*keys, "Named"]),
        "parsed names Named, which is not among the keys",
    ),
    "unknown slot": (
        changed("refresh_on_release", lambda keys: keys | {"CPU": ["Dense"]}),
        "refresh_on_release of CPU names Dense, which is not among the runtime keys",
    ),
    "alias slot": (
        changed("aliases", lambda keys: keys | {"CPU": []}),
        "the precedence must have kernel, every alias key and fallback; look at CPU",
    ),
    "fallback": (
        changed("fallbacks", lambda keys: keys | {"CPU": {"kind": "boxed", "debug": "x"}}),
        "expected a kind, fallthrough or kernel, and a debug text as fallbacks but found dict of 39",
    ),
    "fallback without slot": (
        changed("fallbacks", lambda keys: keys | {"Dense": {"kind": "kernel", "debug": "x"}}),
        "fallbacks names Dense, which is not among the runtime keys",
    ),
    "not probed": (
        changed("not_probed", lambda _: ["taggs_outlive_def"]),
        "not_probed names taggs_outlive_def, which is no field with a default; did you mean tags_outlive_def?",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_profile_that_contradicts_itself_is_refused(case: str) -> None:
    change, reason = WRONG[case]
    value = json.loads(profile_text(TORCH))
    change(value)
    with pytest.raises(ProfileError) as caught:
        profile_of(value, "p.json")
    assert str(caught.value) == f"p.json: {reason}"


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"profile": true}', "1" * 5000, "[" * 5000, "\x00"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(ProfileError):
        read_profile(path)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"version": 2, "findings": [\n]}\n')
    with pytest.raises(OtherFileError, match=r"expected a profile of a PyTorch but found a baseline of check"):
        read_profile(path)


def test_a_file_is_bounded_and_may_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with pytest.raises(ProfileError, match=r"it cannot be read: No such file"):
        read_profile(path)
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(ProfileError, match=r"larger than 4 MiB, the limit for profiles"):
        read_profile(path)
