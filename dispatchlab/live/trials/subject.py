"""The subject of trials: an operator, its inputs, and how calls of it are made and judged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dispatchlab.live.trials.inputs import Inputs, is_tensor, transposed
from dispatchlab.live.trials.package_watch import PackageWatch, PythonFunction
from dispatchlab.model.failure import Event


class NotNeededError(Exception):
    """There is nothing to try."""


class OpenError(Exception):
    """The trial cannot decide."""


class WrongResultError(AssertionError):
    """A call gave or did something else than it should."""


@dataclass(slots=True)
class Subject:
    """An operator and what is known of it.

    Args:
        name: its full name.
        functions: the Python functions that are registered for it.
        watch: where events are noted.
        given: the user's inputs; empty where there are none.
        unknown: it was defined with `mutates_args="unknown"`.
        seed: chooses generated inputs.
    """

    name: str
    functions: Sequence[PythonFunction]
    watch: PackageWatch
    given: Sequence[Inputs] = ()
    unknown: bool = False
    seed: int = 0
    inputs: list[Inputs] = field(default_factory=list)
    now: Inputs | None = None
    broken: tuple[Exception, list[Event]] | None = None
    fakeless: bool = False
    random: bool = False
    graded: bool = False
    changed: set[str] = field(default_factory=set)
    misfits: dict[str, Event] = field(default_factory=dict)

    @property
    def op(self) -> Any:
        """Return the overload."""
        import torch

        namespace, _, rest = self.name.partition("::")
        base, _, overload = rest.partition(".")
        return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")

    @property
    def schema(self) -> Any:
        """Return the schema."""
        return self.op._schema

    @property
    def writes(self) -> bool:
        """Return whether the schema says that an argument is written."""
        return any(argument.is_write for argument in self.schema.arguments)

    @property
    def device(self) -> str:
        """Return a device that has a kernel and is here; empty where there is none."""
        import torch

        has = torch._C._dispatch_has_kernel_for_dispatch_key
        every = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional")
        if has(self.name, "CPU") or any(has(self.name, key) for key in every):
            return "cpu"
        if has(self.name, "CUDA"):
            return "cuda" if torch.cuda.is_available() else ""
        return "cpu"

    def run(self, trial: Trial) -> None:
        """Run a trial, which raises what went wrong."""
        self.now = None
        trial(self)

    def call(
        self, inputs: Inputs, function: Callable[..., Any] | None = None, *, grad: bool = False, seed: int = 0
    ) -> Any:
        """Call the operator, or a function in its place, with the generators seeded."""
        import torch

        random.seed(seed)
        torch.manual_seed(seed)
        with torch.set_grad_enabled(grad):
            return (function or self.op)(*inputs.positional, **inputs.named)

    def each(self, *, layouts: bool = False, most: int | None = None) -> Iterator[Inputs]:
        """Return copies of the inputs, of which the last one is that of the call that failed.

        Args:
            layouts: transposed ones too, where the operator takes them.
            most: how many inputs; None for all.

        Raises:
            NotNeededError: there are no inputs.
        """
        if not self.inputs:
            raise OpenError("no input")
        for inputs in self.inputs[:most]:
            variants = [inputs]
            if layouts and (other := transposed(inputs)) is not None and self.takes(other):
                variants.append(other)
            for variant in variants:
                self.now = variant
                yield variant.copy()

    def takes(self, inputs: Inputs) -> bool:
        """Return whether a call succeeds."""
        try:
            self.call(inputs.copy())
        except Exception:
            return False
        return True

    def over(
        self,
        check: Callable[[Inputs, Inputs], None],
        *,
        layouts: bool = False,
        most: int | None = None,
        counts: Callable[[Exception, Inputs], bool] = lambda error, inputs: False,
    ) -> None:
        """Check each input, and raise what a check raised.

        A kernel may take a generated input that it is not meant for. So where a check passes on some generated inputs,
        a failure on others is passed over.

        Args:
            check: takes two copies of an input, the first of which nothing changes.
            layouts: check transposed inputs too.
            most: how many inputs; None for all.
            counts: returns whether a failure counts on one generated input alone.
        """
        failures: list[tuple[Exception, Inputs]] = []
        passed, nothing = 0, None
        for inputs in self.each(layouts=layouts, most=most):
            assert self.now is not None
            try:
                check(self.now, inputs)
                passed += 1
            except NotNeededError as needless:
                nothing = needless
            except Exception as error:
                failures.append((error, self.now))
        for failure, inputs in failures:
            if self.given or not passed or counts(failure, inputs):
                self.now = inputs
                raise failure
        if nothing is not None and not passed:
            raise nothing

    def bound(self, *roles: str) -> None:
        """Raise where a function of these roles does not take the schema's arguments, as its signature said."""
        for role in roles:
            if role in self.misfits:
                self.watch.events.append(self.misfits[role])
                raise TypeError(self.misfits[role].detail)

    def decided(self) -> None:
        """Raise what the trial of the schema has raised: what traces an operator takes the schema's word."""
        if self.broken is not None:
            error, events = self.broken
            self.watch.events += events
            raise error


Trial: TypeAlias = Callable[[Subject], None]


def difference(expected: Any, found: Any) -> bool:
    """Return whether values differ, by more than their precision."""
    import torch
    from torch.utils._pytree import tree_leaves

    befores, afters = tree_leaves(expected), tree_leaves(found)
    if len(befores) != len(afters):
        return True
    for before, after in zip(befores, afters, strict=True):
        if not is_tensor(before) or not is_tensor(after):
            if type(before) in (int, float, str, bool) and before != after and before == before:
                return True
            continue
        if before.shape != after.shape or before.dtype != after.dtype or before.layout != after.layout:
            return True
        with torch.no_grad(), suppress(NotImplementedError):
            before, after = before.detach(), after.detach()
            if before.is_floating_point() or before.is_complex():
                loose = 1e-2 if before.dtype in (torch.float16, torch.bfloat16) else 1e-4
                if not torch.allclose(before, after, rtol=loose, atol=loose, equal_nan=True):
                    return True
            elif not torch.equal(before, after):
                return True
    return False
