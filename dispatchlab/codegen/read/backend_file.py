"""The YAML file of a backend, as torchgen's `gen_backend_stubs` takes it: the operators that it has kernels for.

    backend: PrivateUse1
    cpp_namespace: npu
    supported: [empty.memory_format, add.Tensor]
    symint: [empty.memory_format]
    autograd: [linear]

Source: torchgen/gen_backend_stubs.py (`parse_backend_yaml`). It is stricter where a field is empty, or where `symint`
names what is neither under `supported` nor under `autograd`, which has no effect there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dispatchlab.codegen.read.fields import FLAG, texts
from dispatchlab.codegen.read.groups import members_of
from dispatchlab.codegen.read.kernel_fields import native_name
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.errors import nearest_operators
from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.files.yaml_fields import NODE, Context, Entry, Field, Table, Wrong, did_you_mean, text_node
from dispatchlab.files.yaml_tree import Node, Problem, Scalar, YamlError, compose, in_order, quoted
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName


class Registered(NamedTuple):
    """A kernel that is registered for a backend.

    Args:
        function: the function.
        key: the key of the backend, or of its gradients.
        own: the kernel of the backend; None for one that is made of that of `functional`, whose result it copies.
        functional: the functional variant of the function, or itself where it has no variants.
    """

    function: NativeFunction
    key: DispatchKey
    own: BackendKernel | None
    functional: NativeFunction


@dataclass(frozen=True)
class BackendFile:
    """What a backend has kernels for.

    Args:
        key: its key.
        autograd_key: the key of the gradients that it computes itself; None when it computes none.
        class_name: the class that the kernels are static functions of.
        kernels: its kernels by operator, at either key.
        use_out_as_primary: no variant is made of a functional kernel.
        device_guard: kernels run with the device of their tensors as the current one, which has to be one device.
        registered: all that is registered, in the order of the native functions.
    """

    key: DispatchKey
    autograd_key: DispatchKey | None
    class_name: str
    kernels: Mapping[OperatorName, BackendKernel]
    use_out_as_primary: bool
    device_guard: bool
    registered: tuple[Registered, ...]

    @property
    def keys(self) -> tuple[DispatchKey, ...]:
        """The keys that kernels are registered at."""
        return (self.key,) if self.autograd_key is None else (self.key, self.autograd_key)


class BackendFileError(YamlError):
    """The file of a backend cannot be used: all its problems, one a line, as `file:line:column: message`."""


_BACKEND = Field("backend", text_node("a dispatch key"), "The dispatch key of the backend.", required=True)
_NAMESPACE = Field("cpp_namespace", text_node("a C++ namespace"), "The namespace of the kernels.", required=True)
_CLASS = Field("class_name", text_node("the name of a class"), "The class that the kernels are functions of.")
_SUPPORTED = Field("supported", texts("a list of operators"), "The operators that have kernels.")
_FULL = Field("full_codegen", texts("a list of operators"), "More of them: those of a lazy backend.")
_AUTOGRAD = Field("autograd", texts("a list of operators"), "The operators that have kernels of Autograd instead.")
_SYMINT = Field("symint", texts("a list of operators"), "Those of them whose kernels take symbolic integers.")
_OUT = Field("use_out_as_primary", FLAG, "Whether no variants are made of functional kernels.")
_GUARD = Field("device_guard", FLAG, "Whether kernels run with the device of their tensors as the current one.")
_LAZY = tuple(Field(name, NODE, "For lazy backends; not read.") for name in ("non_native", "ir_gen"))
_LISTS = _SUPPORTED, _FULL, _AUTOGRAD
_TABLE = Table("a backend", (_BACKEND, _NAMESPACE, _CLASS, *_LISTS, _SYMINT, _OUT, _GUARD, *_LAZY))

MAX_BYTES = 2**20
"""Larger files are refused unread; that of torch_xla has 8 KiB."""

_IDENTIFIER = r"[^\W\d]\w*"
_OF_NAMESPACE = re.compile(rf"{_IDENTIFIER}(?:::{_IDENTIFIER})?", re.ASCII)
_OF_CLASS = re.compile(_IDENTIFIER, re.ASCII)


def load_backend_file(path: str | os.PathLike[str], natives: NativeFunctions) -> BackendFile:
    """Read the file of a backend.

    Args:
        path: the file.
        natives: the functions that there are.

    Raises:
        BackendFileError: with every problem of the file.
    """
    file = os.fspath(path)
    try:
        return read_backend_file(read_file(path, limit=MAX_BYTES, what="files of backends"), natives, file=file)
    except ReadError as error:
        raise BackendFileError((Problem(file, error.reason),)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendFileError((Problem(file, f"the file cannot be read: {reason}"),)) from None


def read_backend_file(data: bytes | str, natives: NativeFunctions, *, file: str = "<text>") -> BackendFile:
    """What the file of a backend says.

    Args:
        data: the content.
        natives: the functions that there are.
        file: what source locations call it.

    Raises:
        BackendFileError: with every problem of the content.
    """
    context = Context(file)
    try:
        found = _Reader(Entry.read(compose(data, file), _TABLE, context), natives, context).read()
    except Wrong as wrong:
        raise BackendFileError((Problem(context.location(wrong.node), wrong.message, wrong.hint),)) from None
    except YamlError as error:  # no YAML, or so many problems that reading stopped
        raise BackendFileError(error.problems) from None
    if found is None or context.problems:
        raise BackendFileError(in_order(context.problems))
    return found


class _Reader:
    def __init__(self, entry: Entry, natives: NativeFunctions, context: Context) -> None:
        self.entry, self.natives, self.context = entry, natives, context
        self.functions = {function.short_name: function for function in natives.functions}
        self.named: dict[OperatorName, Scalar] = {}

    def report(self, node: Node, message: str, hint: str = "") -> None:
        self.context.report(Wrong(node, message, hint))

    def read(self) -> BackendFile | None:
        entry = self.entry
        key = self._key()
        namespace = self._name(_NAMESPACE, _OF_NAMESPACE, "torch::lazy, of two names at most")
        class_name = self._name(_CLASS, _OF_CLASS, "NpuNativeFunctions") or f"{key}NativeFunctions"
        backend, autograd = ([*self._operators(each)] for each in ((_SUPPORTED, _FULL), (_AUTOGRAD,)))
        symint = self._symint()
        if key is None or namespace is None:
            return None
        if not backend and entry.is_right and not self.context.problems:
            self.report(entry.node_of(_SUPPORTED), f"no operator has a kernel for {key}", "list some under `supported`")
        at_autograd = self._autograd_key(key) if autograd else None
        kernels: dict[OperatorName, BackendKernel] = {}
        for at, functions in ((key, backend), (at_autograd or key, autograd)):
            for function in functions:
                name = native_name(function.schema, function.parts) + ("_symint" if function.name in symint else "")
                kernels.setdefault(function.name, BackendKernel(at, name, namespace=namespace))
        self._check_groups({function.name for function in backend}, {function.name for function in autograd})
        registered = tuple(_registered(self.natives, kernels, variants=not entry.get(_OUT, default=False)))
        self._check_made(registered)
        return BackendFile(
            key,
            at_autograd,
            class_name,
            kernels,
            entry.get(_OUT, default=False),
            entry.get(_GUARD, default=False),
            registered,
        )

    def _key(self) -> DispatchKey | None:
        node = self.entry.get(_BACKEND)
        if node is None:
            return None
        key = DispatchKey.__members__.get(node.text)
        if key is None:
            near = did_you_mean(node.text, DispatchKey.__members__)
            self.report(
                node,
                f"{quoted(node.text)} is not a dispatch key",
                near or "a device that renames PrivateUse1 is PrivateUse1 here",
            )
        elif key in self.natives.backends:
            self.report(node, f"PyTorch has kernels for {key} itself", "name the key of a backend that it has none for")
            return None
        return key

    def _autograd_key(self, key: DispatchKey) -> DispatchKey | None:
        found = DispatchKey.__members__.get(f"Autograd{key}")
        if found is None:
            self.report(self.entry.node_of(_AUTOGRAD), f"there is no key Autograd{key}", "leave `autograd` out")
        return found

    def _name(self, field: Field[Scalar], form: re.Pattern[str], example: str) -> str | None:
        node = self.entry.get(field)
        if node is None:
            return None
        if not form.fullmatch(node.text):
            wanted = field.shape.wanted
            self.report(node, f"{quoted(node.text)} is not {wanted}", f"write one such as {example}")
            return None
        return node.text

    def _operators(self, fields: Iterable[Field[tuple[Scalar, ...]]]) -> Iterator[NativeFunction]:
        for field in fields:
            for node in self.entry.get(field, ()):
                function = self._function(node)
                if function is not None:
                    self.named.setdefault(function.name, node)
                    yield function

    def _function(self, node: Scalar) -> NativeFunction | None:
        function = self.functions.get(node.text)
        if function is None:
            near = [name for name in self.functions if name.startswith(f"{node.text}.")][:3]
            hint = " or ".join(near or nearest_operators(node.text, self.functions, count=1))
            message = f"there is no native function {quoted(node.text)}"
            self.report(node, message, f"did you mean {hint}?" if hint else "")
        return function

    def _symint(self) -> frozenset[OperatorName]:
        found: list[OperatorName] = []
        for node in self.entry.get(_SYMINT, ()):
            function = self._function(node)
            if function is None:
                continue
            if not function.has_symint:
                self.report(node, f"{node.text} takes no symbolic integer: {function.schema}", "leave it out here")
            elif function.name not in self.named:
                self.report(node, f"{node.text} has no kernel", "list it under `supported` or `autograd`, too")
            found.append(function.name)
        return frozenset(found)

    def _check_groups(self, backend: set[OperatorName], autograd: set[OperatorName]) -> None:
        """All variants of an operator are at one of the two keys."""
        for group in self.natives.groups if autograd else ():
            names = [function.name for function in members_of(group)]
            for other in [name for name in names if name in backend][:1]:
                for name in names:
                    if name in autograd:
                        self.report(
                            self.named[name],
                            f"{name.without_namespace} is under `autograd`, and {other.without_namespace} "
                            "under `supported`",
                            "name all variants of an operator in one of the two lists",
                        )

    def _check_made(self, registered: Iterable[Registered]) -> None:
        """Of each functional kernel the variants can be made: they return what was written, or write one argument."""
        for each in registered:
            function, outs = each.function, len(each.function.parts.outs)
            if each.own is not None:
                continue
            if function.kind is SchemaKind.MUTABLE:
                why = "writes arguments besides self"
            elif not function.schema.returns and outs != 1:
                why = f"returns nothing and has {outs} out= arguments" if outs else "returns nothing"
            else:
                continue
            self.report(
                self.named[each.functional.name],
                f"no kernel of {function.short_name} can be made of this one: it {why}",
                f"name {function.short_name}, too, or set `use_out_as_primary: True`",
            )


def _registered(
    natives: NativeFunctions, kernels: Mapping[OperatorName, BackendKernel], *, variants: bool
) -> Iterator[Registered]:
    for group in natives.groups:
        members = members_of(group)
        made = kernels.get(members[0].name) if variants else None
        for function in members:
            own = kernels.get(function.name)
            kernel = own or made
            if kernel is not None and not function.manual_kernel_registration:
                yield Registered(function, kernel.key, own, members[0])
