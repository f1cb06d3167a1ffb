"""Walk through a call of a native function: find the function by any of its names, and the frames of the call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from dispatchlab.codegen.emit.registrations import GeneratedKernel, cpp_name, registrations_of
from dispatchlab.codegen.kernels.lab import FILE, lab_functions
from dispatchlab.codegen.read.derivatives import derivatives_beside, load_derivatives
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.codegen.read.schema_parts import is_tensor_like
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.names import OperatorName
from dispatchlab.questions.explain.argument_specs import ArgumentSpec
from dispatchlab.questions.explain.explain_operator import ExplainedOperator, explain_operator
from dispatchlab.questions.native_functions.cpp_frames import (
    Entry,
    Frame,
    frames_of_call,
    has_binding,
    runs_below_autograd,
)
from dispatchlab.questions.native_functions.lab_frames import lab_frames, with_lab_frames


@dataclass(frozen=True, slots=True)
class Walk:
    """A call, frame by frame.

    Args:
        function: what is called.
        entry: whether Python or C++ calls it.
        explained: its hops, and the registry that they are taken from.
        file: the file of native functions.
        frames: the outermost first.
    """

    function: NativeFunction
    entry: Entry
    explained: ExplainedOperator
    file: str
    frames: tuple[Frame, ...]

    @property
    def numbered(self) -> tuple[tuple[int, Frame], ...]:
        """The frames as a debugger numbers them, the innermost first."""
        return tuple(enumerate(reversed(self.frames)))


def walk_call(
    operator: str,
    arguments: Sequence[ArgumentSpec] = (),
    *,
    file: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> Walk:
    """Find the frames of a call.

    Args:
        operator: a native function by the name of the operator (`add.Tensor`), in Python (`torch.add`) or in C++
            (`at::add`, `at::_ops::add_Tensor::call`); where several overloads have the name in Python or C++, the one
            that fits best when tensors alone are given.
        arguments: as `explain` takes them.
        file: a file of native functions; that of the installed PyTorch when left out, or else that of the lab.
        include: the names of keys that a guard includes.
        exclude: the names of keys that a guard excludes.

    Raises:
        UnknownOperatorError: there is no such function.
        DispatchLabError: an argument cannot be used, or no registry has the operator.
    """
    path = file if file is not None else installed_file()
    natives, generated = _read(path)
    name = path if path is not None else FILE
    function, entry = find_function(natives, operator, arguments, source=name)
    below = ("Autograd", "ADInplaceOrView") if runs_below_autograd(function, entry) else ()
    explained = explain_operator(str(function.name), arguments, include=include, exclude=(*exclude, *below))
    group = next((group for group in natives.structured_groups if function in group.functions), None)
    kernels = generated[function.name]
    frames = frames_of_call(function, group, kernels, explained.explanation.hops, entry)
    if not (arguments or include or exclude):
        frames = with_lab_frames(frames, lab_frames(function.short_name))
    return Walk(function, entry, explained, name, frames)


def installed_file() -> str | None:
    """The native_functions.yaml that comes with the installed PyTorch, which is not imported for it."""
    spec = find_spec("torchgen")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        path = Path(folder) / "packaged" / "ATen" / "native" / "native_functions.yaml"
        if path.is_file():
            return str(path)
    return None


@cache
def _read(path: str | None) -> tuple[NativeFunctions, Mapping[OperatorName, tuple[GeneratedKernel, ...]]]:
    natives = lab_functions() if path is None else load_native_functions(path)
    beside = None if path is None else derivatives_beside(path)
    derivatives = None if beside is None else load_derivatives(beside, natives)
    return natives, {made.function.name: made.kernels for made in registrations_of(natives, derivatives)}


# -- names

_MODULES = {
    **{"torch.nn.functional.": "nn", "torch._C._nn.": "nn", "torch.fft.": "fft", "torch.linalg.": "linalg"},
    **{"torch.special.": "special", "torch.sparse.": "sparse", "torch.nested.": "nested"},
}
_OPS = re.compile(r"at::_ops::(\w+)(?:::(?:call|redispatch))?")


def find_function(
    natives: NativeFunctions, asked: str, arguments: Sequence[ArgumentSpec] = (), *, source: str
) -> tuple[NativeFunction, Entry]:
    """The function that a name stands for, and what is called by it.

    Args:
        natives: all functions.
        asked: the name.
        arguments: what it is called with, which decides between overloads.
        source: what the functions are called in the error.

    Raises:
        UnknownOperatorError: there is none.
    """
    flat = _OPS.fullmatch(asked)
    if flat is not None:
        named = [function for function in natives.functions if function.flat_name == flat[1]]
        entry: Entry | None = Entry.CPP
    else:
        name, entry, module = _parts(asked)
        exact = [function for function in natives.functions if function.short_name == name]
        named = exact if entry is None or "." in name else []
        if not named:
            names = {name} if module is None else {name, f"{module}_{name}"}
            named = [
                function
                for function in natives.functions
                if names & {function.name.name, cpp_name(function)}
                and (entry is not Entry.FUNCTION or function.python_module == module)
            ]
    usable = [function for function in named if entry in (None, Entry.CPP) or has_binding(function, entry or Entry.CPP)]
    # NB: a function of the name that has no binding of its own is what C++ has of that name
    chosen = min(usable or named, key=lambda function: _misfit(function, arguments), default=None)
    if chosen is None:
        known = tuple(function.short_name for function in natives.functions)
        raise UnknownOperatorError(_parts(asked)[0], known, source)
    if entry is None or not usable:
        kinds = (Entry.FUNCTION, Entry.METHOD)
        entry = next((kind for kind in kinds if has_binding(chosen, kind)), Entry.CPP)
    return chosen, entry


def _misfit(function: NativeFunction, arguments: Sequence[ArgumentSpec]) -> tuple[bool, bool, int, bool, int]:
    """How badly an overload fits what is given: tensors in order, and `out=`; of equals the first argument is taken.

    Nothing but tensors is ever given, so that an overload that needs numbers fits worse.
    """
    names = {spec.partition("=")[0].strip() for spec in arguments if isinstance(spec, str) and "=" in spec}
    tensors = [argument for argument in function.parts.positional if is_tensor_like(argument.type)]
    outs = {argument.name for argument in function.parts.outs}
    others = sum(
        argument.default is None and not is_tensor_like(argument.type) for argument in function.parts.positional
    )
    return (
        bool(outs) is not bool(names & (outs | {"out"})),
        len(arguments) - len(names) > len(tensors),
        others,
        bool(function.name.overload),
        -len(tensors),
    )


def _parts(asked: str) -> tuple[str, Entry | None, str | None]:
    """The bare name, what it says is called, and its module in Python."""
    for prefix, module in _MODULES.items():
        if asked.startswith(prefix):
            return asked.removeprefix(prefix), Entry.FUNCTION, module
    for prefix, entry in (
        *(("torch.ops.aten.", Entry.CPP), ("torch.Tensor.", Entry.METHOD), ("Tensor.", Entry.METHOD)),
        *(("torch.", Entry.FUNCTION), ("at::Tensor::", Entry.CPP), ("at::", Entry.CPP), ("aten::", None)),
    ):
        if asked.startswith(prefix):
            return asked.removeprefix(prefix), entry, None
    return asked, None, None
