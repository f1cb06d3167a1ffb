"""Parts of traces of the lab: calls of some operators and keys, summaries; the probe's code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from dispatchlab import Lab, tensor, trace
from dispatchlab.call.trace import TracedThread
from dispatchlab.cli import main
from dispatchlab.model.dump_format import Provenance
from dispatchlab.questions.trace.blocks import summary_view, trace_view
from dispatchlab.questions.trace.summary import Trace, summary

ROOT = Path(__file__).parents[1]


def recorded() -> tuple[TracedThread, ...]:
    """Two calls with redispatches."""
    lab = Lab()
    with trace() as seen:
        lab.mul(tensor([1.0], requires_grad=True), tensor([2.0]))
        lab.sin(tensor([1.0]))
    return seen.threads


def test_a_summary_counts_each_kernel_by_operator_and_key() -> None:
    found = summary(Trace(recorded()))
    assert (found.calls, found.redispatches, found.unclear, found.operators, found.threads) == (2, 2, 0, 2, 1)
    assert sum(use.count for use in found.kernels) == 4
    assert sum(use.reason is Provenance.AUTOGRAD for use in found.kernels) == 2
    text = summary_view(found).text()
    assert text.startswith("2 calls and 2 redispatches, of 2 operators in 1 thread\n")
    assert text.count("\n") == 7
    assert json.loads(summary_view(found).json())["kernels"][0]["count"] == 1


def test_markdown_has_the_text_in_a_fence() -> None:
    trace = Trace(recorded())
    assert trace_view(trace).markdown() == f"```\n{trace_view(trace).text()}```\n"


def test_the_command_filters_and_sums_up(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("from dispatchlab import Lab, tensor\nLab().sin(tensor([1.0]))\nprint('hello')\n")
    run = CliRunner().invoke
    result = run(main, ["trace", "--summary", str(program)])
    assert result.exit_code == 0
    assert result.stdout.startswith("1 call and 1 redispatch, of 1 operator in 1 thread")
    result = run(main, ["trace", "--key", "CPU", str(program)])
    assert result.stdout == "  [redispatchBoxed] op=[aten::sin], key=[CPU]\n"
    result = run(main, ["trace", "--operator", "cos", str(program)])
    assert (result.stdout, "no call is left" in result.stderr) == ("", True)


def test_the_code_of_the_probe_is_that_of_its_source() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "build_probe.py"), "--check"], check=False)
    assert done.returncode == 0, "probe.c has changed: run python tools/build_probe.py"


@pytest.mark.parametrize(
    ("types", "first", "how", "places"),
    [
        (("Tensor", "Tensor"), 3, {}, [(1, 3), (1, 4)]),
        (("Tensor", "float", "Tensor?"), 2, {}, [(1, 2), (2, 3)]),
        (("int[]", "Tensor[]", "Tensor"), 3, {}, [(3, 6), (1, 5)]),
        (("Tensor", "int[]", "Tensor"), 3, {"own": False}, [(1, 3), (7, 0)]),
        (("Tensor[]", "int"), 3, {"by_list_reference": True}, [(7, 3)]),
        (("Tensor", "SymInt[1]?", "Tensor"), 3, {}, [(1, 3), (1, 4)]),
        (("Tensor", "SymInt?", "int"), 3, {}, [(1, 3)]),
        (("Tensor?[]", "Tensor"), 3, {}, [(7, 3), (1, 4)]),
        (("Tensor", "int", "Generator?"), 3, {"boxed": True}, [(4, 3), (6, 1)]),
    ],
)
def test_tensors_are_where_the_calling_convention_puts_them(
    types: tuple[str, ...], first: int, how: dict[str, bool], places: list[tuple[int, int]]
) -> None:
    pytest.importorskip("numpy")
    from dispatchlab.live.tracing.slot_probes import places_of_tensors

    options = SimpleNamespace(**{"boxed": False, "by_list_reference": False, "own": True, **how})
    found = places_of_tensors(types, first, **vars(options))
    assert [(one >> 24, one & 0xFFFFFF) for one in found] == places
