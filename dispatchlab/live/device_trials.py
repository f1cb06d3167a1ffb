"""Trials on the device of a package, and of its kernels for operators of others: only those that run one count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import torch
from torch.utils._pytree import tree_map_only

from dispatchlab.live.failure.operator_facts import privateuse1_name
from dispatchlab.live.failure.torch_watch import note_result
from dispatchlab.live.trials.inputs import Inputs, NothingTriedError, generated, tensors_of
from dispatchlab.live.trials.subject import NotNeededError, Subject, Trial, WrongResultError, difference, mismatch
from dispatchlab.model.dump_format import Provenance, parse_table
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.trial_run import CPU_ALONE
from dispatchlab.registries.model import read_dump

_KEYS: Final = {"fake": "Meta", "backward": "Autograd", "vmap": "FuncTorchBatched", "autocast": "Autocast"}
"""The keys that trials reach besides those of a call."""

_USUAL: Final = [{dtype} for dtype in (torch.float32, torch.float64, torch.int64)]


def own_trial(
    operator: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Callable[[Subject, str, Trial], None] | None:
    """Return how to try an operator with a kernel for a device of packages, or with an added kernel.

    An operator of others is tried only on a device, or at a key, that has an added kernel.

    Returns:
        A function of the subject, the name of a trial, and the trial; None to run each trial as it is.
    """
    was = read_dump(before[operator]) if operator in before else None
    is_own = was is None or was.schema is None
    old = {(str(kernel.key), kernel.debug) for kernel in ([] if was is None or is_own else was.kernels)}
    new = {(str(kernel.key), kernel.debug) for kernel in read_dump(after[operator]).kernels} - old
    if is_own and "PrivateUse1" not in {key for key, _ in new}:
        return None
    fallback = "" if new else fallback_text(operator)
    added, debugs = map(set, zip(*(new or {("PrivateUse1", fallback)}), strict=True))
    backend = privateuse1_name() if any("PrivateUse1" in key for key in added) else ""

    def run(subject: Subject, name: str, trial: Trial) -> None:
        here = _runs_on(backend or "cpu", operator, debugs)
        counts = RecursionError if (fallback or is_own) and not subject.given else Exception
        if is_own and any(map(subject.has, ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"))):
            trial(subject)
            if name == "call" and here:
                with suppress(NothingTriedError):
                    call_on_device(subject, backend, counts)
        elif (here and not backend) or (name != "call" and {_KEYS.get(name, ""), f"{_KEYS.get(name)}CPU"} & added):
            trial(subject)
        elif name == "signature":
            trial(subject)
            raise NotNeededError("no call was made")
        elif name == "call" and here:
            call_on_device(subject, backend, counts, alone=is_own)
        else:
            with suppress(Exception):
                subject.choose()  # for the trials that reach other keys
            raise NothingTriedError(CPU_ALONE if here else f"no input on {backend or ' and '.join(sorted(added))}")

    return run


def fallback_text(operator: str) -> str:
    """Return the debug text of the fallback that serves an operator on the device of a package; empty without one."""
    row = parse_table(torch._C._dispatch_dump_table(operator)).get(DispatchKey.PrivateUse1)
    return row.debug if row is not None and row.provenance is Provenance.FALLBACK and not row.fallthrough else ""


def _runs_on(device: str, operator: str, debugs: Collection[str]) -> bool:
    """Return whether tensors can be made on a device, and a call with one runs a kernel with one of these texts."""
    try:
        tensor = torch.empty(1).to(device)
        tensor.cpu()
    except Exception:  # a backend without a kernel for it
        return False
    table = parse_table(torch._C._dispatch_dump_table(operator))
    keys = str(torch._C._dispatch_keys(tensor)).removeprefix("DispatchKeySet(").removesuffix(")").split(", ")
    return any(row.debug in debugs for key, row in table.items() if str(key) in keys and "Autocast" not in str(key))


def call_on_device(subject: Subject, device: str, counts: type[Exception], *, alone: bool = False) -> None:
    """Call an operator on the device of a backend, and compare with the CPU; only exceptions of one class count.

    A fallback may refuse calls, and so may an operator on generated inputs. `alone`: it has no kernel for the CPU.
    """
    passed, failed = False, list[tuple[Exception, Inputs]]()
    has_device = any(argument.name == "device" and argument.kwarg_only for argument in subject.op._schema.arguments)
    for inputs in subject.given or subject.noted or generated(subject.op, "cpu", subject.seed):
        subject.now = plain = inputs.map(lambda tensor: tensor.cpu())
        plain.named.update({"device": torch.device("cpu")} if has_device else {})
        called, expected = [plain.copy(), plain.copy()], list[Any]()
        try:
            moved = plain.map(lambda tensor: tensor.to(device))
            before = moved.map(lambda tensor: tensor.cpu())
        except Exception:
            if subject.given:
                raise
            continue  # a dtype that the backend lacks
        moved.named.update({"device": torch.device(device)} if has_device else {})
        try:
            expected = [subject.call(each, seed=seed) for seed, each in enumerate(called)]
        except Exception:
            if not subject.given and not alone:
                continue
        try:
            found = subject.call(moved)
        except Exception as error:
            if isinstance(error, counts):
                failed.append((error, plain))
            continue
        passed, subject.reached = True, device
        note_result(subject.watch, subject.name, (moved.positional, moved.named), found)
        if subject.events("other device"):
            raise WrongResultError(f"{subject.name} returns a tensor on another device than its input")
        elsewhere = [tensor.device.type for tensor in tensors_of(found) if tensor.device.type != device]
        if has_device and elsewhere:
            raise WrongResultError(f"{subject.name} returns a tensor on {elsewhere[0]} for device={device!r}")
        _compare(subject, device, before, called if expected else [], expected, moved, found)
    if failed and not passed:
        (reason, subject.now), subject.reached = failed[0], device
        raise reason
    if not passed:
        raise NothingTriedError(f"no input on {device}")


def _compare(
    subject: Subject,
    device: str,
    before: Inputs,
    called: Sequence[Inputs],
    expected: Sequence[Any],
    moved: Inputs,
    found: Any,
) -> None:
    """Compare a call on a device with two calls on the CPU, if there are any: arguments, results, and aliases.

    Raises:
        AssertionError: the call wrote an argument that its schema does not mark.
        WrongResultError: the calls differ.
    """
    name, after = subject.name, moved.map(lambda tensor: tensor.cpu())
    for (argument, old), (_, new) in zip(subject.named(before), subject.named(after), strict=True):
        if argument not in subject.writes and difference(old, new, 1e-2):
            subject.watch.note("wrote undeclared", name, argument)
            raise AssertionError(f"{name} wrote {argument}, which its schema does not say")
    shapes = [[tensor.shape for tensor in tensors_of(each.values)] for each in (before, *called)]
    dtypes = {tensor.dtype for tensor in tensors_of(before.values)}
    usual = not dtypes or dtypes - {torch.bool} in _USUAL
    if not called or not usual or shapes[0] != shapes[1]:  # a resized argument has the wrong shape
        return
    names = {argument.name for argument in subject.op._schema.arguments}
    but = ("device",) if {"size", "stride"} <= names else ("device", "strides")  # which the caller chooses, or not
    other = None if mismatch(*expected) else mismatch(expected[0], found, but=but)
    if other is not None:
        here, there = (f"{other[0]} {value}".strip() for value in other[1:])
        raise WrongResultError(f"{name} gives {there} on {device} and {here} on the CPU")
    first, second = zip(expected, [each.values for each in called], strict=True)
    if difference(first, second) or "empty" in name:
        return
    for (argument, old), (_, wanted), (_, new) in zip(*map(subject.named, (before, called[0], after)), strict=True):
        if difference(wanted, new, 1e-2) and not difference(old, new):
            raise WrongResultError(f"{name} does not write to its argument on {device}: {argument}")
    if difference(first, (_on_cpu(found), after.values), 1e-2):
        raise WrongResultError(f"{name} gives other values on {device} than on the CPU")
    for wanted, result in zip(tensors_of(expected[0]), tensors_of(found), strict=False):
        value = torch.full(wanted.shape, 7.0).to(wanted.dtype)
        try:
            wanted.copy_(value)
            result.copy_(value)
        except Exception:  # it cannot be written
            return
        if difference(called[0].values, _on_cpu(moved.values), 1e-2) and not difference(value, result.cpu()):
            kinds = ("copy", "view") if difference(called[0].values, before.values) else ("view", "copy")
            text = f"a {kinds[0]} on {device} where the CPU returns a {kinds[1]}"
            raise WrongResultError(f"{name} returns {text}: a write to the result shows the difference")


def _on_cpu(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), values)
