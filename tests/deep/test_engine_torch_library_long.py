"""The long tests of tests/test_engine_torch_library.py, which the quick tier leaves out."""

from __future__ import annotations

from tests import test_engine_torch_library
from tests.torch_library_walks import check_walks

pytestmark = test_engine_torch_library.pytestmark


def test_all_walks_agree_on_a_few_scenarios() -> None:
    assert check_walks(0, 4, largest=4).total() >= 8


def test_all_walks_agree_where_calls_say_allow_override() -> None:
    seen = check_walks(0, 6, overrides=True)
    assert min(seen["order-independent"], seen["order-dependent"]) > 2
