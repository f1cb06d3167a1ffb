"""The same churn as in test_call_threads, for about ten seconds."""

from __future__ import annotations

from tests.call_threads import THREADS, churn


def test_no_wrong_kernel_runs_and_no_registration_is_lost_in_a_long_churn() -> None:
    rounds = 1500
    assert churn(rounds=rounds) == [rounds * 4] * THREADS
