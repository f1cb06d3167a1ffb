"""What the application shows and reads, without an application."""

from __future__ import annotations

from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explore.session import InteractiveSession, RowChange
from dispatchlab.questions.explore.session_subject import Subject, runner_for, subject_of_operator, subject_of_scenario
from dispatchlab.questions.explore.texts import (
    around_head,
    explanation_lines,
    neighbour_text,
    registration_texts,
    sequence_texts,
    short_source,
    table_text,
)
from dispatchlab.registries.file import open_named
from dispatchlab.scenario import parse_scenario


def opened(text: str) -> tuple[Subject, InteractiveSession]:
    subject = subject_of_scenario(parse_scenario(text))
    return subject, InteractiveSession(
        runner_for(subject), len(subject.registrations), subject.operators, start=subject.start
    )


TWO = (
    "{claim: A., semantics: strict, registrations: [{def: foo(Tensor x) -> Tensor, debug: d}, "
    "{impl: foo, dispatch: CPU, debug: a}, "
    "{impl: foo, dispatch: CPU, debug: b}, {def: foo() -> (), debug: e}]}"
)


def test_what_a_registry_without_kernels_for_a_backend_shows_is_called_no_answer() -> None:
    subject = subject_of_operator(open_named("torch-2.13-cpu"), "aten::add.Tensor", source="torch-2.13-cpu")
    session = InteractiveSession(
        runner_for(subject), len(subject.registrations), subject.operators, start=subject.start
    )
    view = session.moment.seen(subject.operators[0]).view
    cuda, cpu = (
        explanation_lines(explain(view, describe_arguments(schema_of(view), call), thread_keys()), subject).plain
        for call in (["cuda", "cuda"], ["cpu"])
    )
    assert cuda.startswith("no answer for CUDA: torch-2.13-cpu is of PyTorch 2.13.0+cpu, which has no kernels for it; ")
    assert cpu.startswith("1. AutogradCPU  VariableType_2.cpp:10455  [autograd kernel]\n2. CPU  RegisterCPU_0.cpp:1297")


def test_a_source_location_loses_its_folders_and_other_texts_lose_nothing() -> None:
    assert short_source("registered at /a/b/RegisterCPU_0.cpp:12") == "RegisterCPU_0.cpp:12"
    assert short_source("registered at a/x.py:1 [backend fallback]") == "x.py:1 [backend fallback]"
    assert short_source("either/or </title> [red]") == "either/or </title> [red]"


def test_signs_say_what_is_in_force_and_what_was_refused() -> None:
    subject, session = opened(TWO)
    assert [line.plain for line in registration_texts(subject, session.moment)] == [
        "● 0 def  d",
        "● 1 CPU  a",
        "● 2 CPU  b",
        "✗ 3 def  e",
    ]
    session.toggle(1)
    assert [line.plain for line in sequence_texts(subject, session.moment)] == [
        "+0 def  d",
        "+1 CPU  a",
        "+2 CPU  b",
        "+3 def  ✗ duplicate_def  e",
        "-1 CPU  a",
    ]
    assert registration_texts(subject, session.moment)[1].plain == "○ 1 CPU  a"


def test_the_table_marks_what_changed_with_what_was_there() -> None:
    subject, session = opened(TWO)
    session.toggle(2)
    (name,) = subject.operators
    view = session.moment.seen(name).view
    assert session.changes(name) == (RowChange("CPU", "b [kernel]", "a [kernel]"),)
    assert table_text(name, view, session.changes(name), session.action).plain == (
        "test::foo(Tensor x) -> Tensor\n\n-2 changed 1 row\n▸ CPU\n  - b [kernel]\n  + a [kernel]\n\n▸ CPU  a"
    )


def test_each_step_to_a_neighbour_says_what_it_changes() -> None:
    subject, session = opened(TWO)
    (name,) = subject.operators
    around = session.around(name, range(4))
    assert around_head(around, subject).plain.startswith(
        "here {0 1 2}\n≠ one of 2 states of this set: the order in which it was registered matters. Another:\n+0 +2 +1"
    )
    assert [neighbour_text(one, subject).plain for one in around.neighbours] == [
        "─▸ -0  0 rows  def",
        "─▸ -1  0 rows  CPU",
        "─▸ -2  1 row  CPU",
        "─▸ +3  ✗ duplicate_def  def",
    ]


def test_a_kernel_that_only_stale_slots_hold_is_not_said_to_run_for_no_key() -> None:
    _, session = opened(
        "{claim: A., semantics: torch-2.13, registrations: [{def: foo(Tensor x) -> Tensor, debug: d}, "
        "{impl: foo, dispatch: CompositeImplicitAutograd, debug: implicit}, "
        "{impl: foo, dispatch: CompositeExplicitAutograd, debug: explicit}]}"
    )
    (operator,) = session.operators
    text = table_text(operator, session.moment.seen(operator).view, (), "").plain
    assert "runs for no key" not in text
    assert "CompositeImplicitAutograd  implicit\n  still run by calls of every NestedTensor backend, " in text
