"""What `explain --mode` says off a bundled registry, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dispatchlab import Dispatcher, Library
from dispatchlab.cli import main
from dispatchlab.model.python_layer import Mode, PythonRegistration
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.explain_operator import NoPythonRecordError, explain_operator
from dispatchlab.questions.explain.hops import schema_of
from dispatchlab.questions.explain.modes import explain_under
from dispatchlab.questions.explain.result import ImplementedBy, ModeExplanation

SOURCE = "torch-2.13-cpu"


def under(operator: str, mode: Mode, *arguments: str) -> ModeExplanation:
    found = explain_operator(operator, arguments, source=SOURCE, mode=mode).under
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("operator", "mode", "kinds"),
    [
        ("aten::nonzero", "fake", [ImplementedBy.FAKE_RULE, ImplementedBy.META, ImplementedBy.REAL_KERNEL]),
        ("aten::mm", "fake", [ImplementedBy.META, ImplementedBy.REAL_KERNEL]),
        ("aten::native_batch_norm", "fake", [ImplementedBy.DECOMPOSITION]),
        ("aten::matmul", "fake", [ImplementedBy.COMPOSITE]),
        ("aten::is_coalesced", "fake", [ImplementedBy.DIRECT]),
        ("prims::add", "fake", [ImplementedBy.PRIM_META]),
        ("aten::matmul", "compile", [ImplementedBy.PYTHON_KERNEL]),
        ("aten::mm", "compile", [ImplementedBy.DECOMPOSITION, ImplementedBy.LOWERING]),
        ("aten::topk", "compile", [ImplementedBy.LOWERING]),
        ("aten::sort.values_stable", "compile", [ImplementedBy.FUNCTIONALIZATION]),
        ("aten::add_.Tensor", "compile", [ImplementedBy.FUNCTIONALIZATION]),
        ("aten::lu_unpack", "compile", [ImplementedBy.FALLBACK]),
        ("aten::masked_select", "compile", [ImplementedBy.IMPLICIT_FALLBACK]),
        ("aten::equal", "compile", [ImplementedBy.UNSUPPORTED]),
        ("aten::rand_like", "compile", [ImplementedBy.DECOMPOSITION]),
        ("aten::mm", "vmap", [ImplementedBy.BATCHING_RULE]),
        ("aten::matmul", "vmap", [ImplementedBy.BATCHED_DECOMPOSITION]),
        ("aten::linear", "vmap", [ImplementedBy.ALL_TRANSFORMS]),
        ("aten::index_reduce", "vmap", [ImplementedBy.SLOW_FALLBACK]),
        ("aten::equal", "vmap", [ImplementedBy.UNSUPPORTED]),
        ("aten::nonzero", "vmap", [ImplementedBy.UNSUPPORTED]),
        ("aten::bernoulli.out", "vmap", [ImplementedBy.UNSUPPORTED]),
        ("aten::rand_like", "vmap", [ImplementedBy.RANDOM_RULE]),
        ("aten::addr", "vmap", [ImplementedBy.DECOMPOSITION]),
        ("aten::zeros", "vmap", [ImplementedBy.KERNEL]),
        ("aten::mm", "grad", [ImplementedBy.AUTOGRAD]),
        ("aten::matmul", "grad", [ImplementedBy.COMPOSITE]),
        ("aten::mm", "functionalize", [ImplementedBy.FUNCTIONALIZE_FALLBACK]),
        ("aten::add_.Tensor", "functionalize", [ImplementedBy.FUNCTIONALIZATION]),
        ("aten::mm", "autocast", [ImplementedBy.AUTOCAST]),
        ("aten::add.Tensor", "autocast", [ImplementedBy.KERNEL]),
    ],
)
def test_chain(operator: str, mode: Mode, kinds: list[ImplementedBy]) -> None:
    found = under(operator, mode)
    assert [one.kind for one in found.chain] == kinds
    assert all(one.gives_up for one in found.chain[:-1])
    assert not found.chain[-1].gives_up


@pytest.mark.parametrize("backend", ["CPU", "CUDA", "MTIA"])
def test_a_kernel_of_a_backend_takes_the_composite_one_away_where_pytorch_knows_the_backend(backend: str) -> None:
    dispatcher = Dispatcher(semantics="torch-2.13")
    library = Library("mine", "DEF", dispatcher=dispatcher)
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x, backend)
    view = dispatcher.explain("mine::f")
    assert view is not None
    composite = PythonRegistration("py_kernels", "mine::f", "CompositeImplicitAutograd", "mine:f")
    described = describe_arguments(schema_of(view), [f"{backend.lower()} requires_grad"])
    runs = explain_under("compile", view, described, [composite]).runs.kind
    # Its table of the backends below an autograd key has no MTIA. See Note [Backends of an autograd key].
    assert (runs is ImplementedBy.PYTHON_KERNEL) == (backend == "MTIA")


@pytest.mark.parametrize("mode", ["fake", "compile", "export"])
@pytest.mark.parametrize(
    ("schema", "fakes", "kinds"),
    [
        ("f(Tensor x) -> Tensor", (), {ImplementedBy.UNSUPPORTED}),
        ("f(Tensor x) -> Tensor", ("fake",), {ImplementedBy.LIBRARY_FAKE, ImplementedBy.IMPLICIT_FALLBACK}),
        ("f(Tensor(a!) x) -> ()", (), {ImplementedBy.TRIVIAL_FAKE, ImplementedBy.FUNCTIONALIZATION}),
    ],
)
def test_the_fake_that_custom_op_registers_counts_when_it_was_given_one(
    mode: Mode, schema: str, fakes: tuple[str, ...], kinds: set[ImplementedBy]
) -> None:
    dispatcher = Dispatcher(semantics="torch-2.13")
    library = Library("mine", "DEF", dispatcher=dispatcher)
    library.define(schema)
    library.impl("f", lambda x: x, "CPU")
    view = dispatcher.explain("mine::f")
    assert view is not None
    made = [PythonRegistration("custom_ops", "mine::f", key, "mine:f") for key in ("custom_op", *fakes)]
    registers = PythonRegistration("torch_library", "mine::f", "fake", "_check_pystubs_once.<locals>.inner")
    found = explain_under(mode, view, describe_arguments(schema_of(view), ["cpu"]), [*made, registers])
    assert found.runs.kind in {*kinds, *([ImplementedBy.GRAPH_NODE] if ImplementedBy.UNSUPPORTED not in kinds else ())}


@pytest.mark.parametrize(
    ("operator", "option", "kinds", "later"),
    [
        ("aten::addmm", {"mode": "compile", "compiler": "aot_eager"}, [ImplementedBy.GRAPH_NODE], ImplementedBy.KERNEL),
        ("aten::add_.Tensor", {"mode": "compile", "compiler": "aot_eager"}, [ImplementedBy.FUNCTIONALIZATION], None),
        ("aten::silu", {"mode": "make_fx"}, [ImplementedBy.GRAPH_NODE], None),
        ("aten::linear", {"mode": "make_fx"}, [ImplementedBy.COMPOSITE], None),
        (
            "aten::silu",
            {"mode": "make_fx", "decompositions": "core_aten"},
            [ImplementedBy.DECOMPOSITION, ImplementedBy.GRAPH_NODE],
            None,
        ),
        (
            "aten::exponential_",
            {"mode": "make_fx", "decompositions": "inductor"},
            [ImplementedBy.DECOMPOSITION],
            None,
        ),
        ("aten::equal", {"mode": "make_fx"}, [ImplementedBy.UNSUPPORTED], None),
        ("aten::_ctc_loss", {"mode": "export"}, [ImplementedBy.UNSUPPORTED], None),
        ("aten::_unique2", {"mode": "dtensor"}, [ImplementedBy.UNSUPPORTED], None),
        ("aten::lift_fresh", {"mode": "make_fx"}, [ImplementedBy.GRAPH_NODE], None),
        ("aten::lift_fresh", {"mode": "export"}, [ImplementedBy.GRAPH_NODE], None),
        ("aten::linear", {"mode": "export"}, [ImplementedBy.GRAPH_NODE], ImplementedBy.COMPOSITE),
        ("aten::silu_backward", {"mode": "export"}, [ImplementedBy.GRAPH_NODE], ImplementedBy.GRAPH_NODE),
        ("aten::add_.Tensor", {"mode": "export"}, [ImplementedBy.GRAPH_NODE], ImplementedBy.FUNCTIONALIZATION),
        ("aten::addmm", {"mode": "dtensor"}, [ImplementedBy.SHARDING_RULE], ImplementedBy.KERNEL),
        ("aten::argmax", {"mode": "dtensor"}, [ImplementedBy.DTENSOR_HANDLER], None),
        ("aten::linear", {"mode": "dtensor"}, [ImplementedBy.COMPOSITE], None),
        (
            "aten::trace",
            {"mode": "dtensor"},
            [ImplementedBy.DECOMPOSITION, ImplementedBy.UNSUPPORTED],
            ImplementedBy.KERNEL,
        ),
        ("aten::randperm", {"mode": "dtensor"}, [ImplementedBy.KERNEL], None),
    ],
)
def test_tracing_and_dtensors(
    operator: str, option: dict[str, Any], kinds: list[ImplementedBy], later: ImplementedBy | None
) -> None:
    found = explain_operator(operator, (), source=SOURCE, **option).under
    assert found is not None
    assert [one.kind for one in found.chain] == kinds
    assert (None if found.later is None else found.later.chain[0].kind) is later


def test_an_older_dtensor_derives_no_rule_and_the_version_is_named() -> None:
    found = explain_operator("aten::trace", (), source="torch-2.4", mode="dtensor").under
    assert found is not None
    assert [one.kind for one in found.chain] == [ImplementedBy.UNSUPPORTED]
    assert "of 2.4" in found.unsure


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("torch-2.9", [*[ImplementedBy.COMPOSITE] * 3, *[ImplementedBy.UNSUPPORTED] * 3]),
        ("torch-2.10", [*[ImplementedBy.GRAPH_NODE] * 2, ImplementedBy.DECOMPOSITION, *[ImplementedBy.GRAPH_NODE] * 3]),
    ],
)
def test_before_2_10_graphs_keep_no_kernel_beside_a_composite_one_and_dynamo_takes_no_data(
    source: str, kinds: list[ImplementedBy]
) -> None:
    calls: list[tuple[str, Mode]] = [
        ("native_batch_norm", "make_fx"),
        *((name, "export") for name in ("silu_backward", "all.dimname")),
        *((name, "compile") for name in ("_unique2", "unique_consecutive", "_local_scalar_dense")),
    ]
    for (name, mode), kind in zip(calls, kinds, strict=True):
        found = explain_operator(f"aten::{name}", (), source=source, mode=mode, compiler="aot_eager").under
        assert found is not None
        runs = found.later.chain[0] if found.later is not None and mode == "export" else found.runs
        assert runs.kind is kind


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("torch-2.5", [ImplementedBy.FUNCTIONALIZATION, *[ImplementedBy.COMPOSITE] * 2, ImplementedBy.GRAPH_NODE]),
        ("torch-2.6", [ImplementedBy.GRAPH_NODE] * 4),
    ],
)
def test_before_2_6_export_keeps_no_write_no_composite_view_and_no_call_that_gives_nothing(
    source: str, kinds: list[ImplementedBy]
) -> None:
    names = ("add_.Tensor", "chunk", "batch_norm", "_linalg_check_errors")
    found = [explain_operator(f"aten::{name}", (), source=source, mode="export").under for name in names]
    assert [one.runs.kind for one in found if one is not None] == kinds
    assert found[-1] is not None
    assert (found[-1].later is None) == (source == "torch-2.5")


def test_what_runs_afterwards_is_shown_in_every_format() -> None:
    call = ["explain", "aten::addmm", "--from", SOURCE, "--mode", "export", "--format"]
    text, rich, json_text = (CliRunner().invoke(main, [*call, format]).stdout for format in ("text", "rich", "json"))
    assert "by run_decompositions(): node of the graph, aten::addmm" in text
    assert "by run_decompositions()" in " ".join(rich.split())
    assert json.loads(json_text)["mode"]["later"]["chain"][0]["kind"] == "node of the graph"


@pytest.mark.parametrize("option", [["--backend", "aot_eager"], ["--decompositions", "all"]])
def test_an_option_of_another_mode_is_refused(option: list[str]) -> None:
    done = CliRunner().invoke(main, ["explain", "aten::mm", "--from", SOURCE, "--mode", "fake", *option])
    assert done.exit_code == 2
    assert f"{option[0]} needs --mode" in done.stderr


def test_symbolic_sizes_bring_the_fast_rule() -> None:
    found = under("aten::add.Tensor", "fake")
    assert found.runs.kind is ImplementedBy.META
    assert found.symbolic[0].kind is ImplementedBy.FAST_RULE


@pytest.mark.parametrize(
    ("source", "kind"), [("torch-2.9", ImplementedBy.DECOMPOSITION), ("torch-2.10", ImplementedBy.FAKE_RULE)]
)
def test_a_rule_for_symbolic_sizes_comes_first_where_there_is_one(source: str, kind: ImplementedBy) -> None:
    found = explain_operator("aten::slice.Tensor", (), source=source, mode="fake").under
    assert found is not None
    assert (found.symbolic or found.chain)[0].kind is kind


def test_sparse_tensors_are_not_decomposed() -> None:
    assert under("aten::native_batch_norm", "fake", "cpu sparse").runs.kind is not ImplementedBy.DECOMPOSITION


def test_a_source_without_a_record_of_python_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text('claim: c\nregistrations:\n- def: "test::foo(Tensor self) -> Tensor"\n', encoding="utf-8")
    with pytest.raises(NoPythonRecordError, match="has no record of what Python registers"):
        explain_operator("test::foo", [], source=str(path), mode="fake")


@pytest.mark.parametrize("format", ["text", "rich", "json"])
def test_every_format_shows_what_runs(format: str) -> None:
    call = ["explain", "aten::nonzero", "--from", SOURCE, "--mode", "fake", "--format", format]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 0
    if format == "json":
        mode = json.loads(done.stdout)["mode"]
        assert mode["chain"][0]["function"] == "torch._subclasses.fake_impls:nonzero"
        assert mode["python_dispatcher"] is False
    else:
        assert "torch._subclasses.fake_impls:nonzero" in " ".join(done.stdout.split())


@pytest.mark.parametrize("format", ["text", "rich"])
def test_a_transform_says_what_each_hop_does(format: str) -> None:
    call = ["explain", "aten::index_reduce", "--from", SOURCE, "--mode", "vmap", "--format", format]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 0
    shown = " ".join(done.stdout.split())
    assert "inside of torch.func.vmap" in shown
    assert "2. FuncTorchBatched: here runs the slow fallback of vmap" in shown
    assert "3. FuncTorchDynamicLayerBackMode: the call leaves vmap" in shown


def test_a_step_for_each_hop() -> None:
    found = under("aten::mm", "grad")
    keys = ["FuncTorchDynamicLayerFrontMode", "AutogradCPU", "FuncTorchDynamicLayerBackMode", "AutogradCPU", "CPU"]
    assert [str(one.key) for one in found.steps] == keys == [str(hop.key) for hop in found.call.hops]


@pytest.mark.parametrize(
    ("operator", "device", "says"),
    [
        ("aten::mm", "cpu", "cast to bfloat16"),
        ("aten::mm", "cuda", "cast to float16"),
        ("aten::sum", "cuda", "dtype is float32"),
        ("aten::cat", "cpu", "the widest of their dtypes"),
        ("aten::binary_cross_entropy", "cuda", "its kernel raises"),
        ("aten::add.Tensor", "cpu", "no kernel is registered at AutocastCPU"),
        ("aten::mm", "meta", "there is no autocast for the device"),
    ],
)
def test_autocast_says_what_is_cast(operator: str, device: str, says: str) -> None:
    assert says in under(operator, "autocast", "list:cpu" if operator == "aten::cat" else device).runs.why


def test_a_transform_needs_no_record_of_python(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        'claim: c\nregistrations:\n- def: "test::foo(Tensor self) -> Tensor"\n- impl: "test::foo"\n  dispatch: CPU\n',
        encoding="utf-8",
    )
    found = explain_operator("test::foo", [], source=str(path), semantics="torch-2.13", mode="vmap").under
    assert found is not None
    assert found.runs.kind is ImplementedBy.SLOW_FALLBACK


def test_a_higher_order_operator_is_refused_in_a_sentence() -> None:
    done = CliRunner().invoke(main, ["explain", "higher_order::cond", "--from", SOURCE, "--mode", "vmap"])
    assert done.exit_code == 2
    assert "is a higher-order operator, which has no schema and no dispatch table" in done.stderr


def test_without_a_mode_json_has_none() -> None:
    done = CliRunner().invoke(main, ["explain", "aten::nonzero", "--from", SOURCE, "--format", "json"])
    assert json.loads(done.stdout)["mode"] is None
