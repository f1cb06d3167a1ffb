"""The reason of a verdict: which registrations meet, what decides between them, and the smallest change that helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, NamedTuple

from dispatchlab.model.registration import (
    Block,
    Def,
    Fallback,
    Impl,
    Registration,
    describe,
    inner_of,
    operators_of,
    shown_text,
)
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import TABLES, main_key
from dispatchlab.prover.checker import diff_sections
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Conflict, Counterexample, Expectation, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import on_sandboxes, run
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
        ended = [note for note in found.notes if note.startswith(("stopped", "interrupted"))] or found.notes[-1:]
        cause = next(iter(ended), f"the exploration ended with the verdict {found.verdict}")
        advice = "let it end" if cause == "interrupted" else "raise the bound that was hit (--max-states or --timeout)"
        return Reason(cause, f"{advice}, or name a smaller scenario")
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
_REFUSED_DIFFERS: Final = "trying it and being refused differs from never trying it"
_OWN_SCHEMA: Final = (
    r"the kernel \(.*?\) at (\w+) does not fit the schema .* The def says [^(]+(\(.*), the kernel's type gives (.*)$"
)
_WAYS_OUT: Final = {
    "arguments and a dispatcher looks at": "pass some of its arguments as lists",
    "does not fit": "make its kernel and its schema fit",
}
"""What helps against a refusal, by a part of its text."""
_AFTERWARDS: Final = (
    (r" is there after the other order alone", " stays"),
    (r" is (.+) after the other order alone", r" stays \1"),
    (r" is .+ after one order alone", " is gone"),
    (r"^a refused fallback left others behind, at (.+)$", r"by then it is set at \1, and stays there"),
    (r"^custom_ops (\w+) of (\S+) by (.+) stays in Python$", r"the custom_op \2 keeps \3 as its \1"),
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

    @property
    def actions(self) -> tuple[str, str]:
        """What calls should do, and what they do."""
        texts = [self._actions(0), self._actions(1)]
        for at, text in enumerate(texts):
            if f"fall through to {text.removeprefix('run ')} at" in texts[1 - at]:
                texts[at] = f"{text} at the key itself"
        return texts[0], texts[1]

    def _actions(self, side: int) -> str:
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
        stale, (first, *more) = self._stale(), self._differences() or [FLAWS[self.example.flaw]]
        parts = self._parts()
        if stale is not None:
            about = tuple(at for at in parts if stale.operator in map(str, operators_of(self.registrations[at])))
            kernels = about or parts
            if self.example.flaw is Flaw.NON_COMMUTING and len(kernels) == 2:
                return self._stale_pair(stale, kernels)
            *before, last = dict.fromkeys(at for at in self.example.actual_sequence if at in kernels)
            wanted, held = stale.actions
            calls = f"calls there still {held}, and should {wanted}"
            text = f"{self._names((last,))} does not refresh the slots of {stale.keys}"
            if before and self.scenario.modules:
                text += f" when it comes after {self._names(before)}"
            elif before:
                text = f"{self._names(kernels)}, in whatever order, do not refresh the slots of {stale.keys}"
            return _cause(f"{text}: {calls}", kernels, self._differences())
        functions = {_function(self.registrations[index]): index for index in parts}
        if functions.keys() == {"custom_op", "register_kernel"}:
            kernel, custom_op = (self._names((functions[name],)) for name in ("register_kernel", "custom_op"))
            text = f"{kernel} after {custom_op} puts its kernel into the library of that custom_op, whose release takes"
            text += " the kernel along; before the custom_op, the kernel has a library of its own, and stays"
            return _cause(text, parts, (first, *more))
        named = [index for index in parts if (text := owner(shown_text(self.registrations[index]))) and text in first]
        members = tuple(named if len(named) > 1 else parts)
        if functions.keys() == {"custom_op"}:
            text = f"{self._names(members)} have the same name; the later one destroys all that the earlier one"
            return _cause(f"{text} registered", members, (first, *more))
        if brought := ", ".join(self._brought(first, members)):
            first = f"{first} ({brought})"
        elif len(named) < 2:
            first = f"{first}; the order of {self._names(members)} decides"
        if self.scenario.modules:
            first = first.replace("the later one wins", "the later import wins")
        return _cause(first, members, more)

    def _brought(self, text: str, members: Sequence[int]) -> Iterator[str]:
        """Yield which registration brings each kernel of a text, for those that are not registered alone."""
        for at in members:
            one = self.registrations[at]
            if isinstance(one, Impl):
                continue
            sites = {owner(shown_text(inner)) for inner in inner_of(one)}
            if isinstance(one, Def):
                name = f"the def of {one.operator}{f' ({owner(one.debug)})' * (owner(one.debug) not in text)}"
            else:
                name, sites = self._names((at,)), sites - {owner(shown_text(one))}
            if inside := [site for site in sorted(sites) if site in text]:
                yield f"{' and '.join(inside)} from {name}"

    def _stale_pair(self, stale: _Stale, kernels: Sequence[int]) -> Reason:
        """Return the cause where the order of two registrations decides what calls run, and no table shows it."""
        met = [at for at in dict.fromkeys(self.example.actual_sequence) if at in kernels]
        kept, silent = (self._names((at,)).removeprefix(f"impl {stale.operator} ") for at in met)
        kept, silent = (name.replace("(no key)", "CompositeImplicitAutograd") for name in (kept, silent))
        wanted, held = stale.actions
        text = (
            f"{silent} does not refresh the slots of {stale.keys}: if it comes after {kept}, calls there still {held}; "
            f"if it comes before, they {wanted}; PyTorch's dump shows the latter for both orders"
        )
        return _cause(text, kernels, self._differences())

    # -- what a release or a refusal leaves

    def _left_behind(self) -> Reason:
        example, last = self.example, self.example.actual_sequence[-1]
        stale, differences = self._stale(), self._differences()
        first, *more = differences or [FLAWS[example.flaw]]
        if stale is not None:
            first, more = "calls of {} should {}, but {}".format(stale.keys, *stale.actions), differences
        for label, now in _AFTERWARDS:
            first = re.sub(label, now, first)
        steps = [step for step in dict.fromkeys(example.actual_sequence) if step >= 0]
        refused = self._refusals(example.actual_sequence)
        if example.flaw is Flaw.RESIDUE and (last >= 0 or refused):
            who = last if last in refused else next(iter(refused), last)
            why, before = refused.get(who, ""), steps[: steps.index(who)]
            names, but, because = self._names((who,)), f"but {first}", [*before]
            if _function(self.registrations[who]) == "custom_op":
                made = [step for step in before if _function(self.registrations[step]) == "custom_op"]
                because, more = [step for step in before if step not in made], [first, *more]
                names += f" destroys all that {self._names(made)} registered, and"
                but = "nothing comes back"
            because = [step for step in because if not is_definition(self.registrations[step])] or because
            after = f" because of {self._names(because)}" if because else ""
            if not before and isinstance(self.registrations[who], Def):
                why = re.sub(_OWN_SCHEMA, r"its kernel at \1 takes \3, and its schema says \2", why)
            text = f"{names} is refused{after}: {why};" if after else f"{names} is refused{f' ({why})' * bool(why)},"
            text = f"{text} {but}: {_REFUSED_DIFFERS}"
            return _cause(text, (who,), more)
        released = [~step for step in example.actual_sequence if step < 0 and step not in example.expected_sequence]
        released = released or [~step for step in example.actual_sequence if step < 0]
        others = [step for step in steps if step not in released and not is_definition(self.registrations[step])]
        is_there = "is" if len(others) == 1 else "are"
        beside = f" while {self._names(others)} {is_there} registered" if stale is not None and others else ""
        text = f"after the release of {self._names(released)}{beside}, {first}"
        if isinstance(fallback := self.registrations[released[0]], Fallback):
            numbered = enumerate(self.registrations)
            alike = [at for at, one in numbered if isinstance(one, Fallback) and one.key == fallback.key]
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
        members = tuple(dict.fromkeys((*parts, last)))
        if accepted is not None and (bad + good).count(last) > 2:  # it is tried again in one of them
            met = tuple(step for step in dict.fromkeys(good) if step >= 0 and step != last)
            after = f" after {self._names(met)}" if met else ""
            key = re.search(r"^\+  key: (\w+)$", self.example.diff, re.MULTILINE)
            left = f"a second try is refused: {accepted}"
            if key and isinstance(self.registrations[last], Fallback):
                debug = owner(shown_text(self.registrations[last]))
                left = f"by then {debug} is set at {key[1]}, an earlier key of the alias, and stays there"
            text = f"{who} is refused{after}, because {refusals[last]}; but {left}: {_REFUSED_DIFFERS}"
            return _cause(text, (*met, last))
        if accepted is not None:
            texts = []
            for order, reason in ((bad, refusals[last]), (good, accepted)):
                before = " and then ".join(self._names((at,)) for at in order[:-1] if at >= 0) or "nothing"
                texts.append(f"{self._names(order[-1:])} is refused after {before}: {reason}")
            end = "; only the reasons differ" if good[-1] == last else ""
            return _cause("; ".join(texts) + end, members)
        if not earlier:
            needed = tuple(step for step in good if step >= 0 and step != last)
            text = f"{who} is refused unless {self._names(needed)} comes before it: {refusals[last]}"
            return _cause(text, (*needed, last))
        after, when = f" after {self._names(earlier)}", "before it"
        if not any(index in good for index in earlier):
            when = "without it"
            itself = "; ".join(
                refusals[index].partition(" The def ")[0].rstrip(".") for index in earlier if index in refusals
            )
            stays = "its C++ signature" if "C++ signature" in refusals[last] else "what it did"
            left = f"{self._names(earlier)} is refused ({itself}), but {stays} stays; afterwards" if itself else ""
            if not itself and all(~index in bad for index in earlier):
                left = f"{self._names(earlier)} is released, but {stays} stays; afterwards"
            if left:
                return _cause(f"{left} {who} is refused because of it: {refusals[last]}", members)
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
        advice = (
            r"( and a second \(.*?\) is refused)?(: a key has one fallback for all operators)?[:;] release the first.*$"
            r"|: change one$|: pass some of them as lists$"
        )
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
            why = "".join(self._refusals(self.example.actual_sequence).values())
            ways = (way for said, way in _WAYS_OUT.items() if said in why)
            words.append(next(ways, "correct what its refusal names"))
        return ", or ".join(words) + ("" if fixes.is_whole else "; other registrations may differ as well")

    def _drop(self, members: Sequence[int], fixes: Fixes) -> Iterator[str]:
        dropped = [change.dropped for change in fixes.drops]
        every = sorted({index for indices in dropped for index in indices})
        if not dropped:
            return
        size, is_pair = len(dropped[0]), len(members) == 2 and every == sorted(members)
        if is_pair and size == 2:
            yield "drop both (dropping only one is not enough)"
        elif is_pair and len(dropped) == 2:
            is_named = {_function(self.registrations[index]) for index in members} == {"custom_op"}
            yield f"drop{' or rename' * is_named} one of the two"
        elif len(dropped) == len(every) > size == len(every) - 1 > 1:
            yield f"drop all but one of {self._names(every)}"
        elif size > 1:
            quantity, fewer = ("both", "only one") if size == 2 else ("all of", "fewer")
            sets = ", or ".join(f"{quantity} {self._names(indices)}" for indices in dropped[:2])
            yield f"drop {sets} (dropping {fewer} is not enough)"
        else:
            text = f"drop {' or '.join(map(self._names, dropped))}"
            for index, left in fixes.left.items():
                if others := [at for at in left if at not in every and not is_definition(self.registrations[at])]:
                    make = "makes" if len(others) == 1 else "make"
                    why = f"{self._names(others)} {make} a difference, too"
                    text += f" (dropping only {self._names((index,))} is not enough: {why})"
            yield text

    def _keep(self, members: Sequence[int], fixes: Fixes) -> Iterator[str]:
        if fixes.order is None:
            return
        order, releases = fixes.order.order, fixes.order.releases
        if self.scenario.modules:
            last = "import one of these modules from the other, so that one order is left"
            yield last if fixes.is_free else f"import the modules of {self._names(order)} in this order"
            return
        defs = self._defs_before(order)
        if not order:
            kernels = [at for at, one in enumerate(self.registrations) if not is_definition(one)]
            text = f"never release {self._names(members)}" if len(kernels) < 2 else "release nothing"
        elif releases and fixes.is_free:
            dropped = {index for change in fixes.drops for index in change.dropped}
            which = "them" if {*order} == dropped else self._names(order)
            text = f"always register {which} in the same order"
            text += f", after {self._names(defs)}" if defs else ""
        elif self.example.flaw is Flaw.UNDO and not releases:
            text = f"never release {' or '.join(self._names((at,)) for at in order)}, and register them in this order"
        else:
            names = [self._names((index,)) for index in (*defs, *order)]
            text = f"keep {names[0]} before {names[1]}" if len(names) == 2 else f"keep this order: {', '.join(names)}"
            left = "leaves stale slots, too" if self._stale() else "does not restore what was there before"
            text += "" if releases else f", and release {'neither' if len(names) == 2 else 'none'}: a release {left}"
        fields = [f"`order: {[*defs, *order]}`" if not self.scenario.order else "`order:`"] * bool(order)
        fields += [] if releases and not defs else ["`modules:`, which are never released"]
        yield f"{text} (in the scenario: {' and '.join(fields)})"

    def _defs_before(self, members: Sequence[int]) -> list[int]:
        """Return the defs that PyTorch needs before calls of torch.library."""
        calls = [at for at in members if _function(self.registrations[at]) not in ("", "define", "custom_op", "impl")]
        around = near(self.scenario, calls) if calls else ()
        return [at for at in around if at not in members and is_definition(self.registrations[at])]

    # -- parts

    def _stale(self) -> _Stale | None:
        found = _STALE.search(self.example.diff)
        if found is None:
            return None
        sections = dict(map(_entries, diff_sections(self.example.diff)))
        computed, slots = (sections.get(f"{found['operator']}, {title}", {}) for title in TABLES)
        stale = {key: entries for key, entries in slots.items() if computed.get(key) != entries}
        stale = stale or {found["key"]: (found["wanted"], found["held"])}
        return _Stale(found["operator"], stale, max(len(stale), int(found["count"] or 1)), self._kernels_after())

    def _kernels_after(self) -> dict[str, str]:
        """Return the kernel that calls run at each key after the second sequence; none without an engine."""
        if self.engine is None:
            return {}
        with on_sandboxes(self.engine, self.registrations, self.scenario.operators)() as session:
            list(run(session, self.example.actual_sequence))
            rows = [row for snapshot in session.look()[0] for row in (snapshot.slots or "").splitlines()]
        return {key: owner(entry).partition(" [")[0] for key, _, entry in (row.partition(": ") for row in rows)}

    def _differences(self) -> list[str]:
        """Return the engine's reasons for the difference, without stale slots; else the first row of each side."""
        known = [line for line in self.example.why if _NOT_REFRESHED not in line]
        if known or self._stale() is not None:
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
