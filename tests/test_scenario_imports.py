"""Records and the orders of their imports: the field, the orders that there are, and the verdict that they give."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.api import check_order
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.program import Module, import_orders
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.report import Report, report_of
from dispatchlab.scenario import Scenario, ScenarioError, parse_scenario, scenario_text
from dispatchlab.scenario.import_orders import ImportOrders, OrderFinding
from tests.effort import examples

RECORD = """\
claim: What importing a and b registers does not depend on its order.
namespace: mine
semantics: torch-2.13
registry: torch-2.13-cpu
packages: [a, b]
modules:
  a: [0]
  b: [1]
"""
REGISTRATIONS = """\
registrations:
  - impl: foo
    dispatch: CPU
    debug: a.py:1
  - impl: foo
    dispatch: CUDA
    debug: b.py:1
"""
ORDERS = """\
imports:
  ran: 2
  of: 2
  open: ["not the same in two runs of one order: table of mine::foo"]
  differences:
    - what: kernel of mine::foo at CPU
      expected: [a, b]
      actual: [b, a]
      before: a:f 1
      after: |-
        a:f 2
        and more
      sites: [a.py:1, "b.py:1 via c.py:2"]
    - what: "module a: global seen"
      expected: [a, b]
      actual: [b, a]
      certain: false
"""


def with_imports(text: str) -> Scenario:
    return parse_scenario(RECORD + text + REGISTRATIONS)


# -- the field


def test_the_field_is_read() -> None:
    orders = (("a", "b"), ("b", "a"))
    assert with_imports(ORDERS).imports == ImportOrders(
        2,
        2,
        (
            OrderFinding(
                "kernel of mine::foo at CPU", *orders, "a:f 1", "a:f 2\nand more", ("a.py:1", "b.py:1 via c.py:2")
            ),
            OrderFinding("module a: global seen", *orders, certain=False),
        ),
        ("not the same in two runs of one order: table of mine::foo",),
    )
    assert with_imports("").imports is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["yes", "1", "a: b", "a #b", " a", "- a", "[a]", "a\nb", "'", '"', "\\", "true", "null"]
)
NAMES = st.lists(TEXTS, min_size=1, max_size=3, unique=True).map(tuple)
FINDINGS = st.builds(
    OrderFinding, TEXTS, NAMES, NAMES, st.just("") | TEXTS, st.just("") | TEXTS, st.just(()) | NAMES, st.booleans()
)


@examples(300)
@given(
    st.integers(1, 999_999_999), st.sampled_from([0, 1]), st.lists(FINDINGS, max_size=3).map(tuple), st.just(()) | NAMES
)
def test_what_is_written_is_read_back(
    ran: int, counted: int, findings: tuple[OrderFinding, ...], open_points: tuple[str, ...]
) -> None:
    scenario = with_imports("")
    held = replace(scenario, imports=ImportOrders(ran, ran * counted, findings, open_points))
    text = scenario_text(held)
    assert parse_scenario(text) == held
    assert scenario_text(parse_scenario(text)) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("imports: 3\n", ":9:10: expected import orders but found '3'"),
        ("imports: {}\n", "ran"),
        ("imports: {ran: 2}\n", "of"),
        ("imports: {ran: two, of: 2}\n", "expected a number but found 'two'"),
        ("imports: {ran: -1, of: 2}\n", "expected a number but found '-1'"),
        ("imports: {ran: 1.5, of: 2}\n", "expected a number but found '1.5'"),
        ("imports: {ran: 1234567890, of: 0}\n", "expected a number but found '1234567890'"),
        ("imports: {ran: [2], of: 2}\n", "expected a number but found a list"),
        ("imports: {ran: 2, of: 2, seed: 3}\n", "seed"),
        ("imports: {ran: 2, of: 2, open: []}\n", "expected a list of texts but found an empty list"),
        ("imports: {ran: 2, of: 2, open: much}\n", "expected a list of texts but found 'much'"),
        ("imports: {ran: 2, of: 2, differences: 3}\n", "expected a list of differences but found '3'"),
        ("imports: {ran: 2, of: 2, differences: [x]}\n", "expected a difference between orders but found 'x'"),
        ("imports: {ran: 2, of: 2, differences: [{what: x, expected: [a]}]}\n", "actual"),
        ("imports: {ran: 2, of: 2, differences: [{what: x, expected: [a], actual: []}]}\n", "an empty list"),
        (
            "imports: {ran: 2, of: 2, differences: [{what: x, expected: [a], actual: [b], certain: no}]}\n",
            "expected true or false but found 'no'",
        ),
        ("imports: {ran: 0, of: 0}\n", "expected at least the order of the record but found 0 orders that ran"),
        ("imports: {ran: 3, of: 2}\n", "expected at most 2 orders that ran but found 3"),
    ],
)
def test_a_wrong_field_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        with_imports(text)
    assert sentence in str(refused.value)


# -- the orders in which modules can be imported

Imports = dict[str, list[str]]


def begun_and_ended(imports: Imports, order: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Each body as it begins and ends, in sequence, and the imports that ran one; with a stack, not by recursion."""
    known: set[str] = set()
    trace: list[str] = []
    needed = []
    for name in order:
        if name not in known:
            needed.append(name)
        waiting = [("import", name)]
        while waiting:
            what, module = waiting.pop()
            if what == "end":
                trace.append(f"-{module}")
            elif what == "import" and "." in module:
                waiting += [("begin", module), ("import", module.rpartition(".")[0])]
            elif module not in known:
                known.add(module)
                trace.append(f"+{module}")
                waiting.append(("end", module))
                waiting += [("import", other) for other in reversed(imports.get(module, []))]
    return tuple(trace), tuple(needed)


MODULES = ["p", "p.x", "q", "r", "s"]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Imports, list[str]]:
    """Modules that import one another in any way, cycles among them, and some that a program may import."""
    graph = {
        name: draw(st.lists(st.sampled_from([each for each in MODULES if each != name]), max_size=2, unique=True))
        for name in MODULES
    }
    return graph, draw(st.lists(st.sampled_from(MODULES), min_size=1, max_size=4, unique=True))


@examples(400)
@given(graphs())
def test_every_sequence_of_bodies_has_one_order(case: tuple[Imports, list[str]]) -> None:
    graph, entries = case
    orders, are_all = import_orders(graph, entries, most=24)
    assert are_all, "of four modules there are at most 24 orders"
    runs = [begun_and_ended(graph, order) for order in orders]
    traces = [trace for trace, _ in runs]
    assert len(set(traces)) == len(traces)
    assert set(traces) == {begun_and_ended(graph, order)[0] for order in permutations(entries)}
    assert [needed for _, needed in runs] == orders, "no import does nothing"
    assert traces[0] == begun_and_ended(graph, tuple(entries))[0], "the given order comes first"


@examples(300)
@given(graphs(), st.integers(1, 23), st.integers(0, 3))
def test_of_too_many_orders_so_many_are_chosen(case: tuple[Imports, list[str]], most: int, seed: int) -> None:
    graph, entries = case
    every, _ = import_orders(graph, entries, most=24)
    orders, are_all = import_orders(graph, entries, most=most, seed=seed)
    assert are_all == (len(every) <= most)
    if are_all:
        assert orders == every
        return
    traces = [begun_and_ended(graph, order)[0] for order in orders]
    assert 1 <= len(orders) <= most
    assert len(set(traces)) == len(traces)
    assert set(traces) <= {begun_and_ended(graph, order)[0] for order in every}
    assert traces[0] == begun_and_ended(graph, tuple(entries))[0]
    assert import_orders(graph, entries, most=most, seed=seed) == (orders, False)


def test_orders_that_are_chosen_begin_with_each_module() -> None:
    names = [f"m{number:02}" for number in range(9)]
    orders, are_all = import_orders({}, names, most=24)
    assert (len(orders), are_all) == (24, False)
    assert orders[:2] == [tuple(names), tuple(reversed(names))]
    assert {order[0] for order in orders} == {*names}
    assert all(sorted(order) == names for order in orders)


# -- the verdict

_FOUND = OrderFinding("kernel of mine::foo at CPU", ("a", "b"), ("b", "a"), "1", "2", ("a.py:1",))
_POSSIBLE = replace(_FOUND, what="module a: global seen", certain=False)
_FINDINGS = {
    "nothing": (),
    "certain": (_FOUND,),
    "possible": (_POSSIBLE,),
    "both": (_POSSIBLE, _FOUND),
}
_OPEN = "not the same in two runs of one order: setting seed"
_RAN = {"all": (2, 2), "sampled": (24, 120), "uncounted": (24, 0)}


def reported(base: Verdict, imports: ImportOrders | None, *, modules: int = 2, semantics: str = "torch-2.13") -> Report:
    """The report on a record of two registrations, of which an exploration found `base`."""
    bodies = (Module("a", (0,)), Module("b", (1,))) if modules == 2 else (Module("a", (0, 1)),)
    scenario = replace(with_imports(""), imports=imports, modules=bodies, semantics=semantics)
    found = Exploration(base, walk="program", registrations=2, sets=4, states=4, edges=4, orders=2, modules=modules)
    return report_of(scenario, LabEngine(semantics), found)


@pytest.mark.parametrize("findings", _FINDINGS)
@pytest.mark.parametrize("ran", _RAN)
@pytest.mark.parametrize("open_points", [(), (_OPEN,)])
@pytest.mark.parametrize("base", Verdict)
def test_the_verdict_on_a_record_comes_of_the_orders_that_ran(
    base: Verdict, ran: str, findings: str, open_points: tuple[str, ...]
) -> None:
    imports = ImportOrders(*_RAN[ran], _FINDINGS[findings], open_points)
    report = reported(base, imports)
    wanted: Verdict
    if base not in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        wanted = base  # a violation is one, whatever else ran, and what nobody knows stays unknown
    elif findings in ("certain", "both"):
        wanted = Verdict.ORDER_DEPENDENT
    elif open_points or findings == "possible":
        wanted = Verdict.NO_VIOLATION_FOUND
    else:
        wanted = Verdict.ORDER_INDEPENDENT if ran == "all" else base
    assert report.exploration.verdict is wanted
    assert report.standing == ("torch-2.13", imports.text)
    assert report.imports == imports
    assert report.as_expected == (wanted in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND))
    assert (_OPEN in report.exploration.notes) == (open_points == (_OPEN,) and wanted is Verdict.NO_VIOLATION_FOUND)
    text = report_view(report).text()
    assert f"verdict: {wanted} (torch-2.13; {imports.text})\n" in text
    assert ("\ndepends on the order of imports: kernel of mine::foo at CPU\n" in text) == (_FOUND in imports.findings)
    assert ("\nmay depend on the order of imports: module a: global seen\n" in text) == (_POSSIBLE in imports.findings)


@pytest.mark.parametrize("modules", [1, 2])
@pytest.mark.parametrize("base", Verdict)
def test_a_record_of_one_order_is_no_proof(base: Verdict, modules: int) -> None:
    report = reported(base, None, modules=modules)
    is_weaker = base in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
    assert report.exploration.verdict is (Verdict.NO_VIOLATION_FOUND if is_weaker else base)
    assert report.standing == ("torch-2.13", "1 import order ran")
    note = (
        "a b ran in one order of imports, and may register something else in another one: record again without --once, "
        "or check with --orders 24"
    )
    assert report.exploration.notes == ((note,) if is_weaker else ())


@pytest.mark.parametrize("base", [Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND])
def test_one_module_alone_is_nothing_to_permute(base: Verdict) -> None:
    report = reported(base, ImportOrders(1, 1), modules=1)
    assert report.exploration.verdict is Verdict.NO_VIOLATION_FOUND
    assert report.exploration.notes == ("there is nothing to permute: one module registers when a b is imported",)
    assert "the one order in which these modules can be imported ran" in report.verdict_text
    assert reported(base, ImportOrders(1, 1, (_FOUND,)), modules=1).exploration.verdict is Verdict.ORDER_DEPENDENT


def test_orders_that_ran_prove_nothing_of_free_orders_of_another_pytorch_or_of_the_live_engine() -> None:
    scenario = replace(
        with_imports(""),
        imports=ImportOrders(2, 2),
        modules=(Module("a", (0,)), Module("b", (1,))),
        semantics="torch-2.13",
    )
    found = Exploration(
        Verdict.NO_VIOLATION_FOUND, walk="program", registrations=2, sets=4, states=4, edges=4, orders=2, modules=2
    )
    own, other = LabEngine("torch-2.13"), LabEngine("torch-2.7")
    assert report_of(scenario, own, found).exploration.verdict is Verdict.ORDER_INDEPENDENT
    for walk in ("graph", "sample", "orders", "covering"):
        weaker = replace(found, walk=walk)
        assert report_of(scenario, own, weaker).exploration.verdict is Verdict.NO_VIOLATION_FOUND, walk
    assert report_of(scenario, other, found).exploration.verdict is Verdict.NO_VIOLATION_FOUND


def test_the_one_order_of_two_modules_is_a_proof() -> None:
    report = reported(Verdict.NO_VIOLATION_FOUND, ImportOrders(1, 1))
    one = "the one order in which these modules can be imported ran"
    assert report.verdict_text == f"order-independent (torch-2.13; {one})"


def test_under_strict_the_line_says_both() -> None:
    report = reported(Verdict.ORDER_INDEPENDENT, ImportOrders(24, 1200), semantics="strict")
    standing = "strict, an idealised dispatcher; 24 of 1,200 import orders ran"
    assert report.verdict_text == f"order-independent ({standing})"
    uncounted = reported(Verdict.ORDER_INDEPENDENT, ImportOrders(24, 0), semantics="strict").standing
    assert uncounted == ("strict, an idealised dispatcher", "24 of very many import orders ran")


def test_json_has_the_orders() -> None:
    value = json.loads(report_view(reported(Verdict.ORDER_INDEPENDENT, ImportOrders(2, 2, (_FOUND,), (_OPEN,)))).json())
    finding = {
        "what": _FOUND.what,
        "expected": ["a", "b"],
        "actual": ["b", "a"],
        "before": "1",
        "after": "2",
        "sites": ["a.py:1"],
        "certain": True,
    }
    assert value["imports"] == {"ran": 2, "of": 2, "findings": [finding], "open": [_OPEN]}
    assert value["standing"] == ["torch-2.13", "2 of 2 import orders ran"]
    assert json.loads(report_view(reported(Verdict.ORDER_INDEPENDENT, None)).json())["imports"] is None


@pytest.mark.parametrize("modules", ["modules:\n  a: [0]\n  b: [1]\n", ""])
def test_a_record_without_its_orders_is_no_proof_whether_it_has_modules_or_not(modules: str) -> None:
    text = f"claim: A.\nsemantics: torch-2.13\npackages: [a, b]\n{modules}{REGISTRATIONS}"
    checked = check_order(parse_scenario(text))
    assert checked.verdict is Verdict.NO_VIOLATION_FOUND
    assert checked.report.standing == ("torch-2.13", "1 import order ran")
    whole = check_order(parse_scenario(text.replace("registrations:", "imports: {ran: 2, of: 2}\nregistrations:")))
    assert whole.verdict is Verdict.ORDER_INDEPENDENT
    alone = check_order(parse_scenario(text.replace("packages: [a, b]\n", "")))
    assert (alone.verdict, alone.report.standing) == (Verdict.ORDER_INDEPENDENT, ())
