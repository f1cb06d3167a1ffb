"""`dump --register` prints what `torch._python_dispatcher.PythonDispatcher` prints."""

from __future__ import annotations

import pytest

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.installed_torch import resolved_semantics
from dispatchlab.model.profile import TORCH
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.questions.dump.registered_keys import keys_view, register_keys
from tests.command_line import run

python_dispatcher = pytest.importorskip("torch._python_dispatcher", reason="PyTorch is not installed")


def _table(keys: list[str]) -> str | None:
    """What PyTorch prints; None where it refuses."""
    dispatcher = python_dispatcher.PythonDispatcher()
    try:
        dispatcher.register(keys)
        return str(dispatcher.dispatchTable())
    except RuntimeError:
        return None
    finally:
        del dispatcher.ref


def test_500_random_lists_of_keys_have_the_table_of_the_python_dispatcher() -> None:
    random, refused = SplitMix64(7), 0
    supported = list(python_dispatcher.PythonDispatcher.supported_keys)
    semantics, seen = resolved_semantics(TORCH), set[str]()
    for _ in range(500):
        some = list(supported)
        random.shuffle(some)
        keys = some[: 1 + random.below(8)]
        if random.chance(10):
            keys.append(keys[0])
        expected = _table(keys)
        try:
            found = keys_view(register_keys(", ".join(keys), engine="lab", semantics=semantics)).text()
        except DispatchLabError:
            assert expected is None, keys
            refused += 1
            continue
        assert found == expected, keys
        seen.add(found)
    assert refused > 50
    assert len(seen) > 150


def test_the_command_prints_the_table_to_the_character() -> None:
    done = run("dump", "--register", "CPU, XLA, CompositeImplicitAutograd", "--format", "text")
    assert (done.exit_code, done.stdout) == (0, _table(["CPU", "XLA", "CompositeImplicitAutograd"]))


def test_a_list_that_cannot_be_registered_is_refused() -> None:
    for keys, error in (
        ("CPU, CPU", "CPU is named twice"),
        (",", "no key was named"),
        ("CompositeImplicitAutograd CompositeExplicitAutograd", "leave one of the two Composite keys out"),
        ("CPV", "did you mean CPU?"),
        ("CPU --list", "'--list'"),
    ):
        done = run("dump", "--register", keys)
        assert (done.exit_code, error in done.stderr) == (2, True), done.stderr
    done = run("dump", "test::foo", "--register", "CPU")
    assert (done.exit_code, "name none" in done.stderr) == (2, True)
