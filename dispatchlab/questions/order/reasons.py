"""The reason of a verdict: which registrations meet, what decides between them, and the smallest change that helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dispatchlab.model.registration import Block, Claim, Def, Impl, NameOnly, Registration, describe, shown_text
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.result import Conflict, Counterexample, Expectation, Exploration, Flaw, Verdict
from dispatchlab.registries.debug_text import owner
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
        cause: what happens to which operator at which key, with the source location of each registration.
        fix: the smallest change that removes it.
        registrations: the numbers of the registrations that meet.
        more: what else differs for the same reason, a sentence each.
    """

    cause: str
    fix: str
    registrations: tuple[int, ...] = ()
    more: tuple[str, ...] = ()


def reason_of(scenario: Scenario, found: Exploration, *, as_expected: bool) -> Reason | None:
    """Return the reason of a verdict; None for an expected one without a counterexample."""
    if found.counterexample is not None:
        return _Pair(scenario, found.counterexample).reason()
    if as_expected:
        return None
    refused = [conflict_text(conflict, found, scenario.registrations) for conflict in found.conflicts]
    if found.verdict not in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        cause = next(reversed(found.notes), f"the exploration ended with the verdict {found.verdict}")
        return Reason(cause, "raise the bound that was hit, or name a smaller scenario")
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
_NOT_REFRESHED: Final = "refreshed: calls use the old entry"
_DROP_ONE: Final = "drop one of the two"
_AFTERWARDS: Final = {
    " is in Python after the other order alone": " stays in Python",
    " is in Python after one order alone": " is no longer in Python",
    " is there after the other order alone": " stays",
    " is there after one order alone": " is gone",
}
"""What a difference is where the other sequence is longer, and not in another order."""


class _Outcome(NamedTuple):
    """The end of the last step of a sequence: its registration, and the message of a refusal."""

    step: int
    refusal: str


class _Pair:
    """A counterexample with the registrations that its steps stand for."""

    def __init__(self, scenario: Scenario, example: Counterexample) -> None:
        self.scenario, self.registrations, self.example = scenario, scenario.registrations, example

    def reason(self) -> Reason:
        example, flaw = self.example, self.example.flaw
        sequences = example.expected_sequence, example.actual_sequence
        steps = {max(step, ~step) for sequence in sequences for step in sequence}
        match flaw:
            case Flaw.OUTCOME | Flaw.ASYMMETRY:
                return self._refused()
            case Flaw.CRASH | Flaw.RELEASE | Flaw.NONDETERMINISTIC:
                last = example.actual_sequence[-1]
                which = max(last, ~last)
                verb = "the release of" if last < 0 else "the registration of"
                what = f"{verb} {self._names((which,))}"
                said = "; ".join(example.why) or next(iter(self._outcome_lines("+")[1:2]), "")
                end = {Flaw.CRASH: "ends the engine", Flaw.RELEASE: "fails"}.get(flaw, "gives two results in two runs")
                fix = f"do not {'release' if last < 0 else 'register'} {self._names((which,))}"
                return Reason(f"{what} {end}{f': {said}' * bool(said)}", fix, tuple(sorted(steps)))
            case Flaw.UNDO | Flaw.RESIDUE:
                return self._left_behind()
            case Flaw.NON_COMMUTING | Flaw.INVARIANT:
                return self._other_state()

    # -- two states

    def _other_state(self) -> Reason:
        stale, (first, *more) = self._stale(), self._differences() or [FLAWS[self.example.flaw]]
        parts = self._parts()
        if stale is not None:
            kernels = [index for index in parts if self._kernels(index, stale["operator"])] or parts
            owners = [kernel for index in kernels for kernel in self._kernels(index, stale["operator"])]
            if self.example.flaw is Flaw.NON_COMMUTING and len(owners) == 2:
                return self._stale_pair(stale, kernels)
            fix = "drop one of them" if len(owners) > 1 else "drop it"
            return Reason(f"{_stale_call(stale)}, after {self._names(kernels)}", fix, tuple(kernels), self._also())
        if (owned := self._owned_by_custom_op(parts)) is not None:
            return owned
        named = [index for index in parts if (text := owner(shown_text(self.registrations[index]))) and text in first]
        members = tuple(named if len(named) > 1 else parts)
        if len(named) < 2:
            first = f"{first}; {self._names(members)} come in another order"
        fix = _DROP_ONE if len(members) == 2 else "drop all but one of them"
        one_order = (
            "import one of these modules from the other" if self.scenario.modules else "register both in one place"
        )
        if self.scenario.modules:
            first = first.replace("the later one wins", "the later import wins")
        if members and all(_function(self.registrations[index]) == "custom_op" for index in members):
            first = f"{self._names(members)} have one name; the later one destroys all that the earlier one registered"
            return Reason(first, "drop or rename one of the two", members, self._also())
        return Reason(first, f"{fix}, or {one_order}, so that one order is left", members, tuple(more))

    def _stale_pair(self, stale: dict[str, str], kernels: Sequence[int]) -> Reason:
        """Return the reason where the order of two kernels decides what calls run, and no table shows it."""
        named = {index: self._kernels(index, stale["operator"]) for index in kernels}
        sides = []
        for sequence, entry in ((self.example.actual_sequence, "held"), (self.example.expected_sequence, "wanted")):
            earlier = next(step for step in sequence if step in named)
            key, debug = named[earlier][0]
            sides.append((earlier, f"{key} from {owner(debug)}", _what_calls_do(stale[entry])))
        (_, late, held), (good, early, wanted) = sides
        calls = f"calls of {stale['operator']} at {stale['key']}"
        cause = f"{calls} {held} if {late} comes first, and {wanted} if {early} does{_more_slots(stale)}"
        every = [name for index in range(len(self.registrations)) for name in self._kernels(index, stale["operator"])]
        composite = next((at for at in kernels if str(named[at][0][0]) == "CompositeImplicitAutograd"), None)
        # Another kernel beside the two may meet the composite one in the same way.
        drop = _DROP_ONE if composite is None or len(every) == 2 else f"drop {self._names((composite,))}"
        fix = f"{drop}, or always register {self._names((good,))} before the other, and release neither"
        return Reason(f"{cause}; no dump shows it", fix, tuple(kernels), self._also())

    def _also(self) -> tuple[str, ...]:
        return tuple(self._differences())

    def _owned_by_custom_op(self, parts: tuple[int, ...]) -> Reason | None:
        """Return the reason where `register_kernel` goes into the library of a custom_op or into its own."""
        made = {_function(self.registrations[index]): index for index in parts}
        if made.keys() != {"custom_op", "register_kernel"}:
            return None
        kernel, custom_op = (self._names((made[name],)) for name in ("register_kernel", "custom_op"))
        cause = f"{kernel} goes into the library of {custom_op} if it comes later, and into its own if it comes first"
        fix = f"always register {custom_op} first, and do not release it"
        return Reason(f"{cause}: that library releases the kernel", fix, parts, self._also())

    def _left_behind(self) -> Reason:
        example = self.example
        released = [~step for step in example.actual_sequence if step < 0 and step not in example.expected_sequence]
        released = released or [~step for step in example.actual_sequence if step < 0]
        stale, differences = self._stale(), self._differences()
        first, *more = [_stale_call(stale), *differences] if stale is not None else differences or [FLAWS[example.flaw]]
        for label, now in _AFTERWARDS.items():
            first = first.replace(label, now)
        last = example.actual_sequence[-1]
        if example.flaw is Flaw.RESIDUE and last >= 0:
            before = [step for step in dict.fromkeys(example.actual_sequence) if 0 <= step != last]
            after = f" after {self._names(before)}" if before else ""
            cause = f"the refusal of {self._names((last,))}{after} leaves something behind: {first}"
            fix = f"drop {self._names((last,))}{'' if before else ', or correct what is refused in it'}"
            return Reason(cause, fix, (last,), tuple(more))
        if not released:
            parts = self._parts()
            cause = f"a refusal among {self._names(parts)} leaves something behind: {first}"
            return Reason(cause, "drop the one that is refused", parts, tuple(more))
        members = tuple(dict.fromkeys((*released, *self._parts())))
        cause = f"the release of {self._names(released)} leaves something behind: {first}"
        fix = "release no fallback of that key" if "whichever fallback" in first else ""
        return Reason(cause, fix or f"keep {self._names(released)} registered", members, tuple(more))

    # -- refusals

    def _refused(self) -> Reason:
        one, other = self._outcomes()
        parts = self._parts()
        refused, accepted = (one, other) if one.refusal else (other, one)
        orders = self.example.expected_sequence, self.example.actual_sequence
        bad, good = orders if refused is one else orders[::-1]
        earlier = [index for index in bad[: len(bad) - 1] if index >= 0 and index in parts and index != refused.step]
        who = self._names((refused.step,))
        after = f" after {self._names(earlier)}" if earlier else f" in the order {format_sequence(bad)}"
        after += ", which is released again" if earlier and all(~index in bad for index in earlier) else ""
        fix = _DROP_ONE
        if accepted.refusal and list(bad).count(refused.step) + list(good).count(refused.step) > 2:
            cause = f"{who} is refused, and leaves something behind, so that a second try is refused for another reason"
            met = self._names([step for step in dict.fromkeys(bad) if step >= 0 and step != refused.step] or parts)
            cause, fix = f"{cause}: {refused.refusal}; then: {accepted.refusal}", f"drop {met}, or {who}"
        elif accepted.refusal:
            reasons = f"{refused.refusal}; {accepted.refusal}"
            cause = f"{who} is refused in both orders, and for another reason in each: {reasons}"
        elif earlier and not any(index in good for index in earlier):
            others = self._names(earlier)
            cause = f"{who} is refused{after}, and accepted in an order without it: {refused.refusal}"
            fix = f"drop {others}"
        else:
            others, alone = self._names(earlier) if earlier else "", format_sequence(good)
            when = "before it" if earlier else f"in the order {alone}"
            cause = f"{who} is refused{after}, and accepted {when}: {refused.refusal}"
            fix = f"keep {who} before {others}" if earlier else f"keep the order {alone}"
            fix = f"{fix} and release neither, or {_DROP_ONE}"
        return Reason(cause, fix, tuple(dict.fromkeys((*parts, refused.step))))

    def _outcomes(self) -> tuple[_Outcome, _Outcome]:
        outcomes = []
        for mark, sequence in zip("-+", (self.example.expected_sequence, self.example.actual_sequence), strict=True):
            first, *lines = self._outcome_lines(mark) or [""]
            message = next((line for line in lines if not line.startswith("  ")), first.partition(": ")[2])
            outcomes.append(_Outcome(max(sequence[-1], ~sequence[-1]), message if "refused" in first else ""))
        return outcomes[0], outcomes[1]

    def _outcome_lines(self, mark: str) -> list[str]:
        lines = self.example.diff.splitlines()
        rows = [line for line in lines if not line.startswith(("---", "+++ ", "@@ "))]
        return [line[1:] for line in rows if line[:1] in (mark, " ")]

    # -- parts

    def _stale(self) -> dict[str, str] | None:
        found = _STALE.search(self.example.diff)
        return None if found is None else {name: value or "" for name, value in found.groupdict().items()}

    def _differences(self) -> list[str]:
        """Return the engine's reasons for the difference, without stale slots; else the first row of each side."""
        known = [line for line in self.example.why if _NOT_REFRESHED not in line]
        if known or self._stale() is not None:
            return known
        title, rows = "", list[str]()
        for line in self.example.diff.splitlines():
            if line.startswith("--- "):
                if rows:
                    break
                title = line[4:].removeprefix("expected: ")
            elif line.startswith(("-", "+")) and not line.startswith("+++ "):
                rows.append(line)
        went, came = (next((row[1:] for row in rows if row[0] == mark), "nothing") for mark in "-+")
        return [f"{title} has {went} after one order and {came} after the other"] if rows else []

    def _parts(self) -> tuple[int, ...]:
        """Return the registrations in another order in the second sequence; those with kernels if there are two."""
        first, second = (
            list(dict.fromkeys(max(step, ~step) for step in sequence))
            for sequence in (self.example.expected_sequence, self.example.actual_sequence)
        )
        place = {index: at for at, index in enumerate(second)}
        moved = [
            index
            for at, index in enumerate(first)
            if index not in place
            or any((place[other] < place[index]) is not (i < at) for i, other in enumerate(first) if other in place)
        ]
        moved = moved or [index for index in second if index not in first] or first or second
        kernels = [index for index in moved if not _is_definition(self.registrations[index])]
        return tuple(kernels if len(kernels) > 1 else moved)

    def _kernels(self, index: int, operator: str) -> list[tuple[object, str]]:
        """Return the key and the debug text of each kernel that a registration makes for an operator."""
        registration = self.registrations[index]
        members = registration.registrations if isinstance(registration, Block) else (registration,)
        namespace = registration.namespace or "" if isinstance(registration, Block) else ""
        return [
            (member.key or "CompositeImplicitAutograd", shown_text(member) or shown_text(registration))
            for member in members
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


def _is_definition(registration: Registration) -> bool:
    if isinstance(registration, Block):
        return any(isinstance(member, Def) for member in registration.registrations)
    return isinstance(registration, Def | NameOnly | Claim)


def _what_calls_do(entry: str) -> str:
    """Return what calls do that find an entry of a table."""
    if "VariableFallbackKernel" in entry:
        return "go on to the backend's kernel"
    if "ambiguous" in entry:
        return "raise (two kernels could be meant)"
    return "find no kernel" if entry == "nothing" else f"run {owner(entry).partition(' [')[0]}"


def _more_slots(stale: dict[str, str]) -> str:
    more = int(stale["count"] or 1) - 1
    return f"; {more} more slot{'s are' if more > 1 else ' is'} stale, too" if more else ""


def _stale_call(stale: dict[str, str]) -> str:
    """Return the kernel that calls run at a stale slot, and the one in the table."""
    held = _what_calls_do(stale["held"])
    wanted = owner(stale["wanted"])
    calls = f"calls of {stale['operator']} at {stale['key']}"
    return f"{calls} {held} where the table says {wanted}{_more_slots(stale)}"
