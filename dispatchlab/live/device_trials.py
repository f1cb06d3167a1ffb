"""Trials on the device of a package, and of its kernels for operators of others: only those that run one count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import torch
from torch.utils._pytree import tree_map_only

from dispatchlab.live.failure.operator_facts import privateuse1_name
from dispatchlab.live.failure.torch_watch import note_result
from dispatchlab.live.trials.inputs import Inputs, NothingTriedError, generated, tensors_of
from dispatchlab.live.trials.subject import NotNeededError, Subject, Trial, WrongResultError, difference
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
        counts = RecursionError if fallback or (is_own and not subject.given) else Exception
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
    has_device = any(argument.name == "device" for argument in subject.op._schema.arguments)
    for inputs in subject.given or generated(subject.op, "cpu", subject.seed):
        subject.now = plain = inputs.map(lambda tensor: tensor.cpu())
        moved = plain.map(lambda tensor: tensor.to(device))
        moved.named.update({"device": torch.device(device)} if has_device else {})
        expected: list[Any] = []
        try:
            expected = [subject.call(plain.copy(), seed=seed) for seed in (0, 1)]
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
        found = tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), found)
        usual = {tensor.dtype for tensor in tensors_of(inputs.values)} in _USUAL
        fixed = usual and "empty" not in subject.name and expected and not difference(expected[0], expected[1])
        if fixed and difference(expected[0], found, 1e-2):
            raise WrongResultError(f"{subject.name} gives other values on {device} than on the CPU")
    if failed and not passed:
        (reason, subject.now), subject.reached = failed[0], device
        raise reason
    if not passed:
        raise NothingTriedError(f"no input on {device}")
