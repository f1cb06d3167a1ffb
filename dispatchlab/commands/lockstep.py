"""An engine and its model side by side: the same words on both, compared after every step."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from dispatchlab.explore.difference import difference, outcome_difference, outcome_text
from dispatchlab.explore.limits import later_masks
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import Engine
from dispatchlab.explore.session import SandboxSession
from dispatchlab.model.words import Word, format_word
from dispatchlab.scenario.value import Scenario

WORDS = 32


@dataclass(frozen=True, slots=True)
class Lockstep:
    """How far an engine and its model went together.

    Args:
        words: how many words were run on both.
        steps: how many steps they had.
        parted: the word after which the two differ; None when they never did.
        diff: what the model shows (expected) and what the engine shows (actual) after that word.
    """

    words: int
    steps: int
    parted: Word | None = None
    diff: str = ""

    @property
    def sentence(self) -> str:
        """What came of it, for a reader."""
        if self.parted is None:
            return f"the engine and its model agree on {self.steps:,} steps of {self.words:,} random words"
        return f"the engine and its model differ after {format_word(self.parted)}:\n{self.diff.rstrip()}"


def lockstep(engine: Engine, model: Engine, scenario: Scenario, *, seed: int, words: int = WORDS) -> Lockstep:
    """Run random words on an engine and on its model until they differ.

    Args:
        engine: the engine.
        model: what it should behave as.
        scenario: the registrations and what is observed.
        seed: of the words.
        words: how many; each toggles about four times as often as there are registrations.

    Raises:
        EngineCrashed: one of the two died.
    """
    random = SplitMix64(seed)
    count, done = len(scenario.registrations), 0
    for number in range(words if count else 0):
        parted, diff, steps = _run(engine, model, scenario, random.split(), 4 * count)
        done += steps
        if parted is not None:
            return Lockstep(number + 1, done, parted, diff)
    return Lockstep(words if count else 0, done)


def _run(
    engine: Engine, model: Engine, scenario: Scenario, random: SplitMix64, length: int
) -> tuple[Word | None, str, int]:
    """One word in fresh sandboxes: where the two part and how, and the number of steps."""
    word: list[int] = []
    active = 0
    later = later_masks(len(scenario.registrations), scenario.order)
    with ExitStack() as stack:
        one, other = (
            SandboxSession(stack.enter_context(each.sandbox()), scenario.registrations, scenario.operators)
            for each in (model, engine)
        )
        for _ in range(length):
            index = random.below(len(later))
            if active >> index & 1:
                step, expected, actual = ~index, one.release(index), other.release(index)
                active &= ~(1 << index)
            elif later[index] & active:
                continue
            else:
                step, expected, actual = index, one.register(index), other.register(index)
                active |= 0 if expected is not None else 1 << index
            word.append(step)
            kinds = [None if refusal is None else refusal.kind for refusal in (expected, actual)]
            if kinds[0] != kinds[1]:
                return (
                    tuple(word),
                    outcome_difference(outcome_text(step, expected), outcome_text(step, actual)),
                    len(word),
                )
            diff = difference(one.look()[0], other.look()[0])
            if diff:
                return tuple(word), diff, len(word)
    return None, "", len(word)
