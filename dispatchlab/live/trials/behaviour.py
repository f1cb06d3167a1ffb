"""Trials of what an operator does by itself: its signature, the call, what its schema says, and its fake."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dispatchlab.live.failure.positions import position_of
from dispatchlab.live.trials.inputs import KEPT, Inputs, NoInputError, generated, is_tensor, tensors_of
from dispatchlab.live.trials.package_watch import PythonFunction
from dispatchlab.live.trials.subject import NotNeededError, OpenError, Subject, WrongResultError, difference
from dispatchlab.model.failure import Event

_ALIAS: Final = (
    "{}: The output of this custom operator (1) must not also be an input to this custom operator and (2) may not "
    "alias any inputs to this custom operator or other returns: {}"
)
_NO_FAKE: Final = "There was no fake impl registered"
_REFUSED: Final = (
    "The output of this custom operator",
    "There were no tensor arguments to this function",
    "is not an instance of 'sequence'",
    "Unable to cast Python instance",
    "the schema has",
)
"""Parts of messages that say that the operator is wrong, and not the generated input."""


def signature(subject: Subject) -> None:
    """Bind the arguments of the schema to the functions that are registered, with the fewest and with all."""
    arguments = subject.schema.arguments
    for registered in subject.functions:
        for names in (True, False):
            positional = [a.name for a in arguments if not a.kwarg_only and (names or not a.has_default_value())]
            named = [a.name for a in arguments if a.kwarg_only and (names or not a.has_default_value())]
            if registered.role == "setup_context":
                only = any(argument.kwarg_only for argument in arguments)
                positional, named = [], ["ctx", "inputs", *["keyword_only_inputs"] * only, "output"]
            elif registered.role == "backward":
                positional, named = ["ctx", *(f"grad{at}" for at in range(len(subject.schema.returns)))], []
            elif registered.role == "vmap rule":
                positional = ["info", "in_dims", *positional]
            elif registered.keyset:
                positional = ["keyset", *positional]
            error = _misfit(registered, positional, named)
            if error:
                code = getattr(inspect.unwrap(registered.function), "__code__", None)
                at = None if code is None else position_of(code.co_filename, code.co_firstlineno, code.co_name)
                event = Event("does not bind", subject.name, f"{registered.role}|{error}", at)
                subject.misfits.setdefault(registered.role, event)
    if subject.misfits:
        subject.watch.events += subject.misfits.values()
        raise TypeError("; ".join(event.detail for event in subject.misfits.values()))


def _misfit(registered: PythonFunction, positional: Sequence[str], named: Sequence[str]) -> str:
    """Return what Python would raise if it called a function with such arguments; empty where it takes them."""
    function = registered.function
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        parameters.bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        what = str(error)
        if what == "too many positional arguments":
            kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            takes = sum(parameter.kind in kinds for parameter in parameters.parameters.values())
            what = f"takes {takes} positional arguments but {len(positional)} were given ({', '.join(positional)})"
        what = what.replace("missing a required argument:", "missing 1 required positional argument:")
        return f"{getattr(function, '__name__', type(function).__name__)}() {what}"
    return ""


def call(subject: Subject) -> None:
    """Call the operator, choose the inputs of all trials, and look at what kinds of values it returns."""
    if subject.given:
        subject.inputs = list(subject.given)
        for inputs in subject.each():
            result = subject.call(inputs)
            _check_kinds(subject, result)
            assert subject.now is not None
            subject.random |= difference(result, subject.call(subject.now.copy(), seed=1))
        return
    if not subject.device:
        raise OpenError("it has no kernel for a device that is here")
    error = _choose(subject)
    if subject.inputs:
        subject.now = None
    if error is not None:
        raise error
    if not subject.inputs:
        raise OpenError("no generated input gives a call that succeeds")


def _choose(subject: Subject) -> Exception | None:
    """Keep generated inputs on which calls succeed, and return an exception that tells of the operator itself."""
    taken: set[str] = set()
    try:
        for inputs in generated(subject.op, subject.device, subject.seed):
            key = str([(str(tensor.dtype), tensor.dim()) for tensor in tensors_of(inputs.values)])
            if key in taken:
                continue
            subject.now = inputs
            try:
                first, second = subject.call(inputs.copy()), subject.call(inputs.copy())
                _check_kinds(subject, first)
            except RecursionError as error:
                return error
            except Exception as error:
                if any(part in str(error) for part in _REFUSED):
                    return error
                continue
            if difference(first, second):
                continue
            subject.random |= difference(first, subject.call(inputs.copy(), seed=1))
            taken.add(key)
            subject.inputs.append(inputs)
            if len(subject.inputs) == KEPT:
                break
    except NoInputError as error:
        return OpenError(str(error))
    return None


def _check_kinds(subject: Subject, result: Any) -> None:
    """Compare the kinds of values with the schema."""
    returns = subject.schema.returns
    values = (result,) if len(returns) == 1 else () if not returns else tuple(result)
    for returned, value in zip(returns, values, strict=True):
        kind = str(returned.type)
        if value is None and not kind.startswith("Optional"):
            raise TypeError(f"{subject.name} returned None where the schema has {kind}")


def fake(subject: Subject) -> None:
    """Compare what the fake gives with what the kernel gives: shape, strides, dtype and device."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    subject.bound("fake")
    subject.decided()

    def check(given: Inputs, inputs: Inputs) -> None:
        mode = FakeTensorMode(shape_env=ShapeEnv())
        fakes = given.map(lambda tensor: mode.from_tensor(tensor.detach(), static_shapes=True))
        try:
            with mode:
                result = subject.call(fakes)
        except Exception as error:
            if type(error).__name__ in ("DataDependentOutputException", "GuardOnDataDependentSymNode"):
                raise NotNeededError("its result depends on data") from None
            if type(error).__name__ == "UnsupportedOperatorException" or _NO_FAKE in str(error):
                subject.fakeless = True
                raise NotNeededError("it has no fake") from None
            raise
        _compare_metadata(subject, subject.call(inputs), result)

    subject.over(check, layouts=True, counts=_is_meant)


def _is_meant(error: Exception, inputs: Inputs) -> bool:
    """Return whether a fake has to be right on a generated input: of every layout, and of float32."""
    usual = all(str(tensor.dtype) in ("torch.float32", "torch.bool") for tensor in tensors_of(inputs.values))
    return isinstance(error, WrongResultError) and "shape" not in str(error) and (usual or "strides" in str(error))


def _compare_metadata(subject: Subject, real: Any, other: Any) -> None:
    from torch.utils._pytree import tree_leaves

    reals, fakes = tree_leaves(real), tree_leaves(other)
    text = f"{len(fakes)} values where the kernel gives {len(reals)}" if len(reals) != len(fakes) else ""
    for at, (value, guess) in enumerate(zip(reals, fakes, strict=False)):
        if text or not is_tensor(value) or not is_tensor(guess):
            continue
        sizes = [size if isinstance(size, int) else None for size in guess.shape]
        for what, wanted, given in (
            ("dtype", value.dtype, guess.dtype),
            ("device", value.device.type, guess.device.type),
            ("shape", _known(list(value.shape), sizes), sizes),
        ):
            if wanted != given and not text:
                text = f"{what} {given} where the kernel gives {wanted}"
        if not text and None not in sizes and value.numel() and value.layout == guess.layout:
            steps = [
                (size, step, other)
                for size, step, other in zip(value.shape, value.stride(), guess.stride(), strict=True)
            ]
            if any(step != other for size, step, other in steps if size > 1):
                text = f"strides {list(guess.stride())} where the kernel gives {list(value.stride())}"
        if text and len(reals) > 1:
            text = f"in value {at + 1} of {len(reals)}: {text}"
    if text:
        name = subject.name.replace("::", ".")
        raise WrongResultError(
            f"comparing the output of {name} on FakeTensor and concrete Tensors, found mismatched tensor metadata: "
            f"{text}"
        )


def _known(shape: list[int], sizes: list[int | None]) -> list[int | None]:
    """Return a shape without the sizes that a fake does not know."""
    if len(shape) != len(sizes):
        return [*shape]
    return [None if guess is None else size for size, guess in zip(shape, sizes, strict=True)]


def schema(subject: Subject) -> None:
    """Look for writes and aliases that the schema does not declare, and for declared writes that never happen."""
    noted = len(subject.watch.events)
    try:
        _behave(subject)
    except (AssertionError, RuntimeError) as error:
        subject.broken = error, subject.watch.events[noted:]
        raise
    if subject.unknown and not subject.changed:
        subject.watch.note("wrote nothing", subject.name, str(len(subject.inputs)))
        raise WrongResultError(f"{subject.name} changed none of the arguments that it is said to write")


def _behave(subject: Subject) -> None:
    declared = {argument.name for argument in subject.schema.arguments if argument.is_write}
    names = [argument.name for argument in subject.schema.arguments if not argument.kwarg_only]
    for inputs in subject.each(layouts=True):
        assert subject.now is not None
        result = subject.call(inputs)
        pairs = list(zip(names, subject.now.positional, inputs.positional, strict=False))
        pairs += [(name, subject.now.named[name], value) for name, value in inputs.named.items()]
        written = [name for name, before, after in pairs if difference(before, after)]
        subject.changed.update(written)
        undeclared = [name for name in written if name not in declared]
        if undeclared:
            subject.watch.note("wrote undeclared", subject.name, ", ".join(undeclared))
            raise AssertionError(f"{subject.name} wrote {', '.join(undeclared)}, which its schema does not say")
        _find_alias(subject, pairs, result)
    if not any(value.alias_info is not None for value in subject.schema.returns):
        from torch._subclasses.schema_check_mode import SchemaCheckMode

        for inputs in subject.each():
            with SchemaCheckMode():
                subject.call(inputs)


def _find_alias(subject: Subject, arguments: Sequence[tuple[str, Any, Any]], result: Any) -> None:
    """Raise PyTorch's own words where a result shares memory with an argument or another result."""
    values = result if isinstance(result, list | tuple) else (result,)
    held: list[tuple[str, Any]] = [(name, tensor) for name, _, value in arguments for tensor in tensors_of(value)]
    for returned, value in zip(subject.schema.returns, values, strict=False):
        for tensor in tensors_of(value):
            if returned.alias_info is None and tensor.layout is _strided() and tensor.numel():
                key = tensor.untyped_storage()._cdata
                other = next((name for name, one in held if one.untyped_storage()._cdata == key), "")
                if other:
                    raise RuntimeError(_ALIAS.format(subject.name, f"it returns {other} or a view of it"))
            held.append(("another result", tensor))


def _strided() -> Any:
    import torch

    return torch.strided


def autograd_registration(subject: Subject) -> None:
    """Run opcheck's test of the autograd registration."""
    import torch

    path = Path(str(torch.__file__)).parent / "testing" / "_internal" / "optests" / "autograd_registration.py"
    found = importlib.util.spec_from_file_location("dispatchlab_autograd_registration", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)  # its package imports the compiler
    found.loader.exec_module(module)
    tried = False
    for inputs in subject.each():
        graded = inputs.map(lambda tensor: tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex()))
        if any(tensor.requires_grad for tensor in tensors_of(graded.values)):
            tried = True
            if subject.writes:
                graded = graded.map(lambda tensor: tensor.clone())
            module.autograd_registration_check(subject.op, graded.positional, graded.named)
    if not tried:
        raise NotNeededError("no argument is differentiable")
