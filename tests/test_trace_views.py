"""Parts of traces of the lab: calls of some operators and keys, summaries."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert (found.calls, found.redispatches, found.operators, found.threads) == (2, 2, 2, 1)
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
    result = run(main, ["trace", str(program), "--sets"])
    assert f"--sets after {program} went to it: an option of dispatchlab stands before it" in result.stderr
    result = run(main, ["trace", str(program), "--format=json"])
    assert f"--format after {program} went to it: an option of dispatchlab stands before it" in result.stderr
    assert result.exit_code == 0
