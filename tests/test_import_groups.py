"""Packages share something, or no order between them is tried: each way to share is found, predictions are exact."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from dispatchlab.pytorch.recording.import_footprint import ImportFootprint
from dispatchlab.pytorch.recording.import_run import FALLBACKS, ImportOutcome, ImportRun
from dispatchlab.questions.imports.blocks import import_orders_view
from dispatchlab.questions.imports.import_groups import Shared, groups_of, predicted, shared_by, whole_orders
from dispatchlab.questions.imports.import_orders import ImportComparison, _Collected


def alone(package: str, *, failures: dict[str, str] | None = None, dump: str = "", **fields: Any) -> ImportRun:
    """A package that was imported by itself."""
    footprint: dict[str, Any] = {
        "operators": frozenset({f"{package}::op"}),
        "by_torch": frozenset(),
        "namespaces": frozenset({package}),
        "fallbacks": False,
        "packages": frozenset(),
        "untouched": "-",
    }
    footprint |= {name: value if isinstance(value, bool) else frozenset(value) for name, value in fields.items()}
    names = footprint["operators"] | footprint["by_torch"]
    outcome = ImportOutcome(
        failures or {}, dict.fromkeys(names, dump), {**dict.fromkeys(names, dump), FALLBACKS: "-"}, {}
    )
    return ImportRun((package,), outcome, footprint=ImportFootprint(**footprint))


def reason(one: ImportRun, other: ImportRun) -> str:
    """Why two packages share something; empty when they do not. It does not matter which one is named first."""
    found = shared_by(("a", "b"), {"a": one, "b": other})
    back = shared_by(("b", "a"), {"a": one, "b": other})
    assert len(found) == len(back) <= 1
    return found[0].reason if found else ""


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ({}, {}, ""),
        ({"operators": {"x::o"}}, {"operators": {"x::o"}}, "both register x::o"),
        ({"operators": {"x::o"}}, {"by_torch": {"x::o"}}, "both register x::o"),
        ({"by_torch": {"x::o"}}, {"operators": {"x::o"}}, "both register x::o"),
        ({"by_torch": {"x::o"}}, {"by_torch": {"x::o"}}, ""),
        (
            {"by_torch": {"x::o"}, "dump": "1"},
            {"by_torch": {"x::o"}, "dump": "2"},
            "PyTorch registers x::o in another way for each",
        ),
        ({"python": {"x::o"}}, {"python": {"x::o.out"}}, "both register x::o in Python"),
        ({"python": {"x::o"}}, {"python_by_torch": {"x::o"}}, "both register x::o in Python"),
        ({"python": {"x::o.*"}}, {"operators": {"x::o.out"}}, "both register x::o, one of them in Python"),
        ({"python": {"x::o"}}, {"by_torch": {"x::o"}}, "both register x::o, one of them in Python"),
        ({"python": {"x::o"}}, {"python": {"x::p"}}, ""),
        ({"python": {"python::math.ceil"}}, {"python": {"python::math.floor"}}, ""),
        ({"python_by_torch": {"x::o"}}, {"python_by_torch": {"x::o"}}, ""),
        ({"namespaces": {"n"}}, {"namespaces": {"n"}}, "both make libraries of n"),
        ({"fallbacks": True}, {}, "a registers backend fallbacks, which reach what b registers"),
        ({}, {"fallbacks": True}, "b registers backend fallbacks, which reach what a registers"),
        ({"fallbacks": True}, {"operators": set(), "namespaces": {"b"}}, "a registers backend fallbacks, which reach"),
        ({"fallbacks": True}, {"operators": set(), "namespaces": set()}, ""),
        ({"fallbacks": True, "operators": set()}, {"fallbacks": True, "operators": set()}, "a registers backend"),
        ({"packages": {"b"}}, {}, "a imports or names b"),
        ({}, {"packages": {"a"}}, "b imports or names a"),
        ({"failures": {"a": "ImportError"}}, {}, "a cannot be imported by itself"),
        ({}, {"failures": {"b": "ImportError"}}, "b cannot be imported by itself"),
    ],
)
def test_every_way_to_share_is_found(mine: dict[str, Any], theirs: dict[str, Any], expected: str) -> None:
    found = reason(alone("a", **mine), alone("b", **theirs))
    assert found.startswith(expected)
    assert bool(found) is bool(expected)


def test_groups_are_what_pairs_lead_to() -> None:
    packages = tuple("abcdef")
    shared = [Shared(("a", "d"), ""), Shared(("c", "f"), ""), Shared(("d", "f"), "")]
    assert groups_of(packages, shared) == (("a", "c", "d", "f"), ("b",), ("e",))
    assert groups_of(packages, ()) == tuple((package,) for package in packages)


def test_whole_orders_are_made_of_orders_of_the_groups_with_every_two_groups_both_ways() -> None:
    packages = tuple("abcdef")
    orders: list[list[tuple[str, ...]]] = [[("a", "c"), ("c", "a")], [("b", "d", "e"), ("e", "d", "b")], [("f",)]]
    found = list(whole_orders(packages, orders, count=7, seed=3))
    assert found[:4] == [tuple("acbdef"), tuple("fedbca"), packages, packages[::-1]]
    assert len(set(found)) == len(found) == 7
    assert list(whole_orders(packages, orders, count=2, seed=3)) == found[:2]
    for order in found:
        for some in orders:
            assert tuple(package for package in order if package in some[0]) in some
    for one, other in permutations((set(some[0]) for some in orders), 2):
        assert any(max(map(order.index, one)) < min(map(order.index, other)) for order in found[:2])


def outcome(**dumps: str) -> ImportOutcome:
    return ImportOutcome({}, dumps, {**dumps, FALLBACKS: "-"}, {})


def test_a_prediction_is_the_union_and_none_where_it_contradicts_itself() -> None:
    whole = predicted([outcome(a="1"), outcome(b="2", c="3")], "-")
    assert whole is not None
    assert whole.observed == outcome(a="1", b="2", c="3").observed
    assert predicted([outcome(a="1"), outcome(a="2")], "-") is None
    same = predicted([outcome(a="1"), outcome(a="1")], "-")
    assert same is not None
    assert same.observed == outcome(a="1").observed
    fallback = ImportOutcome({}, {}, {FALLBACKS: "fallback"}, {})
    for order in ([fallback, outcome(a="1")], [outcome(a="1"), fallback]):
        found = predicted(order, "-")
        assert found is not None
        assert found.tables[FALLBACKS] == "fallback"


def test_predictions_have_each_slot_of_python_from_the_group_that_writes_it() -> None:
    first, second = ("decompositions", "x::o", "meta"), ("decompositions", "x::o", "post_autograd")
    one, other = (ImportOutcome({}, {}, {}, {}, python={slot: "f"}) for slot in (first, second))
    whole = predicted([one, other], "-")
    assert whole is not None
    assert whole.observed == ImportOutcome({}, {}, {}, {}, python={first: "f", second: "f"}).observed != one.observed
    assert predicted([one, ImportOutcome({}, {}, {}, {}, python={first: "g"})], "-") is None
    assert predicted([one, one], "-") is not None


def test_an_entry_of_python_that_differs_for_each_is_shared_although_pytorch_writes_it() -> None:
    slot = ("inductor_lowerings", "x::o", "")
    one, other = (
        replace(run, first=replace(run.first, python={slot: text}))
        for run, text in ((alone("a", python_by_torch={"x::o"}), "f"), (alone("b", python_by_torch={"x::o"}), "g"))
    )
    assert reason(one, other) == "PyTorch registers x::o in another way for each"


def test_runs_that_come_in_any_order_are_kept_once_for_each_outcome_by_the_first_order() -> None:
    orders = tuple(permutations("abc"))
    runs = [ImportRun(order, outcome(x=str(number % 2))) for number, order in enumerate(orders)]
    for arrival in (runs, runs[::-1], [runs[number] for number in (3, 1, 5, 0, 4, 2)]):
        found = _Collected(orders)
        for run in arrival:
            found.add(run)
        assert [run.order for run in found.distinct] == [orders[0], orders[1]]
        assert all(found.run_of(run.order).first == run.first for run in runs)


def test_what_was_skipped_is_shown_with_its_ground() -> None:
    found = ImportComparison(
        packages=tuple("abcd"),
        orders=(("a", "b"), ("b", "a"), ("c",), ("d",), *[tuple("abcd")] * 6),
        operators=("x::o",),
        failed={},
        ended={},
        between_orders=(),
        again=False,
        imported_again=(),
        groups=(("a", "b"), ("c",), ("d",)),
        shared=(Shared(("a", "b"), "both register x::o"),),
        whole=6,
        skipped=18,
    )
    assert import_orders_view(found).text() == (
        "packages: a, b, c, d\n"
        "orders: 2 within groups, 6 of 24 of all packages, and each package by itself, each in a process of its own\n"
        "groups: a, b | c | d\n"
        "shared: a and b: both register x::o\n"
        "skipped: 18 orders of all packages. Packages of two groups share no operator, library or fallback, and none "
        "imports or names the other\n"
        "checked: 6 orders of all packages, with every two groups both ways round; each registers what the groups "
        "predict. --all-orders takes every order\n"
        "operators: 1 new or changed, those of PyTorch's own modules included\n"
        "differences between orders: none\n"
    )
    large = replace(found, packages=tuple("abcdefg"), groups=(tuple("abcdef"), ("g",)))
    assert "imports or names the other; of a group of 6, orders are sampled\n" in import_orders_view(large).text()
    assert '"shared": [{"packages": ["a", "b"], "reason": "both register x::o"}]' in import_orders_view(found).json()


# -- small worlds of packages, with planted dependences
