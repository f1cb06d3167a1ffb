"""Traces: the two examples of PyTorch's dispatcher walkthrough, and calls, redispatches and guards of every kind."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    Library,
    boxed,
    fallthrough,
    operator,
    tensor,
    trace,
)
from dispatchlab.call import AutoDispatchBelowAutograd, ExcludeDispatchKeyGuard, IncludeDispatchKeyGuard
from dispatchlab.call.call_observer import observers
from dispatchlab.call.trace import TracedCall, TracedEvent, TracedGuard
from dispatchlab.cli import main
from dispatchlab.lab import Lab
from dispatchlab.questions.trace.blocks import trace_view
from dispatchlab.questions.trace.summary import Trace
from tests.call_cases import CASES, run, tensors

PROGRAMS = Path(__file__).parent / "data" / "walkthrough"
BELOW_AUTOGRAD = DispatchKeySet.full_after(DispatchKey.AutogradOther)


def names(keys: DispatchKeySet) -> list[str]:
    """The keys of a set, highest priority first."""
    return [str(key) for key in keys][::-1]


def golden(name: str, text: str) -> None:
    """Compare with a file; `EXPECTTEST_ACCEPT=1` writes it."""
    path = PROGRAMS / name
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_the_programs_of_the_walkthrough_leave_these_traces(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROGRAMS)
    result = CliRunner().invoke(main, ["trace", "--sets", "--format", "text", f"{program}.py"])
    assert result.exit_code == 0
    golden(f"{program}.txt", result.stdout)


def test_add_of_two_cuda_tensors_goes_from_autograd_to_cuda_past_backend_select() -> None:
    lab = Lab()
    x, y = tensor([1.0], device="cuda"), tensor([2.0], device="cuda")
    with trace() as seen:
        lab.add(x, y)
    first, second = seen.calls
    assert names(first.arguments) == ["AutocastCUDA", "AutogradCUDA", "ADInplaceOrView", "CUDA"]
    assert names(first.included) == ["ADInplaceOrView", "BackendSelect"]
    assert names(first.base) == ["AutogradCUDA", "ADInplaceOrView", "BackendSelect", "CUDA"]
    assert names(first.keys) == ["AutogradCUDA", "CUDA"]
    assert first.kernel is not None
    assert (first.kernel.source, first.kernel.conversion) == ("Autograd", "boxed")
    assert second.keys == first.keys & BELOW_AUTOGRAD
    assert names(second.keys) == ["CUDA"]
    assert second.kernel is not None
    assert (second.kernel.source, second.kernel.conversion) == ("CUDA", "unboxed")


def test_calling_again_below_autograd_leaves_backend_select_and_cuda_as_the_walkthrough_has_it() -> None:
    dispatcher = Dispatcher()
    library = Library("aten", "FRAGMENT", dispatcher=dispatcher)
    library.define("add.Tensor(Tensor self, Tensor other) -> Tensor")
    add = operator(dispatcher, "aten::add.Tensor")

    def autograd(first: object, second: object) -> object:
        with AutoDispatchBelowAutograd():
            return add(first, second)

    library.impl("add.Tensor", autograd, "Autograd")
    library.impl("add.Tensor", lambda first, second: first, "CUDA")
    library.impl(
        "add.Tensor",
        lambda first, second: add.redispatch(DispatchKeySet.of(DispatchKey.CUDA), first, second),
        "BackendSelect",
    )
    x = tensor([1.0], device="cuda")
    with ExcludeDispatchKeyGuard(DispatchKey.ADInplaceOrView), trace() as seen:
        add(x, x)
    assert [names(call.keys) for call in seen.calls] == [
        ["AutogradCUDA", "BackendSelect", "CUDA"],
        ["BackendSelect", "CUDA"],
        ["CUDA"],
    ]


def test_randn_goes_through_backend_select_to_empty_and_normal_with_autograd_excluded() -> None:
    lab = Lab()
    with trace() as seen:
        lab.randn([3, 3], device="cuda")
    assert [(call.depth, call.kind, call.operator, str(call.keys.highest())) for call in seen.calls] == [
        (1, "[call]", "aten::randn", "BackendSelect"),
        (2, "[redispatch]", "aten::randn", "CUDA"),
        (3, "[call]", "aten::empty.memory_format", "BackendSelect"),
        (4, "[redispatch]", "aten::empty.memory_format", "CUDA"),
        (3, "[call]", "aten::normal_", "AutogradCUDA"),
        (4, "[redispatchBoxed]", "aten::normal_", "ADInplaceOrView"),
        (5, "[redispatchBoxed]", "aten::normal_", "CUDA"),
    ]
    normal = seen.calls[4]
    assert names(normal.arguments) == ["AutocastCUDA", "AutogradCUDA", "ADInplaceOrView", "CUDA"]
    (guard,) = normal.steps[:1]
    assert isinstance(guard, TracedGuard)
    assert guard.name == "AutoDispatchBelowAutograd"
    assert guard.newly_excluded.bits & DispatchKeySet.of(DispatchKey.AutogradFunctionality).bits


def test_lines_are_given_as_calls_begin_and_have_upstreams_format() -> None:
    lab = Lab()
    lines: list[str] = []
    with trace(lines.append) as seen:
        lab.add(tensor([1.0]), tensor([2.0]))
    assert lines == [
        " [call] op=[aten::add.Tensor], key=[AutogradCPU]",
        "  [redispatchBoxed] op=[aten::add.Tensor], key=[CPU]",
    ]
    keys = "[AutocastCPU, AutogradCPU, ADInplaceOrView, CPU]"
    shown = trace_view(Trace(tuple(seen.threads))).text()
    assert shown == f"{lines[0]}, self={keys}, other={keys}\n{lines[1]}\n"


def four_ways() -> tuple[Dispatcher, list[Library]]:
    """An operator with a boxed kernel at CPU, and one with an unboxed kernel."""
    dispatcher = Dispatcher()
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define("boxed(Tensor x) -> Tensor")
    library.define("plain(Tensor x) -> Tensor")
    library.impl("boxed", boxed(lambda op, stack: None), "CPU")
    library.impl("plain", lambda x: x, "CPU")
    for name in ("boxed", "plain"):
        library.impl(name, fallthrough, "AutogradCPU")  # so that the call goes to the kernel at once
    return dispatcher, [library]


def test_each_conversion_of_the_calling_convention_is_shown() -> None:
    dispatcher, _held = four_ways()
    conversions = {}
    for name in ("boxed", "plain"):
        called = operator(dispatcher, f"t::{name}")
        keys = DispatchKeySet.of(DispatchKey.CPU)
        with trace() as seen:
            called(tensor([1.0]))
            called.call_boxed([tensor([1.0])])
            called.redispatch(keys, tensor([1.0]))
            called.redispatch_boxed(keys, [tensor([1.0])])
        conversions[name] = [
            (call.kind, None if call.kernel is None else call.kernel.conversion) for call in seen.calls
        ]
    kinds = ("[call]", "[callBoxed]", "[redispatch]", "[redispatchBoxed]")
    assert conversions == {
        "boxed": list(zip(kinds, ("boxed", "", "boxed", ""), strict=True)),
        "plain": list(zip(kinds, ("", "unboxed", "", "unboxed"), strict=True)),
    }


def test_a_call_that_fails_is_in_the_trace_with_what_it_raised() -> None:
    lab = Lab()
    with trace() as seen, pytest.raises(CallError):
        lab.sin(tensor([1.0], device="xla"))
    outer, inner = seen.calls
    assert inner.kernel is None
    assert inner.error is not None
    assert inner.error.startswith("CallError: missing_kernel: aten::sin has no kernel for XLA")
    assert outer.error == inner.error


def test_a_guard_shows_what_it_changes_around_what_ran_inside() -> None:
    lab = Lab()
    x = tensor([1.0])
    with trace() as seen:
        with IncludeDispatchKeyGuard(DispatchKey.Tracer), ExcludeDispatchKeyGuard(DispatchKey.AutogradCPU):
            lab.sin(x)
        lab.cos(x)
    include, after = seen.steps
    assert isinstance(include, TracedGuard)
    (exclude,) = include.steps
    assert isinstance(exclude, TracedGuard)
    assert [names(include.newly_included), names(include.newly_excluded)] == [["Tracer"], []]
    assert not exclude.newly_included
    (call,) = exclude.steps
    assert isinstance(call, TracedCall)
    assert (call.operator, str(call.keys.highest())) == ("aten::sin", "Tracer")
    assert isinstance(after, TracedCall)
    assert (after.operator, str(after.keys.highest())) == ("aten::cos", "AutogradCPU")


def test_every_operator_does_the_same_while_it_is_traced() -> None:
    lab = Lab()
    calls = 0
    for case in CASES:
        given = tensors(case.arrays())
        expected = run(lab, case, given)
        with trace() as seen:
            result = run(lab, case, tensors(case.arrays()))
        assert result.shape == expected.shape
        assert (result.numpy() == expected.numpy()).all(), case
        assert f"aten::{case.operator}" in {call.operator for call in seen.calls}
        assert all(step.error is None for step in seen.calls)
        calls += len(seen.calls)
    assert calls > 2 * len(CASES) > 100
    assert observers == []


def test_each_thread_has_its_own_steps() -> None:
    lab = Lab()

    def work(name: str) -> None:
        for _ in range(20):
            lab(name)(tensor([1.0]))

    workers = [threading.Thread(target=work, args=(name,), name=f"worker {name}") for name in ("sin", "cos", "exp")]
    with trace() as seen:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert {thread.name for thread in seen.threads} == {"worker sin", "worker cos", "worker exp"}
    for thread in seen.threads:
        own = f"aten::{thread.name.removeprefix('worker ')}"
        assert len(thread.steps) == 20
        assert all(isinstance(step, TracedCall) and step.operator == own for step in thread.steps)


def test_nested_traces_both_hear_what_is_inside_the_inner_one() -> None:
    lab = Lab()
    with trace() as outer:
        lab.sin(tensor([1.0]))
        with trace() as inner:
            lab.cos(tensor([1.0]))
    assert [call.operator for call in inner.calls] == ["aten::cos"] * 2
    assert [call.operator for call in outer.calls] == ["aten::sin"] * 2 + ["aten::cos"] * 2


def test_json_has_every_call_and_every_guard() -> None:
    lab = Lab()
    with trace() as seen:
        lab.randn([2], device="cuda")
    read = json.loads(trace_view(Trace(tuple(seen.threads))).json())

    def count(steps: list[dict[str, object]], kind: str) -> int:
        inner = [count(step["steps"], kind) for step in steps]  # type: ignore[arg-type]
        return sum(step["step"] == kind for step in steps) + sum(inner)

    def guards(steps: Sequence[TracedEvent]) -> int:
        return sum(isinstance(step, TracedGuard) + guards(step.steps) for step in steps)

    (thread,) = read["threads"]
    assert count(thread["steps"], "call") == len(seen.calls) == 7
    assert count(thread["steps"], "guard") == guards(seen.steps) == 2
    assert thread["steps"][0]["key"] == "BackendSelect"


# -- the command


def traced(tmp_path: Path, program: str, *options: str) -> tuple[int, str, str]:
    path = tmp_path / "program.py"
    path.write_text(program)
    result = CliRunner().invoke(main, ["trace", "--format", "text", *options, str(path), "one", "--two"])
    return result.exit_code, result.stdout, result.stderr


ONE_CALL = """
from dispatchlab import tensor
from dispatchlab.lab import Lab
lab = Lab()
lab.sin(tensor([1.0]))
"""


def test_the_trace_is_on_standard_output_and_what_the_program_prints_is_not(tmp_path: Path) -> None:
    program = "import sys\nprint(__name__, sys.argv[1:])\n" + ONE_CALL
    code, stdout, stderr = traced(tmp_path, program)
    assert code == 0
    assert stdout == (
        " [call] op=[aten::sin], key=[AutogradCPU], self=[AutocastCPU, AutogradCPU, ADInplaceOrView, CPU]\n"
        "  [redispatchBoxed] op=[aten::sin], key=[CPU]\n"
    )
    assert stderr == "__main__ ['one', '--two']\n"


def test_an_error_of_the_program_shows_the_frames_of_the_program_alone(tmp_path: Path) -> None:
    program = ONE_CALL + "def outer():\n    lab.sin(tensor([1.0], device='xla'))\nouter()\n"
    code, stdout, stderr = traced(tmp_path, program)
    assert code == 1
    assert stdout.count("op=[aten::sin]") == 4
    frames = [line for line in stderr.splitlines() if line.startswith("  File ")]
    assert [frame.rpartition(", ")[2] for frame in frames] == ["in <module>", "in outer"]
    assert "CallError: missing_kernel: aten::sin has no kernel for XLA" in stderr


def test_a_cause_and_a_kernel_of_the_program_keep_their_frames(tmp_path: Path) -> None:
    program = """
from dispatchlab import Dispatcher, Library, operator, tensor
d = Dispatcher()
library = Library("t", "FRAGMENT", dispatcher=d)
library.define("f(Tensor x) -> Tensor")
def kernel(x):
    raise ValueError("no")
library.impl("f", kernel, "CompositeImplicitAutograd")
try:
    operator(d, "t::f")(tensor([1.0]))
except ValueError as error:
    raise RuntimeError("yes") from error
"""
    code, _, stderr = traced(tmp_path, program)
    frames = [line.rpartition(", ")[2] for line in stderr.splitlines() if line.startswith("  File ")]
    assert code == 1
    assert frames == ["in <module>", "in kernel", "in <module>"]
    assert stderr.splitlines()[-1] == "RuntimeError: yes"


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("import sys\nsys.exit(7)", 7, ""),
        ("import sys\nsys.exit()", 0, ""),
        ("raise SystemExit('enough')", 1, "enough\n"),
        ("raise KeyboardInterrupt", 130, "interrupted: the trace has the calls so far\n"),
    ],
)
def test_a_program_that_exits_leaves_its_trace_and_its_code(
    tmp_path: Path, ending: str, code: int, message: str
) -> None:
    found = traced(tmp_path, ONE_CALL + ending)
    assert (found[0], found[1].count("[call]"), found[2]) == (code, 1, message)


def test_a_syntax_error_shows_the_line_and_nothing_of_ours(tmp_path: Path) -> None:
    code, stdout, stderr = traced(tmp_path, "x = = 1\n")
    assert (code, stdout) == (1, "")
    assert stderr.splitlines()[0].endswith('program.py", line 1')
    assert stderr.splitlines()[-1] == "SyntaxError: invalid syntax"


def test_threads_of_the_program_are_waited_for(tmp_path: Path) -> None:
    program = ONE_CALL + (
        "import threading, time\n"
        "def later():\n    time.sleep(0.05)\n    lab.cos(tensor([1.0]))\n"
        "threading.Thread(target=later, name='later').start()\n"
    )
    code, stdout, _ = traced(tmp_path, program, "--sets")
    assert code == 0
    assert stdout.count("[call] op=[aten::cos]") == 1
    assert "thread later\n" in stdout


def test_a_missing_program_is_bad_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["trace", str(tmp_path / "nothing.py")])
    assert result.exit_code == 2
    assert result.stderr.endswith("nothing.py cannot be read: No such file or directory; name a Python file to run\n")


def test_a_terminal_shows_each_call_with_its_kernel_and_guards(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ONE_CALL)
    result = CliRunner().invoke(main, ["--no-color", "trace", "--sets", "--format", "rich", str(program)])
    flat = " ".join(result.stdout.replace("│", " ").split())
    assert result.exit_code == 0
    assert "[call] op=[aten::sin], key=[AutogradCPU]" in flat
    assert "[guard] AutoDispatchBelowADInplaceOrView: excludes AutogradNestedTensor" in flat
    assert "[redispatchBoxed] op=[aten::sin], key=[CPU] handed over: CPU" in flat
    assert "arguments boxed for it" in flat
