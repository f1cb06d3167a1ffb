"""The reason of a verdict: which registrations meet, what decides between them, and the smallest change that helps."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import combinations
from typing import Final, NamedTuple

from dispatchlab.model.keys import DispatchKey
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
from dispatchlab.model.slot_set import slots_of_key
from dispatchlab.model.snapshot import main_key
from dispatchlab.prover.checker import diff_sections
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Conflict, Counterexample, Expectation, Exploration, Flaw, Verdict
from dispatchlab.questions.order.fixes import Change, Fixes, changed, find_fixes, find_lost, is_definition, replay
from dispatchlab.registries.debug_text import owner, sites_in
from dispatchlab.scenario.load import module_texts, order_text
from dispatchlab.scenario.scenario import Scenario

_WORDS: Final = tomllib.loads(files(__package__).joinpath("reasons.toml").read_text("utf-8"))

FLAWS: Final[Mapping[Flaw, str]] = {Flaw(name): text for name, text in _WORDS["flaw"].items()}
"""What each flaw means, in a sentence."""


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason of a verdict.

    Args:
        cause: which registrations meet at which operator and key, and what each order gives.
        fix: the smallest changes that remove the difference, one a line.
        registrations: the numbers of the registrations that cause it.
        more: sentences about other differences with the same reason.
        changes: the changes that were tried and help, each alone.
        details: sentences that explain the cause and the fixes.
    """

    cause: str
    fix: str
    registrations: tuple[int, ...] = ()
    more: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    details: tuple[str, ...] = ()


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
        fix = "drop this registration" if len(members) == 1 else "keep one of these registrations"
        return Reason(refused[0], f"{fix}, or write `expect: refused` into the scenario", members, tuple(refused[1:]))
    if scenario.expect is Expectation.ORDER_INDEPENDENT and found.never_accepted:
        (first, *_) = found.never_accepted
        cause = f"{describe(scenario.registrations[first])} is refused in every order"
        fix = "drop this registration, or write `expect: refused` into the scenario"
        return Reason(cause, fix, found.never_accepted)
    is_refused = bool(found.conflicts or found.never_accepted)
    cause = "no order leads to another state" + ("" if is_refused else ", and nothing is refused")
    return Reason(cause, f"write `expect: {'refused' if is_refused else 'order-independent'}` into the scenario")


def conflict_text(conflict: Conflict, found: Exploration, registrations: Sequence[Registration]) -> str:
    """Return the registrations that exclude each other, and the engine's message; one refused alone may come later."""
    names = [_name(registrations[member]) for member in conflict.members]
    if len(names) == 1:
        is_done = found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)
        always = conflict.members[0] in found.never_accepted or not is_done
        who = f"{names[0]} is {'always refused' if always else 'refused unless another registration comes first'}"
    else:
        who = f"{_listed(names)} cannot be registered together, because the last one is refused in every order"
    blame = "; another order raises another error" if conflict.asymmetric else ""
    return f"{who} ({conflict.kind}{blame}): {conflict.message}"


# -- the two sequences of a counterexample


_STALE: Final = re.compile(
    r"^\+(?P<operator>\S+): stale slot: the slot of (?P<key>\w+) holds (?P<held>.+?) and should hold (?P<wanted>.+?)"
    r"(?: \(with .*\))?$",
    re.MULTILINE,
)
_FALL_THROUGH: Final = "PyTorch's autograd fallback"
_AMBIGUOUS: Final = "ambiguous AutogradOther"
_NOTHING: Final = "no kernel"
_OWN_SCHEMA: Final = (
    r"the kernel \(.*?\) at (\w+) does not fit the schema .* The def says [^(]+(\(.*), the kernel's type gives (.*)$"
)
_ITSELF: Final = r"^the kernel \(.*?\) at \w+ "
_SENTENCE_END: Final = re.compile(r"\. (?=[A-Z])")
_STAYS: Final = re.compile(r"^(custom_ops) .+ stays in Python$|^.+ stays in (py_kernels .*)$")
_REPLACED: Final = re.compile(r"(?m)^(?P<key>\w+).*: (?P<kernel>.+) :: .*\n(?P=key).* \(inactive\): (?P<other>.+) ::")
_SIGNATURES: Final = (
    r"^the kernels of .* their (C\+\+ signature), and (.+) \([^()]*\) at \w+ is not (.+) \([^()]*\) at .*$"
)


class _Stale(NamedTuple):
    """Stale slots of an operator: by key, what each should hold and what it holds; the kernel at each other key."""

    operator: str
    slots: dict[str, tuple[str, str]]
    kernels: dict[str, str]

    @property
    def words(self) -> dict[str, str]:
        """The words for the operator, the keys and the slots."""
        slots = "slots" if len(self.slots) > 1 else "slot"
        return {"operator": self.operator, "where": _at_keys([*self.slots]), "slots": slots}

    def runs(self, *, wanted: bool = False, verbs: tuple[str, str] = ("runs", "raises")) -> str:
        """Return what a call does at these keys, or what it should do."""
        keys_of, main, kernel = dict[str, list[str]](), main_key([*self.slots]), "the kernel of the backend"
        for key in (main, *(key for key in self.slots if key != main)):
            entry = _entry_text(self.slots[key][not wanted])
            if entry == _FALL_THROUGH:
                kernel = self.kernels.get(key.removeprefix("Autograd"), kernel)
                entry = f"{kernel} through {entry}"
            text = f"{verbs[1]} an error ({entry})" if entry in (_AMBIGUOUS, _NOTHING) else f"{verbs[0]} {entry}"
            keys_of.setdefault(text, []).append(key)
        return _listed([f"{text} {_at_keys(keys)}" if len(keys_of) > 1 else text for text, keys in keys_of.items()])

    def wrong(self, when: str) -> str:
        """Return what a call should do and what it does."""
        right, stale = self.runs(wanted=True, verbs=("run", "raise")), self.runs()
        right += " directly" * (f"{right.replace('run', 'runs', 1)} through " in stale)
        return _words("stale", when=when, right=right, stale=stale, **self.words)


def _at_keys(keys: Sequence[str]) -> str:
    listed = ", ".join(keys if len(keys) < 4 else [main_key(keys), "..."])
    return f"at {len(keys)} keys ({listed})" if len(keys) > 1 else f"at {listed}"


def _cause(text: str, members: Sequence[int], more: Sequence[str] = (), *details: str) -> Reason:
    """Return a reason whose cause is short, with the sentences that explain the cause."""
    return Reason(text, "", tuple(members), tuple(more), details=details)


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
        self.said = " ".join(self._names((at,)) for at in range(len(self.registrations)))  # later, the cause
        self.details = dict[str, None]()  # of the fixes

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
        cause = replace(cause, fix=self._fix(cause, fixes), changes=fixes.changes)
        return replace(cause, details=(*cause.details, *self.details))

    # -- two states

    def _other_state(self) -> Reason:
        stale, (first, *more) = self._stale(), self._differences() or [FLAWS[self.example.flaw]]
        parts = self._parts()
        if stale is not None:
            ones = self.registrations
            kernels = tuple(at for at in parts if stale.operator in map(str, operators_of(ones[at]))) or parts
            if self.example.flaw is Flaw.NON_COMMUTING and len(kernels) == 2:
                return self._stale_pair(stale, kernels)
            *before, last = dict.fromkeys(at for at in self.example.actual_sequence if at in kernels)
            when = f"if {self._kernels(kernels)} {'are' if before else 'is'} registered"
            if before and self.scenario.modules:
                when = f"if {self._kernels((last,))} is registered after {self._kernels(before)}"
            return _cause(stale.wrong(when), kernels, self._differences())
        functions = {_function(self.registrations[index]): index for index in parts}
        if functions.keys() == {"custom_op", "register_kernel"}:
            kernel, made = functions["register_kernel"], functions["custom_op"]
            names = {"kernel": self._short(kernel), "made": self._short(made), "both": self._names((made, kernel))}
            return _cause(_words("kernel_of_custom_op", **names), parts, (first, *more), _words("owner", **names))
        named = [index for index in parts if (text := owner(shown_text(self.registrations[index]))) and text in first]
        members = tuple(named if len(named) > 1 else parts)
        if functions.keys() == {"custom_op"}:
            return _cause(_words("custom_ops", names=self._names(members)), members, (first, *more))
        if brought := [*self._brought(first, members)]:
            first = ". ".join((first, *brought))
        elif len(named) < 2:
            first = f"{first}. The order of {self._names(members)} decides"
        if self.scenario.modules:
            first = first.replace("A later registration replaces", "The registration of a later import replaces")
        first = re.sub(r"^the registrations (?=\S+\.\w+:\d+[, ])", "the registrations at ", first)
        return _cause(first, members, more)

    def _brought(self, text: str, members: Sequence[int]) -> Iterator[str]:
        """Yield which registration brings each kernel of a text, for those that are not registered alone."""
        for at in members:
            one = self.registrations[at]
            if isinstance(one, Impl):
                if one.key is None and (key := str(DispatchKey.CompositeImplicitAutograd)) in text:
                    yield f"A kernel without a key is a {key} kernel"
                continue
            sites = {owner(shown_text(inner)) for inner in inner_of(one)}
            if isinstance(one, Def):
                name = f"the def of {one.operator}{f' ({owner(one.debug)})' * (owner(one.debug) not in text)}"
            else:
                name, sites = self._names((at,)), sites - {owner(shown_text(one))}
            if inside := [site for site in sorted(sites) if site in text]:
                yield f"{' and '.join(inside)} {'is' if len(inside) == 1 else 'are'} part of {name}"

    def _stale_pair(self, stale: _Stale, kernels: Sequence[int]) -> Reason:
        """Return the cause where the order of two registrations decides what calls run, and no table shows it."""
        first, last = (at for at in dict.fromkeys(self.example.actual_sequence) if at in kernels)
        steps = {*self.example.expected_sequence, *self.example.actual_sequence}
        others = [at for at, one in enumerate(self.registrations) if not is_definition(one) and at not in steps]
        details, impl = [_words("no_dump")], self.registrations[last]
        alone = ", if no other kernel is registered" * bool(others)
        names = {"late": self._short(last), "first": self._short(first), "alone": alone}
        if isinstance(impl, Impl) and not slots_of_key(impl.key or DispatchKey.Undefined):
            details.insert(0, _words("no_row", key=str(impl.key), **names))
        now, right = stale.runs(), stale.runs(wanted=True)
        details += [_words("warns")] * (_FALL_THROUGH in right)
        same = f"{now} through " in right
        now, what = now + " directly" * same, "how" if same else "which kernel"
        text = _words("stale_pair", what=what, right=right, stale=now, **names, **stale.words)
        text = f"the order of {self._kernels((first, last))}{re.sub(' the kernel (at )?(?!of )', ' ', text)}"
        return _cause(text, kernels, self._differences(), *details)

    # -- what a release or a refusal leaves

    def _left_behind(self) -> Reason:
        example, last = self.example, self.example.actual_sequence[-1]
        stale, (first, *more) = self._stale(), self._differences() or [FLAWS[example.flaw]]
        for label, now in _WORDS["afterwards"].items():
            first = re.sub(label, now, first)
        first, *details = _SENTENCE_END.split(first)
        steps = [step for step in dict.fromkeys(example.actual_sequence) if step >= 0]
        refused = self._refusals(example.actual_sequence)
        if example.flaw is Flaw.RESIDUE and (last >= 0 or refused):
            who = last if last in refused else next(iter(refused), last)
            why, before = refused.get(who, ""), steps[: steps.index(who)]
            but, because = first, [*before]
            made = [step for step in before if _function(self.registrations[step]) == "custom_op"]
            if made and _function(self.registrations[who]) == "custom_op":
                because, more, short = [step for step in before if step not in made], [first, *more], self._short(who)
                but = f"{short} has removed the def and the kernels of {self._names(made)}"
                why, details = "", [why.rstrip("."), f"PyTorch does not restore {self._short(made[0])}"]
                if f"\n+debug: {shown_text(self.registrations[who])}\n" in self.example.diff:
                    details.append(f"The def of {short} stays")
            because = [step for step in because if not is_definition(self.registrations[step])] or because
            if not before and isinstance(self.registrations[who], Def):
                why = re.sub(_OWN_SCHEMA, r"the def has the schema \2, and its \1 kernel has the schema \3", why)
            text, *rest = self._refusal(who, because, why)
            return _cause(f"{text}. But {but}", (who,), more, *rest, *details, _words("no_trace"))
        released = [~step for step in example.actual_sequence if step < 0 and step not in example.expected_sequence]
        released = released or [~step for step in example.actual_sequence if step < 0]
        kept = [step for step in steps if step not in released]
        name, others = self._names(released), [step for step in kept if not is_definition(self.registrations[step])]
        text = f"after the release of {name}, {first}"
        if stale is not None:
            details = [f"Still registered: {self._kernels(others)}"] if others else []
            more, details = self._differences(), details + [_words("warns")] * (_FALL_THROUGH in stale.runs())
            text = stale.wrong(f"after the release of {self._kernels(released)}")
        elif len(kept) == len(released) == 1 and (stays := _STAYS.search(first)):
            text = _words("stays", name=name, keeper=self._short(kept[0]), place=str(stays[2] or self._short(kept[0])))
        if isinstance(fallback := self.registrations[released[0]], Fallback):
            every = enumerate(self.registrations)
            alike = [at for at, one in every if isinstance(one, Fallback) and one.key == fallback.key]
            if len(alike) > len(released):
                text = f"{text.replace(name, ' or '.join(self._names((at,)) for at in alike))}. {_words('same_key')}"
                released = alike
        return _cause(text, tuple(dict.fromkeys((*released, *self._parts()))), tuple(more), *details)

    def _refusal(self, who: int, after: Sequence[int], why: str) -> list[str]:
        """Return which registration is refused after which others, and why, as sentences."""
        first, *more = _SENTENCE_END.split(why.rstrip("."))
        text = f"{self._names((who,))} is refused{f' after {self._names(after)}' if after else ''}"
        return [f"{text}: {first}" if first else text, *more]

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
            key = re.search(r"^\+  key: (\w+)$", self.example.diff, re.MULTILINE)
            left, (text, *details) = f"a second try is refused: {accepted}", self._refusal(last, met, refusals[last])
            if key and isinstance(self.registrations[last], Fallback):
                left = _words("alias", key=key[1], fallback=self._short(last))
            return _cause(f"{text}. But {left}", (*met, last), (), *details, _words("no_trace"))
        if accepted is not None:
            texts = []
            for order, reason in ((bad, refusals[last]), (good, accepted)):
                before = " and then ".join(self._names((at,)) for at in order[:-1] if at >= 0) or "nothing"
                texts.append(f"{self._names(order[-1:])} is refused after {before}: {reason}")
            return _cause(". ".join(texts), members, (), *["Only the reasons differ"] * (good[-1] == last))
        if not earlier:
            needed = tuple(step for step in good if step >= 0 and step != last)
            text = f"{who} is refused without {self._names(needed)}: {refusals[last]}"
            return _cause(text, (*needed, last))
        when, names = "before", " and ".join(map(self._short, earlier))
        if not any(index in good for index in earlier):
            when = "without"
            own = (refusals[index].partition(" The def ")[0].rstrip(".") for index in earlier if index in refusals)
            details = [f"The refusal of {names}: {re.sub(_ITSELF, 'it ', said)}" for said in own]
            stays, why = f"a part of {names} stays", [f"The refusal: {refusals[last]}"]
            if signatures := re.search(_SIGNATURES, refusals[last]):
                stays = f"PyTorch keeps the {signatures[1]} of {names}"
                other = f"{signatures[2]} for {self._short(last)}"
                why = [f"The {signatures[1]} is {signatures[3]} for {names}, and {other}"]
            if details or all(~index in bad for index in earlier):
                did = f"refused: {details[0].split(': ')[1]}" if details else "released"
                text = f"{self._names(earlier)} is {did}. But {stays}. Therefore {who} is refused"
                return _cause(f"{text}. Without {names}, {self._short(last)} is accepted", members, (), *details, *why)
        first, *details = _SENTENCE_END.split(refusals[last].rstrip("."))
        text = f"{who} is accepted {when} {self._names(earlier)}, but refused after {names}"
        return _cause(f"{text}: {first}", members, (), *details)

    def _refusals(self, sequence: StepSequence) -> dict[int, str]:
        """Return the registrations of a sequence that are refused in it, with the reason of the last refusal."""
        if self.engine is None:
            return {}
        ran, _ = replay(self.engine, self.scenario, sequence)
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

    def _fix(self, cause: Reason, fixes: Fixes) -> str:
        """Return the changes that help, in words; what may help where none was tried."""
        self.said, members = cause.cause, cause.registrations
        words = [*self._drop(fixes), *self._keep(members, fixes)]
        if self.example.flaw is Flaw.UNDO:
            words.reverse()
        is_alone = self.example.registrations == [*members]
        if self.example.flaw is Flaw.RESIDUE and is_alone and all(len(one.dropped) == 1 for one in fixes.drops):
            why = "".join(self._refusals(self.example.actual_sequence).values())
            ways = (way for said, way in _WORDS["correction"].items() if said in why)
            expects = {change.expect for change in fixes.changes} or {None}
            way = next(ways, "correct what the refusal names")
            words.append(way + self._fields(Change(expect=expects.pop())))
        words.sort(key=lambda text: " always raises an error" in text)
        if not words:
            words = [f"{'drop' if len(members) == 1 else 'keep only one of'} {self._names(members)}"]
        return "\nor ".join(words) + ("" if fixes.is_whole else ". Other registrations may differ as well")

    def _drop(self, fixes: Fixes) -> Iterator[str]:
        """Yield the removals that help; those after which the scenario has the same fields are one text."""
        alike: dict[str, list[Change]] = {}
        for change in fixes.drops:
            if len(change.dropped) < len(self.registrations):
                alike.setdefault(self._raising(change) + self._fields(change), []).append(change)
        for fields, changes in alike.items():
            dropped, (change, *_) = [one.dropped for one in changes], changes
            every, size = sorted({index for indices in dropped for index in indices}), len(dropped[0])
            if len(change.order) > 1:
                names = ["the remaining registration" if at in every else self._short(at) for at in change.order]
                kept = f". Keep {_listed(names)} registered" * (not change.releases)
                fields = f". Register {', then '.join(names)}, because PyTorch refuses the reverse order{kept}{fields}"
            if len(dropped) == len(every) > size == len(every) - 1 > 1:
                yield f"drop all but one of {self._shorts(every)}{fields}"
            elif size > 1:
                pairs = ", or ".join(map(self._shorts, dropped[:2]))
                yield f"drop {pairs}. Dropping {'one of the two' if size == 2 else 'fewer'} is not enough{fields}"
            else:
                is_named = {_function(self.registrations[index]) for index in every} == {"custom_op"} and len(every) > 1
                renamed = ". Or give the operator of one custom_op another name" * is_named
                yield f"drop {' or '.join(map(self._short, every))}{renamed}{fields}"

    def _keep(self, members: Sequence[int], fixes: Fixes) -> Iterator[str]:
        if fixes.order is None:
            return
        order, releases, modules = fixes.order.order, fixes.order.releases, self.scenario.modules
        defs = [at for at in order if at not in members and is_definition(self.registrations[at]) and not modules]
        module_of = {at: module.name for module in modules for at in module.registrations}
        names = list(dict.fromkeys(module_of.get(at) or self._short(at) for at in order))
        verb = "import" if modules else "register"
        text = f"{verb} {' before '.join(names) if len(names) == 2 else ', then '.join(names)}"
        if fixes.is_free:
            after = f", after {self._shorts(defs)}" if defs else ""
            text = f"always {verb} {_listed(names[len(defs) :])} in the same order{after}"
            text += ". Write an import of one module into the other module" * bool(modules)
        if not order:
            is_alone = sum(not is_definition(one) for one in self.registrations) < 2
            text = f"never release {self._shorts(members) if is_alone else 'a registration'}"
        elif not modules and not releases:
            leaves = self.example.flaw is not Flaw.UNDO and self._stale() is not None
            text += f", and keep {'both' if len(names) == 2 else 'all of them'} registered"
            self.details |= dict.fromkeys([_words("release")] * leaves)
        if self.engine is not None and self.example.flaw is Flaw.ASYMMETRY:
            _, ends = replay(self.engine, self.scenario, order)
            rows = (_REPLACED.search(shown.dump) for shown in ends.values())
            text += "".join(". " + _words("replaces", **row.groupdict()) for row in rows if row)
        yield text + self._raising(fixes.order) + self._fields(fixes.order)

    def _raising(self, change: Change) -> str:
        """Return which calls raise an error in every order after a change, though they ran before."""
        operator, keys = find_lost(self.engine, self.scenario, self.example, change) if self.engine else ("", [])
        name = "no_def" if "" in keys else "raises"
        return ". " + _words(name, operator=operator, where=_at_keys(keys)) if keys else ""

    def _fields(self, change: Change) -> str:
        """Return the fields of the scenario that a change sets, to be pasted."""
        if self.scenario.packages:
            return ""
        edited, modules, fields = changed(self.scenario, change), self.scenario.modules, []
        if (order := order_text(edited.order)) != order_text(self.scenario.order):
            fields.append(f"`order: {order}`")
        if edited.modules != modules:
            bodies = (f"{name}: [{', '.join(body)}]" for name, body in module_texts(edited.modules))
            fields.append(f"`modules: {{{', '.join(bodies)}}}`")
        if change.dropped and re.search(r"\d", "".join(fields)):
            self.details[_words("anew")] = None
        if edited.snapshots != self.scenario.snapshots:
            fields.append("`snapshots: false`")
        if change.expect is not None:
            fields.append(f"`expect: {change.expect}`")
        if edited.modules and not modules:
            self.details[_words("modules")] = None
        return f". In the scenario, write {_listed(fields)}" if fields else ""

    # -- parts

    def _stale(self) -> _Stale | None:
        found = _STALE.search(self.example.diff)
        if found is None:
            return None
        table, slots = self._tables_after(self.example.actual_sequence, found["operator"])
        _, before = self._tables_after(self.example.expected_sequence, found["operator"])
        same = before if self.example.flaw is Flaw.NON_COMMUTING else {}
        entries = {key: (table.get(key, "nothing"), slots.get(key, "nothing")) for key in (*table, *slots)}
        stale = {key: (wanted, held) for key, (wanted, held) in entries.items() if held not in (wanted, same.get(key))}
        stale = stale or {found["key"]: (found["wanted"], found["held"])}
        return _Stale(found["operator"], stale, {key: _entry_text(entry) for key, entry in slots.items()})

    def _tables_after(self, sequence: StepSequence, operator: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the table and the slots of an operator after a sequence, whose modules run as a whole."""
        if self.engine is None:
            return {}, {}
        bodies = {at: module.registrations for module in self.scenario.modules for at in module.registrations}
        whole = tuple(dict.fromkeys(at for step in sequence for at in bodies.get(step, (step,))))
        shown = replay(self.engine, self.scenario, whole if bodies else sequence)[1][operator]
        texts = shown.table, shown.slots or ""
        table, slots = (dict(row.split(": ", 1) for row in text.splitlines() if ": " in row) for text in texts)
        return table, slots

    def _differences(self) -> list[str]:
        """Return the engine's reasons for the difference, without stale slots; else the first row of each side."""
        known = [line for line in self.example.why if "refreshed: calls use" not in line]
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
        marks = {at: f"registration {at})" for at in indices if every.count(every[at]) > 1}
        marked = {at: f"{every[at][:-1]}, " if every[at][-1] == ")" else f"{every[at]} (" for at in marks}
        return _listed(list(dict.fromkeys(marked[at] + marks[at] if at in marks else every[at] for at in indices)))

    def _short(self, at: int) -> str:
        """Return the debug text of a registration, if the cause names it; else its whole name."""
        debugs, one = list(map(shown_text, self.registrations)), self.registrations[at]
        if debugs.count(debug := debugs[at]) > 1:
            return f"registration {at}" if f"registration {at})" in self.said else self._names((at,))
        noun = _WORDS["noun"].get(_function(one) or type(one).__name__, "registration")
        short = f"the {noun} {'at ' * any(sites_in(debug))}{owner(debug)}"
        return short if debug and owner(debug) in self.said else self._names((at,))

    def _kernels(self, indices: Sequence[int]) -> str:
        """Return kernels with their keys: `fn_cpu (CPU) and fn_cuda (CUDA)`."""
        impls = {at: one for at, one in enumerate(self.registrations) if isinstance(one, Impl) and one.debug}
        keys = {at: one.key or DispatchKey.CompositeImplicitAutograd for at, one in impls.items()}
        return _listed([f"{self._short(at)} ({keys[at]})" if at in keys else self._names((at,)) for at in indices])

    def _shorts(self, indices: Sequence[int]) -> str:
        return _listed(list(map(self._short, indices)))


def _words(name: str, /, **names: str) -> str:
    return str(_WORDS["cause"][name]).format(**names)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name(registration: Registration) -> str:
    """Return a registration with its origin: `impl test::foo CPU (fast.py:12)`."""
    if isinstance(registration, Def):
        debug = shown_text(registration)
        return f"def {registration.operator}{f' ({owner(debug)})' * bool(debug)}"
    return re.sub("^define ", "def ", describe(registration).replace("(registered at ", "("))


def _function(registration: Registration) -> str:
    """Return the function of torch.library that makes a registration; empty for others."""
    made_by = registration.made_by if isinstance(registration, Block) else None
    return "" if made_by is None else made_by.function


def _entry_text(entry: str) -> str:
    """Return an entry of a table in a sentence."""
    if "VariableFallbackKernel" in entry:
        return _FALL_THROUGH
    if "ambiguous" in entry:
        return _AMBIGUOUS
    kernel, _, why = owner(entry).partition(" [")
    at = "at " * any(sites_in(kernel))
    if "fallback" in why:
        return f"the backend fallback {at}{kernel}"
    return _NOTHING if entry == "nothing" else f"the kernel {at}{kernel}"
