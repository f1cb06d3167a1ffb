"""The subject of trials: an operator, its inputs, and how calls of it are made and judged."""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from dispatchlab.live.failure.program_watch import ProgramWatch
from dispatchlab.live.trials.inputs import KEPT, Inputs, NothingTriedError, generated, overload, tensors_of
from dispatchlab.model.failure import Event

_REFUSED: Final = ("The output of this custom operator", "There were no tensor arguments to this function")
"""Parts of messages that say that the operator is wrong, and not the generated input."""


Change: TypeAlias = Callable[[Inputs], Inputs | None]
"""Makes another input of one; None where it does not apply."""


class NotNeededError(Exception):
    """The trial is not needed."""


class WrongResultError(Exception):
    """A call had another result or effect than expected."""


def _refuses_on_purpose(error: Exception) -> bool:
    """Return whether a user's function raises in its own check, for example of a dtype, or cannot use a value."""
    if isinstance(error, KeyError | ValueError):
        return True
    own = os.path.dirname(torch.__file__) + os.sep
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(own)]
    said = isinstance(error, RuntimeError | ValueError | TypeError) and not isinstance(error, NotImplementedError)
    return said and bool(frames) and (frames[-1].line or "").startswith(("raise ", "torch._check"))


@dataclass(slots=True)
class Subject:
    """An operator and the facts about it.

    Args:
        name: its full name.
        watch: where events are noted.
        given: the user's inputs; may be empty.
        noted: inputs of calls in tests, which replace generated inputs.
        seed: chooses generated inputs.
        most: the number of generated inputs to keep; if it is one, no value of a bool is tried but the given one.
        inputs: the chosen inputs, on which calls succeed.
        now: the input of the present call.
        broken: the exception of the schema trial.
        fakeless: whether it has no fake kernel.
        random: whether calls with other seeds return other results.
        unsteady: whether calls with the same seeds return other results.
        graded: whether it has a gradient.
        reached: the device of the calls of the present trial.
        run: runs a trial if it runs a kernel of the packages, of an operator of others; None for their own operators.
    """

    name: str
    watch: ProgramWatch
    given: Sequence[Inputs] = ()
    noted: Sequence[Inputs] = ()
    seed: int = 0
    most: int = KEPT
    inputs: list[Inputs] = field(default_factory=list)
    now: Inputs | None = None
    broken: Exception | None = None
    fakeless: bool = False
    random: bool = False
    unsteady: bool = False
    graded: bool = False
    reached: str = ""
    run: Callable[[Subject, str, Trial], None] | None = None

    @property
    def op(self) -> Any:
        """The overload."""
        return overload(self.name)

    @property
    def writes(self) -> frozenset[str]:
        """The arguments that the schema marks as written."""
        return frozenset(argument.name for argument in self.op._schema.arguments if argument.is_write)

    def named(self, inputs: Inputs) -> list[tuple[str, Any]]:
        """Return the arguments with their names."""
        names = [argument.name for argument in self.op._schema.arguments if not argument.kwarg_only]
        return [*zip(names, inputs.positional, strict=False), *inputs.named.items()]

    @property
    def device(self) -> str:
        """A device of this machine with a kernel; empty where there is none."""
        alone = self.has("CUDA") and not self.has("CPU") and not self.has("CompositeExplicitAutograd")
        return "cpu" if not alone or self.has("CompositeImplicitAutograd") else "cuda" * torch.cuda.is_available()

    def has(self, key: str) -> bool:
        """Return whether a kernel is registered at a key."""
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(self.name, key))

    def events(self, kind: str) -> list[Event]:
        """Return the events of a kind about this operator."""
        return [event for event in self.watch.events if event.kind == kind and event.subject == self.name]

    def call(
        self, inputs: Inputs, function: Callable[..., Any] | None = None, *, grad: bool = False, seed: int = 0
    ) -> Any:
        """Seed the generators, and call the operator, or a function that replaces it."""
        random.seed(seed)
        devices = {self.device, *(tensor.device.type for tensor in tensors_of(inputs.values))}
        # torch.manual_seed formats a stack for each kind of device that is not here.
        (torch.default_generator.manual_seed if devices == {"cpu"} else torch.manual_seed)(seed)
        with torch.set_grad_enabled(grad):
            return (function or self.op)(*inputs.positional, **inputs.named)

    def takes(self, inputs: Inputs) -> bool:
        """Return whether a call succeeds."""
        with suppress(Exception):
            self.call(inputs.copy())
            return True
        return False

    def choose(self) -> None:
        """Choose the inputs of all trials: the user's inputs, or generated inputs on which calls succeed.

        Raises:
            Exception: a call with the user's inputs raised, or the operator itself is wrong.
        """
        stored = (inputs.map(lambda tensor: tensor.to(self.device)) for inputs in self.noted)
        self.given = self.given or [*filter(self.takes, stored)]
        tries = self.given or generated(self.op, self.device, self.seed, varied=self.most == KEPT)
        taken: set[str] = set()
        unsteady: list[Inputs] = []
        refused = ""
        try:
            for inputs in tries:
                self.now = inputs
                key = str([(str(tensor.dtype), tensor.dim()) for tensor in tensors_of(inputs.values)])
                if not self.given and len(taken) == self.most:
                    break
                if not self.given and key in taken:
                    continue
                try:
                    results = [self.call(inputs.copy(), seed=seed) for seed in (0, 0, 1)]
                except Exception as error:
                    if self.given or self.is_wrong(error):
                        raise
                    continue
                if self.events("wrong result") or self.events("other device"):
                    raise AssertionError(f"{self.name} returned other values than its schema says")
                if difference(results[0], results[1]):
                    unsteady.append(inputs)
                    continue
                self.random |= difference(results[0], results[2])
                taken.add(key)
                self.inputs.append(inputs)
        except NothingTriedError as error:
            refused = str(error)
        if unsteady and (self.given or not self.inputs):
            self.random = self.unsteady = True
            self.inputs = [*self.inputs, *unsteady[: self.most]]
        if not self.inputs:
            raise NothingTriedError(refused or "no generated input gives a call that succeeds")

    def is_wrong(self, error: Exception) -> bool:
        """Return whether an exception shows that the operator is wrong, not the generated input."""
        refused = any(part in str(error) for part in _REFUSED)
        return refused or isinstance(error, RecursionError) or bool(self.events("wrong result"))

    def each(self, *changes: Change, most: int | None = None) -> Iterator[tuple[Inputs, Inputs]]:
        """Return two copies of each input; the first stays unchanged.

        Args:
            changes: functions that change each input; the changed input is tried if the operator accepts it.
            most: the number of inputs; None for all.
        """
        if not self.inputs:
            raise NothingTriedError("no input")
        for inputs in self.inputs[:most]:
            others = [change(inputs) for change in changes]
            for variant in (inputs, *(other for other in others if other is not None and self.takes(other))):
                self.now = variant
                yield variant, variant.copy()

    def over(
        self,
        check: Callable[[Inputs, Inputs], None],
        *changes: Change,
        most: int | None = None,
        counts: Callable[[Exception, Inputs], bool] = lambda error, inputs: False,
    ) -> None:
        """Check each input, and raise the errors of a check.

        A kernel may accept a generated input that it is not meant for. So if a check passes on some generated inputs
        with elements, its failures on other inputs are ignored.

        Args:
            check: a function of two copies of an input; the first copy is never changed.
            changes: functions that change each input.
            most: the number of inputs; None for all.
            counts: returns whether a failure counts if it happens on only one generated input.
        """
        failures: list[tuple[Exception, Inputs]] = []
        passed, nothing, refused = 0, None, ""
        for inputs, other in self.each(*changes, most=most):
            try:
                check(inputs, other)
                passed += all(tensor.numel() for tensor in tensors_of(inputs.values))
            except NotNeededError as needless:
                nothing = needless
            except Exception as error:
                if self.given or not _refuses_on_purpose(error):
                    failures.append((error, inputs))
                else:
                    refused = str(error)
        if refused and not passed and not failures:
            raise NothingTriedError(f"it refuses generated inputs: {refused.splitlines()[0]}")
        for failure, inputs in failures:
            if self.given or not passed or counts(failure, inputs):
                self.now = inputs
                cause = self.broken if self.events("wrote undeclared") else None
                raise cause or failure
        if nothing is not None and not passed:
            raise nothing

    def decided(self) -> None:
        """Raise the error of the schema trial: tracers of an operator rely on the schema."""
        if self.broken is not None:
            raise self.broken


Trial: TypeAlias = Callable[[Subject], None]


def mismatch(expected: Any, found: Any, *, but: Collection[str] = ()) -> tuple[str, object, object] | None:
    """Return what differs in the metadata of tensors, but not in some of it, and both values; None if nothing does.

    The size -1 stands for one that a fake does not know.
    """
    befores, afters = tree_leaves(expected), tree_leaves(found)
    if len(befores) != len(afters):
        return "", f"{len(befores)} values", f"{len(afters)} values"
    pairs = zip(befores, afters, strict=True)
    for value, guess in [pair for pair in pairs if all(isinstance(each, torch.Tensor) for each in pair)]:
        sizes = [size if isinstance(size, int) else -1 for size in guess.shape]
        shape = [-1 if sizes[at : at + 1] == [-1] else size for at, size in enumerate(value.shape)]
        looked = [("dtype", value.dtype, guess.dtype), ("device", value.device.type, guess.device.type)]
        looked.append(("shape", shape, sizes))
        if shape == sizes and -1 not in sizes and value.numel() and value.layout == guess.layout:
            wide = [at for at, size in enumerate(sizes) if size > 1]
            if [value.stride()[at] for at in wide] != [guess.stride()[at] for at in wide]:
                looked.append(("strides", list(value.stride()), list(guess.stride())))
        if other := next((each for each in looked if each[1] != each[2] and each[0] not in but), None):
            return other
    return None


def difference(expected: Any, found: Any, precision: float = 1e-4) -> bool:
    """Return whether values differ, by more than their precision."""
    befores, afters = tree_leaves(expected), tree_leaves(found)
    if len(befores) != len(afters):
        return True
    for before, after in zip(befores, afters, strict=True):
        if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
            if type(before) in (int, float, str, bool) and before != after and before == before:
                return True
            continue
        if before.shape != after.shape or before.dtype != after.dtype or before.layout != after.layout:
            return True
        with suppress(NotImplementedError):
            exact = not before.is_floating_point() and not before.is_complex()
            loose = 0.0 if exact else 1e-2 if before.dtype in (torch.float16, torch.bfloat16) else precision
            if not torch.allclose(before.detach(), after.detach(), rtol=loose, atol=loose, equal_nan=not exact):
                return True
    return False
