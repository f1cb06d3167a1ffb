"""The engine against 200 histories of one operator that were recorded from the running PyTorch 2.13."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.introspection import fallbacks_in
from dispatchlab.engine.invariants import upstream_violations
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.keys import PARSED_BY_TORCH, DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm, Registration
from dispatchlab.model.schema import clone_with_name
from dispatchlab.model.schema_parser import parse_schema

STRICT, TORCH_2_13 = SEMANTICS["strict"], SEMANTICS["torch-2.13"]

NAME = OperatorName("ns", "foo")
SCHEMA = parse_schema("ns::foo(Tensor x) -> Tensor")
INFERRED = clone_with_name(parse_schema("_(Tensor _0) -> Tensor _0"), OperatorName("", ""))
KERNELS = {
    "t_t": Kernel(KernelForm.UNBOXED, INFERRED, cpp_signature(INFERRED)),
    "boxed": Kernel(KernelForm.BOXED),
    "fallthrough": Kernel(KernelForm.FALLTHROUGH),
}
FROM_CPP = replace(TORCH_2_13, keys=frozenset(DispatchKey))
"""PyTorch 2.13 as C++ code sees it, which can name the keys that no text can."""
BUILTIN = {str(fallback.key) for fallback in TORCH_2_13.builtin_fallbacks}


def recorded() -> list[list[dict[str, Any]]]:
    text = gzip.decompress((Path(__file__).parent / "data" / "histories.json.gz").read_bytes())
    histories: list[list[dict[str, Any]]] = json.loads(text)
    return histories


def registration_of(step: dict[str, Any]) -> Registration:
    key = parse_key(step["key"]) if step.get("key") else None
    match step["op"]:
        case "def":
            alias = None if step["alias"].endswith("(default)") else AliasKind(step["alias"])
            return Def(SCHEMA, alias, debug=step["debug"])
        case "impl":
            return Impl(NAME, key, KERNELS[step["kind"]], step["debug"])
        case "fallback":
            return Fallback(key, KERNELS[step["kind"]], step["debug"])
        case other:
            raise AssertionError(other)


class Replay:
    """Takes the steps of a history on a dispatcher."""

    def __init__(self, semantics: Semantics) -> None:
        self.dispatcher = Dispatcher(semantics)
        self.handles: dict[object, RegistrationHandle] = {}

    def take(self, step: dict[str, Any]) -> None:
        match step["op"]:
            case "undef":
                self.handles.pop("def").release()
            case "drop":
                self.handles.pop(step["id"]).release()
            case "unfallback":
                self.handles.pop(step["key"]).release()
            case "impl":
                self.handles[step["id"]] = self.dispatcher.register(registration_of(step))
            case "fallback":
                self.handles[step["key"]] = self.dispatcher.register(registration_of(step))
            case _:
                self.handles["def"] = self.dispatcher.register(registration_of(step))


def without_builtin(table: str) -> list[str]:
    rows = {}
    for line in table.splitlines():
        key, _, what = line.partition(": ")
        if not (key in BUILTIN and what.endswith("[backend fallback]")):
            rows[key] = line
    return list(rows.values())


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_torch_semantics_equal_the_recorded_steps_of_pytorch() -> None:
    replayed: Counter[str] = Counter()
    for history in recorded():
        replay = Replay(FROM_CPP)
        for step in history:
            replay.take(step)
            replayed["steps"] += 1
            dispatcher = replay.dispatcher
            entry = dispatcher.operator_entry(NAME)
            seen = dispatcher.snapshot(NAME)
            assert seen.dump == step["state"]
            assert without_builtin(seen.table) == step["table_without_builtin_fallbacks"]
            if entry is None:
                assert step["computed_valid"] is None
                continue
            valid = [line.partition(": ")[0] for line in (seen.slots or "").splitlines()]
            assert [key for key in valid if DispatchKey[key] in PARSED_BY_TORCH] == step["computed_valid"]
            fallbacks = fallbacks_in(dispatcher.state)
            broken = upstream_violations(entry, fallbacks, dispatcher.semantics)
            assert (not broken) == step["invariants"], (step, broken)
            replayed["steps after which PyTorch breaks an invariant"] += bool(broken)
    assert replayed == {"steps": 909, "steps after which PyTorch breaks an invariant": 19}


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
def test_strict_semantics_print_the_same_dumps_and_never_break_an_invariant() -> None:
    steps = 0
    for history in recorded():
        replay = Replay(STRICT)
        for step in history:
            replay.take(step)
            steps += 1
            seen = replay.dispatcher.snapshot(NAME)
            assert seen.dump == step["state"]
            assert without_builtin(seen.table) == step["table_without_builtin_fallbacks"]
            replay.dispatcher.check_invariants()
    assert steps == 909
