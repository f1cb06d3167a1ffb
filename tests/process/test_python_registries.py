"""The Python-side registries of the running PyTorch: every entry is listed, and its site is a line that there is."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from dispatchlab.model.python_layer import NOTHING, PYTHON_REGISTRIES
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory
from dispatchlab.pytorch.worker.engine import LiveEngine
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
        **{f"py_kernels at {key}": count for key, count in keys.items()},
        **{one.name: of[one.name] for one in PYTHON_REGISTRIES},
        **{name: operators(name) for name in ("py_kernels", "torch_library", "custom_ops", "higher_order")},
        "semi_structured": 0,  # see below
    }


def test_all_that_the_registries_have_is_listed() -> None:
    before, after, layer = _seen()
    assert _counted(layer, first=True) == before
    assert _counted(layer, first=False) == after
    empty = {"mode_rules", "aot_decompositions", "inductor_user_lowerings", "semi_structured"}
    assert {what for what, count in after.items() if not count} == empty
    assert sum(after.values()) > 8000


def test_the_counts_of_pytorch_2_13() -> None:
    before, _, layer = _seen()
    if not layer.torch.startswith("2.13.0"):
        pytest.skip(f"PyTorch {layer.torch} is installed")
    assert {name: count for name, count in before.items() if count} == {
        "py_kernels": 1497,
        "py_kernels at Meta": 1488,
        "py_kernels at CompositeImplicitAutograd": 39,
        "py_kernels at Autograd": 36,
        "decompositions": 1097,
        "export_decompositions": 435,
        "jvp_decompositions": 5,
        "meta_functions": 533,
        "fake_rules": 95,
        "fake_checks": 306,
        "fast_fake_rules": 5,
        "torch_library": 121,
        "custom_ops": 114,
        "higher_order": 41,
        "higher_order_fakes": 28,
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
