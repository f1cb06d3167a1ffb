"""The stand-in of torch against the bindings of the installed PyTorch: the same calls print the same texts."""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dispatchlab.live.bridge.error_parser import without_backtrace
from dispatchlab.model.installed_torch import resolved_semantics
from tests.effort import share
from tools.torch_stand_in import stand_in

pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

NAMESPACE = "dlabstandin"
SCHEMAS = ("foo(Tensor x) -> Tensor", "foo(Tensor self) -> Tensor", "foo(Tensor x, Tensor y) -> Tensor", "foo(", "foo")
KEYS = ("", "CPU", "CUDA", "XLA", "Autograd", "AutogradCPU", "CompositeExplicitAutograd", "QuantizedCPU", "no_key")
ALIASES = ("", "PURE_FUNCTION", "CONSERVATIVE", "FROM_SCHEMA")

Call = Callable[[Any], object]


def _call(rng: random.Random) -> tuple[str, Call]:
    schema, key, alias = rng.choice(SCHEMAS[: rng.choice((2, 3, 5))]), rng.choice(KEYS), rng.choice(ALIASES)
    choices: tuple[tuple[str, Call], ...] = (
        ("def_", lambda m: m.def_(schema, alias)),
        ("def_legacy", lambda m: m.def_legacy(schema)),
        ("def_name_t_t", lambda m: m.def_name_t_t("foo", key)),
        ("def_schema_t_t", lambda m: m.def_schema_t_t(schema, key, alias or "CONSERVATIVE", "fn_def")),
        ("impl_t_t", lambda m: m.impl_t_t("foo", key, debug=f"fn_{key}")),
        ("impl_t_t", lambda m: m.impl_t_t("foo", key)),
        ("impl_t_t", lambda m: m.impl_t_t("foo", rng.choice(("CPU", "CUDA")))),
    )
    return rng.choice(choices)


def _done(c: Any, kept: dict[int, Any], at: int, line: int, call: Call) -> str:
    """What a call in a library of its own says, and what is seen afterwards."""
    library = c._dispatch_library("FRAGMENT", NAMESPACE, "", "/tmp/a.cpp", line)
    said = ""
    try:
        call(library)
    except RuntimeError as error:
        said = without_backtrace(str(error))
    else:
        kept[at] = library
    return said


def _seen(c: Any) -> tuple[str, str, bool]:
    try:
        c._dispatch_check_invariants(f"{NAMESPACE}::foo")
    except RuntimeError:
        hold = False
    else:
        hold = True
    return c._dispatch_dump(f"{NAMESPACE}::foo"), c._dispatch_dump_table(f"{NAMESPACE}::foo"), hold


# Of a schema that cannot be read the lab says in its own words what is wrong.
_UNREADABLE = ("but only the operator name was given", "but found 'eof' here")
# Where several kernels do not fit a def, PyTorch names the first in the order of a hash table, the lab of the dump.
_ANY_KERNEL = re.compile(r"(?<=\n  inferred schema: \(Tensor _0\) -> Tensor _0\n    )\w+$", re.MULTILINE)


def compare(count: int, seed: int) -> Counter[str]:
    """Run generated libraries on both; what was called, how often, and how often what was refused."""
    rng, met = random.Random(seed), Counter[str]()
    lab: Any = stand_in(resolved_semantics("torch"), recorded=False)["torch._C"]
    for _ in range(count):
        kept: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        for step in range(8):
            if kept[0] and rng.random() < 0.3:
                gone = rng.choice(sorted(kept[0]))
                del kept[0][gone], kept[1][gone]
                met["forgotten"] += 1
            else:
                what, call = _call(rng)
                state = rng.getstate()
                there = _done(C, kept[0], step, step, call)
                rng.setstate(state)
                here = _done(lab, kept[1], step, step, call)
                assert bool(there) == bool(here), (there, here)
                if any(words in there for words in _UNREADABLE):
                    met["refused in the lab's words"] += 1
                elif here != there:
                    assert what.startswith("def")
                    assert _ANY_KERNEL.sub("", here) == _ANY_KERNEL.sub("", there)
                    met["names another of several kernels"] += 1
                else:
                    met["refused" if there else what] += 1
            seen = _seen(C)
            assert _seen(lab) == seen
            met["invariants hold" if seen[2] else "invariants broken"] += 1
    return met


def test_the_same_calls_print_the_same_texts_on_both() -> None:
    met = compare(share(2000), seed=1)
    assert {"def_", "def_legacy", "def_name_t_t", "def_schema_t_t", "impl_t_t", "forgotten", "refused"} <= met.keys()
    assert met.pop("names another of several kernels") < met["refused"] // 50
    assert min(met.values()) >= share(200)
