"""The long tests of tests/test_engine_profiles.py, which the quick tier leaves out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dispatchlab.model.slot_set import KEY_BIT
from tests.profiles import PROFILES, check_both_ways, fallbacks_at, profiled
from tests.test_engine_profiles import K, some_slots


@settings(derandomize=True, deadline=None)
@given(data=st.data())
def test_the_two_computations_of_a_table_agree_on_every_profile(data: st.DataObject) -> None:
    made = profiled(data.draw(st.sampled_from(PROFILES)))
    bits = sorted(KEY_BIT[key] for key in made.existing - {K.Undefined})
    aliases = sorted(KEY_BIT[key] for key in made.existing if key.is_alias)
    some = st.frozensets(st.sampled_from(bits), max_size=9), st.frozensets(st.sampled_from(aliases))
    present = sum(data.draw(some[0]) | data.draw(some[1]))
    fallbacks = fallbacks_at(data.draw(some_slots) & made.precedence.slots, odd=data.draw(st.booleans()))
    check_both_ways(made.precedence, present, fallbacks)
