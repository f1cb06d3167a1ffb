"""The sandbox of the live engine against 200 recorded histories of one operator, step by step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.model.keys import PARSED_BY_TORCH, DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.prover.protocol import Handle
from dispatchlab.pytorch.introspection.builtin_fallbacks import builtin_fallbacks
from dispatchlab.pytorch.sandbox.sandbox import LiveSandbox, LocalEngine
from dispatchlab.pytorch.worker.main import load_extension
from tests.live.live_registrations import BOXED, BY_REFERENCE, FALLTHROUGH
from tests.live.native_extension import native_kernels

NAME = OperatorName("ns", "foo")
KERNELS = {"t_t": BY_REFERENCE, "boxed": BOXED, "fallthrough": FALLTHROUGH}
STEPS, BROKEN = 909, 19


def recorded() -> list[list[dict[str, Any]]]:
    text = gzip.decompress((Path(__file__).parents[1] / "data" / "histories.json.gz").read_bytes())
    histories: list[list[dict[str, Any]]] = json.loads(text)
    return histories


def registration_of(step: dict[str, Any]) -> Registration:
    key = parse_key(step["key"]) if step.get("key") else None
    if step["op"] == "def":
        alias = None if step["alias"].endswith("(default)") else AliasKind(step["alias"])
        return Def(parse_schema("ns::foo(Tensor x) -> Tensor"), alias, debug=step["debug"])
    if step["op"] == "impl":
        return Impl(NAME, key, KERNELS[step["kind"]], step["debug"])
    return Fallback(key, KERNELS[step["kind"]], step["debug"])


def take(sandbox: LiveSandbox, handles: dict[object, Handle], step: dict[str, Any]) -> None:
    names = {"def": "def", "undef": "def", "impl": step.get("id"), "drop": step.get("id")}
    name = names.get(step["op"], step.get("key"))
    if step["op"] in ("undef", "drop", "unfallback"):
        handles.pop(name).release()
    else:
        handles[name] = sandbox.register(registration_of(step))


def without_builtin(table: str) -> list[str]:
    builtin = set(builtin_fallbacks().table.splitlines())
    return [line for line in table.splitlines() if line not in builtin]


def test_every_recorded_step_is_seen_again() -> None:
    engine = LocalEngine(native=load_extension(native_kernels()), parse_keys=False)
    steps = broken = 0
    for history in recorded():
        with engine.sandbox() as sandbox:
            handles: dict[object, Handle] = {}
            for step in history:
                take(sandbox, handles, step)
                snapshot = sandbox.snapshot(NAME)
                assert snapshot.dump == step["state"]
                assert without_builtin(snapshot.table) == step["table_without_builtin_fallbacks"]
                assert snapshot.exists == (step["computed_valid"] is not None)
                if snapshot.exists:
                    rows = [DispatchKey[line.partition(": ")[0]] for line in (snapshot.slots or "").splitlines()]
                    assert [str(key) for key in rows if key in PARSED_BY_TORCH] == step["computed_valid"]
                    # NB: PyTorch's check compares functions and skips Undefined, so it may miss what the slots show.
                    if not step["invariants"]:
                        assert sandbox.violations(NAME)
                        broken += 1
                steps += 1
    assert (steps, broken) == (STEPS, BROKEN)
