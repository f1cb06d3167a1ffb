"""Ask `why` about each failure that PyTorch's own tests expect, and list the answers.

    python tools/expected_failures.py ~/pytorch --output expected.tsv
    python tools/expected_failures.py ~/pytorch --file test/test_overrides.py -k torch_function

The tests are PyTorch's and are not part of this repository: name a checkout. Of its files those tests run, on the
installed PyTorch, that expect an exception. `why` is asked about each exception when the test catches it. A test that
expects another text than the installed PyTorch has does not hold, and its failure is left out.

The columns are: where, test, about, answer, exception, sentence, fixes. About is `dispatch` where

- a module of Python raised that tools/refusals.py lists, the old torch._custom_ops, or opcheck;
- or a check of C++ that it lists and does not take for a check of values;
- or anything else, and the text speaks of vmap, of fakes, of subclasses or of overloads;

and otherwise what raised. An answer is the number of a cause, in brackets where it says that the dispatcher is not
concerned, or `-`.
"""

from __future__ import annotations

import argparse
import dis
import inspect
import re
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab import watch_exceptions  # noqa: E402  # of this checkout
from dispatchlab.live.failure.program_watch import ProgramWatch, plain_text  # noqa: E402
from dispatchlab.questions.why.exception import why_exception  # noqa: E402
from tools.refusals import NOT_OURS, PYTHON, cpp_refusals  # noqa: E402

FILES: Final = (
    "test/test_custom_ops.py",
    "test/test_python_dispatch.py",
    "test/test_overrides.py",
    "test/functorch/test_vmap.py",
)
MODULES: Final = (*PYTHON, "_custom_op", "torchgen", "testing/_internal/optests/autograd_registration.py")
SPEAKS: Final = re.compile(
    r"^opcheck\(|\bvmap\b|functorch|__torch_(?:function|dispatch)__|[tT]ensor subclass|wrapper subclasses|"
    r"^unsupported operand|python storage|Unable to cast .* to Tensor|fake impl|failed to match any schema"
)
SHORTEST: Final = 12
"""The fewest letters of a text of C++ that tell its check from others."""


class Observer:
    """Asks `why` about each exception that the tests of a file catch.

    Args:
        tests: the file.
        sources: the checkout, with the C++.
        watch: what is noted of this process.
    """

    def __init__(self, tests: Path, sources: Path, watch: ProgramWatch) -> None:
        import torch

        self.tests, self.watch = tests, watch
        self.torch = Path(torch.__file__).parent
        self.checks = [check for check in cpp_refusals(sources, self.torch) if len(check.longest) >= SHORTEST]
        self.rows: dict[tuple[str, str], tuple[str, ...]] = {}

    def observe(self) -> None:
        """Ask at the end of each `assertRaises` from now on."""
        leave = unittest.case._AssertRaisesContext.__exit__

        def asked(context: Any, kind: type[BaseException] | None, error: Any, at: TracebackType | None) -> bool:
            text = context.expected_regex
            if kind is not None and issubclass(kind, context.expected) and (text is None or text.search(str(error))):
                self.ask(error.with_traceback(at))
            return bool(leave(context, kind, error, at))

        unittest.case._AssertRaisesContext.__exit__ = asked  # type: ignore[method-assign]

    def ask(self, error: BaseException) -> None:
        """Add the row of an exception, one for each text at a line of the tests."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and Path(frame.f_code.co_filename) != self.tests:
            frame = frame.f_back
        test, line = (frame.f_code.co_name, frame.f_lineno) if frame is not None else ("", 0)
        where, said = f"{self.tests.name}:{line}", f"{type(error).__name__}: {plain_text(error)}"[:400]
        if (where, said) not in self.rows:
            answer = why_exception(error, self.watch)
            code = answer.code or "-"
            fixes = " | ".join(f"[{trial.outcome}] {trial.fix.text}" for trial in answer.fixes)
            shown = code if answer.dispatcher or code == "-" else f"({code})"
            self.rows[where, said] = (where, test, self.about(error), shown, said, answer.cause, fixes)

    def about(self, error: BaseException) -> str:
        """Return `dispatch`, or what else raised an exception."""
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        code, at = (last.tb_frame.f_code, last.tb_lasti) if last is not None else (self.about.__code__, 0)
        file, text = Path(code.co_filename), plain_text(error)
        by_python = dis.opname[code.co_code[at]] in ("RAISE_VARARGS", "RERAISE")
        module = file.relative_to(self.torch).as_posix() if file.is_relative_to(self.torch) else file.parent.name
        if by_python and file == self.tests:
            return "the test itself"
        if SPEAKS.search(text) or (by_python and module.startswith(MODULES)):
            return "dispatch"
        check = next((check for check in self.checks if check.longest in text), None)
        if by_python or check is None:
            return f"{module}, which raised" if by_python else "another check of C++"
        listed = f"{check.at} {check.exception} {check.text}"
        return next((kind for rule, kind in NOT_OURS.items() if re.search(rule, listed, re.DOTALL)), "dispatch")


def tests_of(suite: unittest.TestSuite, name: str) -> Iterator[unittest.TestCase]:
    """Return the tests of a suite that expect an exception and whose names contain a text."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test, name)
        elif name in test.id():
            method = inspect.unwrap(getattr(test, test._testMethodName).__func__)
            with suppress(OSError):
                if "Raises" in inspect.getsource(method):
                    yield test


def run(checkout: Path, file: str, name: str) -> str:
    """Run the tests of a file in this process, and return its rows of the table."""
    watch = watch_exceptions()
    tests = checkout / file
    sys.path[:0] = [str(tests.parent), str(checkout / "test")]
    sys.argv = [str(tests)]
    spec = spec_from_file_location(tests.stem, tests)
    if spec is None or spec.loader is None:
        raise SystemExit(f"there is no {tests}")
    module = sys.modules[tests.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    observer = Observer(tests, checkout, watch)
    observer.observe()
    outcomes: Counter[str] = Counter()
    for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module), name):
        result = unittest.TestResult()
        watch.forget_calls()
        test.run(result)
        failed = [*result.failures, *result.errors]
        outcomes["do not hold" if failed else "are skipped" if result.skipped else "hold"] += 1
        for _, said in failed:
            print(f"{test.id()} does not hold: {said}", file=sys.stderr)  # noqa: T201
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"{file}: of the tests that expect an exception {counts}")  # noqa: T201
    return "".join("\t".join(" ".join(text.split()) for text in row) + "\n" for row in observer.rows.values())


def main() -> int:
    """Write the table, and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of PyTorch")
    parser.add_argument("--file", action="append", help="run this file of the checkout, not the four")
    parser.add_argument("-k", metavar="TEXT", default="", help="run the tests whose names contain this text")
    parser.add_argument("--output", type=Path, help="write the table to this file")
    options = parser.parse_args()
    files = options.file or FILES
    if len(files) == 1 and options.output:
        options.output.write_text(run(options.checkout.resolve(), files[0], options.k), encoding="utf-8")
        return 0
    table = ""
    for file in files:
        with tempfile.NamedTemporaryFile("r", suffix=".tsv", encoding="utf-8") as part:
            alone = [str(options.checkout), "--file", file, "-k", options.k, "--output", part.name]
            subprocess.run([sys.executable, __file__, *alone], check=True)
            table += part.read()
    if options.output:
        options.output.write_text(table, encoding="utf-8")
    answers = [row[3] for row in (line.split("\t") for line in table.splitlines()) if row[2] == "dispatch"]
    kinds = Counter("none" if code == "-" else "not the dispatcher" if "(" in code else "a cause" for code in answers)
    print(f"{table.count(chr(10))} expected failures, {len(answers)} about dispatch:", dict(kinds))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
