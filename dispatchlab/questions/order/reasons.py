"""The reason of a verdict: which registrations meet, what decides between them, and the smallest change that helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, NamedTuple

from dispatchlab.model.registration import Block, Def, Fallback, Impl, Registration, describe, inner_of, shown_text
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import TABLES, main_key
from dispatchlab.prover.checker import diff_sections
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Conflict, Counterexample, Expectation, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import compare_sequences, on_sandboxes, run
from dispatchlab.questions.order.fixes import Change, Fixes, find_fixes, is_definition, near, outcomes
from dispatchlab.registries.debug_text import keys_text, owner
from dispatchlab.scenario.scenario import Scenario

FLAWS = {
    Flaw.NON_COMMUTING: "two orders of the same registrations lead to different states",
    Flaw.UNDO: "a release left something behind",
    Flaw.RESIDUE: "a refusal left something behind",
    Flaw.OUTCOME: "the outcome of a registration depends on the order",
    Flaw.ASYMMETRY: "which of them is refused depends on the order",
    Flaw.INVARIANT: "an invariant does not hold after these registrations, in whatever order",
    Flaw.RELEASE: "a release failed",
    Flaw.CRASH: "the engine crashed",
    Flaw.NONDETERMINISTIC: "the same sequence gave two results",
}
"""What each flaw means, in a sentence."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a verdict.

    Args:
        cause: the operator, the key and what happens there, with the source location of each registration.
        fix: the smallest change that removes the difference.
        registrations: the numbers of the registrations that cause it.
        more: sentences about other differences with the same reason.
        changes: the changes that were tried and help, each alone.
    """

    cause: str
    fix: str
    registrations: tuple[int, ...] = ()
    more: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


def reason_of(
    scenario: Scenario, found: Exploration, *, as_expected: bool, engine: Engine | None = None
) -> Reason | None:
    """Return the reason of a verdict; None for an expected one without a counterexample.

    Args:
        scenario: the scenario.
        found: what was found.
        as_expected: whether the verdict is as expected.
        engine: an engine on which changes and refusals can be tried; None for none.
    """
    if found.counterexample is not None:
        return _Pair(scenario, found.counterexample, engine).reason()
    if as_expected:
        return None
    refused = [conflict_text(conflict, found, scenario.registrations) for conflict in found.conflicts]
    if found.verdict not in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        cause = next(reversed(found.notes), f"the exploration ended with the verdict {found.verdict}")
        return Reason(cause, "raise the bound that was hit (--max-states or --timeout), or name a smaller scenario")
    if scenario.expect is Expectation.ORDER_INDEPENDENT and refused:
        members = found.conflicts[0].members
        fix = "drop it" if len(members) == 1 else "keep one of them"
        return Reason(refused[0], f"{fix}, or write `expect: refused` into the scenario", members, tuple(refused[1:]))
    if scenario.expect is Expectation.ORDER_INDEPENDENT and found.never_accepted:
        (first, *_) = found.never_accepted
        cause = f"{describe(scenario.registrations[first])} is refused in every order"
        return Reason(cause, "drop it, or write `expect: refused` into the scenario", found.never_accepted)
    is_refused = bool(found.conflicts or found.never_accepted)
    cause = "no order leads to another state" + ("" if is_refused else ", and nothing is refused")
    return Reason(cause, f"write `expect: {'refused' if is_refused else 'order-independent'}` into the scenario")


def conflict_text(conflict: Conflict, found: Exploration, registrations: Sequence[Registration]) -> str:
    """Return the registrations that exclude each other, and the engine's message; one refused alone may come later."""
    names = [_name(registrations[member]) for member in conflict.members]
    if len(names) == 1:
        is_done = found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
        always = conflict.members[0] in found.never_accepted or not is_done
        who = f"{names[0]} is always refused" if always else f"{names[0]} is refused unless others come before it"
    else:
        who = f"{', '.join(names[:-1])} and {names[-1]} exclude one another"
    blame = "; the last one decides the error" if conflict.asymmetric else ""
    return f"{who} ({conflict.kind}{blame}): {conflict.message}"


# -- the two sequences of a counterexample


_STALE: Final = re.compile(
    r"^\+(?P<operator>\S+): stale slot: the slot of (?P<key>\w+) holds (?P<held>.+?) and should hold (?P<wanted>.+?)"
    r"(?: \(with .*: (?P<count>\d+) slots\))?$",
    re.MULTILINE,
)
_FALL_THROUGH: Final = "go on to the next key"
_NOT_REFRESHED: Final = "refreshed: calls use the old entry"
_MODULES: Final = " (in the file: `modules:`)"
_AFTERWARDS: Final = (
    (r" is there after the other order alone", " stays"),
    (r" is (.+) after the other order alone", r" stays \1"),
    (r" is .+ after one order alone", " is gone"),
)
"""What a difference is where the other sequence is longer, and not in another order."""


class _Stale(NamedTuple):
    """Stale slots of an operator: by key, what each should hold and what it holds; the kernel at each other key."""

    operator: str
    slots: dict[str, tuple[str, str]]
    size: int
    kernels: dict[str, str]

    @property
    def keys(self) -> str:
        """The operator and the keys of these slots."""
        return f"{self.operator} at {keys_text(main_key(list(self.slots)), self.size)}"

    def actions(self, side: int) -> str:
        """Return what calls do by what the slots should hold (0) or hold (1)."""
        keys_of: dict[str, list[str]] = {}
        main = main_key(list(self.slots))
        for key in (main, *(key for key in self.slots if key != main)):
            keys_of.setdefault(_what_calls_do(self.slots[key][side]), []).append(key)
        if _FALL_THROUGH in keys_of:
            keys = keys_of.pop(_FALL_THROUGH)
            backend = main_key(keys).removeprefix("Autograd")
            keys_of = {f"fall through to {self.kernels.get(backend, 'the kernel')} at {backend}": keys, **keys_of}
        if len(keys_of) == 1:
            return next(iter(keys_of))
        texts = (f"{action} (for {keys_text(main_key(keys), len(keys))})" for action, keys in keys_of.items())
        return " and ".join(texts)


def _cause(text: str, members: Sequence[int], more: Sequence[str] = ()) -> Reason:
    return Reason(text, "", tuple(members), tuple(more))


class _Pair:
    """A counterexample with the registrations that its steps stand for.

    Args:
        scenario: the scenario.
        example: the counterexample.
        engine: an engine on which changes and refusals can be tried; None for none.
    """

    def __init__(self, scenario: Scenario, example: Counterexample, engine: Engine | None) -> None:
        self.scenario, self.registrations, self.example = scenario, scenario.registrations, example
        self.engine = engine

    def reason(self) -> Reason:
        example = self.example
        match example.flaw:
            case Flaw.OUTCOME | Flaw.ASYMMETRY:
                cause = self._refused() or self._other_state()
            case Flaw.CRASH | Flaw.RELEASE | Flaw.NONDETERMINISTIC:
                last = example.actual_sequence[-1]
                which = self._names((max(last, ~last),))
                verb = "release" if last < 0 else "register"
                rows = [row[1:] for _, section in diff_sections(example.diff) for row in section if row[0] == "+"]
                said = "; ".join(example.why) or "".join(rows[1:2])
                end = {Flaw.CRASH: "ends the engine", Flaw.RELEASE: "fails"}.get(example.flaw, "gives two results")
                text = f"to {verb} {which} {end}{f': {said}' * bool(said)}"
                return Reason(text, f"do not {verb} {which}", tuple(example.registrations))
            case Flaw.UNDO | Flaw.RESIDUE:
                cause = self._left_behind()
            case Flaw.NON_COMMUTING | Flaw.INVARIANT:
                cause = self._other_state()
        members = cause.registrations
        fixes = Fixes() if self.engine is None else find_fixes(self.engine, self.scenario, example, members)
        return replace(cause, fix=self._fix(members, fixes), changes=fixes.changes)

    # -- two states

    def _other_state(self) -> Reason:
        stale, (first, *more) = self._stale(self.example), self._differences() or [FLAWS[self.example.flaw]]
        parts = self._parts()
        if stale is not None:
            kernels = tuple(at for at in parts if self._kernels(at, stale.operator)) or parts
            owners = [kernel for index in kernels for kernel in self._kernels(index, stale.operator)]
            if self.example.flaw is Flaw.NON_COMMUTING and len(owners) == 2:
                return self._stale_pair(kernels)
            ran = [self._names((at,)) for at in dict.fromkeys(self.example.actual_sequence) if at in kernels]
            text = (
                f"calls of {stale.keys} should {stale.actions(0)}, "
                f"but after {' and then '.join(ran)} they {stale.actions(1)}"
            )
            return _cause(text, kernels, self._differences())
        functions = {_function(self.registrations[index]): index for index in parts}
        if functions.keys() == {"custom_op", "register_kernel"}:
            kernel, custom_op = (self._names((functions[name],)) for name in ("register_kernel", "custom_op"))
            text = f"{kernel} after {custom_op} goes into the library of that custom_op and is released with it"
            return _cause(f"{text}; before it, the kernel has a library of its own", parts, (first, *more))
        named = [index for index in parts if (text := owner(shown_text(self.registrations[index]))) and text in first]
        members = tuple(named if len(named) > 1 else parts)
        if functions.keys() == {"custom_op"}:
            text = f"{self._names(members)} have one name; the later one destroys all that the earlier one registered"
            return _cause(text, members, (first, *more))
        if len(named) < 2:
            first = f"{first}; {self._names(members)} come in another order"
        if self.scenario.modules:
            first = first.replace("the later one wins", "the later import wins")
        return _cause(first, members, more)

    def _stale_pair(self, kernels: Sequence[int]) -> Reason:
        """Return the cause where the order of two kernels decides what calls run, and no table shows it."""
        example, others, absent = self._with_others()
        stale = self._stale(example)
        assert stale is not None
        named = {index: self._kernels(index, stale.operator) for index in kernels}
        kept, silent = (
            "{} ({})".format(*named[next(step for step in sequence if step in named)][0])
            for sequence in (example.actual_sequence, example.expected_sequence)
        )
        about = f"without {self._names(absent)}, " if absent else ""
        about = f"beside {self._names(others)}, " if others else about
        text = (
            f"{about}{silent} does not refresh the slots of {stale.keys}: after {kept}, calls there still "
            f"{stale.actions(1)}; before it, they {stale.actions(0)}; PyTorch's dump shows the second result in both"
        )
        return _cause(f"{text} orders", kernels, self._differences())

    def _with_others(self) -> tuple[Counterexample, tuple[int, ...], tuple[int, ...]]:
        """Return the counterexample beside all other kernels of its operators; those kernels; those that hide it."""
        example, met = self.example, self.example.registrations
        others = tuple(at for at in near(self.scenario, met) if at not in met)
        if self.engine is None or self.scenario.modules or not others:
            return example, (), ()
        kernels = tuple(at for at in others if not is_definition(self.registrations[at]))
        sessions = on_sandboxes(self.engine, self.registrations, self.scenario.operators)
        sequences = example.expected_sequence, example.actual_sequence
        for first, last in ((others, ()), ((), others)):
            beside = compare_sequences(sessions, *((*first, *sequence, *last) for sequence in sequences))
            if beside is not None and beside.flaw is example.flaw and self._stale(beside) is not None:
                return beside, kernels, ()
        return example, (), kernels

    # -- what a release or a refusal leaves

    def _left_behind(self) -> Reason:
        example, last = self.example, self.example.actual_sequence[-1]
        stale, differences = self._stale(example), self._differences()
        first, *more = differences or [FLAWS[example.flaw]]
        if stale is not None:
            first, more = f"calls of {stale.keys} should {stale.actions(0)}, but {stale.actions(1)}", differences
        for label, now in _AFTERWARDS:
            first = re.sub(label, now, first)
        steps = [step for step in dict.fromkeys(example.actual_sequence) if step >= 0]
        refused = self._refusals(example.actual_sequence)
        if example.flaw is Flaw.RESIDUE and (last >= 0 or refused):
            who, why = next(iter(refused.items()), (last, "")) if last not in refused else (last, refused[last])
            before = steps[: steps.index(who)]
            after = f" after {self._names(before)}" if before else ""
            made = [step for step in before if _function(self.registrations[step]) == "custom_op"]
            if made and _function(self.registrations[who]) == "custom_op":
                first, more = f"all that {self._names(made)} registered is destroyed", [first, *more]
            if not before and isinstance(self.registrations[who], Def):
                why = re.sub(
                    r"the kernel \(.*?\) at (\w+) does not fit the schema of \S+ \(.*?\)",
                    r"its kernel at \1 does not fit its own schema",
                    why,
                )
            text = f"{self._names((who,))} is refused{after}{f': {why}' * bool(why)}"
            return _cause(f"{text}; the refusal comes too late: {first}", (who,), more)
        released = [~step for step in example.actual_sequence if step < 0 and step not in example.expected_sequence]
        released = released or [~step for step in example.actual_sequence if step < 0]
        others = [step for step in steps if step not in released and not is_definition(self.registrations[step])]
        beside = f" while {self._names(others)} is registered" if stale is not None and others else ""
        text = f"after the release of {self._names(released)}{beside}, {first}"
        if isinstance(fallback := self.registrations[released[0]], Fallback):
            alike = [
                at for at, one in enumerate(self.registrations) if isinstance(one, Fallback) and one.key == fallback.key
            ]
            if len(alike) > 1:
                meet = f"{self._names(alike)} are at one key, where the newest replaces the others"
                text, released = f"{meet}; after the release of one of them, {first}", alike
        return _cause(text, tuple(dict.fromkeys((*released, *self._parts()))), tuple(more))

    # -- refusals

    def _refused(self) -> Reason | None:
        """Return the cause where one of the sequences ends with a refusal; None where no engine repeats it."""
        bad, good = self.example.expected_sequence, self.example.actual_sequence
        refusals = self._refusals(bad)
        if bad[-1] not in refusals:
            bad, good, refusals = good, bad, self._refusals(good)
        if (last := bad[-1]) not in refusals:
            return None
        accepted, parts, who = self._refusals(good).get(good[-1]), self._parts(), self._names((last,))
        earlier = tuple(step for step in bad if step >= 0 and step in parts and step != last)
        after = f" after {self._names(earlier)}" if earlier else f" in the order {format_sequence(bad)}"
        members = tuple(dict.fromkeys((*parts, last)))
        if accepted is not None and (bad + good).count(last) > 2:  # it is tried again in one of them
            met = tuple(step for step in dict.fromkeys(good) if step >= 0 and step != last)
            after = f" after {self._names(met)}" if met else ""
            key = re.search(r"^\+  key: (\w+)$", self.example.diff, re.MULTILINE)
            left = "but it leaves something behind: a second try is refused" + f": {accepted}" * (not key)
            left = (
                f"before the refusal it is set at {key[1]}, and stays there: a second try is refused at that key"
                if key
                else left
            )
            text = f"{who} is refused{after}: {refusals[last]}; {left}"
            return _cause(text, (*met, last))
        if accepted is not None:
            reasons = f"{refusals[last]}; {accepted}"
            return _cause(f"{who} is refused in both orders, and for another reason in each: {reasons}", members)
        when = "before it" if earlier else f"in the order {format_sequence(good)}"
        if earlier and not any(index in good for index in earlier):
            when = "without it"
            itself = "; ".join(
                refusals[index].partition(" The def ")[0].rstrip(".") for index in earlier if index in refusals
            )
            if itself:
                left = f"{self._names(earlier)} is refused ({itself}), but its C++ signature stays"
                return _cause(f"{left}; after it, {who} is refused too: {refusals[last]}", members)
            after += ", which is released again" if all(~index in bad for index in earlier) else ""
        return _cause(f"{who} is refused{after}, and accepted {when}: {refusals[last]}", members)

    def _refusals(self, sequence: StepSequence) -> dict[int, str]:
        """Return the registrations of a sequence that are refused in it, with the reason of the last refusal."""
        if self.engine is None:
            return {}
        ran = outcomes(self.engine, self.scenario, sequence)
        refusals = {step: refusal.message for step, refusal in ran if refusal is not None}
        for one in self.registrations:
            if list(map(_name, self.registrations)).count(_name(one)) > 1:  # its text names another one, too
                refusals = {step: said.replace(f" ({shown_text(one)})", "") for step, said in refusals.items()}
        advice = r"(: a key has one fallback for all operators)?[:;] release the first.*$|: change one$"
        return {step: re.sub(advice, "", said) for step, said in refusals.items()}

    # -- the smallest change

    def _fix(self, members: Sequence[int], fixes: Fixes) -> str:
        """Return the changes that help, in words; what may help where none was tried."""
        words = [*self._drop(members, fixes), *self._keep(members, fixes)]
        if self.example.flaw is Flaw.UNDO:
            words.reverse()
        if not words:
            words = [f"drop {self._names(members)}" if len(members) == 1 else "keep one of them"]
        is_alone = self.example.registrations == [*members]
        if self.example.flaw is Flaw.RESIDUE and is_alone and all(len(one.dropped) == 1 for one in fixes.drops):
            words.append("correct what its refusal names")
        return ", or ".join(words) + ("" if fixes.is_whole else "; other registrations may differ as well")

    def _drop(self, members: Sequence[int], fixes: Fixes) -> Iterator[str]:
        dropped = [change.dropped for change in fixes.drops]
        every = sorted({index for indices in dropped for index in indices})
        if not dropped:
            return
        is_pair = len(members) == 2 and every == sorted(members) and len(dropped) == 2
        if is_pair and {_function(self.registrations[index]) for index in members} == {"custom_op"}:
            yield "drop or rename one of the two"
        elif is_pair:
            yield "drop one of the two"
        elif len(dropped) == len(every) > len(dropped[0]) == len(every) - 1 > 1:
            yield f"drop all but one of {self._names(every)}"
        else:
            text = f"drop {' or '.join(map(self._names, dropped))}"
            if len(dropped[0]) > 1:
                text += " (each alone still differs)" if len(dropped[0]) == 2 else " (fewer still differ)"
            for index, left in fixes.left.items() if len(dropped[0]) == 1 else ():
                if others := [at for at in left if at not in every and not is_definition(self.registrations[at])]:
                    text += f" (without {self._names((index,))}, {self._names(others)} still differs)"
            yield text

    def _keep(self, members: Sequence[int], fixes: Fixes) -> Iterator[str]:
        if fixes.order is None:
            return
        order, releases = fixes.order.order, fixes.order.releases
        if self.scenario.modules and fixes.is_free:
            yield "import one of these modules from the other, so that one order is left"
        elif self.scenario.modules:
            yield f"import the modules of {self._names(order)} in this order"
        elif not order:
            kernels = [at for at, one in enumerate(self.registrations) if not is_definition(one)]
            yield f"never release {self._names(members)}" if len(kernels) < 2 else f"release nothing{_MODULES}"
        elif releases and fixes.is_free:
            place = f"register {'both' if len(order) == 2 else 'all'} in one place"
            yield f"{place}{self._after_define(order)}, so that one order is left"
        else:
            names = [self._names((index,)) for index in order]
            kept = f"keep {' before '.join(names)}" if len(order) == 2 else f"keep this order: {', '.join(names)}"
            kept += self._after_define(order)
            yield kept if releases else f"{kept}, and release {'neither' if len(order) == 2 else 'none'}{_MODULES}"

    def _after_define(self, members: Sequence[int]) -> str:
        """Return `, after DEF`, for calls of torch.library that PyTorch refuses before the def of their operator."""
        calls = [at for at in members if _function(self.registrations[at]) not in ("", "define", "custom_op", "impl")]
        around = near(self.scenario, calls) if calls else ()
        defs = [at for at in around if at not in members and is_definition(self.registrations[at])]
        return f", after {self._names(defs)}" if defs else ""

    # -- parts

    def _stale(self, example: Counterexample) -> _Stale | None:
        found = _STALE.search(example.diff)
        if found is None:
            return None
        sections = dict(map(_entries, diff_sections(example.diff)))
        computed, slots = (sections.get(f"{found['operator']}, {title}", {}) for title in TABLES)
        stale = {key: entries for key, entries in slots.items() if computed.get(key) != entries}
        stale = stale or {found["key"]: (found["wanted"], found["held"])}
        return _Stale(found["operator"], stale, max(len(stale), int(found["count"] or 1)), self._kernels_after(example))

    def _kernels_after(self, example: Counterexample) -> dict[str, str]:
        """Return the kernel that calls run at each key after the second sequence; none without an engine."""
        if self.engine is None:
            return {}
        with on_sandboxes(self.engine, self.registrations, self.scenario.operators)() as session:
            list(run(session, example.actual_sequence))
            rows = [row for snapshot in session.look()[0] for row in (snapshot.slots or "").splitlines()]
        return {key: owner(entry).partition(" [")[0] for key, _, entry in (row.partition(": ") for row in rows)}

    def _differences(self) -> list[str]:
        """Return the engine's reasons for the difference, without stale slots; else the first row of each side."""
        known = [line for line in self.example.why if _NOT_REFRESHED not in line]
        if known or self._stale(self.example) is not None:
            return known
        for title, rows in diff_sections(self.example.diff):
            went, came = (next((row[1:] for row in rows if row[0] == mark), "nothing") for mark in "-+")
            return [f"{title} has {went} after one order and {came} after the other"]
        return []

    def _parts(self) -> tuple[int, ...]:
        """Return the registrations in another order in the second sequence; those with kernels if there are two."""
        first, second = (
            list(dict.fromkeys(max(step, ~step) for step in sequence))
            for sequence in (self.example.expected_sequence, self.example.actual_sequence)
        )
        pairs = combinations([index for index in first if index in second], 2)
        turned = {index for pair in pairs if second.index(pair[0]) > second.index(pair[1]) for index in pair}
        moved = [index for index in first if index in turned or index not in second]
        moved = moved or [index for index in second if index not in first] or first or second
        kernels = [index for index in moved if not is_definition(self.registrations[index])]
        return tuple(kernels if len(kernels) > 1 else moved)

    def _kernels(self, index: int, operator: str) -> list[tuple[object, str]]:
        """Return the key and the debug text of each kernel that a registration makes for an operator."""
        registration = self.registrations[index]
        namespace = registration.namespace or "" if isinstance(registration, Block) else ""
        return [
            (member.key or "CompositeImplicitAutograd", shown_text(member) or shown_text(registration))
            for member in inner_of(registration)
            if (isinstance(member, Impl) or (isinstance(member, Def) and member.kernel is not None))
            and str(member.operator.within(namespace)) == operator
        ]

    def _names(self, indices: Sequence[int]) -> str:
        every = list(map(_name, self.registrations))
        names = [f"{every[at]} (registration {at})" if every.count(every[at]) > 1 else every[at] for at in indices]
        names = list(dict.fromkeys(names))
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name(registration: Registration) -> str:
    """Return a registration with its origin: `impl test::foo CPU (fast.py:12)`."""
    if isinstance(registration, Def):
        debug = shown_text(registration)
        return f"def {registration.operator}{f' ({owner(debug)})' * bool(debug)}"
    return describe(registration).replace("(registered at ", "(")


def _function(registration: Registration) -> str:
    """Return the function of torch.library that makes a registration; empty for others."""
    made_by = registration.made_by if isinstance(registration, Block) else None
    return "" if made_by is None else made_by.function


def _what_calls_do(entry: str) -> str:
    """Return what calls do that find an entry of a table."""
    if "VariableFallbackKernel" in entry:
        return _FALL_THROUGH
    if "ambiguous" in entry:
        return "raise (ambiguous autogradother)"
    return "find no kernel" if entry == "nothing" else f"run {owner(entry).partition(' [')[0]}"


def _entries(section: tuple[str, Sequence[str]]) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the title of a section of a diff, and the entries of its rows before and after by key."""
    sides: tuple[dict[str, str], dict[str, str]] = {}, {}
    for row in section[1]:
        if row[0] in "-+":
            key, _, entry = row[1:].partition(": ")
            sides["-+".index(row[0])][key] = entry
    keys = dict.fromkeys((*sides[0], *sides[1]))
    return section[0], {key: (sides[0].get(key, "nothing"), sides[1].get(key, "nothing")) for key in keys}
