"""Compare the verdict of `permute` on a record with orders of its calls, each made in a process of its own.

What agreement means, so that it can fail:

- A verdict that the order does not matter agrees when all orders leave the same, to the character: no call is refused,
  each operator has the same dump and the same table, each registry of Python the same entries in force. Which call made
  what is part of all of these, since each call has a name of its own in dumps and functions of its own.
- Where the verdict has conflicts, calls may be refused. Then orders that accept the same calls leave the same, and what
  is refused is in some conflict.
- A verdict that the order matters agrees when the two sequences of its counterexample differ in one of these, in
  processes of their own, too.

A random order has any two calls both ways round in some of 20 orders, but for one chance in 2**19: what depends on two
calls alone is found. Beside the verdict, each order is a prediction of the lab engine: which calls are refused, and
which call is in force in each slot of each operator and in each entry of Python. That is `differences`.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, NameOnly, PythonImpl, Registration, operators_of
from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.run_sequence import SandboxSession
from dispatchlab.scenario.scenario import Scenario
from tests.live.fresh_orders import mark

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What an order of calls left.

    Args:
        refused: by call, what PyTorch said.
        shown: by operator, its dump and its table.
        python: the entries of the registries of Python: registry, operator, key, function, whether it is in force.
    """

    refused: Mapping[int, str]
    shown: Mapping[str, tuple[str, str]]
    python: tuple[tuple[object, ...], ...]


class FreshRun(NamedTuple):
    """Orders that were made in processes of their own.

    Args:
        given: the calls that nobody makes: defs of operators that PyTorch has.
        outcomes: what each order left.
    """

    given: tuple[int, ...]
    outcomes: tuple[Outcome, ...]


def fresh_run(record: Path, orders: Sequence[StepSequence], *, python: str = sys.executable) -> FreshRun:
    """Make the calls of a record in these orders, each in a process of its own."""
    done = subprocess.run(
        [python, "-m", "tests.live.fresh_orders"],
        input=json.dumps({"record": str(record), "orders": orders}),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    answer = json.loads(done.stdout)
    return FreshRun(tuple(answer["given"]), tuple(map(_outcome, answer["outcomes"])))


def _outcome(made: Mapping[str, Any]) -> Outcome:
    return Outcome(
        {int(number): text for number, text in made["refused"].items()},
        {name: (dump, table) for name, (dump, table) in made["shown"].items()},
        tuple(map(tuple, made["python"])),
    )


def import_orders(scenario: Scenario, count: int, *, seed: int = 0) -> list[StepSequence]:
    """Random orders in which the modules of a record can be imported, with the calls in program order.

    Where the record has no modules, all orders of its calls are meant.
    """
    program, numbers = scenario.program, SplitMix64(seed)
    if program is None:
        return all_orders(scenario, count, seed=seed)
    return [program.random_order(numbers) for _ in range(count)]


def all_orders(scenario: Scenario, count: int, *, seed: int = 0) -> list[StepSequence]:
    """Random orders of all calls of a record."""
    numbers, calls = random.Random(seed), len(scenario.registrations)
    return [tuple(numbers.sample(range(calls), calls)) for _ in range(count)]


def verdict(record: Path, *options: str, python: str = sys.executable) -> dict[str, Any]:
    """What `permute` says of a record."""
    done = subprocess.run(
        [python, "-m", "dispatchlab", "permute", str(record), "--format", "json", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def disagreements(found: Mapping[str, Any], run: FreshRun, counterexample: FreshRun | None) -> Iterator[str]:
    """Where the verdict of `permute` and orders in fresh processes disagree, a sentence each. See the module.

    Args:
        found: the verdict, as `verdict` gives it.
        run: random orders.
        counterexample: the two sequences of the counterexample, where the verdict has one.
    """
    if found["verdict"] == "order-dependent":
        assert counterexample is not None
        left, right = counterexample.outcomes
        if left == right:
            yield "the two sequences of the counterexample leave the same"
        return
    if found["verdict"] not in ("order-independent", "no violation found"):
        yield f"there is no verdict: {found['verdict']}"
        return
    may_be_refused = {member for conflict in found["conflicts"] for member in conflict["members"]}
    may_be_refused.update(found["never_accepted"])
    first: dict[frozenset[int], Outcome] = {}
    for number, outcome in enumerate(run.outcomes):
        for call in sorted(outcome.refused.keys() - may_be_refused):
            yield f"order {number}: call {call} is refused: {outcome.refused[call]}"
        expected = first.setdefault(frozenset(outcome.refused), outcome)
        for what in ("shown", "python"):
            if getattr(outcome, what) != getattr(expected, what):
                yield f"order {number} leaves something else: {_first_difference(expected, outcome)}"
                break


def _first_difference(left: Outcome, right: Outcome) -> str:
    for name, shown in left.shown.items():
        if right.shown[name] != shown:
            return f"{name}: {shown} and {right.shown[name]}"
    return f"{sorted(set(left.python) ^ set(right.python), key=str)[:4]}"


# -- the prediction of the lab


def predicted(scenario: Scenario, given: Sequence[int], order: StepSequence, semantics: str) -> Outcome:
    """What the lab engine says that an order leaves, in the same terms."""
    marked = [_marked(one, number) for number, one in enumerate(scenario.registrations)]
    operators = scenario.operators
    with LabEngine(semantics).sandbox() as sandbox:
        session = SandboxSession(sandbox, marked, operators)
        refused = {}
        for number in (*given, *(each for each in order if each not in given)):
            refusal = session.register(number)
            if refusal is not None:
                refused[number] = refusal.message
        snapshots, _ = session.look()
    shown = {str(one.operator): (one.dump, one.table) for one in snapshots}
    python = [line for one in snapshots for line in _python_lines(str(one.operator), one.python)]
    return Outcome(refused, shown, tuple(sorted(python, key=str)))


def _marked(one: Registration, number: int) -> Registration:
    """With the text that dumps of a fresh process show."""
    text = f"registered at {mark(number)}:1"
    match one:
        case Block():
            inner = tuple(replace(each, debug=text) for each in one.registrations)
            return replace(one, registrations=inner, debug=text)
        case PythonImpl():
            return replace(one, shown=text)
        case NameOnly():
            return one
    return replace(one, debug=text)


def _python_lines(operator: str, text: str) -> Iterator[tuple[object, ...]]:
    for line in text.splitlines():
        where, _, what = line.partition(": ")
        yield operator, where, _call_in(what)


_CALL = re.compile(r"call[-_](\d{4})")
_TYPES = re.compile(r" :: .*? \[ .* \]$")
_BUILTIN = re.compile(r"registered at (?!call-).*")


def _call_in(text: str) -> str:
    found = _CALL.search(text)
    return text if found is None else f"call {int(found[1])}"


def _lines(text: str, *, own: bool) -> list[str]:
    """The lines of a dump or a table, without the types of kernels; those of the calls alone where PyTorch has more."""
    lines = [_BUILTIN.sub("builtin", _TYPES.sub("", line)) for line in text.splitlines()]
    return [line for line in lines if _CALL.search(line)] if own else lines


def differences(scenario: Scenario, given: Sequence[int], made: Outcome, lab: Outcome) -> Iterator[str]:
    """Where the lab engine predicts something else than an order left, a sentence each."""
    calls = scenario.registrations
    for call in sorted(made.refused.keys() ^ lab.refused.keys()):
        who = "PyTorch" if call in made.refused else "the lab"
        text = made.refused.get(call) or lab.refused.get(call)
        yield f"{who} alone refuses call {call}, {calls[call]!r}: {text}"
    of_torch = {str(operator) for each in given for operator in operators_of(calls[each])}
    of_torch |= {str(one.operator) for one in calls if isinstance(one, PythonImpl) and not one.needs_def}
    for name, texts in lab.shown.items():
        for what, ours, theirs in zip(("dump", "table"), texts, made.shown[name], strict=True):
            left, right = (_lines(text, own=name in of_torch) for text in (ours, theirs))
            if left != right:
                here, there = sorted(set(left) - set(right)), sorted(set(right) - set(left))
                yield f"{what} of {name}: the lab has {here}, PyTorch {there}"
