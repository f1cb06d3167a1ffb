"""The Python-side registries of the running PyTorch: every entry is listed, and its site is a line that there is."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from dispatchlab.live.worker.engine import LiveEngine
from dispatchlab.model.python_layer import NOTHING, PYTHON_REGISTRIES
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory
from tests.live import python_counts
from tests.live.packages import dispatchlab

if find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


@cache
def _seen() -> tuple[dict[str, int], dict[str, int], PythonLayerInMemory]:
    """What is counted on the registries themselves, before and after all of it is imported, and what is read."""
    with LiveEngine() as engine:
        before = engine.ask(f"{python_counts.__name__}:counts")
        layer = engine.ask(f"{python_counts.__name__}:whole_layer")
        after = engine.ask(f"{python_counts.__name__}:counts")
    return before, after, layer


def _counted(layer: PythonLayerInMemory, *, first: bool) -> dict[str, int]:
    """The same counts as `python_counts.counts` makes, of what was read."""
    found = [one for one in layer if not first or not one.needs]
    of = Counter(one.registry for one in found)
    keys = Counter(one.key for one in found if one.registry == "py_kernels")

    def operators(registry: str) -> int:
        return len({one.operator for one in found if one.registry == registry})

    return {
        "operators with Python kernels": operators("py_kernels"),
        **{f"Python kernels at {key}": count for key, count in keys.items()},
        "decompositions": of["decompositions"],
        "decompositions to core ATen": of["export_decompositions"],
        "decompositions for forward mode": of["jvp_decompositions"],
        "decompositions of AOTAutograd": of["aot_decompositions"],
        "meta functions": of["meta_functions"],
        "fake-tensor rules": of["fake_rules"],
        "fake-tensor rules by a property": of["fake_checks"],
        "fast fake-tensor rules": of["fast_fake_rules"],
        "rules for one mode": of["mode_rules"],
        "operators of torch.library": operators("torch_library"),
        "custom operators": operators("custom_ops"),
        "higher-order operators": operators("higher_order"),
        "fake functions of higher-order operators": of["higher_order_fakes"],
        "handlers of DTensor": of["dtensor_handlers"],
        "sharding rules": of["dtensor_rules"],
        "lowerings": of["inductor_lowerings"],
        "fallbacks": of["inductor_fallbacks"],
        "layout constraints": of["inductor_constraints"],
        "lowerings of users": of["inductor_user_lowerings"],
        "decompositions of Inductor": of["inductor_decompositions"],
        "jagged functions": of["jagged"],
        "random decompositions of Inductor": of["inductor_random_decompositions"],
        "random decompositions": of["random_decompositions"],
        "functions of masked tensors": of["masked_tensor"],
        "functions of sharded tensors": of["sharded_tensor"],
    }


def test_all_that_the_registries_have_is_listed() -> None:
    before, after, layer = _seen()
    assert _counted(layer, first=True) == before
    assert _counted(layer, first=False) == after
    empty = {"rules for one mode", "decompositions of AOTAutograd", "lowerings of users"}
    assert {what for what, count in after.items() if not count} == empty
    assert sum(after.values()) > 8000


def test_the_counts_of_pytorch_2_13() -> None:
    before, _, layer = _seen()
    if not layer.torch.startswith("2.13.0"):
        pytest.skip(f"PyTorch {layer.torch} is installed")
    assert before == {
        "operators with Python kernels": 1497,
        "Python kernels at Meta": 1488,
        "Python kernels at CompositeImplicitAutograd": 39,
        "Python kernels at Autograd": 36,
        "decompositions": 1097,
        "decompositions to core ATen": 435,
        "decompositions for forward mode": 5,
        "decompositions of AOTAutograd": 0,
        "meta functions": 533,
        "fake-tensor rules": 95,
        "fake-tensor rules by a property": 306,
        "fast fake-tensor rules": 5,
        "rules for one mode": 0,
        "operators of torch.library": 121,
        "custom operators": 114,
        "higher-order operators": 41,
        "fake functions of higher-order operators": 28,
        "handlers of DTensor": 0,
        "sharding rules": 0,
        "lowerings": 0,
        "fallbacks": 0,
        "layout constraints": 0,
        "lowerings of users": 0,
        "decompositions of Inductor": 0,
        "jagged functions": 0,
        "random decompositions of Inductor": 0,
        "random decompositions": 0,
        "functions of masked tensors": 0,
        "functions of sharded tensors": 0,
    }
    brought = Counter((one.registry, one.needs) for one in layer)
    assert brought["dtensor_rules", "torch.distributed.tensor"] == 1178
    assert brought["inductor_lowerings", "torch._inductor.lowering"] == 1767


def test_a_lowering_that_a_factory_made_has_the_line_that_registered_it() -> None:
    *_, layer = _seen()
    made = [one for one in layer if one.registry == "inductor_lowerings" and ".<locals>." in one.function]
    assert len({one.site for one in made if one.function.endswith("make_pointwise.<locals>.inner")}) > 50
    assert len({one.site for one in made if one.function.endswith("fallback_handler.<locals>.handler")}) > 100
    spec = find_spec("torch._inductor")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("lowering.py").read_text(encoding="utf-8").splitlines()
    named = {one.operator: int(one.site.partition(":")[2]) for one in made}
    for operator, text in {"aten::uniform": "aten.uniform", "aten::rsqrt": "aten.rsqrt"}.items():
        assert text in source[named[operator] - 1], (operator, named[operator])


def test_the_tables_of_semi_structured_tensors_are_read_and_stay_as_they_are() -> None:
    *_, layer = _seen()
    found = [one for one in layer if one.registry == "semi_structured"]
    assert {one.key for one in found} >= {"SparseSemiStructuredTensorCUTLASS", "SparseSemiStructuredTensorCUSPARSELT"}
    assert "aten::mm.*" in {one.operator for one in found}
    assert len({one.slot for one in found}) == len(found) > 20
    with LiveEngine() as engine:
        assert engine.ask(f"{python_counts.__name__}:semi_structured_tables") == [0, len(found), len(found), 0]


def test_every_site_is_a_line_that_there_is() -> None:
    *_, layer = _seen()
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    root = os.path.dirname(os.path.dirname(spec.origin))

    @cache
    def lines(file: str) -> int:
        with open(os.path.join(root, file), "rb") as stream:
            return stream.read().count(b"\n")

    for one in layer:
        file, _, line = one.site.rpartition(":")
        assert file.startswith("torch/"), one
        assert 1 <= int(line) <= lines(file), one
        assert file not in ("torch/library.py", "torch/_library/custom_ops.py"), one
    assert len(layer) > 9000
    assert lines.cache_info().currsize > 50


def test_nothing_is_left_out_and_no_registry_is_missing() -> None:
    *_, layer = _seen()
    assert (layer.missing, layer.not_imported, layer.failed) == ((), (), ())
    empty = {one.registry for one in layer if one.key == NOTHING}
    assert empty <= {"torch_library"}
    filled = {one.registry for one in layer}
    assert {one.name for one in PYTHON_REGISTRIES} - filled == {
        "mode_rules",
        "aot_decompositions",
        "inductor_user_lowerings",
    }


def test_the_installed_pytorch_shows_what_it_has_imported(tmp_path: Path) -> None:
    arguments = ("dump", "aten::add.Tensor", "--engine", "torch", "--layer", "python", "--format", "text")
    done = dispatchlab(tmp_path, *arguments)
    assert done.returncode == 0
    assert "nothing has imported torch.distributed.tensor" in done.stderr
    assert "  post_autograd: torch._refs:add at torch/_refs/__init__.py:" in done.stdout
    assert "Inductor lowerings" not in done.stdout
    more = dispatchlab(tmp_path, *arguments, "--import", "torch._inductor.lowering")
    assert "Inductor lowerings" in more.stdout
