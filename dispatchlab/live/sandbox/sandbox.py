"""One fresh set of namespaces in the running PyTorch, where registrations are made and released.

Everything here runs in the process that has torch; `LocalEngine` hands out sandboxes there. Names and debug texts are
put back in whatever is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.bridge.error_parser import refusal
from dispatchlab.live.bridge.registration_calls import Libraries, Library, NativeKernels, Opener, Step
from dispatchlab.live.bridge.reserved_namespaces import sandbox_prefix
from dispatchlab.live.introspection.kernel_identity import OWN, Naming
from dispatchlab.live.sandbox.journal import Journal
from dispatchlab.live.sandbox.observation import Looked, View, Watched
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Registration
from dispatchlab.model.snapshot import Snapshot, Violation

_number = count(1)


class _Plan:
    """A registration of one sandbox: its calls, and what is in force of it."""

    __slots__ = ("bit", "index", "kernels", "live", "open", "operators", "skips", "source", "steps")

    def __init__(
        self,
        source: Registration,
        steps: tuple[Step, ...],
        operators: list[Watched],
        bit: int,
        index: int | None,
    ) -> None:
        self.source = source
        self.steps, self.operators, self.bit, self.index = steps, operators, bit, index
        self.live: LiveHandle | None = None
        kernels = ((step.number, step.origin.kernel) for step in steps)
        self.kernels: list[int] = []
        self.skips: list[int] = []
        for number, kernel in kernels:
            if kernel is not None:
                (self.skips if kernel.is_fallthrough else self.kernels).append(OWN + number)
        self.open = steps[0].open if len(steps) == 1 else None


class LiveHandle:
    """A registration that is in force on the running PyTorch."""

    __slots__ = ("_libraries", "_plan", "_sandbox")

    def __init__(self, sandbox: LiveSandbox, plan: _Plan, libraries: tuple[Library, ...]) -> None:
        self._sandbox, self._plan, self._libraries = sandbox, plan, libraries

    def release(self) -> None:
        """Undo it, what was registered first first; a second release is harmless."""
        libraries = self._libraries
        if libraries:
            self._libraries = ()
            self._sandbox._release(self._plan, libraries)


class LiveSandbox:
    """A fresh set of namespaces; see `LocalEngine`."""

    def __init__(
        self,
        naming: Naming,
        looked: dict[tuple[str, str], Looked],
        *,
        indices: Mapping[int, int],
        journal: Journal | None,
        parse_keys: bool,
        native: NativeKernels | None,
        memory: bool,
        every_table: bool,
    ) -> None:
        self.prefix = sandbox_prefix(next(_number))
        self._naming = naming
        self._libraries = Libraries(self.prefix, naming.mark, parse_keys=parse_keys)
        self._opener = Opener(self._libraries, native=native)
        self._view = View(self._libraries, naming, looked, memory=memory, every_table=every_table)
        self._indices, self._journal = indices, journal
        self._plans: dict[int, _Plan] = {}
        self._all_plans: list[_Plan] = []
        self._left: list[Library] = []
        self._unnamed: list[Watched] = []
        if journal is not None:
            journal.restart()

    def register(self, registration: Registration, /) -> LiveHandle:
        """Register it on the running PyTorch.

        Raises:
            RegistrationError: PyTorch refused; its text, with the user's names in it, is the message.
            NotExpressibleError: the bindings have no call for it.
        """
        plan = self._plans.get(id(registration))
        if self._journal is not None:
            index = self._indices.get(id(registration))
            if index is not None:
                self._journal.write(index)
        if plan is None or plan.live is not None:
            plan = self._planned(registration)
        view = self._view
        objects = view.objects
        if objects is not None:
            if objects.pending and self._unnamed:
                self._name_kernels()
            if objects.released:
                view.forget_released()
        view.version += 1
        if plan.open is not None:
            try:
                libraries: tuple[Library, ...] = (plan.open(),)
            except RuntimeError as error:
                self._refused(plan)
                raise self._refusal(error, plan.steps[0]) from None
        else:
            libraries = self._open(plan)
        view.mask |= plan.bit
        for operator in plan.operators:
            operator.alive += 1
        if objects is not None:
            if plan.open is not None:
                objects.pending += plan.kernels
            if plan.skips:
                objects.fallthroughs += plan.skips
            self._unnamed = plan.operators
        handle = plan.live = LiveHandle(self, plan, libraries)
        return handle

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        """What PyTorch shows of the operator now, and what sits in its slots."""
        return self._view.snapshot(operator)

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        """Slots that do not hold what the table computes, and what PyTorch's own check finds."""
        return self._view.violations(operator)

    def close(self) -> None:
        """Release whatever is still in force; what fails does not keep the rest from it."""
        with ExitStack() as releases:
            releases.callback(self._libraries.reset)
            for library in self._left:
                releases.callback(library.reset)
            for plan in reversed(self._all_plans):
                if plan.live is not None:
                    releases.callback(plan.live.release)

    def _planned(self, registration: Registration) -> _Plan:
        copy = sum(plan.source is registration for plan in self._all_plans)
        steps = self._naming.planned(registration, copy, self._opener)
        operators = [self._view.operator(step.operator) for step in steps if step.operator is not None]
        plan = _Plan(registration, steps, operators, 1 << len(self._all_plans), self._indices.get(id(registration)))
        self._plans[id(registration)] = plan
        self._all_plans.append(plan)
        if any(step.is_layered for step in steps):
            # NB: it makes several kernels under one number, which slots are not told apart by.
            self._view.read_no_slots()
        objects = self._view.objects
        if objects is not None:
            for step in steps:
                kernel = step.origin.kernel
                self._view.every_table |= isinstance(step.origin.registration, Fallback)
                if kernel is not None:
                    number, size = OWN + step.number, self._naming.size
                    objects.planned(number, size, falls_through=kernel.is_fallthrough)
        return plan

    def _name_kernels(self) -> None:
        """Look at what was registered last, if nobody did, before there are more new objects to tell apart."""
        unnamed, self._unnamed = self._unnamed, []
        for operator in unnamed:
            if operator.version != self._view.version:
                self.snapshot(operator.name)

    def _open(self, plan: _Plan) -> tuple[Library, ...]:
        objects = self._view.objects
        done: list[tuple[Step, Library]] = []
        for step in plan.steps:
            try:
                done.append((step, step.open()))
                if objects is not None and OWN + step.number in plan.kernels:
                    objects.pending.append(OWN + step.number)
                    self._view.version += 1
                    if step.operator is not None:
                        self.snapshot(step.operator)
            except (RuntimeError, RegistrationError) as error:
                for before, library in done:
                    if before.number == step.leaves and before.operator is not None:
                        self._left.append(library)
                        self._view.operator(before.operator).alive += 1
                        self._plans.pop(id(plan.source), None)  # whose library is not its own any more
                    else:
                        library.reset()
                        if objects is not None and OWN + before.number in plan.kernels:
                            objects.gone(OWN + before.number)
                self._view.version += 1
                if isinstance(error, RegistrationError):
                    raise
                raise self._refusal(error, step) from None
        return tuple(library for _, library in done)

    def _release(self, plan: _Plan, libraries: tuple[Library, ...]) -> None:
        if self._journal is not None and plan.index is not None:
            self._journal.write(~plan.index)
        view = self._view
        view.version += 1
        for library in libraries:
            library.reset()
        plan.live = None
        view.mask ^= plan.bit
        objects = view.objects
        if objects is not None:
            for kernel in plan.kernels:
                objects.gone(kernel)
            for kernel in plan.skips:
                objects.fallthroughs.remove(kernel)
        for operator in plan.operators:
            operator.alive -= 1
            if not operator.alive:
                operator.slots = None

    def _refused(self, plan: _Plan) -> None:
        """Expect what a refused fallback at an alias key leaves: upstream keeps it at the keys before the taken one."""
        registration = plan.steps[0].origin.registration
        if isinstance(registration, Fallback) and registration.key is not None and registration.key.is_alias:
            self._plans.pop(id(plan.source), None)  # whose library holds what is left
            objects = self._view.objects
            if objects is not None:
                objects.pending += plan.kernels
                objects.fallthroughs += plan.skips

    def _refusal(self, error: RuntimeError, step: Step) -> RegistrationError:
        found = refusal(str(error))
        facts = {name: self._view.shown(value) for name, value in found.facts.items()}
        operator = step.operator
        if found.kind is ErrorKind.DUPLICATE_DEF and operator is not None:
            facts |= {
                "operator": str(operator),
                "other_schema": self._view.schema_of(self._view.operator(operator)) or "",
            }
        return RegistrationError(found.kind, self._view.shown(found.message), facts)
