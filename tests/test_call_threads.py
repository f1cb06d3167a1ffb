"""Guards are per thread, no call runs a kernel that is not registered, and no registration is lost."""

from __future__ import annotations

from dispatchlab import Dispatcher, DispatchKey, Library, operator
from dispatchlab.call import ExcludeDispatchKeyGuard, IncludeDispatchKeyGuard, excluded, included
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, open_guards
from tests.call_threads import THREADS, X, churn, in_threads

ROUNDS = 400


def test_a_guard_of_one_thread_is_none_of_anothers_business() -> None:
    dispatcher = Dispatcher()
    library = Library("test", "FRAGMENT", dispatcher=dispatcher)
    library.define("which(Tensor x) -> int")
    keys = ("CPU", "AutogradCPU", "Tracer", "Batched")
    for number, key in enumerate(keys):
        library.impl("which", lambda x, number=number: number, key)
    which = operator(dispatcher, "test::which")
    right = [0] * THREADS

    def work(number: int) -> None:
        wanted = number % 4
        for _ in range(ROUNDS):
            match wanted:
                case 0:
                    with ExcludeDispatchKeyGuard(DispatchKey.AutogradFunctionality):
                        right[number] += which(X) == 0
                case 1:
                    right[number] += which(X) == 1 and (included(), excluded()) == (DEFAULT_INCLUDED, DEFAULT_EXCLUDED)
                case _:
                    with IncludeDispatchKeyGuard(DispatchKey[keys[wanted]]):
                        right[number] += which(X) == wanted

    in_threads(work)
    assert right == [ROUNDS] * THREADS
    assert open_guards == []


def test_no_wrong_kernel_runs_and_no_registration_is_lost_while_all_threads_register() -> None:
    assert churn(rounds=40) == [40 * 4] * THREADS
