"""Run PyTorch's own tests of its dispatcher, `test/test_dispatch.py`, unmodified on a lab dispatcher.

    python tools/run_torch_tests.py ~/pytorch
    python tools/run_torch_tests.py ~/pytorch/test/test_dispatch.py --semantics strict

The file is PyTorch's and is not part of this repository: name a checkout of PyTorch, or the file. In this process
`torch` is `tools/torch_stand_in.py`, and the installed PyTorch is not imported. `torch/_python_dispatcher.py` is taken
from the checkout, or else from the installed PyTorch. Exit code 0: every test holds; 1: one fails; 2: none could run.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab import DispatchLabError  # noqa: E402  # of this checkout
from tools.torch_stand_in import StandInError, stand_in  # noqa: E402

TESTS, PYTHON_DISPATCHER = Path("test", "test_dispatch.py"), Path("torch", "_python_dispatcher.py")


def tests_at(path: Path) -> Path:
    """The file of tests that a path names: itself, or the one in a checkout.

    Raises:
        StandInError: there is none.
    """
    found = path / TESTS if path.is_dir() else path
    if not found.is_file():
        raise StandInError(f"there is no {found}: name a checkout of PyTorch, or its {TESTS}")
    return found.resolve()


def python_dispatcher_for(tests: Path) -> Path | None:
    """PyTorch's `torch/_python_dispatcher.py`: of the checkout that the tests are in, or of the installed PyTorch."""
    folders = [*tests.parents]
    installed = importlib.util.find_spec("torch")  # which finds it and does not import it
    if installed is not None and installed.origin is not None:
        folders.append(Path(installed.origin).parents[1])
    return next((folder / PYTHON_DISPATCHER for folder in folders if (folder / PYTHON_DISPATCHER).is_file()), None)


def import_tests(tests: Path, semantics: str, *, recorded: bool = True) -> ModuleType:
    """Import a file of tests with the stand-in of torch in place of it, for the rest of this process.

    Raises:
        DispatchLabError: there are no such semantics, or the file needs something that the stand-in lacks.
    """
    sys.modules.update(stand_in(semantics, python_dispatcher_for(tests), recorded=recorded))
    spec = importlib.util.spec_from_file_location(tests.stem, tests)
    if spec is None or spec.loader is None:
        raise StandInError(f"{tests} is no Python file")
    module = sys.modules[tests.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        missing = " and torch/_python_dispatcher.py is neither in the checkout nor installed"
        reason = missing if error.name == "torch._python_dispatcher" else ""
        raise StandInError(f"{tests} cannot be imported on the stand-in of torch: {error}{reason}") from error
    return module


def _each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _each(one)
        else:
            yield one


def run(tests: Sequence[unittest.TestCase]) -> dict[str, str]:
    """Run tests one by one; the name of each and why it fails, an empty text where it holds."""
    outcomes = {}
    for test in tests:
        result = unittest.TestResult()
        test.run(result)
        troubles = [*result.failures, *result.errors, *((one, f"skipped: {why}") for one, why in result.skipped)]
        outcomes[test.id().partition(".")[2]] = troubles[0][1].strip() if troubles else ""
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("path", type=Path, help="a checkout of PyTorch, or its test/test_dispatch.py")
    parser.add_argument("--semantics", default="torch-2.13", help="the dispatcher to run on (default: %(default)s)")
    parser.add_argument("-k", metavar="TEXT", default="", help="run the tests whose names contain this text")
    parser.add_argument("--verbose", action="store_true", help="print the whole traceback of a test that fails")
    parser.add_argument(
        "--without-registry",
        action="store_true",
        help="begin with PyTorch's backend fallbacks alone, without the operators that it registers",
    )
    options = parser.parse_args(arguments)
    try:
        module = import_tests(tests_at(options.path), options.semantics, recorded=not options.without_registry)
    except DispatchLabError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    loaded = unittest.defaultTestLoader.loadTestsFromModule(module)
    outcomes = run([test for test in _each(loaded) if options.k in test.id()])
    for name, trouble in outcomes.items():
        shown = trouble if options.verbose else trouble.splitlines()[-1] if trouble else ""
        sys.stdout.write(f"FAILS {name}: {shown}\n" if trouble else f"holds {name}\n")
    held = sum(not trouble for trouble in outcomes.values())
    sys.stdout.write(f"{held} of {len(outcomes)} tests hold under {options.semantics}\n")
    if not outcomes:
        sys.stderr.write("error: no test has such a name\n")
        return 2
    return 0 if held == len(outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
