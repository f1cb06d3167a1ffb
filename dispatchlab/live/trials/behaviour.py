"""Trials of an operator alone: its signature, a call, its schema, and its fake."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dispatchlab.live.failure.torch_watch import aliases
from dispatchlab.live.trials.inputs import Inputs, NothingTriedError, emptied, gapped, tensors_of, transposed, varied
from dispatchlab.live.trials.subject import NotNeededError, Subject, WrongResultError, difference, mismatch
from dispatchlab.model.trial_run import NO_KERNEL


def signature(subject: Subject) -> None:
    """Bind the fewest and all arguments of the schema to the kernel; the watch has already done this."""
    unfit = subject.events("unfit function")
    for event in sorted(unfit, key=lambda event: event.detail.startswith("fake")):
        function = event.at.function if event.at else "_"
        if event.detail.startswith("fake"):
            name = subject.name.replace("::", ".")
            raise TypeError(f"fake tensor call: TypeError {name}: {function}() takes other arguments")
        arguments = subject.op._schema.arguments
        optional = [one.name for one in arguments if one.has_default_value()]
        is_short = event.detail.count(",") + 1 == len(arguments) - len(optional)
        missing = " and ".join(optional) if is_short else ""
        raise TypeError(f"{function}() takes {f'no argument for {missing}' if missing else 'other arguments'}")


def call(subject: Subject) -> None:
    """Call the operator, choose the inputs of all trials, and note the kinds of values it returns."""
    dump = torch._C._dispatch_dump(subject.name)
    if not subject.device or not re.search(r"^(?!name:|schema:|debug:|Meta:)\w+(?:\[alias\])?:", dump, re.MULTILINE):
        raise NothingTriedError(NO_KERNEL)
    subject.choose()
    if subject.random:
        return
    for inputs, change in product(subject.inputs, (transposed, gapped)):
        plain, other = inputs.copy(), change(inputs)
        if other is not None and subject.takes(other):
            subject.now = other
            written = other.copy()
            if difference([subject.call(plain), *plain.values], [subject.call(written), *written.values]):
                raise WrongResultError(f"{subject.name} gives other values where its input is not contiguous")


def schema(subject: Subject) -> None:
    """Look for writes and aliases that the schema does not declare, and for declared writes that never happen."""
    try:
        changed = _changed(subject)
    except Exception as error:
        subject.broken = error
        raise
    if subject.name in subject.watch.unknown and not changed:
        subject.watch.note("wrote nothing", subject.name, str(len(subject.inputs)))
        raise WrongResultError(f"{subject.name} changed no argument that its schema marks as written")


def _changed(subject: Subject) -> set[str]:
    """Return the arguments that calls changed; the schema must name all of them."""
    changed = set[str]()
    for inputs, other in subject.each(transposed):
        result = subject.call(other)
        pairs = zip(subject.named(inputs), subject.named(other), strict=True)
        written = {name for (name, before), (_, after) in pairs if difference(before, after)}
        if undeclared := sorted(written - subject.writes):
            subject.watch.note("wrote undeclared", subject.name, ", ".join(undeclared))
            raise AssertionError(f"{subject.name} wrote {', '.join(undeclared)}, which its schema does not say")
        _find_alias(subject, subject.named(other), result)
        changed |= written
        shorts = varied(
            inputs, lambda one: [not one] if type(one) is bool else [0.0, 1.0] if type(one) is float else []
        )
        for short in () if subject.given else shorts:  # for which a kernel may return its argument
            subject.now, copied = short, short.copy()
            try:
                _find_alias(subject, subject.named(copied), subject.call(copied))
            except Exception as error:
                if subject.is_wrong(error):
                    raise
    if not any(returned.alias_info is not None for returned in subject.op._schema.returns):
        for _, other in subject.each():
            try:
                with SchemaCheckMode():
                    subject.call(other)
            except NotImplementedError as error:
                if "HigherOrderOperator" not in str(error):
                    raise
                why = "its kernel calls a higher-order operator, which PyTorch's check does not take"
                raise NothingTriedError(why) from error
    return changed


def _find_alias(subject: Subject, arguments: Sequence[tuple[str, Any]], result: Any) -> None:
    """Raise PyTorch's own error if a result shares memory with an argument or another result."""
    for name in aliases(subject.op._schema, arguments, result):
        subject.watch.note("returned alias", subject.name, name)
        text = "must not also be an input to this custom operator and (2) may not alias any inputs or returns"
        of = f"{subject.op._opname} (with implementation in its kernel)"
        raise RuntimeError(f"{of}: The output of this custom operator (1) {text}")


def fake(subject: Subject) -> None:
    """Compare the results of the fake and of the kernel: shape, strides, dtype and device."""
    subject.decided()

    def check(inputs: Inputs, other: Inputs) -> None:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        fakes = inputs.map(lambda tensor: mode.from_tensor(tensor.detach(), static_shapes=True))
        try:
            with mode:
                result = subject.call(fakes)
        except Exception as error:
            subject.fakeless |= type(error).__name__ == "UnsupportedOperatorException" or "no fake impl" in str(error)
            if any(not tensor.numel() for tensor in tensors_of(inputs.values)):
                raise NotNeededError("it takes no empty tensor under a fake mode") from None
            if "DataDependent" in type(error).__name__ and subject.has("CompositeImplicitAutograd"):
                raise NotNeededError("its parts ask for values of tensors, where a compiler breaks the graph") from None
            raise
        if (differs := mismatch(subject.call(other), result)) is not None:
            text = "on FakeTensor and concrete Tensors, found mismatched tensor metadata:"
            name, what = subject.name.replace("::", "."), f"{differs[0]} {differs[2]}".strip()
            raise WrongResultError(f"comparing the output of {name} {text} {what} where the kernel gives {differs[1]}")

    subject.over(check, transposed, emptied, counts=_is_meant)
    for inputs in subject.inputs:
        failures: list[tuple[Exception, Inputs]] = []
        right = 0
        for other in (inputs, *filter(subject.takes, _variants(subject, inputs))):
            with suppress(Exception):  # the fake is not meant for it
                try:
                    check(other, other.copy())
                    right += 1
                except WrongResultError as error:
                    failures.append((error, other))
        if failures and right > (not subject.given):  # an operator may be meant for one size alone
            failure, subject.now = failures[0]
            raise failure


def _variants(subject: Subject, inputs: Inputs) -> Iterator[Inputs]:
    """Return inputs with the other value of each bool; if they are generated, also inputs of other sizes."""
    if not subject.given:
        yield inputs.map(lambda tensor: tensor[tuple(slice(max(2, size - 1)) for size in tensor.shape)].contiguous())
        yield inputs.map(lambda tensor: tensor.repeat([3] * tensor.dim()))
        yield from varied(inputs, lambda value: [2, 3] if type(value) is int else [])
        if subject.events("impl") or subject.events("custom_op"):  # a kernel in C++ may read out of its tensors
            alone = [*varied(inputs, _doubled)]
            taken = [*filter(subject.takes, alone)]
            yield from taken if len(taken) < len(alone) else ()  # a kernel that takes all may look at no size
    if subject.most > 1:
        yield from varied(inputs, lambda value: [not value] if isinstance(value, bool) else [])


def _doubled(value: object) -> list[Any]:
    """Return a tensor twice as large in one dimension, for each dimension."""
    return [torch.cat([value] * 2, at) for at in range(value.dim())] if isinstance(value, torch.Tensor) else []


def _is_meant(error: Exception, inputs: Inputs) -> bool:
    """Return whether the fake must be right on a generated input: every layout, but only float32."""
    usual = all(str(tensor.dtype) in ("torch.float32", "torch.bool") for tensor in tensors_of(inputs.values))
    return isinstance(error, WrongResultError) and "shape" not in str(error) and (usual or "strides" in str(error))


def autograd_registration(subject: Subject) -> None:
    """Run opcheck's test of the autograd registration."""
    path = Path(str(torch.__file__)).parent / "testing" / "_internal" / "optests" / "autograd_registration.py"
    found: Any = importlib.util.spec_from_file_location("dispatchlab_autograd_registration", path)
    module = importlib.util.module_from_spec(found)  # its package imports the compiler
    found.loader.exec_module(module)

    def check(_: Inputs, inputs: Inputs) -> None:
        read = tensors_of([value for name, value in subject.named(inputs) if name not in subject.writes])
        graded = [tensor.requires_grad_() for tensor in read if tensor.is_floating_point() or tensor.is_complex()]
        if not graded:
            raise NotNeededError("no argument is differentiable")
        try:
            module.autograd_registration_check(subject.op, inputs.positional, inputs.named)
        except RuntimeError as error:
            if subject.writes and "don't support automatic differentiation" in str(error):
                raise NotNeededError("it writes its result into an argument") from None
            raise

    subject.over(check, counts=lambda error, inputs: True)
