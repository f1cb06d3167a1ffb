"""Which overload a call goes to, and what a packet tries, against the installed PyTorch."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.names import overload_of
from dispatchlab.model.overloads import Call, TensorValue, Value, common_call, schemas_in
from dispatchlab.model.packet import NoOverloadError, Packet, PacketOverload, call_packet
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.registration import Def
from dispatchlab.model.schema import FunctionSchema, source_text
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.prover.explore import explore
from dispatchlab.prover.protocol import Handle
from dispatchlab.prover.result import Verdict
from dispatchlab.pytorch.bridge import torch as live_torch
from dispatchlab.pytorch.introspection.queries import fresh_overload_order, overload_order, packet_schemas
from dispatchlab.pytorch.sandbox.sandbox import LocalEngine
from dispatchlab.questions.dump.inspect_operators import InspectOptions, inspect_operators
from dispatchlab.questions.explain.packet_calls import TorchScriptCallError, read_call, resolve
from dispatchlab.records.file import open_bundled
from dispatchlab.sources.engines import EngineName
from tests.effort import share
from tests.overload_cases import UNUSUAL, USUAL, random_call, random_overload

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

PREFIX = "Overloaded torch operator invoked from Python failed to match any schema:"


def theirs(name: str, call: Call) -> str:
    """The overload that PyTorch chooses, `refused` or `ended`."""
    args = [eval(repr(value), {"torch": torch}) for value in call.args]
    kwargs = {key: eval(repr(value), {"torch": torch}) for key, value in call.kwargs}
    try:
        return str(C._jit_resolve_packet(name, *args, **kwargs))
    except (RuntimeError, TypeError, OverflowError) as error:
        return "refused" if str(error).startswith(PREFIX) else "ended"


def ours(overloads: list[FunctionSchema], call: Call) -> str:
    try:
        packet = Packet("", tuple(PacketOverload(str(each.name), str(each)) for each in overloads))
        return overload_of(call_packet(packet, call).tried[-1].name)
    except NoOverloadError as error:
        return "ended" if error.ended or len(overloads) == 1 else "refused"


def test_histories_leave_the_order_that_pytorch_has() -> None:
    rng = random.Random(2)
    first_ones = steps = 0
    for number in range(share(2000)):
        alike = number % 20 == 0  # in the types and names of all arguments and returns, see Note [Packets of torch.ops]
        defs = [Def(random_overload(rng, "t::f", each, USUAL), debug=each) for each in "abc" for _ in range(2)]
        if alike:
            defs = [Def(parse_schema(f"t::f.{each}(Tensor x) -> ()"), debug=each) for each in "abc"]
        defs.append(Def(random_overload(rng, "t::g", "a", USUAL), debug="g"))
        operators = list(dict.fromkeys(each.operator for each in defs))
        live_engine, lab_engine = LocalEngine(defs), LabEngine(live_torch.semantics())
        with live_engine.sandbox() as live, lab_engine.sandbox() as lab:
            handles: dict[int, tuple[Handle, Handle]] = {}
            for _ in range(8):
                at = rng.randrange(len(defs))
                if at in handles:
                    for handle in handles.pop(at):
                        handle.release()
                elif not any(defs[other].operator == defs[at].operator for other in handles):
                    handles[at] = live.register(defs[at]), lab.register(defs[at])
                seen = [live.snapshot(name).overloads for name in operators]
                assert seen == [lab.snapshot(name).overloads for name in operators], defs
                first_ones += any(seen)
                steps += 1
    assert steps == 8 * share(2000)
    assert first_ones > steps // 8, first_ones


def test_both_engines_find_that_the_order_of_overloads_matters() -> None:
    rng = random.Random(3)
    found: Counter[str] = Counter()
    for _ in range(share(200)):
        defs = [Def(random_overload(rng, "t::f", each, USUAL), debug=each) for each in "abc"]
        operators = [each.operator for each in defs]
        schemas = [schema for each in defs for schema in schemas_in(each)]
        matters = any(common_call(*pair) for pair in combinations(schemas, 2))
        for engine in (LocalEngine(defs), LabEngine(live_torch.semantics())):
            verdict = explore(engine, defs, operators).verdict
            assert (verdict is Verdict.ORDER_DEPENDENT) == matters, (engine, defs)
            found[verdict.name] += 1
    assert found["ORDER_DEPENDENT"] > share(60), found
    assert found["ORDER_INDEPENDENT"] > share(20), found


def test_a_packet_keeps_what_it_found() -> None:
    library, other = (torch._C._dispatch_library("FRAGMENT", "dlab1_packet", "") for _ in range(2))
    assert overload_order("dlab1_packet::f") == ()
    library.define("f.b(Tensor x, float s=0.) -> Tensor", "")
    other.define("f.a(Tensor x, int n=0) -> Tensor", "")
    assert overload_order("dlab1_packet::f") == ("b", "a")
    assert "f" not in vars(torch.ops.dlab1_packet)
    library.reset()
    library.define("f.b(Tensor x, float s=0.) -> Tensor", "")
    assert overload_order("dlab1_packet::f") == ("a", "b")
    packet = torch.ops.dlab1_packet.f
    other.reset()
    assert overload_order("dlab1_packet::f") == ("a", "b") == tuple(packet.overloads())
    del torch.ops.dlab1_packet.f
    assert overload_order("dlab1_packet::f") == ("b",)
    torch.ops.dlab1_packet._dir.remove("f")  # which torch.export reads in the tests of this process
    library.reset()


def test_a_call_goes_to_the_overload_that_pytorch_chooses() -> None:
    rng = random.Random(1)
    differences, ends = [], Counter[str]()
    library = C._dispatch_library("FRAGMENT", "dlab1_packets", "")
    for number in range(share(1200)):
        name = f"dlab1_packets::f{number}"
        types = USUAL if number % 2 else USUAL + UNUSUAL * 2
        overloads = [random_overload(rng, name, overload, types) for overload in "abc"[: rng.choice((2, 3))]]
        for schema in overloads:
            library.define(source_text(schema).partition("::")[2], "")
        for _ in range(5):
            call = random_call(rng, overloads)
            wanted, found = theirs(name, call), ours(overloads, call)
            ends[wanted] += 1
            if wanted != found:
                differences.append((*map(str, overloads), str(call), wanted, found))
    library.reset()
    assert not differences, "\n".join(map(str, differences[:40]))
    assert min(ends[end] for end in ("a", "b", "c", "refused", "ended")) >= share(60), ends


def test_calls_of_pytorchs_own_go_to_the_overload_that_it_chooses() -> None:
    rng = random.Random(4)
    names = sorted({name.partition(".")[0] for name in C._dispatch_get_all_op_names()})
    names = [name for name in names if name.startswith(("aten::", "prims::"))]
    ends: Counter[str] = Counter()
    for name in ("aten::add", "aten::mul_", "aten::to", "aten::copy_", *rng.sample(names, share(400))):
        schemas = [parse_printed(str(schema)) for schema in C._jit_get_schemas_for_operator(name)]
        by_overload = {schema.name.overload: schema for schema in schemas}
        overloads = [by_overload[overload] for overload in fresh_overload_order(name)]
        for _ in range(5):
            call = random_call(rng, overloads)
            wanted = theirs(name, call).removesuffix("default")
            ends[wanted if wanted in ("refused", "ended") else "taken"] += 1
            assert wanted == ours(overloads, call), (*map(str, overloads), str(call))
    assert ends["taken"] > share(400), ends


def _text(value: Value) -> str:
    """The argument of `explain` for a value; raises ValueError where there is none."""
    match value:
        case TensorValue((2,), "float"):
            return "cuda"
        case None:
            return "none"
        case bool() | int() | float() | complex() | str():
            return repr(value)
        case list() if value and all(isinstance(each, TensorValue) for each in value):
            return f"list:{', '.join(map(_text, value))}"
        case list() | tuple() if not any(isinstance(each, TensorValue) for each in value):
            text = repr(value)
            return text if "torch." not in text else _none(text)
        case _:
            return _none(value)


def _none(value: object) -> str:
    raise ValueError(value)


def test_calls_on_the_command_line_go_where_pytorch_sends_them() -> None:
    """Of PyTorch's own names, in the order that the bundled registry has, and of all overloads in PyTorch's order."""
    rng = random.Random(5)
    bundled = open_bundled("torch-2.13-cpu") if torch.__version__.startswith("2.13.") else None
    known = frozenset(C._dispatch_get_all_op_names())
    names = sorted({name.partition(".")[0] for name in known if name.startswith(("aten::", "prims::"))})
    ends: Counter[str] = Counter()
    compared = 0
    while compared < share(5000):
        name = rng.choice(("aten::add", rng.choice(names)))
        whole = [(f"{name}.{overload}".rstrip("."), schema) for overload, schema in packet_schemas(name)]
        packet = Packet(name, tuple(PacketOverload(one, schema, one not in known) for one, schema in whole))
        own = [one for one, _ in whole if one in known]
        if bundled is not None and len(own) > 1:
            assert bundled.overload_order(name) == tuple(map(overload_of, own)), name
        call = random_call(rng, [parse_printed(schema) for _, schema in whole])
        try:
            texts = [*map(_text, call.args), *(f"{key}={_text(value)}" for key, value in call.kwargs)]
        except ValueError:
            continue
        if any(key in ("device", "layout", "dtype", "memory_format") for key, _ in call.kwargs):
            continue
        given = read_call(texts)
        assert given.call == call, texts
        compared += 1
        wanted = theirs(name, call)
        try:
            found = overload_of(resolve(packet, given).tried[-1].name)
        except TorchScriptCallError as error:
            found = overload_of(error.overload)
            ends["TorchScript"] += 1
        except NoOverloadError as error:
            found = "ended" if error.ended or len(whole) == 1 else "refused"
        assert (found or "default") == (wanted or "default"), (name, texts)
        ends[found if found in ("refused", "ended") else "taken"] += 1
    assert min(ends["taken"], ends["refused"]) > share(500), ends


@pytest.mark.parametrize(("source", "engine"), [(None, "torch"), ("live", "lab")])
def test_dump_shows_what_the_packet_of_a_process_tries(source: str | None, engine: EngineName) -> None:
    packet = inspect_operators("aten::atanh", source=source, options=InspectOptions(engine, packets=True)).packet
    assert packet is not None
    assert packet.unknown == ""
    shown = [overload_of(each.name) for each in packet.overloads if not each.torchscript]
    theirs = [overload.replace("default", "") for overload in torch.ops.aten.atanh.overloads()]
    assert shown == theirs[: len(shown)] == ["", "out"]
    beyond = [overload_of(each.name) for each in packet.overloads if each.torchscript]
    assert beyond == (theirs[len(shown) :] if engine == "torch" else [])
