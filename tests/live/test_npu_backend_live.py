"""Which kernels programs need of a backend, held to a backend in C++ that has those kernels, or some of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.live.npu_backend import BASE, Runs, difference, same_numbers
from tests.live.npu_programs import BY_HAND, source


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with Runs(tmp_path_factory.mktemp("npu")) as found:
        yield found


@pytest.mark.parametrize("name", ["in_place_view", "out", "convolution", "classifier", "adam", "autocast"])
def test_a_program_runs_on_the_listed_kernels_as_on_the_cpu(runs: Runs, name: str) -> None:
    program = source(BY_HAND[name])
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    ran = runs.on_device(program, needed)
    assert difference(ran, runs.predicted(program, needed)) == ""
    if name != "autocast":
        assert same_numbers(ran.output, runs.on_cpu(source(BY_HAND[name], "cpu")))


def test_without_any_of_the_listed_kernels_a_program_fails_at_that(runs: Runs) -> None:
    program = source(BY_HAND["index_put"])
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    assert {"aten::_copy_from", "aten::empty_strided"} < needed
    for name in sorted(needed):
        kernels = needed - {name}
        ran = runs.on_device(program, kernels)
        assert ran.code == 1
        assert f"'{name}'" in ran.error
        assert difference(ran, runs.predicted(program, kernels)) == ""


@pytest.mark.parametrize("left_out", ["", "_copy_from", "_copy_from_and_resize", "empty_strided", "view"])
def test_what_a_fallback_needs_itself(runs: Runs, left_out: str) -> None:
    program = source("x = given(2, 3).view(3, 2); x.add_(1); show(x)")
    kernels = set(BASE) - {left_out}
    ran, predicted = runs.on_device(program, kernels, fallback=True), runs.predicted(program, kernels, fallback=True)
    assert difference(ran, predicted) == ""
    missing = next((name for name, what in predicted.calls if what == "missing"), "")
    assert missing == ("" if left_out in ("", "view") else f"aten::{left_out}")
    assert (ran.code == 0) is (missing == "")


def test_a_fallback_does_not_serve_a_convolution(runs: Runs) -> None:
    program = source(BY_HAND["grouped_convolution"])
    ran, predicted = runs.on_device(program, BASE, fallback=True), runs.predicted(program, BASE, fallback=True)
    assert ("aten::convolution_overrideable", "missing") in predicted.calls
    assert difference(ran, predicted) == ""


def test_the_backend_is_renamed_and_has_a_generator(runs: Runs) -> None:
    text = "g = torch.Generator(device).manual_seed(1)\nx = torch.rand(2, device=device, generator=g)\nprint(x.device)"
    ran = runs.on_device(source(text), {"empty.memory_format", "uniform_"})
    assert (ran.code, ran.output) == (0, "npu:0\n"), ran.error
