"""Calls that two overloads compete for: one is found wherever there is one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dispatchlab.model.overloads import (
    Call,
    Match,
    TensorValue,
    Value,
    common_call,
    match_call,
)
from dispatchlab.model.packet import NoOverloadError, Packet, PacketOverload, call_packet
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_schema
from tests.effort import share
from tests.overload_cases import UNUSUAL, USUAL, random_call, random_overload

PAIRS = (
    ("Tensor x, int n=0", "Tensor x, float s=0.", "(torch.ones(2))"),
    ("Tensor x, int n", "Tensor x, float s", "(torch.ones(2), 1)"),
    ("Tensor x, int n", "Tensor x, str s", None),
    ("Tensor x, Tensor y", "Tensor x, Scalar y", None),
    ("Tensor x, Tensor y", "Tensor x, float y", "(torch.ones(2), torch.ones((), dtype=torch.int64))"),
    ("Tensor x, *, int n", "Tensor x, int n", "(torch.ones(2), n=1)"),
    ("Tensor x, *, int n", "Tensor x, *, int m=1", None),
    ("int[2] x", "int x", "(1)"),
    ("SymInt[2] x", "int x", "(torch.ones(1, dtype=torch.int64))"),
    ("Tensor[] x", "int[] x", "([])"),
    ("Tensor? x", "str? x", "(None)"),
    ("Device x", "str x", "('cpu')"),
    ("Device x, int n", "str x", "('a')"),  # which ends the call where the first is tried first
    ("Tensor x, int n=0, int m=1", "Tensor y, int k, str n", "(torch.ones(2), 1, n='cpu')"),  # n is given twice
    ("Any x", "Storage x", "(torch.UntypedStorage(1))"),
    ("(int, Tensor) x", "(Tensor, int) x", "(torch.ones(2))"),
    ("(int, str) x", "(str, int) x", None),
    ("Dict(str, int) x", "(str, str) x", "({'cpu': 1, 'a': 1})"),
)


@pytest.mark.parametrize(("first", "second", "call"), PAIRS)
def test_a_call_in_common(first: str, second: str, call: str | None) -> None:
    a, b = parse_schema(f"t::f.a({first}) -> ()"), parse_schema(f"t::f.b({second}) -> ()")
    found = common_call(a, b)
    assert (None if found is None else str(found)) == call
    assert (common_call(b, a) is None) == (call is None)


OVERLOADS = [
    parse_schema(f"t::f.{text} -> ()")
    for text in ("a(Tensor x, int n, *, bool z)", "b(Tensor x, str s)", "c(Device d)")
]
PACKET = Packet("t::f", tuple(PacketOverload(str(each.name), str(each)) for each in OVERLOADS))


@pytest.mark.parametrize(
    ("args", "kwargs", "reasons"),
    [
        (
            [TensorValue((2,)), 1.5],
            {},
            [
                "t::f() Expected a value of type 'int' for argument 'n' but instead found type 'float'.",
                "t::f() Expected a value of type 'str' for argument 's' but instead found type 'float'.",
                "t::f() expected at most 1 argument(s) but received 2 argument(s). Declaration: t::f.c(Device d) -> ()",
            ],
        ),
        (
            [TensorValue((2,)), 1],
            {"s": "a"},
            [
                f"t::f() is missing value for argument 'z'. Declaration: {OVERLOADS[0]}",
                f"t::f() expected at most 2 argument(s) but received 3 argument(s). Declaration: {OVERLOADS[1]}",
                f"t::f() expected at most 1 argument(s) but received 3 argument(s). Declaration: {OVERLOADS[2]}",
            ],
        ),
        (
            [TensorValue((2,)), 1, True],
            {},
            [
                f"t::f() takes 2 positional argument(s) but 3 was/were given.  Declaration: {OVERLOADS[0]}",
                f"t::f() expected at most 2 argument(s) but received 3 argument(s). Declaration: {OVERLOADS[1]}",
                f"t::f() expected at most 1 argument(s) but received 3 argument(s). Declaration: {OVERLOADS[2]}",
            ],
        ),
    ],
)
def test_a_call_that_no_overload_takes_says_why(
    args: list[Value], kwargs: dict[str, Value], reasons: list[str]
) -> None:
    with pytest.raises(NoOverloadError) as error:
        call_packet(PACKET, Call(tuple(args), tuple(kwargs.items())))
    assert str(error.value).splitlines() == [
        "Overloaded torch operator invoked from Python failed to match any schema:",
        *reasons,
    ]


def test_an_error_of_an_overload_ends_the_call() -> None:
    with pytest.raises(NoOverloadError) as error:
        call_packet(replace(PACKET, overloads=PACKET.overloads[:0:-1]), Call(("nowhere",)))
    assert str(error.value) == "t::f.c() fails on 'nowhere' for argument 'd'"
    assert error.value.ended


def test_whenever_two_overloads_compete_for_a_call_one_is_found() -> None:
    check_pairs(5, share(300))


def check_pairs(seed: int, count: int) -> None:
    rng = random.Random(seed)
    competed = apart = 0
    for number in range(count):
        types = USUAL if number % 2 else USUAL + UNUSUAL * 2
        pair = [random_overload(rng, "t::f", overload, types) for overload in "ab"]
        found = common_call(*pair)
        if found is not None:
            assert outcome_of_both(pair, found) is not None, (*map(str, pair), str(found))
        for _ in range(12):
            call = random_call(rng, pair)
            compete = outcome_of_both(pair, call)
            competed += compete is not None
            assert compete is None or found is not None, (*map(str, pair), str(call))
        apart += found is None
    assert competed > count // 2, competed
    assert apart > count // 6, apart


def outcome_of_both(pair: list[FunctionSchema], call: Call) -> set[Match] | None:
    """What the two do with a call that they compete for; None for any other."""
    matches = {match_call(schema, call.args, dict(call.kwargs))[0] for schema in pair}
    return matches if Match.TAKES in matches and Match.REFUSES not in matches else None
