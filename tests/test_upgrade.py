"""What the upgrade report says of two registries, part by part, and that it hides what does not matter."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from dispatchlab.model.keys import SLOT_OF_KEY
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.questions.upgrade.blocks import upgrade_view
from dispatchlab.questions.upgrade.compare_sources import Side, UpgradeReport, compare_registries, upgrade_sources
from dispatchlab.questions.upgrade.operator_changes import Cause, Composite, Find, Reason, Upgrade
from dispatchlab.questions.upgrade.slot_models import MISSING, SlotDifference, kernel_bits, models_of
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.file import newest_bundled
from dispatchlab.registries.model import RecordedFallback, RecordedKernel, RecordedOperator, Registry, registry_of
from dispatchlab.registries.ownership import with_active
from tests.registry_cases import save_registry

CPP = "registered at aten/src/ATen/Register{}.cpp:1"
MINE = "registered at mine/ops.py:3"


def kernel(key: K, debug: str = "", **other: object) -> RecordedKernel:
    return RecordedKernel(key, debug or CPP.format(key.name), **other)  # type: ignore[arg-type]


def operator(schema: str, *kernels: RecordedKernel | K, **other: object) -> RecordedOperator:
    made = sorted((kernel(each) if isinstance(each, K) else each for each in kernels), key=lambda each: each.key)
    return RecordedOperator(
        parse_name(schema.partition("(")[0]),
        schema,
        str(other.pop("debug", CPP.format("Schema"))),
        kernels=with_active(made),
        **other,  # type: ignore[arg-type]
    )


FOO = "aten::foo(Tensor x) -> Tensor"
FALLBACKS = (RecordedFallback(K.Functionalize, fallthrough=False, debug="f.cpp:1"),)


def compared(
    *pairs: tuple[RecordedOperator | None, RecordedOperator | None],
    torch: tuple[str, str] = ("2.12.1", "2.15.0"),
    fallbacks: tuple[tuple[RecordedFallback, ...], tuple[RecordedFallback, ...]] = ((), ()),
) -> Upgrade:
    first, second = (
        registry_of(version, [pair[at] for pair in pairs if pair[at] is not None], fallbacks[at])  # type: ignore[misc]
        for at, version in enumerate(torch)
    )
    return compare_registries(first, second, models_of(*torch))


def test_nothing_is_reported_of_equal_registries() -> None:
    same = operator(FOO, K.CPU)
    found = compared((same, same))
    assert (found.is_empty, found.compared) == (False, 1)  # Named is gone
    assert dict(found.keys_gone) == {K.Named: 0}
    assert compared((same, same), torch=("2.15.0", "2.15.0")).is_empty


def test_moved_lines_renamed_folders_and_split_files_are_no_difference() -> None:
    old = operator(FOO, kernel(K.CPU, "registered at /pytorch/build/aten/src/ATen/RegisterCPU.cpp:5"))
    new = operator(
        FOO,
        kernel(K.CPU, "registered at /__w/pytorch/pytorch/build/aten/src/ATen/RegisterCPU_3.cpp:77"),
        debug="registered at /__w/pytorch/pytorch/aten/src/ATen/RegisterSchema.cpp:6",
    )
    assert compared((old, new)).changed == ()


def test_operators_come_and_go_and_overloads_are_those_of_operators_that_stay() -> None:
    stays = operator(FOO)
    overload, whole = operator("aten::foo.out(Tensor x) -> Tensor"), operator("aten::bar(Tensor x) -> Tensor")
    found = compared((stays, stays), (overload, None), (whole, None), (None, operator("aten::foo.new() -> ()")))
    assert [(each.operator, each.is_overload) for each in found.removed] == [
        ("aten::bar", False),
        ("aten::foo.out", True),
    ]
    assert [(each.operator, each.is_overload) for each in found.added] == [("aten::foo.new", True)]


def test_schemas_that_break_callers_come_first_and_say_why() -> None:
    wide = operator("aten::a(str x) -> Tensor"), operator("aten::a(Any x) -> Tensor")
    broken = operator("aten::b(Tensor grad) -> Tensor"), operator("aten::b(Tensor grad_output) -> Tensor")
    gone = operator("aten::c() -> ()", K.CPU), RecordedOperator(parse_name("aten::c"), kernels=(kernel(K.CPU),))
    (first, one), (second, two), (third, three) = compared(wide, broken, gone).schemas
    assert (first, one.backward) == ("aten::b", "`grad_output` stands where `grad` stood")
    assert one.changes == ("`Tensor grad` -> `Tensor grad_output`",)
    assert (second, two.backward) == ("aten::c", "it has no def any more")
    assert (third, three.is_compatible) == ("aten::a", True)


def test_kernels_gained_and_lost_say_what_calls_found_and_find() -> None:
    old = operator(FOO, K.CPU, K.MPS, K.CompositeExplicitAutograd)
    new = operator(FOO, K.CPU, K.Meta, K.CompositeExplicitAutograd)
    (change,) = compared((old, new)).changed
    assert (change.gained, change.lost) == ((K.Meta,), (K.MPS,))
    composite, direct = Find(Way.COMPOSITE, K.CompositeExplicitAutograd), Find(Way.DIRECT)
    assert {(each.keys, each.before, each.after) for each in change.slots} == {
        ((K.Meta,), composite, direct),
        ((K.MPS,), direct, composite),
    }
    assert {each.cause for each in change.slots} == {Cause.KERNELS}


def test_a_composite_that_becomes_explicit_is_reported_as_that() -> None:
    pair = operator(FOO, K.CompositeImplicitAutograd), operator(FOO, K.CompositeExplicitAutograd, K.Autograd)
    (change,) = compared(pair).changed
    assert change.composite == (Composite.IMPLICIT, Composite.EXPLICIT)
    assert [change.composite for change in compared((pair[1], pair[0])).changed] == [
        (Composite.EXPLICIT, Composite.IMPLICIT)
    ]
    text = upgrade_view(report(pair)).text()
    assert "composite: 1 became explicit (implicit before)\n" in text
    assert "autograd: 1 gained (Autograd 1)\n" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (kernel(K.CPU), kernel(K.CPU, flags=KernelFlags.FALLTHROUGH), Reason.FALLTHROUGH),
        (kernel(K.CPU), kernel(K.CPU, MINE), Reason.OWNER),
        (kernel(K.CPU, MINE), kernel(K.CPU, "registered at yours/ops.py:3"), Reason.FILE),
        (kernel(K.Meta), kernel(K.Meta, "registered at torch/_meta_registrations.py:53"), None),
        (kernel(K.CPU, "registered at /dev/null:7"), kernel(K.CPU, "registered at torch/_decomp.py:7"), None),
        (kernel(K.CPU, MINE), kernel(K.CPU, MINE.replace("3", "9")), None),
    ],
    ids=str,
)
def test_another_kernel_at_the_same_key_has_a_reason(
    old: RecordedKernel, new: RecordedKernel, reason: Reason | None
) -> None:
    found = compared((operator(FOO, old), operator(FOO, new)), torch=("2.13.0", "2.13.0"))
    assert [one.reason for change in found.changed for one in change.replaced] == [reason] * (reason is not None)


def test_a_new_tag_is_counted_once_and_a_known_one_is_reported_where_it_came_and_went() -> None:
    core, both = frozenset(["core"]), frozenset(["core", "out"])
    found = compared(
        (operator("aten::a() -> ()", tags=core), operator("aten::a() -> ()", tags=both)),
        (operator("aten::b() -> ()"), operator("aten::b() -> ()", tags=both)),
        (operator("aten::c() -> ()", alias=AliasKind.PURE_FUNCTION), operator("aten::c() -> ()")),
    )
    assert dict(found.new_tags) == {"out": 2}
    assert [(each.operator, each.tags_gained, each.alias) for each in found.changed] == [
        ("aten::b", ("core",), None),
        ("aten::c", (), ("PURE_FUNCTION", "default")),
    ]


def test_kernels_that_went_with_their_key_are_counted_and_not_listed() -> None:
    found = compared((operator(FOO, K.CPU, K.Named), operator(FOO, K.CPU)))
    assert (found.changed, dict(found.keys_gone)) == ((), {K.Named: 1})
    back = compared((operator(FOO, K.CPU), operator(FOO, K.CPU, K.Named)), torch=("2.15.0", "2.12.1"))
    assert (back.changed, dict(back.keys_new)) == ((), {K.Named: 1})


def test_kernels_of_a_backend_that_one_build_is_without_are_counted_and_not_listed() -> None:
    pair = operator(FOO, K.CPU), operator(FOO, K.CPU, K.CUDA, K.SparseCUDA)
    only = operator("aten::cudnn() -> ()", K.CUDA)
    found = compared(pair, (None, only), torch=("2.15.0+cpu", "2.15.0+cu132"))
    assert (found.changed, dict(found.builds), found.added[0].of_build) == ((), {"CUDA": 2}, "CUDA")
    same = compared(pair, torch=("2.15.0+cu130", "2.15.0+cu132"))
    assert [change.gained for change in same.changed] == [(K.CUDA, K.SparseCUDA)]
    plugin = operator(FOO, K.CPU), operator(FOO, K.CPU, kernel(K.PrivateUse1, MINE))
    (change,) = compared(plugin, torch=("2.15.0+cpu", "2.15.0+cpu")).changed
    assert dict(change.foreign) == {K.PrivateUse1: MINE}


def test_what_the_dispatcher_itself_changed_is_reported_once_for_all_operators() -> None:
    some = [operator(f"aten::n{at}(Tensor x) -> Tensor", K.CompositeImplicitAutograd) for at in range(3)]
    found = compared(*((each, each) for each in some), torch=("2.9.1", "2.10.0"), fallbacks=(FALLBACKS, FALLBACKS))
    assert found.changed == ()
    shared = {key: each for each in found.shared for key in each.keys}
    filled = shared[K.Functionalize]
    assert (filled.cause, filled.before.source, filled.after.way) == (
        Cause.DISPATCHER,
        K.CompositeImplicitAutograd,
        Way.FALLBACK,
    )
    assert filled.operators == ("aten::n0", "aten::n1", "aten::n2")


def test_a_fallback_that_came_changes_the_slots_of_all_operators_at_once() -> None:
    python = RecordedFallback(K.Python, fallthrough=False, debug="p.cpp:1")
    same = operator(FOO, K.CPU)
    found = compared((same, same), torch=("2.15.0", "2.15.0"), fallbacks=((), (python,)))
    assert [(each.key, each.before, each.after) for each in found.fallbacks] == [(K.Python, None, "kernel")]
    assert [(each.keys, each.cause) for each in found.shared] == [((K.Python,), Cause.FALLBACKS)]


def test_slot_changes_are_the_differences_of_the_tables() -> None:
    """Under two models; tests/deep has whole registries."""
    keys = [
        (),
        (K.CPU,),
        (K.CompositeImplicitAutograd,),
        (K.CompositeImplicitAutograd, K.SparseCPU),
        (K.Autograd, K.CUDA),
    ]
    some = [operator(FOO, *each) for each in keys]
    slots = SlotDifference(models_of("2.9.1", "2.15.0"), (FALLBACKS, ()))
    common = {*slots.first.plain.slots} & {*slots.second.plain.slots} - {K.Undefined}
    differing = 0
    for old, new in product(some, repeat=2):
        found = {key: (each.before, each.after) for each in slots(old, new) for key in each.keys}
        befores, afters = slots.first.all(kernel_bits(old)), slots.second.all(kernel_bits(new))
        for key in common:
            before, after = befores.get(SLOT_OF_KEY[key], MISSING), afters.get(SLOT_OF_KEY[key], MISSING)
            assert found.get(key, (before, before)) == (before, after)
        differing += len(found)
    assert differing > 500


# -- the text


def report(*pairs: tuple[RecordedOperator | None, RecordedOperator | None]) -> UpgradeReport:
    """The report on registries of 2.12 and 2.15 with these operators."""
    models = models_of("2.12.1", "2.15.0")
    sides = (Side("torch-2.12", "2.12.1", 1, models[0].name), Side("torch-2.15", "2.15.0", 1, models[1].name))
    return UpgradeReport(*sides, compared(*pairs))


def test_the_first_of_many_are_shown_and_all_of_them_where_that_is_asked_for() -> None:
    pairs: list[tuple[RecordedOperator | None, RecordedOperator | None]] = [
        (operator(f"aten::a{at}() -> ()", K.CPU), None) for at in range(20)
    ]
    pairs += [(operator(f"aten::b{at}() -> ()", K.CPU), operator(f"aten::b{at}() -> ()")) for at in range(20)]
    found = report(*pairs)
    text, whole = upgrade_view(found).text(), upgrade_view(found, everything=True).text()
    assert text.startswith("torch-2.12 -> torch-2.15: callers break, 40 operators compared\n")
    assert "\nremoved: aten 20\n" in text
    assert "\nRemoved operators (20)\n  operator" in text
    assert "  ... and 10 more: see --all\n" in text
    assert "aten::b4, aten::b5" not in text  # the operators of one change, in order of their names
    assert ("aten::a19" in text, "aten::a19" in whole, "see --all" in whole) == (False, True, False)
    assert "aten::b4, aten::b5" in whole
    page = upgrade_view(found).html()
    assert "aten::a19" in page
    assert upgrade_view(report((operator(FOO), operator(FOO)))).json().startswith('{"version": ')


# -- one backend, and one package


def saved(folder: Path, name: str, registry: Registry) -> str:
    path = str(folder / f"{name}.dlreg")
    save_registry(registry, path)
    return path


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    """Registries of two versions."""
    shape = "(Tensor x) -> Tensor"
    old = [
        operator(f"aten::stays{shape}", K.CPU),
        operator(f"aten::goes{shape}", K.CPU),
        operator(f"aten::made{shape}", K.CompositeExplicitAutograd),
        operator(f"aten::split{shape}", K.CompositeImplicitAutograd),
        operator(f"aten::changes{shape}", K.CPU),
    ]
    new = [
        operator(f"aten::stays{shape}", K.CPU),
        operator(f"aten::made{shape}", K.CPU, K.CUDA),
        operator(f"aten::split{shape}", K.CPU, K.Autograd),
        operator("aten::changes(Tensor x, int n) -> Tensor", K.CPU),
        operator(f"aten::fresh{shape}", K.CPU),
        operator(f"mine::taken{shape}", K.CPU),
    ]
    return saved(tmp_path, "old", registry_of("2.12.1", old)), saved(tmp_path, "new", registry_of("2.15.0", new))


PACKAGE = """\
claim: What importing mine registers does not depend on its order.
namespace: mine
registry: old.dlreg
packages: [mine]
registrations:
  - def: aten::goes(Tensor x) -> Tensor
    debug: registered at a.cpp:1
  - def: aten::changes(Tensor x) -> Tensor
    debug: registered at a.cpp:1
  - def: taken(Tensor x) -> Tensor
  - impl: aten::goes
    dispatch: PrivateUse1
    debug: registered at mine/ops.py:3
  - impl: aten::changes
    dispatch: PrivateUse1
    kernel: (Tensor _0) -> Tensor _0
  - impl: aten::made
    dispatch: CompositeExplicitAutograd
    debug: registered at mine/ops.py:4
"""


def test_a_package_is_told_of_a_tag_that_the_other_version_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    tags = "inplace, pt2_compliant_tag, cudagraph_unsafe"
    path.write_text(f"claim: c\nregistrations:\n- def: mine::f_(Tensor(a!) x) -> Tensor(a!)\n  tags: [{tags}]\n")
    found = upgrade_sources("torch-2.13", "torch-2.9", package=str(path))
    assert found.package is not None
    ((before, after),) = [(one.before, one.after) for one in found.package.refused]
    assert before is None
    assert after == "no operator of torch-2.9 has torch.Tag.inplace, which the other version has"


def test_a_package_is_told_what_is_refused_what_dangles_and_what_runs_elsewhere(
    tmp_path: Path, both: tuple[str, str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(PACKAGE)
    found = upgrade_sources(*both, package=str(path))
    package = found.package
    assert package is not None
    assert package.registrations == 4  # the defs of aten are PyTorch's own
    assert [(one.registration.partition(" (")[0], one.before) for one in package.newly_refused] == [
        ("def mine::taken(Tensor x) -> Tensor", None),
        ("impl aten::changes PrivateUse1", None),
    ]
    assert "mine::taken" in str(package.refused[0].after)
    assert package.dangling == ("aten::goes",)
    assert [name for name, _ in package.schemas] == ["aten::changes"]
    lost = [each for each in package.kernels if each.before.is_packages and not each.after.is_packages]
    assert [(each.operator, each.keys) for each in lost] == [
        ("aten::changes", (K.PrivateUse1,)),  # its kernel is refused
        ("aten::made", (K.CPU, K.CUDA)),
    ]
    assert (found.exit_code, package.is_affected) == (1, True)
    text = upgrade_view(found).text()
    assert "refused now: 2\n" in text
    assert "\nOperators with kernels and no def any more (1)\n  aten::goes\n" in text
    same = upgrade_sources(both[0], both[0], package=str(path))
    assert (same.exit_code, same.package is not None and same.package.refused) == (0, ())
    assert "no registration that it uses changes" in upgrade_view(same).text()


def test_a_pytorch_without_a_model_is_read_under_the_nearest_and_that_is_said() -> None:
    first, second = models_of("2.15.0", "2.99.0a0+git")
    version = newest_bundled().removeprefix("torch-")
    assert (first.note, second.name) == ("", newest_bundled())
    assert second.note == f"there is no model of PyTorch 2.99.0a0+git: slots are computed by that of {version}"
    assert [model.name for model in models_of("strict (x.yaml)", "2.9.1")] == ["torch-2.9", "torch-2.9"]
    assert [model.name for model in models_of("a", "b")] == [newest_bundled()] * 2
    assert [model.name for model in models_of("strict (x.yaml)", "torch-2.4 (y.yaml)")] == ["strict", "torch-2.4"]


def test_a_scenario_is_named_by_its_file_and_compared_by_its_own_semantics(tmp_path: Path) -> None:
    text = "claim: One.\nsemantics: {}\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n"
    for name, semantics in (("old.yaml", "torch-2.4"), ("strict.yaml", "strict")):
        (tmp_path / name).write_text(text.format(semantics))
    old, strict = str(tmp_path / "old.yaml"), str(tmp_path / "strict.yaml")
    shown = upgrade_view(upgrade_sources(strict, old)).text()
    assert f"before: {strict}, 1 operator, by the model strict\n" in shown
    assert f"after: {old}, 1 operator, by the model torch-2.4\n" in shown
