"""Properties of scenarios: planted violations and such that hold, on every engine and walk, against a brute force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.limits import later_masks
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.properties import Checked, Statement, check_statements
from dispatchlab.prover.protocol import Engine, Sandbox
from dispatchlab.prover.result import Mode, Standing
from dispatchlab.prover.run_sequence import on_sandboxes
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkName, WalkOptions
from dispatchlab.questions.order.properties import check_properties, statement_of
from dispatchlab.scenario import Scenario, ScenarioError, parse_scenario, scenario_text
from dispatchlab.scenario.properties import FALLTHROUGH, NOTHING, CallDoes, IsRefused, KernelIsActive, Property, RowRuns
from tests.command_line import run
from tests.coupled_engines import CoupledEngine, Coupling, coupled_engine
from tests.effort import share
from tests.random_scenarios import random_scenario

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")

THREE = """
- {def: foo(Tensor x) -> Tensor, debug: def_foo}
- {impl: foo, dispatch: CUDA, debug: fn_cuda}
- {impl: foo, dispatch: CPU, debug: fn_cpu}
"""
TWICE = """
- {impl: foo, dispatch: CPU, debug: fn_1}
- {impl: foo, dispatch: CPU, debug: fn_2}
"""
DEFS = """
- {def: foo(Tensor x) -> Tensor, debug: def_1}
- {def: foo(Tensor x) -> Tensor, debug: def_2}
- {impl: foo, dispatch: CPU, kernel: "(Tensor _0) -> Tensor _0", debug: fn_cpu}
"""
STALE = """
- {impl: foo, dispatch: CompositeImplicitAutograd, debug: fn_math}
- {impl: foo, dispatch: CompositeExplicitAutograd, debug: fn_default}
"""
MISFIT = """
- {def: "foo(Tensor x, Tensor y) -> Tensor", debug: def_foo}
- {impl: foo, dispatch: CPU, kernel: "(Tensor _0) -> Tensor _0", debug: fn_one}
- {impl: bar, dispatch: CPU, debug: fn_bar}
"""
FALLBACKS = """
- {fallback: boxed, dispatch: XLA, debug: fallback_xla}
- {impl: foo, dispatch: XLA, debug: fn_xla}
- {impl: bar, dispatch: XLA, debug: bar_xla}
- {def: foo(Tensor x) -> Tensor, debug: def_foo}
"""
LAYERS = """
- {def: foo(Tensor x) -> Tensor, debug: def_foo}
- {impl: foo, kernel: "(Tensor _0) -> Tensor _0", debug: fn_math}
- {impl: foo, dispatch: CPU, kernel: "(Tensor _0) -> Tensor _0", debug: fn_cpu}
- {impl: foo, dispatch: Autograd, kernel: "(Tensor _0) -> Tensor _0", debug: fn_autograd}
- {impl: foo, dispatch: AutogradCPU, kernel: "(Tensor _0) -> Tensor _0", debug: fn_autogradcpu}
"""

VIOLATED = [  # registrations, property, the sequence that shows it
    (THREE, "always: {row: CUDA, runs: fn_cuda}", "(nothing)"),
    (THREE, "always: {row: CUDA, runs: fn_cuda}, while: 2", "+2"),
    (THREE, "never: {row: CPU, runs: nothing}, while: [0, 1]", "+0 +1"),
    (THREE, "never: {call: cpu requires_grad, raises: true}, while: 0", "+0"),
    (THREE, "never: {call: cuda, raises: true}, while: [0, 2]", "+0 +2"),
    (THREE, "always: {call: cpu, runs: fn_cpu}, while: 2", "+2"),
    (THREE, "eventually: {row: CUDA, runs: nothing}, while: 2", "+0 +1 +2"),
    (THREE, "eventually: {kernel: fn_cpu}, without: 0", "+0 +1 +2"),
    (THREE, "always: {refused: 0}", "+0"),
    (THREE, "eventually: {refused: 1}", "+0 +1 +2"),
    (TWICE, "always: {row: CPU, runs: fn_1}, while: 0", "+0 +1"),
    (TWICE, "always: {row: CPU, runs: fn_2}, while: 1", "+1 +0"),
    (TWICE, "never: {kernel: fn_2, at: CPU}, while: 0", "+0 +1"),
    (TWICE, "always: {kernel: fn_1, at: CPU}, while: [0, 1]", "+0 +1"),
    (TWICE, "eventually: {row: CPU, runs: fn_2}, while: 0", "+1 +0"),
    (DEFS, "never: {refused: 1}", "+0 +1"),
    (DEFS, "always: {refused: 0, kind: duplicate_def}, without: 1", "+0"),
    (DEFS, "never: {refused: 0, kind: duplicate_def}, while: 2", "+1 +2 +0"),
    (DEFS, "eventually: {kernel: fn_cpu}, while: [0, 1]", "+0 +1 +2"),
    (STALE, "never: {row: NestedTensorCPU, runs: fn_math}, while: 1", "+0 +1"),
    (STALE, "never: {row: AutogradCPU, runs: fn_math}, while: [0, 1]", "+0 +1"),
    (STALE, "always: {row: [NestedTensorCPU, NestedTensorCUDA], runs: nothing}, while: 1", "+0 +1"),
    (MISFIT, "never: {refused: 1, kind: schema_mismatch}", "+0 +1"),
    (MISFIT, "never: {refused: 0}, while: 2", "+1 +2 +0"),
    (MISFIT, "eventually: {kernel: fn_one, of: foo}, while: 0", "+0 +1 +2"),
    (FALLBACKS, "always: {row: XLA, runs: fallback_xla, of: foo}, while: [0, 3]", "+0 +1 +3"),
    (FALLBACKS, "never: {row: XLA, runs: bar_xla, of: bar}, while: 0", "+0 +2"),
    (FALLBACKS, "eventually: {row: XLA, runs: fallback_xla, of: foo}, while: 3", "+0 +1 +3 +2"),
    (LAYERS, "always: {row: AutogradCPU, runs: fn_autograd}, while: [2, 3]", "+2 +3 +4"),
    (LAYERS, "never: {call: cuda, raises: true}, while: 0, without: 3", "+0"),
]
HOLDING = [
    (THREE, "always: {row: CUDA, runs: fn_cuda}, while: 1"),
    (THREE, "never: {row: CUDA, runs: fn_cuda}, without: 1"),
    (THREE, "never: {call: cpu requires_grad, raises: true}, while: [0, 2]"),
    (THREE, "always: {call: cpu requires_grad, runs: fn_cpu}, while: [0, 2]"),
    (THREE, "always: {call: cpu, raises: true}, without: 0"),
    (THREE, "eventually: {kernel: fn_cpu, at: CPU}"),
    (THREE, "eventually: {row: [CPU, CUDA], runs: nothing}"),
    (THREE, "never: {refused: 2}"),
    (THREE, "always: {kernel: fn_cuda}, while: 1"),
    (TWICE, "never: {row: CPU, runs: nothing}, while: 0"),
    (TWICE, "eventually: {row: CPU, runs: fn_1}"),
    (TWICE, "always: {row: CPU, runs: fn_1}, while: 0, without: 1"),
    (TWICE, "never: {row: CUDA, runs: fn_2}"),
    (DEFS, "always: {refused: 1, kind: duplicate_def}, while: 0"),
    (DEFS, "never: {refused: 2}"),
    (DEFS, "never: {refused: 1}, without: 0"),
    (DEFS, "eventually: {kernel: fn_cpu, at: CPU}"),
    (DEFS, "always: {call: cpu, runs: fn_cpu}, while: [0, 2]"),
    (STALE, "always: {row: Undefined, runs: fn_default}, while: 1, without: 0"),
    (STALE, "never: {row: CPU, runs: nothing}, while: 0"),
    (STALE, "eventually: {kernel: fn_default, at: CompositeExplicitAutograd}"),
    (MISFIT, "always: {refused: 1, kind: schema_mismatch}, while: 0"),
    (MISFIT, "never: {row: CPU, runs: fn_one, of: foo}, while: 0"),
    (MISFIT, "always: {row: CPU, runs: fn_bar, of: bar}, while: 2"),
    (FALLBACKS, "always: {row: XLA, runs: fn_xla, of: foo}, while: 1"),
    (FALLBACKS, "always: {row: XLA, runs: fallback_xla, of: foo}, while: [0, 3], without: 1"),
    (FALLBACKS, "never: {row: XLA, runs: nothing, of: bar}, while: [0, 2]"),
    (LAYERS, "always: {row: AutogradCPU, runs: fn_autogradcpu}, while: 4"),
    (LAYERS, "always: {row: CUDA, runs: fn_math}, while: 1"),
    (LAYERS, "always: {row: AutogradCUDA, runs: fn_autograd}, while: 3, without: 1"),
]


def scenario_of(registrations: str, *properties: str) -> Scenario:
    lines = [f"- {{{one}}}" for one in properties]
    return parse_scenario("\n".join(["claim: A sentence.", "properties:", *lines, "registrations:", registrations]))


class Sandboxes:
    """The lab engine without its states, as the live one is."""

    name = "sandboxes"

    def __init__(self, semantics: str) -> None:
        self._engine = LabEngine(semantics)
        self.semantics = semantics

    def sandbox(self) -> AbstractContextManager[Sandbox]:
        return self._engine.sandbox()


# -- a brute force that knows nothing of walks


def _sequences(count: int, length: int) -> Iterator[StepSequence]:
    return product([step for index in range(count) for step in (index, ~index)], repeat=length)


class Brute:
    """Runs sequences one by one in fresh sandboxes, by rules of its own."""

    def __init__(self, engine: Engine, registrations: tuple[Registration, ...], operators: tuple[OperatorName, ...]):
        self.sessions = on_sandboxes(engine, distinguished(registrations), operators)
        self.count = len(registrations)
        self.trace = cache(self._trace)

    def _trace(self, sequence: StepSequence) -> list[tuple[int, Any, int | None, Refusal | None]] | None:
        """The set, what is seen, and the attempt after each step; None where a step cannot be taken."""
        mask, seen = 0, list[tuple[int, Any, int | None, Refusal | None]]()
        with self.sessions() as session:
            seen.append((0, session.look(), None, None))
            for step in sequence:
                bit = 1 << max(step, ~step)
                if bool(mask & bit) is (step >= 0):
                    return None
                if step < 0:
                    session.release(~step)
                    mask ^= bit
                    seen.append((mask, session.look(), None, None))
                else:
                    refusal = session.register(step)
                    mask |= 0 if refusal else bit
                    seen.append((mask, session.look(), step, refusal))
        return seen

    def shortest(self, statement: Statement, most: int, order: tuple[int, ...] = ()) -> int | None:
        """The length of the shortest sequence of at most so many steps that violates a property."""
        later = later_masks(self.count, order)
        if statement.mode is Mode.EVENTUALLY:
            for sequence in permutations(range(self.count)):
                places = [sequence.index(index) for index in order]
                if places == sorted(places) and not self._ever(statement, sequence):
                    return self.count
            return None
        wrong = statement.mode is Mode.NEVER
        for length in range(most + 1):
            for sequence in _sequences(self.count, length):
                trace = self.trace(sequence)
                if trace is None:
                    continue
                masks = [mask for mask, *_ in trace]
                if any(step >= 0 and later[step] & masks[at] for at, step in enumerate(sequence)):
                    continue
                if self._at(statement, trace, length) is wrong:
                    return length
        return None

    def _ever(self, statement: Statement, sequence: StepSequence) -> bool:
        trace = self.trace(sequence)
        assert trace is not None
        return any(value is True for at in range(len(trace)) for value in self._both(statement, trace, at))

    def _at(self, statement: Statement, trace: list[tuple[int, Any, int | None, Refusal | None]], at: int) -> object:
        values = [value for value in self._both(statement, trace, at) if value is not None]
        return values[0] if values else None

    def _both(
        self, statement: Statement, trace: list[tuple[int, Any, int | None, Refusal | None]], at: int
    ) -> tuple[bool | None, bool | None]:
        mask, look, index, refusal = trace[at]
        state = attempt = None
        if (
            statement.of_look is not None
            and mask & statement.during == statement.during
            and not mask & statement.without
        ):
            state = statement.of_look(look)
        if statement.of_attempt is not None and index is not None and index == statement.attempt:
            before = trace[at - 1][0]
            if before & statement.during == statement.during and not before & statement.without:
                attempt = statement.of_attempt(refusal)
        return state, attempt


# -- planted


@pytest.mark.parametrize(("registrations", "stated", "sequence"), VIOLATED)
def test_a_planted_violation_is_found_with_the_shortest_sequence(
    registrations: str, stated: str, sequence: str
) -> None:
    scenario = scenario_of(registrations, stated)
    engine = LabEngine("torch-2.13")
    (statement,) = [statement_of(one, "torch-2.13") for one in scenario.properties]
    brute = Brute(engine, scenario.registrations, scenario.operators)
    walks: tuple[tuple[Any, WalkName], ...] = ((engine, "auto"), (engine, "graph"), (Sandboxes("torch-2.13"), "auto"))
    for each, walk in walks:
        (found,) = check_properties(each, scenario, WalkOptions(walk=walk))
        assert found.standing is Standing.VIOLATED
        assert found.sequence is not None
        assert len(found.sequence) == brute.shortest(statement, len(found.sequence))
        assert not found.note
        if walk == "auto" and each is engine:
            assert format_sequence(found.sequence) == sequence


@pytest.mark.parametrize(("registrations", "stated"), HOLDING)
def test_what_holds_is_proved_where_states_can_be_kept(registrations: str, stated: str) -> None:
    scenario = scenario_of(registrations, stated)
    walks: tuple[tuple[Any, WalkName, Standing], ...] = (
        (LabEngine("torch-2.13"), "auto", Standing.HOLDS),
        (LabEngine("torch-2.13"), "graph", Standing.HOLDS),
        (LabEngine("torch-2.13"), "orders", Standing.HOLDS),
        (Sandboxes("torch-2.13"), "auto", Standing.NO_VIOLATION_FOUND),
        (LabEngine("torch-2.13"), "sample", Standing.NO_VIOLATION_FOUND),
    )
    for engine, walk, standing in walks:
        if walk == "orders" and len(scenario.registrations) > 4:
            continue
        (found,) = check_properties(engine, scenario, WalkOptions(walk=walk, samples=100))
        assert (found.standing, found.sequence, found.tested > 0) == (standing, None, True), walk


def test_there_are_thirty_of_either() -> None:
    assert len(VIOLATED) >= 30
    assert len(set(HOLDING)) >= 30


def test_of_modules_the_orders_of_imports_are_those_that_count() -> None:
    stated = [
        "- {always: {row: CPU, runs: fn_a}, while: [1, 2]}\n- {eventually: {row: CPU, runs: fn_b}}",
        "- {never: {row: CPU, runs: fn_b}, while: 0}\n- {never: {refused: 2}}",
    ]
    scenario = parse_scenario(
        "claim: A sentence.\nmodules: {a: [0, 1], b: [2]}\nproperties:\n" + "\n".join(stated) + "\nregistrations:\n"
        "- {def: foo(Tensor x) -> Tensor}\n- {impl: foo, dispatch: CPU, debug: fn_a}\n"
        "- {impl: foo, dispatch: CPU, debug: fn_b}"
    )
    engines: tuple[Any, ...] = (LabEngine("torch-2.13"), Sandboxes("torch-2.13"))
    for engine in engines:
        found = check_properties(engine, scenario, DEFAULT_WALK, program=scenario.program)
        assert [one.sequence for one in found] == [(0, 1, 2), None, (2, 0), None]
        free = check_properties(engine, scenario, DEFAULT_WALK)
        assert [one.sequence and len(one.sequence) for one in free] == [2, None, 2, None]


def test_a_property_that_is_about_no_state_does_not_hold() -> None:
    scenario = scenario_of(
        DEFS, "always: {row: CPU, runs: fn_cpu}, while: [0, 1]", "never: {refused: 2}, while: [0, 1]"
    )
    for engine in (LabEngine("strict"), Sandboxes("strict")):
        found = check_properties(engine, scenario, DEFAULT_WALK)
        assert [(one.standing, one.holds) for one in found] == [(Standing.NEVER_TESTED, False)] * 2
    bound = check_properties(LabEngine("strict"), scenario, WalkOptions(max_states=2))
    assert {one.standing for one in bound} == {Standing.INCOMPLETE}


# -- generated


def random_property(random: SplitMix64, scenario: Scenario) -> Property:
    count = len(scenario.registrations)
    debugs = [one.debug for one in scenario.registrations if hasattr(one, "debug")] or [NOTHING]
    picked = [index for index in range(count) if random.chance(35)]
    during = tuple(index for index in picked if random.chance(60))
    without = tuple(index for index in picked if index not in during)
    operator = scenario.operators[random.below(len(scenario.operators))]
    debug = debugs[random.below(len(debugs))]
    mode = tuple(Mode)[random.below(3)]
    keys = ("CPU", "CUDA", "AutogradCPU", "AutogradOther", "SparseCPU", "Undefined", "QuantizedCPU", "FPGA")
    key = DispatchKey[keys[random.below(len(keys))]]
    match random.below(5):
        case 0 | 1:
            runs = (debug, debug, NOTHING, FALLTHROUGH)[random.below(4)]
            return Property(mode, RowRuns(operator, (key,), runs), during, without)
        case 2:
            return Property(mode, KernelIsActive(operator, debug), during, without)
        case 3:
            call = CallDoes(operator, ("cpu requires_grad",), None if random.chance(50) else debug)
            return Property(mode, call, during, without)
        case _:
            index = random.below(count)
            return Property(mode, IsRefused(index), tuple(one for one in during if one != index), without)


def _brief(found: Checked) -> tuple[bool, int | None]:
    return found.standing is Standing.VIOLATED, None if found.sequence is None else len(found.sequence)


@pytest.mark.parametrize("seed", range(share(400)))
def test_generated_properties_have_the_shortest_violation_on_every_walk(seed: int) -> None:
    semantics, registrations, operators, order = random_scenario(seed, 3, refused=seed % 3 == 0)
    scenario = Scenario("A sentence.", registrations, operators, order=order)
    random = SplitMix64(seed)
    properties = [random_property(random, scenario) for _ in range(6)]
    statements = [statement_of(one, semantics) for one in properties]
    engine = LabEngine(semantics)
    about = registrations, operators, statements
    whole = check_statements(engine, *about, WalkOptions(walk="graph"), order=order)
    parts = check_statements(engine, *about, DEFAULT_WALK, order=order)
    apart = check_statements(Sandboxes(semantics), *about, DEFAULT_WALK, order=order)
    brute = Brute(engine, registrations, operators)
    for one, full, some, live, statement in zip(properties, whole, parts, apart, statements, strict=True):
        assert _brief(full) == _brief(some) == _brief(live), (str(one), full, some, live)
        assert not full.note or full.standing is Standing.NEVER_TESTED
        length = brute.shortest(statement, min(4, len(full.sequence or (0,) * 4)), order)
        if full.sequence is None or len(full.sequence) > 4:
            assert length is None, (str(one), full)
        else:
            assert length == len(full.sequence), (str(one), full)
        if statement.mode is not Mode.EVENTUALLY:
            assert (full.tested == 0) == (some.tested == 0) == (live.tested == 0)


@pytest.mark.parametrize("seed", range(share(200)))
def test_parts_show_what_the_whole_shows(seed: int) -> None:
    """Several operators, a fallback that meets them all, and properties about one or several of them."""
    random = SplitMix64(1_000 + seed)
    _, one, _, _ = random_scenario(2_000 + seed, 3)
    text = "".join(f"- {{impl: other_{at}, dispatch: {('CPU', 'CUDA')[at % 2]}, debug: o_{at}}}\n" for at in range(3))
    more = parse_scenario(f"claim: A.\nregistrations:\n{text}").registrations
    registrations = (*one, *more)
    operators = tuple(dict.fromkeys(name for each in registrations for name in _named(each)))
    scenario = Scenario("A sentence.", registrations, operators)
    statements = [statement_of(random_property(random, scenario), "torch-2.13") for _ in range(8)]
    engine = LabEngine("torch-2.13")
    whole = check_statements(engine, registrations, operators, statements, WalkOptions(walk="graph"))
    parts = check_statements(engine, registrations, operators, statements)
    assert list(map(_brief, whole)) == list(map(_brief, parts))
    for full, some in zip(whole, parts, strict=True):
        assert full.standing is some.standing


@pytest.mark.parametrize("seed", range(share(400)))
def test_parts_that_meet_in_secret_are_walked_together(seed: int) -> None:
    """Engines with a coupling that they do not declare: a property of parts that meet is checked on the whole."""
    engine: Any = coupled_engine(seed)
    engine.sandbox = LabEngine(engine.semantics).sandbox  # which has no coupling: what is found need not show there
    scenario = Scenario("A sentence.", engine.registrations, engine.operators)
    random = SplitMix64(seed)
    statements = [statement_of(random_property(random, scenario), "torch-2.13") for _ in range(6)]
    about = engine.registrations, engine.operators, statements
    whole = check_statements(engine, *about, WalkOptions(walk="graph"))
    parts = check_statements(engine, *about)
    assert list(map(_brief, whole)) == list(map(_brief, parts))
    assert [one.standing for one in whole] == [one.standing for one in parts]


def test_a_part_that_writes_into_another_one_is_not_left_out() -> None:
    """The kernel of bar empties a slot of foo, which a walk of the part of foo alone never sees."""
    scenario = parse_scenario(
        "claim: A sentence.\nproperties:\n- {always: {row: CPU, runs: fn_foo, of: foo}, while: 0}\nregistrations:\n"
        "- {impl: foo, dispatch: CPU, debug: fn_foo}\n- {impl: bar, dispatch: CPU, debug: fn_bar}"
    )
    (statement,) = [statement_of(one, "torch-2.13") for one in scenario.properties]
    coupling = Coupling("operators", "empties", 1, 0, "test::foo", 1 << DispatchKey.CPU.slot)
    about = scenario.registrations, scenario.operators
    engine: Any = CoupledEngine("torch-2.13", *about, (), coupling)
    engine.sandbox = LabEngine("torch-2.13").sandbox
    for walk in ("graph", "auto"):
        (found,) = check_statements(engine, *about, [statement], WalkOptions(walk=walk))
        assert (found.standing, found.sequence) == (Standing.VIOLATED, (0, 1)), walk


def _named(one: Registration) -> tuple[OperatorName, ...]:
    from dispatchlab.model.registration import operators_of

    return tuple(operators_of(one))


# -- files and the command


def test_a_scenario_with_properties_is_written_and_read_again() -> None:
    stated = [one for registrations, one, _ in VIOLATED if registrations is LAYERS]
    scenario = scenario_of(LAYERS, *stated, "never: {refused: 2, kind: schema_mismatch}, while: 0, without: [1, 3]")
    assert parse_scenario(scenario_text(scenario)).properties == scenario.properties


BAD = [
    ("- always: {row: CUDA, runs: cude}", "5:31: no kernel of this scenario has the debug text 'cude'"),
    ("- always: {row: CUDA, runs: fn_cude}", "did you mean fn_cuda?"),
    ("- always: {row: CUDB, runs: fn_cuda}", "5:19: expected a dispatch key but found 'CUDB'; did you mean CUDA?"),
    ("- alway: {row: CUDA}", "5:5: 'alway' is not a field of a property; did you mean always?"),
    ("- always: {rov: CUDA}", "5:13: expected a mapping with one of row, kernel, call, refused; did you mean row?"),
    ("- never: {refused: 7}", "5:22: there is no registration 7; they are 0 to 2"),
    ("- always: {row: CUDA}", "5:13: `runs` is missing"),
    ("- {always: {kernel: fn_cpu}, never: {refused: 1}}", "5:5: expected one of `always`, `never` and `eventually`"),
    ("- always: {call: cpu, raises: true, of: bar}", "5:43: test::bar is not observed; did you mean test::foo?"),
    ("- {always: {kernel: fn_cpu}, while: 1, without: [1]}", "5:51: 1 is in `while` and in `without`"),
    ("- {never: {refused: 1}, while: 1}", "5:34: 1 is in force then, and nothing registers it again"),
    ("- always: {kernel: fn_cpu, runs: x}", "5:30: 'runs' is not a field of a property of a kernel"),
    ("- never: {refused: 1, kind: schema_mismach}", "5:31: expected a kind of refusal but found 'schema_mismach'"),
    ("- always: {call: cpu}", "5:13: expected one of `runs` and `raises` for a call"),
    ("- always: 3", "5:13: expected a mapping with one of row, kernel, call, refused"),
    ("[]", "4:13: expected a list of properties"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), BAD)
def test_what_is_wrong_with_a_property_is_said_with_its_place(text: str, error: str) -> None:
    field = f"properties: {text}" if text == "[]" else f"properties:\n  {text}"
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"claim: A sentence.\nnamespace: test\n\n{field}\nregistrations:\n{THREE}", file="a.yaml")
    assert (error if error.startswith("did") else f"a.yaml:{error}") in str(caught.value)


def test_the_command_reports_properties_and_ends_with_what_they_came_to(tmp_path: Path) -> None:
    path = tmp_path / "stated.yaml"
    good = "- {always: {row: CUDA, runs: fn_cuda}, while: 1}"
    bad = "- {always: {row: CUDA, runs: fn_cuda}, while: 2}"
    for stated, code in ((good, 0), (f"{good}\n{bad}", 1)):
        path.write_text(f"claim: A sentence.\nproperties:\n{stated}\nregistrations:{THREE}")
        done = run("permute", str(path), "--format", "text")
        assert done.exit_code == code
        assert "property holds: always: CUDA of test::foo runs fn_cuda, while 1 (tested 4 times)\n" in done.stdout
        assert ("violating sequence: +2\n" in done.stdout) is bool(code)
        assert f"as expected: {'no' if code else 'yes'}\n" in done.stdout
        for form in ("rich", "markdown"):
            done = run("permute", str(path), "--format", form)
            assert (done.exit_code, "CUDA of test::foo runs fn_cuda" in done.stdout) == (code, True)
    done = run("permute", str(path), "--format", "json")
    assert '"standing": "violated", "tested": 1, "sequence": "+2"' in done.stdout
    path.write_text(f"claim: A.\nproperties:\n- never: {{call: gpu, raises: true}}\nregistrations:{THREE}")
    done = run("permute", str(path))
    assert (done.exit_code, "the property of test::foo(gpu) raises" in done.stderr) == (2, True)
