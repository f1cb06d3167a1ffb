"""The plain text that golden files hold."""

from __future__ import annotations

import re
from dataclasses import replace

from expecttest import assert_expected_inline

from dispatchlab.escape import printable
from dispatchlab.model.keys import BACKENDS
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import NameOnly
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.result import Conflict, Counterexample, Expectation, Exploration, Flaw, Verdict
from dispatchlab.questions.dump.operator_text import operator_text
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.golden import golden_text
from dispatchlab.questions.order.reasons import Reason, conflict_text
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import summary
from dispatchlab.views.formatting import digits, key_names, readable, seconds

FOO = OperatorName("test", "foo")
SEEN = Snapshot(
    FOO,
    dump="name: test::foo\nschema: (none)\nCPU: fn_b :: (none) [ boxed ]\n",
    table="CPU: fn_b [kernel]\nCUDA: fn_math [math kernel]\nAutogradCPU: fn_b [kernel]\n",
    slots="CPU: fn_a [kernel]\nCUDA: fn_math [math kernel]\n",
)
INDEPENDENT = Report(
    scenario="scenarios/five.yaml",
    claim="It does not matter.",
    engine="lab",
    semantics="strict",
    registrations=("def test::foo(Tensor x) -> Tensor", "impl test::foo CPU (a)", "impl test::foo CPU (b)"),
    expected=Expectation.ORDER_INDEPENDENT,
    exploration=Exploration(Verdict.ORDER_INDEPENDENT, "graph", 3, 8, 9, 24, 36, elapsed_s=0.0421, notes=("A note.",)),
    as_expected=True,
    exit_code=0,
)
TOLD = Counterexample(Flaw.NON_COMMUTING, (1, 2), (2, 1), "--- one\n+++ other\n-a\n+b\n", ("the newest wins",))
DEPENDENT = replace(
    INDEPENDENT,
    exploration=replace(
        INDEPENDENT.exploration, verdict=Verdict.ORDER_DEPENDENT, counterexample=TOLD, seed=7, passes=8
    ),
    as_expected=False,
    exit_code=1,
    reason=Reason("a and b both set the CPU kernel of test::foo; the later one wins", "drop one of the two", (1, 2)),
)


def test_a_proof_is_its_verdict_with_the_model_and_the_claim() -> None:
    assert_expected_inline(
        report_view(INDEPENDENT).text(),
        """\
scenarios/five.yaml: order-independent (model: strict, an idealised dispatcher), as expected
claim: It does not matter.
""",
    )
    assert_expected_inline(
        report_view(INDEPENDENT, details=True).text(),
        """\
scenarios/five.yaml: order-independent (model: strict, an idealised dispatcher), as expected
claim: It does not matter.
note: A note.
What was explored
  registrations: 3
  sets: 8
  states: 9
  edges: 24
  orders: 36
  engine: lab, strict
  walk: graph
  reductions: none
  elapsed: 42.1 ms
    0 def test::foo(Tensor x) -> Tensor
    1 impl test::foo CPU (a)
    2 impl test::foo CPU (b)
""",
    )


def test_a_violation_begins_with_its_cause_and_its_fix() -> None:
    assert_expected_inline(
        report_view(DEPENDENT).text(),
        """\
scenarios/five.yaml: order-dependent (model: strict, an idealised dispatcher), NOT as expected: order-independent
cause: a and b both set the CPU kernel of test::foo; the later one wins
fix: drop one of the two
claim: It does not matter.
one order (-): +1 +2
  +1 impl test::foo CPU (a)
  +2 impl test::foo CPU (b)
the other order (+): +2 +1
  +2 impl test::foo CPU (b)
  +1 impl test::foo CPU (a)

differs: one
-a
+b
""",
    )


def test_a_sequence_that_is_at_fault_by_itself_is_shown_once() -> None:
    counterexample = Counterexample(Flaw.INVARIANT, (1,), (1,), "")
    text = report_view(
        replace(DEPENDENT, exploration=replace(DEPENDENT.exploration, counterexample=counterexample))
    ).text()
    assert text.count("order: +1") == 1
    assert "differs" not in text


WORDS_OF_THE_PROVER = re.compile(
    r"\b(sets|edges|components|walk|reductions|conflicts|never accepted|sandbox|neighbourhoods|footprints|patterns)\b"
)


def test_the_words_of_the_prover_stand_in_the_details_alone() -> None:
    for report in (INDEPENDENT, DEPENDENT):
        assert WORDS_OF_THE_PROVER.findall(report_view(report).text()) == []
        assert WORDS_OF_THE_PROVER.findall(report_view(report, details=True).text())


def test_a_golden_text_holds_nothing_that_changes_from_run_to_run() -> None:
    assert_expected_inline(
        golden_text(INDEPENDENT, [SEEN, Snapshot(OperatorName("test", "bar"), "", "")], keys=["CPU", "AutogradCPU"]),
        """\
claim: It does not matter.
expected: order-independent
verdict: order-independent (model: strict, an idealised dispatcher)
sets: 8
states: 9
edges: 24
orders: 36
conflicts: none
never accepted: none

name: test::foo
schema: (none)
CPU: fn_b :: (none) [ boxed ]

CPU: fn_b [kernel]
AutogradCPU: fn_b [kernel]

slots that calls use, where they differ from the table:
CPU: fn_a [kernel]
AutogradCPU: nothing

name: test::bar
nothing is registered for it
""",
    )
    later = replace(INDEPENDENT, exploration=replace(INDEPENDENT.exploration, elapsed_s=9.0, notes=()))
    assert golden_text(later, [SEEN]) == golden_text(INDEPENDENT, [SEEN])


def test_an_operator_is_its_dump_an_empty_line_and_its_table() -> None:
    assert operator_text(SEEN) == f"{SEEN.dump}\n{SEEN.table}"
    assert operator_text(SEEN, keys=["CUDA"]) == f"{SEEN.dump}\nCUDA: fn_math [math kernel]\n"


def test_conflicts_say_who_excludes_whom() -> None:
    found = INDEPENDENT.exploration
    registrations = [NameOnly(OperatorName("test", f"op{number}")) for number in range(6)]
    one = Conflict((4,), "unknown_key", "no such key")
    never = replace(found, never_accepted=(4,))
    assert conflict_text(one, never, registrations) == "name test::op4 is always refused (unknown_key): no such key"
    assert conflict_text(one, found, registrations).startswith(
        "name test::op4 is refused unless another registration comes first"
    )
    two = Conflict((0, 3), "duplicate_def", "twice", asymmetric=True)
    assert conflict_text(two, found, registrations) == (
        "name test::op0 and name test::op3 cannot be registered together, because the last one is refused in every "
        "order (duplicate_def; another order raises another error): twice"
    )


def test_the_summary_counts_what_was_expected_what_was_not_and_what_could_not_be_used() -> None:
    assert summary(1, as_expected=1) == "1 scenario: 1 as expected"
    assert summary(1_200, as_expected=1_198, unreadable=2) == (
        "1,202 scenarios: 1,198 as expected, 2 not, 2 could not be read"
    )
    assert summary(0, as_expected=0, not_explored=3) == "3 scenarios: 0 as expected, 3 not explored"


def test_large_numbers_have_all_their_digits_for_programs_and_few_for_people() -> None:
    large = 10**9_000 + 7
    assert digits(large) == f"1{'0' * 8_999}7"
    assert [digits(number) for number in (0, 14_400, 10**4_000)] == ["0", "14400", f"1{'0' * 4_000}"]
    assert [readable(number) for number in (0, 14_400, 10**15 - 1)] == ["0", "14,400", "999,999,999,999,999"]
    assert [readable(number) for number in (10**15, 43 * 10**25 - 1, 10**27 - 1, large)] == [
        "about 1.0e+15",
        "about 4.2e+26",
        "about 9.9e+26",
        "about 1.0e+9000",
    ]


def test_durations_are_shown_in_the_unit_that_suits_them() -> None:
    assert [seconds(value) for value in (0.000421, 0.5, 2.84, 725.4)] == ["0.421 ms", "500 ms", "2.84 s", "12 min 5 s"]


def test_control_characters_are_spelled_out() -> None:
    assert printable("a\x1b[31m\tb\nc\u202e é") == "a\\x1b[31m\\tb\nc\\u202e é"


def test_keys_of_all_backends_are_one_phrase() -> None:
    sparse = [f"Sparse{name}" for name in ("CPU", "CUDA")]
    backends = list(BACKENDS)
    assert key_names(["Undefined", *backends, "FPGA", "Metal", *sparse]) == [
        *("Undefined", "every backend", "FPGA", "Metal", "SparseCPU", "SparseCUDA"),
    ]
    assert key_names([name for name in backends if name != "XLA"]) == ["every backend (not XLA)"]
    assert key_names([f"Autograd{name}" for name in backends]) == ["every Autograd backend"]
    assert key_names([f"Quantized{name}" for name in backends[2:]]) == ["every Quantized backend (not CPU, CUDA)"]
    assert key_names(backends[:8]) == backends[:8]


def test_a_note_of_several_lines_stays_one_note() -> None:
    noted = replace(INDEPENDENT, notes=("They differ:\n--- a\n+++ b",))
    assert report_view(noted).text().endswith("note: They differ:\n  --- a\n  +++ b\n")
