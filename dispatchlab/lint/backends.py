"""Rule DL006: a backend kernel without an autograd formula or a Meta kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.errors import ParseError
from dispatchlab.lint.rule import Found, Rule, Subject, example, kernel_at
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.registry.coverage import Way
from dispatchlab.registry.model import RecordedOperator
from dispatchlab.registry.replay import schema_of

_BACKENDS = tuple(DispatchKey[name] for name in BACKENDS if name != "Meta")


def _alone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        mine = [key for key in _BACKENDS if operator.active_at(key) is not None]
        if not mine or not _maps_tensors(operator):
            continue
        key = mine[0]
        autograd = DispatchKey[f"Autograd{key}"]
        formula = subject.slot(operator, autograd).way not in (Way.FALLBACK, Way.MISSING)
        meta = subject.slot(operator, DispatchKey.Meta).way not in (Way.FALLBACK, Way.MISSING)
        if formula and meta:
            continue
        lacks, trouble = [], []
        if not formula:
            lacks.append(f"no autograd formula at {autograd}")
            trouble.append("gradients stop at it")
        if not meta:
            lacks.append("no Meta kernel")
            trouble.append("it cannot be traced or compiled")
        yield Found(
            str(operator.name),
            key,
            f"it has a kernel for {key} from {kernel_at(operator, key)} and {' and '.join(lacks)}: "
            f"{' and '.join(trouble)}",
            tuple(kernel.debug for kernel in operator.kernels if kernel.key is key),
        )


def _maps_tensors(operator: RecordedOperator) -> bool:
    """Whether it takes a tensor and returns one: else it has no gradient and no shape."""
    if operator.schema is None or operator.active_at(DispatchKey.CompositeImplicitAutograd) is not None:
        return False
    try:
        schema = schema_of(operator.schema)
    except ParseError:
        return False
    sides = (schema.arguments, schema.returns)
    return all(any("Tensor" in str(one.type) for one in side) for side in sides)


ALONE = Rule(
    code="DL006",
    name="backend-alone",
    what="An operator has a backend kernel and neither an autograd formula nor a Meta kernel, or only one of them.",
    why=(
        "Without an autograd kernel the fallback of the autograd key lets the call through and records nothing: "
        "gradients stop, with a warning at the first backward at best. Without a Meta kernel torch.compile, "
        "torch.export and every other tracer fail at the operator, since they cannot tell the shape of its result."
    ),
    mend=(
        "Register them with torch.library.register_autograd and torch.library.register_fake. An operator that is not "
        "differentiable says so with a kernel at Autograd that raises or falls through."
    ),
    bad=example(("CPU", "my_package/cpu.py:3")),
    good=example(
        ("CPU", "my_package/cpu.py:3"), ("Autograd", "my_package/autograd.py:5"), ("Meta", "my_package/meta.py:7")
    ),
    check=_alone,
)
