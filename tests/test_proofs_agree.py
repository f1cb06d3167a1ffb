"""What proofs rest on, on generated scenarios: the reductions find what the walk of everything finds, and states show
what fresh sandboxes show.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.run_sequence import StateSession, on_sandboxes
from tests.effort import examples
from tests.random_scenarios import findings, random_scenario
from tests.test_prover_neighbourhoods import without

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
SEEDS = st.integers(0, 1 << 32)


@examples(600)
@given(SEEDS, st.booleans())
def test_partition_and_neighbourhoods_find_what_the_walk_of_everything_finds(seed: int, refused: bool) -> None:  # noqa: FBT001
    semantics, registrations, operators, order = random_scenario(seed, most=5, refused=refused)
    engine = LabEngine(semantics)
    plain = explore_forkable(engine, registrations, operators, order=order, reduced=False)
    with without("near"):
        reduced = explore_forkable(engine, registrations, operators, order=order, least=0)
    assert findings(reduced) == findings(plain)


@examples(1_000)
@given(SEEDS, st.booleans(), st.data())
def test_states_show_what_a_fresh_sandbox_shows(seed: int, refused: bool, data: st.DataObject) -> None:  # noqa: FBT001
    semantics, registrations, operators, _ = random_scenario(seed, most=5, refused=refused)
    engine = LabEngine(semantics)
    space = engine.space(registrations, operators)
    states, mask = StateSession(space), 0
    steps = data.draw(st.lists(st.integers(0, len(registrations) - 1), max_size=20))
    with on_sandboxes(engine, registrations, operators)() as session:
        for index in steps:
            if not mask >> index & 1:
                refusal = session.register(index)
                assert states.register(index) == refusal
                mask |= 0 if refusal else 1 << index
            else:
                assert states.release(index) == session.release(index)
                mask = mask & ~(1 << index)
            assert states.look() == session.look()
