"""Make the calls of a record in orders on the live PyTorch, each order in a process of its own that has made no other.

    python -m tests.live.fresh_orders < request.json > outcomes.json

The calls are those that packages make: `torch.library`, the functions of each registry of Python, and the bindings of
PyTorch for what C++ registers, under the names of the package, with functions that stand in for those of the package.
Nothing of `dispatchlab.pytorch.bridge` makes them, so that what this shows does not depend on it. A process is forked
from one that has imported PyTorch, and the parts of PyTorch that the registries of the record are in, and has
registered nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from dispatchlab.model.python_layer import ASSIGNMENT, PythonRegistration
from dispatchlab.model.registration import (
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    NameOnly,
    PythonImpl,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
)
from dispatchlab.model.schema import FunctionSchema, source_text
from dispatchlab.pytorch.introspection.python_registries import read_operators
from dispatchlab.scenario.explored import explored
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario

Call: TypeAlias = Registration


def scenario_of(record: str) -> Scenario:
    """The scenario of a record with what is explored of its field `python` among its registrations.

    What is left in the field has no rule, and no verdict is about it: what PyTorch says of every operator of a kind.
    """
    return explored(load_scenario(record))


def mark(number: int) -> str:
    """What dumps show of a call in place of a file; PyTorch keeps a text of this length where it is."""
    return f"call-{number:04d}-of-the-record"


def python_of(call: Call) -> PythonRegistration | None:
    """What a call registers in Python; None for one that reaches the dispatcher."""
    return call.code if isinstance(call, PythonImpl) else None


def function_of(number: int) -> Callable[..., object]:
    """The function that stands in for the package's; registries are read by its name."""
    name = f"call_{number:04d}"
    space: dict[str, Any] = {"__name__": "stand_ins"}
    exec(compile(f"def {name}(*arguments, **named):\n    return arguments[0]\n", "stand_ins", "exec"), space)
    function: Callable[..., object] = space[name]
    return function


class Maker:
    """Makes calls in this process, keeps what they made alive, and releases what can be released."""

    def __init__(self) -> None:
        self._torch = import_module("torch")
        self._made: dict[int, list[Any]] = {}
        self._kept: list[Any] = []
        self._number = 0
        bindings = self._torch._C
        self._library = bindings._dispatch_library
        bindings._dispatch_library = self._marked_library

    def _marked_library(self, kind: str, namespace: str, key: str, file: str, line: int) -> Any:
        return self._library(kind, namespace, key, mark(self._number), 1)

    def make(self, number: int, call: Call) -> None:
        """Make a call; raises what PyTorch raises."""
        self._number = number
        self._kept = self._made[number] = []
        function = function_of(number)
        match call:
            case PythonImpl(code=code):
                self._python(code, function)
            case Claim(namespace=namespace):
                self._kept.append(self._marked_library("DEF", namespace, "", "", 0))
            case Block(made_by=TorchLibraryCall() as made_by):
                self._torch_library(call, made_by, function)
            case Block():
                library = self._marked_library(str(call.kind), call.namespace or "_", str(call.key or ""), "", 0)
                self._kept.append(library)
                for inner in call.registrations:
                    self._plain(library, inner, function)
            case Def() | Impl():
                library = self._marked_library("FRAGMENT", call.operator.namespace, "", "", 0)
                self._kept.append(library)
                self._plain(library, call, function)
            case Fallback():
                library = self._marked_library("IMPL", "_", str(call.key or ""), "", 0)
                self._kept.append(library)
                self._plain(library, call, function)
            case NameOnly():
                raise AssertionError("no package registers a name alone")

    def release(self, number: int) -> None:
        """Destroy the libraries that a call made; what Python keeps beside the dispatcher stays."""
        for library in self._made.pop(number, []):
            (getattr(library, "_destroy", None) or library.reset)()

    def _plain(self, library: Any, one: Def | Impl | Fallback, function: Any) -> None:
        match one:
            case Def(schema=FunctionSchema() as schema):
                if one.alias is None and not one.tags:
                    library.def_legacy(source_text(schema))
                else:
                    library.define(source_text(schema), str(one.alias or ""), self._tags(one))
                if one.own_impl is not None:
                    self._plain(library, one.own_impl, function)
            case Def():
                raise AssertionError("a record has the schema of each def")
            case Impl():
                library.impl(str(one.operator), str(one.key or ""), self._kernel(one.kernel, function))
            case Fallback(key=key, kernel=kernel):
                library.fallback(str(key or ""), self._kernel(kernel, function))

    def _kernel(self, kernel: Kernel, function: Any) -> Any:
        return self._torch.library.fallthrough_kernel if kernel.is_fallthrough else function

    def _tags(self, one: Def) -> list[Any]:
        return [getattr(self._torch.Tag, tag) for tag in sorted(one.tags)]

    def _torch_library(self, block: Block, call: TorchLibraryCall, function: Any) -> None:
        library, name = self._torch.library, f"{block.namespace}::{call.operator}"
        local = str(call.operator.without_namespace)
        override = {} if call.allow_override is None else {"allow_override": call.allow_override}
        match call.function:
            case TorchLibraryFunction.DEFINE:
                made = self._own_library(block.namespace)
                definition = next(one for one in block.registrations if isinstance(one, Def))
                text = source_text(_schema(definition))
                made.define(text.rpartition("::")[2], str(definition.alias or ""), tags=self._tags(definition))
            case TorchLibraryFunction.IMPL:
                made = self._own_library(block.namespace)
                impl = next(one for one in block.registrations if isinstance(one, Impl))
                key = "" if impl.key is None else str(impl.key)
                kernel, with_keyset = self._kernel(impl.kernel, function), impl.kernel.with_keyset
                made.impl(local, kernel, key, with_keyset=with_keyset, **override)
            case TorchLibraryFunction.CUSTOM_OP:
                self._custom_op(block, call, name, function)
            case TorchLibraryFunction.REGISTER_KERNEL:
                library.register_kernel(name, list(call.on) or None, function)
            case TorchLibraryFunction.REGISTER_FAKE:
                library.register_fake(name, function, **override)
            case TorchLibraryFunction.REGISTER_AUTOGRAD:
                library.register_autograd(name, function)
            case TorchLibraryFunction.REGISTER_VMAP:
                library.register_vmap(name, function)
            case TorchLibraryFunction.REGISTER_AUTOCAST:
                library.register_autocast(name, call.on[0], self._torch.float16)
            case TorchLibraryFunction.REGISTER_TORCH_DISPATCH:
                library.register_torch_dispatch(name, _class(call.on[0].replace(":", ".")), function)

    def _own_library(self, namespace: str | None) -> Any:
        made = self._torch.library.Library(namespace, "FRAGMENT")
        self._kept.append(made)
        return made

    def _custom_op(self, block: Block, call: TorchLibraryCall, name: str, function: Any) -> None:
        definition = next(one for one in block.registrations if isinstance(one, Def))
        schema = _schema(definition)
        text = source_text(schema)
        tags = definition.tags - {"pt2_compliant_tag"}
        made = self._torch.library.custom_op(
            name,
            function,
            mutates_args=[each.name for each in schema.arguments if each.alias is not None and each.alias.is_write],
            device_types=list(call.on) or None,
            schema=text[text.index("(") :],
            tags=[getattr(self._torch.Tag, tag) for tag in sorted(tags)],
        )
        self._kept.append(made._lib)
        for part in call.parts:
            match part.function:
                case TorchLibraryFunction.REGISTER_KERNEL:
                    made.register_kernel(list(part.on) or None, function)
                case TorchLibraryFunction.REGISTER_FAKE:
                    made.register_fake(function)
                case TorchLibraryFunction.REGISTER_AUTOGRAD:
                    made.register_autograd(function)
                case TorchLibraryFunction.REGISTER_VMAP:
                    made.register_vmap(function)
                case TorchLibraryFunction.REGISTER_AUTOCAST:
                    made.register_autocast(part.on[0], self._torch.float16)
                case TorchLibraryFunction.REGISTER_TORCH_DISPATCH:
                    made.register_torch_dispatch(_class(part.on[0].replace(":", ".")), function)
                case _:
                    raise AssertionError(f"{part.function} is no part of a custom_op")

    def _python(self, one: PythonRegistration, function: Any) -> None:
        """The call that a package would make, with the operator that it looks up itself."""
        operator, dispatcher = _operator(one.operator), self._torch._decomp
        if one.call == ASSIGNMENT or one.effect == "removed":
            table = _table(one, operator)
            if one.effect == "removed":
                table.pop(operator, None)
            else:
                table[operator] = function
            return
        match one.registry:
            case "py_kernels" | "mode_rules" | "higher_order":
                operator.py_impl(_key(one.key))(function)
            case "decompositions" | "meta_functions":
                dispatcher.register_decomposition(operator, type=one.key or "meta")(function)
            case "inductor_decompositions":
                import_module("torch._inductor.decomposition").register_decomposition([operator])(function)
            case "fake_rules":
                import_module("torch._subclasses.fake_impls").register_op_impl(operator)(function)
            case "fast_fake_rules":
                import_module("torch._subclasses.fake_impls").register_fast_op_impl(operator)(function)
            case "higher_order_fakes":
                import_module("torch._higher_order_ops.utils").register_fake(operator)(function)
            case "dtensor_rules":
                propagator = import_module("torch.distributed.tensor").DTensor._op_dispatcher.sharding_propagator
                register = {"rule": "register_sharding_prop_rule", "strategy": "register_op_strategy"}[one.key]
                getattr(propagator, register)(operator, function)
            case "dtensor_handlers":
                dtensor = import_module("torch.distributed.tensor").DTensor
                dtensor._op_dispatcher._custom_op_handlers[operator] = function
            case "jagged":
                import_module("torch.nested._internal.ops").register_jagged_func(operator, "self: any")(function)
            case "inductor_lowerings":
                import_module("torch._inductor.lowering").register_lowering(operator)(function)
            case "inductor_fallbacks":
                import_module("torch._inductor.lowering").make_fallback(operator)
            case "inductor_constraints":
                import_module("torch._inductor.lowering").add_layout_constraint(operator, function)
            case "inductor_user_lowerings":
                import_module("torch._inductor.lowering").user_lowerings[operator] = function
            case "aot_decompositions":
                import_module("torch._functorch.aot_autograd").aot_autograd_decompositions[operator] = function
            case _:
                raise NotImplementedError(f"no package registers in {one.registry} by itself")


def _table(one: PythonRegistration, operator: Any) -> Any:
    """The table to which packages assign, or out of which they take entries."""
    if one.registry == "py_kernels":
        return operator.py_kernels
    home = "torch._decomp:decomposition_table" if one.registry == "decompositions" else one.described.home
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


def _schema(definition: Def) -> FunctionSchema:
    assert isinstance(definition.schema, FunctionSchema)
    return definition.schema


def _operator(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    if namespace == "higher_order":
        return import_module("torch._ops")._higher_order_ops.get(rest) or _higher_order(rest)
    if namespace == "python":
        module, _, path = rest.rpartition(".")
        return getattr(import_module(module), path)
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(import_module("torch").ops, namespace), base)
    return packet if overload == "*" else getattr(packet, overload or "default")


def _higher_order(name: str) -> Any:
    base = import_module("torch._ops").HigherOrderOperator
    return type("Made", (base,), {"__call__": lambda self, *arguments: None})(name)


def _key(text: str) -> Any:
    c = import_module("torch")._C
    if text.startswith("functorch "):
        return getattr(c._functorch.TransformType, text.removeprefix("functorch "))
    return c.DispatchKey.__members__.get(text) or _class(text)


_classes: dict[str, type] = {}


def _class(name: str) -> type:
    module, _, own = name.rpartition(".")
    if module.partition(".")[0] == "torch":
        found: type = getattr(import_module(module), own)
        return found
    mode = import_module("torch.utils._python_dispatch").TorchDispatchMode
    return _classes.setdefault(name, type(own, (mode,), {"__module__": module}))


_ADDRESS = re.compile(r"0x[0-9a-f]+")


def _run(calls: Sequence[Call], order: Sequence[int], operators: Sequence[str]) -> dict[str, Any]:
    maker, refused = Maker(), {}
    for number in order:
        try:
            if number < 0:
                maker.release(~number)
            else:
                maker.make(number, calls[number])
        except NotImplementedError:
            raise
        except Exception as error:
            text = str(error).split("\nException raised from", 1)[0]
            refused[number] = f"{type(error).__name__}: {_ADDRESS.sub('0x', text)}"
    c = import_module("torch")._C
    shown = {name: (c._dispatch_dump(name), c._dispatch_dump_table(name)) for name in operators}
    python = [
        [one.registry, one.operator, one.key, one.function, one.active]
        for one in read_operators(operators)
        if one.registry != "export_decompositions"
    ]
    return {"refused": refused, "shown": shown, "python": sorted(python)}


def forked(work: Callable[[], object]) -> Any:
    """What some work gives in a process of its own."""
    inward, outward = os.pipe()
    child = os.fork()
    if not child:
        try:
            try:
                answer: object = {"done": work()}
            except BaseException:
                answer = {"failed": traceback.format_exc()}
            with os.fdopen(outward, "w") as stream:
                json.dump(answer, stream)
        finally:
            os._exit(0)
    os.close(outward)
    with os.fdopen(inward) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if not text:
        raise SystemExit(f"a process ended with {status}")
    found = json.loads(text)
    if "failed" in found:
        raise SystemExit(found["failed"])
    return found["done"]


def _needed(calls: Sequence[Call]) -> Iterator[str]:
    """The modules of PyTorch that registries of these calls are in."""
    for call in calls:
        python = python_of(call)
        if python is not None:
            yield from (module for module in (python.described.needs, python.needs) if module)


def main() -> None:
    """Serve one request: a record, and orders of its calls; `~n` releases what call n made."""
    warnings.simplefilter("ignore")
    request = json.load(sys.stdin)
    scenario = scenario_of(request["record"])
    calls = scenario.registrations
    torch = import_module("torch")
    for module in dict.fromkeys(_needed(calls)):
        import_module(module)
    names = [str(name) for name in scenario.operators]
    names += [one.operator for one in map(python_of, calls) if one is not None]
    operators = tuple(dict.fromkeys(names))
    given = [
        number
        for number, call in enumerate(calls)
        if isinstance(call, Def) and torch._C._dispatch_has_kernel(str(call.operator))
    ]
    read_operators(())  # looks up every operator of PyTorch once, for all processes
    outcomes = []
    for order in request["orders"]:
        steps = [each for each in order if each not in given and ~each not in given]
        outcomes.append(forked(partial(_run, calls, steps, operators)))
    json.dump({"given": given, "outcomes": outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
