"""What the comparison of two registries reports."""

from __future__ import annotations

from dataclasses import replace

from expecttest import assert_expected_inline

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind
from dispatchlab.records.compare import Change, ChangeKind, Subject, change_lines, compare
from dispatchlab.records.model import RecordedFallback, RecordedOperator, Registry, registry_of
from tests.registry_cases import BAR, DANGLING, FALLBACKS, FOO, SMALL, T_T, kernel


def with_foo(foo: RecordedOperator) -> Registry:
    return registry_of("x", (foo, BAR, DANGLING), FALLBACKS)


def test_operators_and_fallbacks_come_and_go() -> None:
    new = RecordedOperator(OperatorName("test", "new"), "test::new() -> ()")
    other = RecordedFallback(K.AutogradCPU, fallthrough=False, debug="b.cpp:1")
    came = RecordedFallback(K.Python, fallthrough=False, debug="c")
    found = compare(SMALL, registry_of("x", (FOO, BAR, new), (other, came)))
    assert found.changes == (
        Change(Subject.FALLBACK, ChangeKind.CAME, None, K.Python, None, "c"),
        Change(
            Subject.FALLBACK, ChangeKind.CHANGED, None, K.AutogradCPU, "fallthrough registered at v.cpp:5", "b.cpp:1"
        ),
        Change(
            Subject.OPERATOR,
            ChangeKind.WENT,
            "else::gone",
            None,
            "else::gone, without a def, with 1 kernel",
            None,
            "registered at ext.py:3",
        ),
        Change(Subject.OPERATOR, ChangeKind.CAME, "test::new", None, None, "test::new() -> () with 0 kernels"),
    )
    assert found.compared == 4


def test_a_def_is_compared_part_by_part() -> None:
    other = replace(FOO, schema="test::foo(Tensor y) -> Tensor", debug="b", alias=None, tags=frozenset(["core"]))
    found = compare(SMALL, with_foo(other))
    assert [(change.subject, change.before, change.after) for change in found.changes] == [
        (Subject.SCHEMA, FOO.schema, other.schema),
        (Subject.DEF, "registered at foo.cpp:1", "b"),
        (Subject.ALIAS_KIND, AliasKind.FROM_SCHEMA, "default"),
        (Subject.TAGS, "core pointwise", "core"),
    ]
    gone = replace(FOO, schema=None, debug="", alias=None, tags=frozenset())
    assert [(each.subject, each.kind) for each in compare(SMALL, with_foo(gone)).changes] == [
        (Subject.SCHEMA, ChangeKind.WENT),
        (Subject.ALIAS_KIND, ChangeKind.CHANGED),
        (Subject.TAGS, ChangeKind.CHANGED),
    ]


def test_kernels_come_go_and_change() -> None:
    kernels = (
        kernel(K.CPU, "other.cpp:1", T_T),
        kernel(K.CUDA, "cuda.cpp:1", T_T),
        kernel(K.Meta, "newest.py:1"),
        kernel(K.Meta, "registered at meta.py:7", active=False),
        kernel(K.Meta, "registered at foo.cpp:13", T_T, active=False),
    )
    found = compare(SMALL, with_foo(replace(FOO, kernels=kernels)))
    assert found.count(Subject.KERNEL, ChangeKind.CAME) == 2
    assert_expected_inline(
        "".join(f"{line}\n" for line in change_lines(found)),
        """\
test::foo
  kernel CPU changed: registered at foo.cpp:12 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ] -> other.cpp:1 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
  kernel CUDA came: cuda.cpp:1 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
  kernel Meta came: newest.py:1 :: (none) [ boxed ] over registered at meta.py:7
  kernel Autograd went:  :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
""",  # noqa: E501  the text as it is
    )


def test_kernels_that_only_changed_their_order_are_reported() -> None:
    kernels = (kernel(K.Meta, "registered at foo.cpp:13", T_T), kernel(K.Meta, "registered at meta.py:7", active=False))
    turned = replace(FOO, kernels=(FOO.kernels[0], *kernels, FOO.kernels[3]))
    found = compare(SMALL, with_foo(turned))
    assert [(change.subject, change.key, change.kind) for change in found.changes] == [
        (Subject.KERNEL, K.Meta, ChangeKind.CHANGED)
    ]
    assert found.changes[0].before == (
        "registered at meta.py:7 :: (none) [ boxed ] over "
        "registered at foo.cpp:13 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ] (inactive)"
    )


def test_without_locations_a_moved_line_is_no_difference() -> None:
    moved = replace(FOO, debug="elsewhere", kernels=(kernel(K.CPU, "registered at foo.cpp:99", T_T), *FOO.kernels[1:]))
    assert compare(SMALL, with_foo(moved)).changes
    assert not compare(SMALL, with_foo(moved), locations=False).changes
    boxed = replace(FOO, kernels=(kernel(K.CPU, "registered at foo.cpp:12"), *FOO.kernels[1:]))
    assert compare(SMALL, with_foo(boxed), locations=False).count(Subject.KERNEL, ChangeKind.CHANGED) == 1
