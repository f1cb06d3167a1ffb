"""Which overload a call goes to, and what a packet tries, against the installed PyTorch."""

from __future__ import annotations

import importlib
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from dispatchlab.live.introspection.queries import overload_order, packet_schemas
from dispatchlab.model.names import overload_of
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.questions.dump.inspect_operators import inspect_operators
from dispatchlab.questions.dump.inspect_scenario import InspectOptions
from dispatchlab.questions.explain.packet_calls import NoOverloadError, read_call, resolve
from dispatchlab.questions.sources.engines import EngineName
from tests.effort import share

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

ARGUMENTS: dict[str, Any] = {
    "cpu": torch.ones(2),
    "1": 1,
    "1.5": 1.5,
    "[0, 1]": [0, 1],
    '"mean"': "mean",
    "list:cpu, cpu": [torch.ones(2), torch.ones(2)],
}


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


def test_calls_go_to_the_overload_that_pytorch_chooses() -> None:
    rng = random.Random(5)
    known = frozenset(C._dispatch_get_all_op_names())
    names = sorted({name.partition(".")[0] for name in known if name.startswith("aten::")})
    ends: Counter[str] = Counter()
    for _ in range(share(4000)):
        name = rng.choice(names)
        schemas = [(f"{name}.{overload}".rstrip("."), schema) for overload, schema in packet_schemas(name)]
        packet = Packet(name, tuple(PacketOverload(one, text) for one, text in schemas))
        texts = ["cpu"] * rng.choice((0, 1, 1, 2)) + rng.choices(list(ARGUMENTS), k=rng.choice((0, 1, 1, 2)))
        wanted = found = "refused"
        with suppress(RuntimeError, TypeError):  # which list what each overload refuses
            wanted = str(C._jit_resolve_packet(name, *map(ARGUMENTS.__getitem__, texts)))
        with suppress(NoOverloadError):
            taken = resolve(packet, read_call(texts)).tried[-1].name
            found = overload_of(taken) or "default"
        if "refused" in (wanted, found) or taken not in known:
            ends["refused by both" if wanted == found else "refused by one"] += 1
        else:
            assert wanted == found, (name, texts)
            ends["taken"] += 1
    assert ends["taken"] > share(300), ends
    assert ends["refused by one"] < share(40), ends  # PyTorch takes a number for a bool, say


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
