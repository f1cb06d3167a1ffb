"""What lint says of an operator is what PyTorch does with it: operators are made, linted and called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

torch = pytest.importorskip("torch")

from dispatchlab.live.introspection.registry_reader import called_functions, record_operators  # noqa: E402
from dispatchlab.model.keys import DispatchKey  # noqa: E402
from dispatchlab.questions.certify.certificate import pattern_of  # noqa: E402
from dispatchlab.questions.check.selection import selected  # noqa: E402
from dispatchlab.questions.coverage.coverage_on_lab import Fill  # noqa: E402  # behind importorskip
from dispatchlab.questions.lint.provenance import OperatorCalls  # noqa: E402
from dispatchlab.questions.lint.rule import Finding, Subject  # noqa: E402
from dispatchlab.questions.lint.run import lint, lint_source  # noqa: E402
from dispatchlab.questions.sources.replay_on_lab import for_registry  # noqa: E402
from dispatchlab.registries.file import open_bundled  # noqa: E402

NAMESPACE = "lint_truth"


@pytest.fixture
def library() -> Iterator[object]:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    yield library
    library._destroy()


def found(name: str, *codes: str) -> list[str]:
    """The codes that lint reports for an operator of this process."""
    return [finding.code for finding in linted(name, *codes)]


def linted(name: str, *codes: str) -> Sequence[Finding]:
    """The findings of lint for an operator of this process."""
    registry = record_operators((f"{NAMESPACE}::{name}",))
    calls = {name: OperatorCalls(functions) for name, functions in called_functions().items()}
    subject = Subject(registry, Fill(for_registry("strict"), registry.fallbacks), calls=calls)
    return lint(subject, selected(codes), source=name).findings


def traces(call: Callable[..., object]) -> bool:
    """Whether a call runs on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(3))
        try:
            call(fake)
        except (UnsupportedOperatorException, RuntimeError):
            return False
    return True


@pytest.mark.parametrize(
    ("schema", "keys", "is_traced"),
    [
        ("f(Tensor x) -> Tensor", ("CPU",), False),
        ("f(Tensor x) -> Tensor", ("CPU", "Meta"), True),
        ("f(Tensor x) -> Tensor", ("CPU", "Autograd"), True),
        ("f(Tensor x) -> Tensor", ("CompositeExplicitAutograd",), True),
        ("f(Tensor x) -> Tensor", ("CompositeImplicitAutograd",), True),
        ("f(Tensor x) -> Tensor", ("CPU", "BackendSelect"), True),
        ("f(Tensor(a!) x) -> ()", ("CPU",), True),
    ],
)
def test_no_meta_kernel_is_reported_where_tracing_fails(
    library: object, schema: str, keys: tuple[str, ...], *, is_traced: bool
) -> None:
    library.define(schema)  # type: ignore[attr-defined]
    for key in keys:
        library.impl("f", lambda x: None if "()" in schema else x.sin(), key)  # type: ignore[attr-defined]
    assert traces(getattr(torch.ops, NAMESPACE).f) is is_traced
    assert found("f", "DL006") == ([] if is_traced else ["DL006"])


@pytest.mark.parametrize("has_fake", [True, False])
def test_custom_op_is_reported_when_nobody_gave_it_a_fake_kernel(*, has_fake: bool) -> None:
    name = f"custom_{has_fake}".lower()

    def body(x):  # type: ignore[no-untyped-def]
        return x.sin()

    made = torch.library.custom_op(f"{NAMESPACE}::{name}", body, mutates_args=(), schema="(Tensor x) -> Tensor")
    if has_fake:
        made.register_fake(torch.empty_like)
    assert traces(made) is has_fake
    assert found(name, "DL006") == ([] if has_fake else ["DL006"])
    made._lib._destroy()


def test_custom_op_that_writes_is_no_override() -> None:
    def body(x):  # type: ignore[no-untyped-def]
        x.add_(1)

    schema = "(Tensor(a!) x) -> ()"
    made = torch.library.custom_op(f"{NAMESPACE}::writes", body, mutates_args=("x",), schema=schema)
    assert len(record_operators((f"{NAMESPACE}::writes",)).operators[0].kernels_at(DispatchKey.ADInplaceOrView)) == 2
    assert found("writes", "DL002", "DL006", "DL010") == []
    made._lib._destroy()


class Fills(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Fills its first argument, and returns twice its values: the gradient is zero."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops, NAMESPACE).fills(x)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return torch.zeros_like(grad)


def test_the_formula_that_lint_advises_for_a_custom_op_that_writes_is_accepted_and_runs(library: object) -> None:
    def body(x):  # type: ignore[no-untyped-def]
        return x.fill_(1) * 2

    schema = "(Tensor(a!) x) -> Tensor"
    made = torch.library.custom_op(f"{NAMESPACE}::fills", body, mutates_args=("x",), schema=schema)
    (finding,) = linted("fills", "DL002", "DL010")
    with pytest.raises(RuntimeError, match="functional operator"):
        made.register_autograd(lambda ctx, grad: grad)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        made(torch.ones(3, requires_grad=True) * 1).sum().backward()
    advice, _, rest = finding.fix.partition(", where fn applies a torch.autograd.Function")
    assert (finding.code, rest) == ("DL010", ", if it has a gradient")
    exec(advice, {"lib": library, "fn": Fills.apply})
    x = torch.ones(3, requires_grad=True)
    made(x * 1).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]
    assert found("fills", "DL002", "DL010") == []
    made._lib._destroy()


@pytest.mark.parametrize("key", ["CompositeExplicitAutograd", "Meta"])
def test_the_fix_for_a_kernel_over_that_of_a_custom_op_replaces_nothing(library: object, key: str) -> None:
    """The function at the line of custom_op stays: without it there is no operator."""
    name = f"over_{key}".lower()
    shape = "(Tensor x) -> Tensor"
    made = torch.library.custom_op(f"{NAMESPACE}::{name}", lambda x: x.sin(), mutates_args=(), schema=shape)
    library.impl(name, torch.empty_like, key, allow_override=True)  # type: ignore[attr-defined]
    advice = {finding.code: finding.fix for finding in linted(name, "DL002")}["DL002"]
    clean = torch.library.custom_op(f"{NAMESPACE}::{name}_2", lambda x: x.sin(), mutates_args=(), schema=shape)
    exec(advice.partition(", in place of")[0].replace(name, f"{name}_2"), {"torch": torch, "fn": torch.empty_like})
    assert found(f"{name}_2", "DL002") == []
    assert traces(clean) is (key == "Meta")
    for each in (made, clean):
        each._lib._destroy()


def test_a_meta_kernel_alone_is_reported_where_calls_raise(library: object) -> None:
    library.define("f(Tensor x) -> Tensor")  # type: ignore[attr-defined]
    library.impl("f", torch.empty_like, "Meta")  # type: ignore[attr-defined]
    call = getattr(torch.ops, NAMESPACE).f
    assert traces(call)
    with pytest.raises(NotImplementedError):
        call(torch.ones(3))
    assert found("f", "DL011") == ["DL011"]
    library.impl("f", torch.sin, "Autograd")  # type: ignore[attr-defined]
    call(torch.ones(3))
    assert found("f", "DL011") == []


def test_an_alias_of_nothing_is_refused_by_compile(library: object) -> None:
    library.define("f(Tensor x) -> Tensor(a)")  # type: ignore[attr-defined]
    for key in ("CPU", "Meta"):
        library.impl("f", torch.empty_like, key)  # type: ignore[attr-defined]
    compiled = torch.compile(lambda x: getattr(torch.ops, NAMESPACE).f(x) + 1, backend="aot_eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="alias annotations"):
        compiled(torch.ones(3))
    assert found("f", "DL014") == ["DL014"]


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the bundled registry is PyTorch 2.13's")
def test_every_finding_on_pytorch_is_so() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException

    seen = {"DL006": 0, "DL010": 0, "DL011": 0}
    findings = lint_source("torch-2.13-cpu", selected((*seen,))).findings
    here, recorded = record_operators({finding.operator for finding in findings}), open_bundled("torch-2.13-cpu")
    for finding in findings:
        now, then = here.operator(finding.operator), recorded.operator(finding.operator)
        assert now is not None
        assert then is not None
        if pattern_of(now) != pattern_of(then):
            continue  # another test made PyTorch register more for it
        namespace, _, rest = finding.operator.partition("::")
        name, _, overload = rest.partition(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        if finding.code == "DL010":
            backend = finding.key if str(finding.key) in ("CPU", "CUDA") else "CPU"
            rows = torch._C._dispatch_dump_table(finding.operator).splitlines()
            (row,) = (row for row in rows if row.startswith(f"Autograd{backend}:"))
            assert row.endswith("[backend fallback]"), finding.operator
        elif (arguments := _arguments(operator)) is None:
            continue
        elif finding.code == "DL006":
            with FakeTensorMode() as mode, pytest.raises(UnsupportedOperatorException):
                operator(*(mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for one in arguments))
        else:
            with pytest.raises(NotImplementedError):
                operator(*arguments)
        seen[finding.code] += 1
    assert (seen["DL006"], seen["DL011"]) == (16, 2)
    assert 90 < seen["DL010"] <= 111


def _arguments(operator: object) -> list[object] | None:
    """Something for each positional argument of an operator; None where a type is not known, such as a class of C++."""
    values = {"int": 1, "number": 1, "float": 1.0, "bool": True, "str": "none", "List[int]": [1, 1], "List[Tensor]": []}
    found: list[object] = []
    for one in operator._schema.arguments:  # type: ignore[attr-defined]
        if one.kwarg_only or one.has_default_value():
            continue
        text = str(one.type)
        if text.startswith("Optional"):
            found.append(None)
        elif text == "Tensor":
            found.append(torch.ones(4, 4))
        elif text in values:
            found.append(values[text])
        else:
            return None
    return found
