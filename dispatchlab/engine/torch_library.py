"""Calls of `torch.library` as primitives: their refusals, their entries in Python, and the effects of their release.

The order of checks and writes is upstream's: torch/library.py, torch/_library/custom_ops.py, fake_impl.py and
simple_registry.py. The rules are those of PyTorch 2.13 and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from dispatchlab.engine import refusals
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.primitives import Compound, Primitive, Refused, RegisterDef, RegisterImpl
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import PythonKey, PythonState, Transaction
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, TorchLibraryCall, TorchLibraryFunction
from dispatchlab.model.schema import FunctionSchema, ListType, OptionalType, SimpleType, Type
from dispatchlab.model.slot_set import KEY_BIT

# Note [Calls of torch.library, in the lab]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A block with `made_by` says what its call registered when it was recorded: the content. Whether it does so now, and
# with whom, depends on what is there:
#
# - A Meta kernel by `Library.impl`, that of a fake implementation among them, needs an operator that something is
#   registered for, and no kernel at CompositeImplicitAutograd. Autograd, vmap and autocast rules need the def.
# - When `custom_op` has made the operator, what is called for it by name goes to the object that it returned, as the
#   methods of that do: a fake, a backward or a rule takes the place of the one that is there, and kernels for a new
#   device go into the library of the custom_op. Nothing of it is the caller's, whose release takes back nothing.
# - A second `custom_op` of the same name destroys the library of the first, whatever holds it, before it defines
#   anything. When it is refused afterwards, the first one is gone all the same, and its object stays: calls by name
#   find it, and its library takes nothing more. What the second one has registered before the refusal stays, too, until
#   a third one destroys its library.
# - Fakes are a list: the newest is in force, and each goes with its own library, whether the operator is there or not.
#   There is one rule for each class of `register_torch_dispatch`, and it needs no operator.
# - `register_autocast` writes a Python kernel besides, which belongs to the OpOverload: it outlives the call, takes the
#   place of an older one, and goes with the def. Beside a kernel at that key that has no Python kernel it is refused.
#
# - `Library.impl` notes the kernels of a namespace by operator and key, in a set: the first library to go takes the
#   note along. Where `allow_override` is False, as it is until 2.12 when nothing is given, a second one is refused.
#   There is one fake implementation then, and none beside a Meta kernel. Kernels that C++ registers have no note. Where
#   no call of a program says `allow_override`, notes are left out of the state of a `LabSpace`: a claim of the kernel
#   does the same there, or nothing does.
#
# What a kernel does is not part of a state. So it is not seen that one calls an OpOverload whose def went and came
# again, which ends the process.

CUSTOM_OP = PythonKey("custom_ops", "custom_op")
"""The object that `custom_op` returned last for an operator; see `OPDEFS` upstream."""

_LIBRARY = PythonKey("_custom_ops", "library")
"""The `custom_op` whose library lives; see `OPDEF_TO_LIB` upstream."""

_ADDED = PythonKey("_custom_ops", "added")
"""The kernels that later calls have put into that library."""

_ANY_DEVICE = PythonKey("_custom_ops", "kernel")
_FAKE = PythonKey("torch_library", "fake")
_PART_REGISTRIES = "custom_ops", "_custom_ops"
_COMPOSITE = KEY_BIT[DispatchKey.CompositeImplicitAutograd]
_AUTOCAST = frozenset({"cpu", "cuda", "hpu", "ipu", "mps", "privateuseone", "xpu"})
"""The device types that can be cast for."""
_EARLY = frozenset({DispatchKey.Autograd, DispatchKey.ADInplaceOrView})
_RENAMED_DEVICES = {"privateuseone": "privateuse1"}


class TorchLibraryPrimitive(Compound):
    """A step of a call of `torch.library`.

    Args:
        call: the called function.
        name: see `Compound`.
        debug: its debug text, as dumps and snapshots print it.
        plain: see `Compound`.
    """

    __slots__ = ("_added", "call", "debug")

    by_object = False

    def __init__(self, call: TorchLibraryCall, name: OperatorName, debug: str, plain: Sequence[Primitive] = ()) -> None:
        super().__init__(name, plain)
        self.call, self.debug = call, debug
        self._added: dict[tuple[OpenCustomOp, DispatchKey], _Added] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.call.function} {self.variable})"

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register on the object of a `custom_op` if there is one, else on the library of the call."""
        made = next(iter(state.python(self.variable).at(CUSTOM_OP)), None)
        if isinstance(made, OpenCustomOp):
            self._on_custom_op(semantics, state, made)
        else:
            self._on_operator(semantics, state)

    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        for primitive in self.plain:
            if isinstance(primitive, RegisterImpl):
                _check_meta(state, primitive, self.call.function)
            primitive.register(semantics, state)

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        self._on_operator(semantics, state)

    def _put(self, state: Transaction, key: PythonKey, entries: Sequence[TorchLibraryPrimitive | _Added]) -> None:
        state.put_python(self.variable, state.python(self.variable).put(key, tuple(entries)))

    def _drop(self, state: Transaction, key: PythonKey) -> None:
        entries = state.python(self.variable).at(key)
        if self in entries:
            self._put(state, key, [entry for entry in entries if entry is not self])  # type: ignore[misc]

    def _add_kernels(
        self, semantics: Semantics, state: Transaction, made: OpenCustomOp, keys: Sequence[DispatchKey]
    ) -> None:
        """Put kernels of the call into the library of a `custom_op`."""
        for primitive in self.plain:
            if not isinstance(primitive, RegisterImpl) or primitive.entry.key not in keys:
                continue
            if state.python(self.variable).at(_LIBRARY) != (made,):
                library = f"the library of the custom_op {self.name} ({made.debug})"
                text = f"{library} was destroyed by another custom_op, which was refused"
                raise refusals.refuse(ErrorKind.LIBRARY_DESTROYED, text, operator=str(self.name))
            added = self._kernel_in(semantics, made, primitive)
            done: list[Primitive] = []
            try:
                for each in added.primitives:
                    if isinstance(each, RegisterImpl):
                        _check_meta(state, each, self.call.function)
                    each.register(semantics, state)
                    done.append(each)
            except RegistrationError:
                for each in done:
                    each.release(semantics, state)
                raise
            self._put(state, _ADDED, (*state.python(self.variable).at(_ADDED), added))  # type: ignore[arg-type]

    def _kernel_in(self, semantics: Semantics, made: OpenCustomOp, primitive: RegisterImpl) -> _Added:
        """Return the kernel as the library of a `custom_op` registers it; the same object for the same library."""
        key = primitive.entry.key
        assert key is not None
        added = self._added.get((made, key))
        if added is None:
            entry = RegisteredKernel(primitive.entry.kernel, made.debug, key, primitive.entry.location)
            kernel = RegisterImpl(self.name, entry, semantics, with_key=True)
            added = self._added[made, key] = _Added(
                tuple(_with_notes([kernel], notes=semantics.notes_kernels)), made.debug
            )
        return added


class Note(Compound):
    """The note of `torch.library` on a kernel; with `looks`, the look at the note before it."""

    __slots__ = ("_looks", "debug", "place")

    by_object = False

    def __init__(self, kernel: RegisterImpl, key: str, *, looks: bool = False) -> None:
        super().__init__(kernel.name, ())
        self.debug, self._looks = kernel.entry.debug, looks
        self.place = f"{kernel.name} at {key}"

    def _keys(self) -> tuple[PythonKey, PythonKey]:
        return PythonKey("_impls", self.place), PythonKey("_impls by", self.place)

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Note the kernel; refuse it if a kernel is already noted."""
        kept, (noted, by) = state.python(self.variable), self._keys()
        if self._looks:
            for other in kept.at(noted):
                raise refusals.duplicate_kernel(self.place, other.debug, self.debug)
        else:
            state.put_python(self.variable, kept.put(noted, (self,)).put(by, (self, *kept.at(by))))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Remove the note, also where another library has a kernel there."""
        kept, (noted, by) = state.python(self.variable), self._keys()
        if self in kept.at(by):
            left = tuple(each for each in kept.at(by) if each is not self)
            state.put_python(self.variable, kept.put(noted, ()).put(by, left))


class _Added:
    """A kernel that a later call has put into the library of a `custom_op`."""

    __slots__ = ("debug", "primitives")

    by_object = False

    def __init__(self, primitives: tuple[Primitive, ...], debug: str) -> None:
        self.primitives, self.debug = primitives, debug


class OpenCustomOp(TorchLibraryPrimitive):
    """The library of a `custom_op`, and the object that it returns.

    Attributes:
        contents: all that is registered with the library.
    """

    __slots__ = ("contents",)

    contents: tuple[Primitive, ...]

    @property
    def schema(self) -> FunctionSchema:
        """The schema that it defines."""
        return next(primitive.definition.schema for primitive in self.contents if isinstance(primitive, RegisterDef))

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Destroy the library of an older `custom_op` of the same name."""
        for older in state.python(self.variable).at(_LIBRARY):
            assert isinstance(older, OpenCustomOp)
            older._destroy(semantics, state)
        self._put(state, _LIBRARY, (self,))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release the content of the library, and the object."""
        self._destroy(semantics, state)
        kept = state.python(self.variable)
        if kept.at(CUSTOM_OP) == (self,):
            state.put_python(self.variable, _without_parts(kept))

    def _destroy(self, semantics: Semantics, state: Transaction) -> None:
        kept = state.python(self.variable)
        if kept.at(_LIBRARY) == (self,):
            for primitive in self.contents:
                primitive.release(semantics, state)
            for added in kept.at(_ADDED):
                assert isinstance(added, _Added)
                for primitive in added.primitives:
                    primitive.release(semantics, state)
            self._put(state, _LIBRARY, ())
            self._put(state, _ADDED, ())
        for key, _ in state.python(self.variable).entries:
            if key.registry == _FAKE.registry:
                self._drop(state, key)


def added_kernels(kept: PythonState) -> Iterator[Primitive]:
    """Return the kernels that later calls have put into the library of a `custom_op`."""
    for added in kept.at(_ADDED):
        if isinstance(added, _Added):
            yield from added.primitives


class _OwnFake(TorchLibraryPrimitive):
    """The fake implementation that `custom_op` registers, which calls the fake of its object."""

    __slots__ = ("_made",)

    def __init__(self, made: OpenCustomOp, plain: Sequence[Primitive]) -> None:
        super().__init__(made.call, made.name, made.debug, plain)
        self._made = made

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Refuse it as any Meta kernel of a library is refused."""
        _check_fake(semantics, state, self)
        self._on_operator(semantics, state)
        self._put(state, _FAKE, (self._made, *state.python(self.variable).at(_FAKE)))  # type: ignore[arg-type]


class _KeepCustomOp(TorchLibraryPrimitive):
    """Notes the object of a `custom_op` under its name, where calls by name find it."""

    __slots__ = ("_made",)

    def __init__(self, made: OpenCustomOp) -> None:
        super().__init__(made.call, made.name, made.debug)
        self._made = made

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Replace an older object, and forget the facts about it."""
        kept = _without_parts(state.python(self.variable)).put(CUSTOM_OP, (self._made,))
        state.put_python(self.variable, kept)
        if _lacks_device(self.call, self._made.schema):
            raise _no_device(self.name)
        for device in self.call.on or (None,):
            kept = kept.put(_kernel_of(device), (self._made,))
        state.put_python(self.variable, kept)


class _RegisterFake(TorchLibraryPrimitive):
    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        _check_fake(semantics, state, self)
        super()._on_operator(semantics, state)
        self._put(state, _FAKE, (self, *state.python(self.variable).at(_FAKE)))  # type: ignore[arg-type]

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        self._put(state, PythonKey("custom_ops", "fake"), (self,))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        super().release(semantics, state)
        self._drop(state, _FAKE)


class _RegisterKernel(TorchLibraryPrimitive):
    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        if _lacks_device(self.call, made.schema):
            raise _no_device(self.name)
        for device in self.call.on or (None,):
            key = _kernel_of(device)
            if not state.python(self.variable).at(key):
                self._add_kernels(semantics, state, made, [_key_of_device(device)])
            self._put(state, key, (self,))


class _RegisterAutograd(TorchLibraryPrimitive):
    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        schema = _schema_in(state, self)
        if not _is_functional(schema, views=False):
            raise _not_functional(self.name, schema)
        _check_keyword_tensors(schema, self.call.function)
        super()._on_operator(semantics, state)

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        if not _is_functional(made.schema, views=True):
            raise _not_functional(self.name, made.schema)
        self._put(state, PythonKey("custom_ops", "backward"), (self,))


class _RegisterVmap(TorchLibraryPrimitive):
    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        _check_keyword_tensors(_schema_in(state, self), self.call.function)
        super()._on_operator(semantics, state)

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        key = PythonKey("custom_ops", "vmap")
        is_first = not state.python(self.variable).at(key)
        self._put(state, key, (self,))
        if is_first:
            self._add_kernels(semantics, state, made, [DispatchKey.FuncTorchBatched])


class _RegisterAutocast(TorchLibraryPrimitive):
    by_object = True  # its Python kernel

    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        _schema_in(state, self)
        for cast in [each.entry.key for each in _impls(self.plain) if each.entry.key]:
            key, entry = PythonKey("py_kernels", str(cast)), state.operator(self.variable)
            if not state.python(self.variable).at(key) and entry is not None and entry.kernels_at(KEY_BIT[cast]):
                kernel = f"another call made the {cast} kernel of {self.name}"
                text = f"register_autocast replaces only kernels that register_autocast made, and {kernel}"
                raise refusals.refuse(ErrorKind.DUPLICATE_KERNEL, text, operator=str(self.name), key=str(cast))
            self._put(state, key, (self,))
        super()._on_operator(semantics, state)

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        key = _autocast_of(self.call)
        if not state.python(self.variable).at(key):
            self._put(state, key, (made,))
            self._add_kernels(semantics, state, made, [each.entry.key for each in _impls(self.plain) if each.entry.key])


class _RegisterTorchDispatch(TorchLibraryPrimitive):
    def _on_operator(self, semantics: Semantics, state: Transaction) -> None:
        self._register_rule(state, self)

    def _on_custom_op(self, semantics: Semantics, state: Transaction, made: OpenCustomOp) -> None:
        key = PythonKey("custom_ops", _rule_of(self.call).key)
        if not state.python(self.variable).at(key):
            self._register_rule(state, made)
        self._put(state, key, (self,))

    def _register_rule(self, state: Transaction, holder: TorchLibraryPrimitive) -> None:
        key = _rule_of(self.call)
        for older in state.python(self.variable).at(key):
            raise _duplicate_rule(self.name, self.call.on[0], older.debug)
        self._put(state, key, (holder,))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        self._drop(state, _rule_of(self.call))


class _Part(TorchLibraryPrimitive):
    """A call on the object that `custom_op` returned; its kernels are in the content."""

    __slots__ = ("_made",)

    def __init__(self, made: OpenCustomOp, part: TorchLibraryCall) -> None:
        super().__init__(part, made.name, made.debug)
        self._made = made

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register, unless the same call by name is refused."""
        made = self._made
        match self.call.function:
            case TorchLibraryFunction.REGISTER_FAKE:
                self._put(state, PythonKey("custom_ops", "fake"), (made,))
            case TorchLibraryFunction.REGISTER_AUTOGRAD:
                if not _is_functional(made.schema, views=True):
                    raise _not_functional(self.name, made.schema)
                self._put(state, PythonKey("custom_ops", "backward"), (made,))
            case TorchLibraryFunction.REGISTER_VMAP:
                self._put(state, PythonKey("custom_ops", "vmap"), (made,))
            case TorchLibraryFunction.REGISTER_AUTOCAST:
                self._put(state, _autocast_of(self.call), (made,))
            case TorchLibraryFunction.REGISTER_KERNEL:
                if _lacks_device(self.call, made.schema):
                    raise _no_device(self.name)
                for device in self.call.on or (None,):
                    self._put(state, _kernel_of(device), (made,))
            case TorchLibraryFunction.REGISTER_TORCH_DISPATCH:
                key, rule = PythonKey("custom_ops", _rule_of(self.call).key), _rule_of(self.call)
                kept = state.python(self.variable)
                for older in () if kept.at(key) else kept.at(rule):
                    raise _duplicate_rule(self.name, self.call.on[0], older.debug)
                self._put(state, rule, (made,))
                self._put(state, key, (made,))
            case _:
                pass


_CALLS: dict[TorchLibraryFunction, type[TorchLibraryPrimitive]] = {
    TorchLibraryFunction.REGISTER_FAKE: _RegisterFake,
    TorchLibraryFunction.REGISTER_KERNEL: _RegisterKernel,
    TorchLibraryFunction.REGISTER_AUTOGRAD: _RegisterAutograd,
    TorchLibraryFunction.REGISTER_VMAP: _RegisterVmap,
    TorchLibraryFunction.REGISTER_AUTOCAST: _RegisterAutocast,
    TorchLibraryFunction.REGISTER_TORCH_DISPATCH: _RegisterTorchDispatch,
}


def torch_library_primitives(
    block: Block, call: TorchLibraryCall, content: Sequence[Primitive], *, notes: bool
) -> Iterator[Primitive]:
    """Return the primitives of a `torch.library` block. See Note [Calls of torch.library, in the lab].

    Args:
        block: the block.
        call: the call.
        content: the registrations of the call in the dispatcher, if they are accepted.
        notes: note each kernel, which calls with `allow_override` ask for.
    """
    name = call.operator.within(block.namespace or "")
    for each in (call, *call.parts):
        error = _refused_anywhere(block, each, name)
        if error is not None:
            yield Refused(error)
            return
    if call.function is TorchLibraryFunction.CUSTOM_OP and any(isinstance(each, RegisterDef) for each in content):
        yield from _custom_op_primitives(call, name, block.debug, content, notes=notes)
        return
    keyless = not any(each.key and KEY_BIT.get(each.key) for each in (block, *block.registrations))
    content = [*_with_notes(content, notes=notes, keyless=keyless, override=call.allow_override)]
    match call.function:
        case TorchLibraryFunction.IMPL if any(each.entry.key is DispatchKey.Meta for each in _impls(content)):
            yield TorchLibraryPrimitive(call, name, block.debug, content)
        case TorchLibraryFunction.IMPL | TorchLibraryFunction.DEFINE | TorchLibraryFunction.CUSTOM_OP:
            yield from content
        case _:
            yield _CALLS[call.function](call, name, block.debug, content)


def _custom_op_primitives(
    call: TorchLibraryCall, name: OperatorName, debug: str, content: Sequence[Primitive], *, notes: bool
) -> Iterator[Primitive]:
    made = OpenCustomOp(call, name, debug)
    impls = _impls(content)
    metas = [impl for impl in impls if impl.entry.key is DispatchKey.Meta]
    before = [impl for impl in impls if impl.entry.key in _EARLY]
    rest = [other for other in content if not isinstance(other, RegisterDef) and other not in (*metas, *before)]
    definition = next(primitive for primitive in content if isinstance(primitive, RegisterDef))
    schema = definition.definition.schema
    of_cxx = [impl for impl in before if impl.entry.key is DispatchKey.ADInplaceOrView]
    if any(argument.is_written for argument in schema.arguments):
        of_cxx = of_cxx[:-1]  # which counts the version of what is written
    calls = (call, *call.parts)
    makers = [next((at for at, one in enumerate(calls) if _makes(one, other)), 0) for other in rest]
    made_by = [[other for other, maker in zip(rest, makers, strict=True) if maker == at] for at in range(len(calls))]
    groups: list[Sequence[Primitive]] = [metas[:1], metas[1:], before, *made_by]  # the second at Meta is of a device
    own, more, early, *late = ([*_with_notes(some, notes=notes, but=of_cxx)] for some in groups)
    first: list[Primitive] = [definition, _OwnFake(made, own), *early]
    made.contents = (*first, *more, *chain.from_iterable(late))
    yield made
    if _has_keyword_tensors(schema) and "out" not in definition.definition.tags:
        yield Refused(_keyword_tensors(schema, call.function))
    yield from first
    at_meta = iter([TorchLibraryPrimitive(call, name, debug, more)] * bool(more))  # once, by the first call
    for one, kernels in zip(calls, late, strict=True):
        yield _KeepCustomOp(made) if one is call else _Part(made, one)
        if "meta" in one.on:
            yield from at_meta
        yield from kernels
    yield from at_meta


# -- what is looked at


def _without_parts(kept: PythonState) -> PythonState:
    """Return the entries without those of the object of a `custom_op`, which has its own library."""
    for key, _ in kept.entries:
        if key.registry in _PART_REGISTRIES and key not in (_LIBRARY, _ADDED):
            kept = kept.put(key, ())
    return kept


def _impls(primitives: Sequence[Primitive]) -> list[RegisterImpl]:
    return [primitive for primitive in primitives if isinstance(primitive, RegisterImpl)]


def _kernel_of(device: str | None) -> PythonKey:
    return _ANY_DEVICE if device is None else PythonKey("custom_ops", f"kernel {device}")


def _autocast_of(call: TorchLibraryCall) -> PythonKey:
    return PythonKey("custom_ops", f"autocast {call.on[0]}")


def _rule_of(call: TorchLibraryCall) -> PythonKey:
    return PythonKey("torch_library", f"torch_dispatch {call.on[0].replace(':', '.')}")


def _key_of_device(device: str | None, *, of: str = "") -> DispatchKey:
    """Return the key of a device type, or `of` autocast for one; Undefined, which has no kernel, for any other text."""
    if device is None:
        return DispatchKey.CompositeExplicitAutograd
    name = f"{of}{_RENAMED_DEVICES.get(device, device)}"
    return next((key for key in DispatchKey if key.name.lower() == name), DispatchKey.Undefined)


def _makes(call: TorchLibraryCall, kernel: Primitive) -> bool:
    """Return whether a call on a `custom_op` makes a kernel, if no call before it does."""
    key = kernel.entry.key if isinstance(kernel, RegisterImpl) else None
    if call.function is TorchLibraryFunction.REGISTER_VMAP:
        return key is DispatchKey.FuncTorchBatched
    of = "autocast" * (call.function is TorchLibraryFunction.REGISTER_AUTOCAST)
    if not of and call.function not in (TorchLibraryFunction.CUSTOM_OP, TorchLibraryFunction.REGISTER_KERNEL):
        return False
    return key in [_key_of_device(on, of=of) for on in call.on or (None,)] or (
        key is DispatchKey.BackendSelect and bool(call.on)
    )


def _is_tensor(type_: Type) -> bool:
    match type_:
        case OptionalType(element) | ListType(element):
            return _is_tensor(element)
        case _:
            return type_ == SimpleType("Tensor")


def _has_keyword_tensors(schema: FunctionSchema) -> bool:
    return any(argument.kwarg_only and _is_tensor(argument.type) for argument in schema.arguments)


def _lacks_device(call: TorchLibraryCall, schema: FunctionSchema) -> bool:
    """Return whether a `custom_op` cannot choose among its kernels for device types."""
    if not call.on or any(_is_tensor(argument.type) for argument in schema.arguments):
        return False
    return not any(argument.name == "device" and argument.type == SimpleType("Device") for argument in schema.arguments)


def _is_functional(schema: FunctionSchema, *, views: bool) -> bool:
    """Return whether a schema writes nothing and returns something; `views` also allows views of one tensor."""
    if any(argument.is_written for argument in schema.arguments):
        return False
    if any(each.alias is not None and not each.alias.is_write for each in schema.returns):
        plain = SimpleType("Tensor")
        counts = [sum(each.type == plain for each in some) for some in (schema.arguments, schema.returns)]
        return views and counts == [1, 1]
    return bool(schema.returns)


def _check_fake(semantics: Semantics, state: Transaction, fake: TorchLibraryPrimitive) -> None:
    """Refuse a second fake implementation if only one is allowed."""
    if fake.call.allow_override is not False:
        return
    entry = state.operator(fake.variable)
    kernels = () if entry is None else entry.kernels_at(KEY_BIT[DispatchKey.Meta])
    there = *(made.debug for made in state.python(fake.variable).at(_FAKE)), *(kernel.debug for kernel in kernels)
    if there:
        raise refusals.duplicate_kernel(f"{fake.name} at Meta", there[0], fake.debug)


def _with_notes(
    primitives: Sequence[Primitive],
    *,
    notes: bool,
    keyless: bool = False,
    but: Sequence[Primitive] = (),
    override: bool | None = None,
) -> Iterator[Primitive]:
    """Return the primitives with the notes and checks of `torch.library` for kernels outside C++."""
    for each in primitives:
        if not isinstance(each, RegisterImpl) or each in but or not notes:
            yield each
            continue
        key = "" if keyless else str(each.entry.key)
        if override is False:
            yield Note(each, key, looks=True)
        yield from (each, Note(each, key))


def _check_meta(state: Transaction, kernel: RegisterImpl, function: str) -> None:
    """Check a Meta kernel of a function as `Library.impl` does."""
    if kernel.entry.key is not DispatchKey.Meta:
        return
    entry = state.operator(kernel.variable)
    if entry is None:
        raise refusals.refuse(
            ErrorKind.NO_SUCH_SCHEMA,
            f"a Meta kernel needs an operator, and nothing is registered for {kernel.name}: define it first",
            operator=kernel.variable,
        )
    if entry.kernels_at(_COMPOSITE):
        raise refusals.refuse(
            ErrorKind.META_BESIDE_COMPOSITE,
            f"PyTorch refuses the Meta kernel of {function} after a CompositeImplicitAutograd kernel of {kernel.name}",
            operator=kernel.variable,
        )


def _schema_in(state: Transaction, primitive: TorchLibraryPrimitive) -> FunctionSchema:
    """Return the schema from a look-up of the operator."""
    entry = state.operator(primitive.variable)
    stored = None if entry is None else entry.stored
    if stored is None:
        raise refusals.refuse(
            ErrorKind.NO_SUCH_SCHEMA,
            f"{primitive.call.function} looks {primitive.name} up, and it has no def: define it first",
            operator=primitive.variable,
        )
    return stored.schema


def _check_keyword_tensors(schema: FunctionSchema, function: TorchLibraryFunction) -> None:
    if _has_keyword_tensors(schema):
        raise _keyword_tensors(schema, function)


def _refused_anywhere(block: Block, call: TorchLibraryCall, name: OperatorName) -> RegistrationError | None:
    """Return the reason why a call is refused in every state."""
    if block.namespace == "prim":
        message = f"the namespace {block.namespace} is reserved, and torch.library makes no library of it"
        return refusals.refuse(ErrorKind.OTHER, message, operator=str(name))
    if call.function is TorchLibraryFunction.REGISTER_AUTOCAST and not {*call.on} <= _AUTOCAST:
        return refusals.refuse(
            ErrorKind.OTHER, f"there is no autocast for {', '.join(call.on)}", operator=str(name), device=call.on[0]
        )
    return None


# -- refusals


def _keyword_tensors(schema: FunctionSchema, function: TorchLibraryFunction) -> RegistrationError:
    message = f"{function} takes no tensors that are given by keyword only, and there is one in {schema}"
    return refusals.refuse(ErrorKind.OTHER, message, schema=str(schema))


def _not_functional(name: OperatorName, schema: FunctionSchema) -> RegistrationError:
    message = f"{name} writes to its arguments or returns a view, so it can have no autograd formula: {schema}"
    return refusals.refuse(ErrorKind.NOT_FUNCTIONAL, message, operator=str(name), schema=str(schema))


def _no_device(name: OperatorName) -> RegistrationError:
    message = f"{name} has no tensor argument, and kernels for device types, so it needs an argument `Device device`"
    return refusals.refuse(ErrorKind.OTHER, message, operator=str(name))


def _duplicate_rule(name: OperatorName, on: str, other: str) -> RegistrationError:
    return refusals.refuse(
        ErrorKind.DUPLICATE_RULE,
        f"{name} has a __torch_dispatch__ rule for {on} already ({other}): there is one for each class",
        operator=str(name),
        on=on,
    )
