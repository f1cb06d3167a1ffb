"""Journal of the Python-side registries: every write while it is on, in order, with who made it and what was there."""

from __future__ import annotations

import functools
import importlib._bootstrap_external as bootstrap
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from dispatchlab.live.bridge.call_sites import CallSite, CallSites, torch_folder
from dispatchlab.live.introspection.package_paths import package_path
from dispatchlab.live.introspection.python_registries import Entry, key_text, operator_text
from dispatchlab.live.introspection.python_sites import FunctionSites
from dispatchlab.live.introspection.python_tables import PythonTables, TableChange, registration_of
from dispatchlab.model.python_layer import PythonRegistration

# Note [How writes are seen]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# The tables are looked at again and again, and whatever is not as it was is a write (Note [Tables of Python]). It is
# looked
#
# - before and after each call of a function that registers, so that what it wrote has the line of the call, and what
#   was assigned before it is a write of its own;
# - when the body of a module begins and ends, so that what two modules assign to one entry is two writes. Modules of
#   PyTorch that PyTorch imports count as one, and what comes with them is PyTorch's.
#
# Two assignments to one entry by one module body, with neither between them, are one write. No order of imports comes
# between these either. What a body takes back, so that nothing has changed, is no write: see Note [Uses of tables].
#
# A call is of PyTorch when the code that made it lies in PyTorch: a compiler makes a fallback for an operator of the
# user when it meets one. It is not looked after each of these, of which torch.export makes thousands; what is there
# when it is looked next, in a registry that such a call writes, is PyTorch's where the function is. An assignment has
# no caller; it is of PyTorch when the function does lie there. The outermost of several calls counts, and where PyTorch
# holds a function that was wrapped, the one that it calls inside is seen: then the files of these functions are passed
# over.
#
# Where a function refuses to register, it says so by an exception. It is a write that was refused if the entry that
# it is about has something already; another error is no registration at all.


class PythonWrite(NamedTuple):
    """One write into a registry.

    Args:
        registry: the name of the registry.
        operator: the operator.
        key: what the entry is kept by besides.
        before: what was there; None when nothing was.
        after: what is there now, or what was refused; None when it was taken away.
        call: the name of the function that wrote; empty for an assignment.
        site: the line that called it; None for an assignment.
        by_torch: whether PyTorch registered for itself.
        refused: whether what was there stayed.
        text: the error of a refusal.
        file: the file of the module body that was running.
    """

    registry: str
    operator: str
    key: str
    before: Entry | None
    after: Entry | None
    call: str = ""
    site: CallSite | None = None
    by_torch: bool = False
    refused: bool = False
    text: str = ""
    file: str = ""


class PythonJournal:
    """Notes every write into a Python-side registry from the inside of a `with` block on.

    Args:
        roots: the folders in which packages are found.
        tables: what the registries have now; read when left out.
        every_module: look at the borders of all modules; else at those of PyTorch's alone.
        wrote: is called after each write that is not PyTorch's with its number, while the code that made it is running;
            after an assignment with the module that was running, too, which may have ended.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        *,
        tables: PythonTables | None = None,
        every_module: bool = True,
        wrote: Callable[[int, str], None] | None = None,
    ) -> None:
        self.writes: list[PythonWrite] = []
        self.modules: list[Any] = []
        """The modules whose bodies ran, but for those of PyTorch, in the order in which they began."""
        self._tables = tables or PythonTables()
        self._every_module, self._wrote = every_module, wrote
        self._torch = torch_folder()
        self._sites = CallSites(passing=_FILES)
        self._functions = FunctionSites(roots)
        self._roots = roots
        self._wrapped: dict[tuple[int, str], Callable[[], None]] = {}
        self._bodies: list[_Body] = []
        self._foreign: set[tuple[str, str, str]] = set()
        self._of_torch: set[tuple[str, str, str]] = set()
        self._pending: set[str] = set()
        self._calls = _Calls()
        self._lock = threading.RLock()

    def __enter__(self) -> PythonJournal:
        try:
            self._wrap_all()
            self._watch_modules()
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; a second time is harmless."""
        try:
            self.look()
        finally:
            self._put_back()

    def look(self) -> None:
        """Take what was written since for assignments."""
        with self._lock:
            self._note(self._tables.changes(), "", None, by_torch=self._is_in_torch)
            self._pending.clear()

    def left(self) -> Iterator[tuple[PythonWrite, PythonRegistration | None, PythonRegistration | None]]:
        """The slots that somebody else than PyTorch left in another way than they were.

        Yields:
            The last write, what was there before the first one, and what is there now; None for nothing.
        """
        self.look()
        slots: dict[tuple[str, str, str], list[PythonWrite]] = {}
        for write in self.writes:
            if not write.refused:
                slots.setdefault(write[:3], []).append(write)
        for writes in slots.values():
            before, last = writes[0].before, writes[-1]
            meant = [before, *(write.after for write in writes if write.by_torch)]
            if not any((last.after and last.after.value) is (one and one.value) for one in meant):
                was = None if before is None else registration_of(last.registry, before, self._functions)
                yield last, was, None if last.after is None else self.registration(last)

    def registration(self, write: PythonWrite) -> PythonRegistration:
        """What a write left, with the chain of lines of the call; without a function when it took something away."""
        file = package_path(write.file, self._roots) if write.file else ""
        if write.after is None:
            made = PythonRegistration(write.registry, write.operator, write.key, site=file)
        else:
            made = registration_of(write.registry, write.after, self._functions)
            if file and made.site.startswith(_PYTORCH):  # the function is PyTorch's, and the assignment is not
                made = made._replace(site=file)
        return made if write.site is None else made._replace(site=self.site_text(write.site))

    def before(self, write: PythonWrite) -> PythonRegistration | None:
        """What was there before a write; None when nothing was."""
        return None if write.before is None else registration_of(write.registry, write.before, self._functions)

    def site_text(self, site: CallSite) -> str:
        """A call site with the lines that lead from it to the call."""
        return " via ".join(package_path(at, self._roots) for at in (str(site), *site.via))

    @property
    def _is_in_torch(self) -> bool:
        """Whether a module of PyTorch is being imported."""
        return bool(self._bodies) and self._bodies[-1].is_torch

    # -- modules

    def _watch_modules(self) -> None:
        loader: Any = bootstrap._LoaderBasics  # type: ignore[attr-defined]  # what all loaders of sources derive from
        original = loader.exec_module

        def exec_module(loader: Any, module: Any) -> Any:
            entered = bool(self._wrapped) and self._enter(module)
            try:
                return original(loader, module)
            finally:
                if entered:
                    self._leave()

        # Warnings about the importing line, and tracebacks, pass over the frames of the import system by their file.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=original.__code__.co_filename)
        self._replace(loader, "exec_module", original, exec_module)

    def _enter(self, module: Any) -> bool:
        file = str(getattr(module, "__file__", ""))
        is_torch, outer = file.startswith(self._torch), self._is_in_torch
        if self._every_module and not (is_torch or outer):
            self.modules.append(module)
        if threading.current_thread() is not threading.main_thread():
            return False
        if (is_torch and outer) or not (is_torch or outer or self._every_module):
            return False
        self.look()
        self._bodies.append(_Body(file, is_torch, str(getattr(module, "__name__", ""))))
        return True

    def _leave(self) -> None:
        try:
            self.look()
        finally:
            if self._bodies.pop().is_torch and self._wrapped:  # else it was closed meanwhile
                self._wrap_all()

    # -- calls

    def _wrap_all(self) -> None:
        """Wrap the functions that register, of the modules that are there."""
        for one in _FUNCTIONS:
            owner: Any = sys.modules.get(one.module)
            *path, name = one.path.split(".")
            for part in path:
                owner = getattr(owner, part, None)
            original = getattr(owner, name, None)
            if original is not None and (id(owner), name) not in self._wrapped:
                wrapper = self._around(one, original)
                self._replace(owner, name, original, wrapper)
                for module in _holders(name, original) if not path else ():
                    self._replace(module, name, original, wrapper)

    def _around(self, one: _Function, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if not self._wrapped:  # somebody holds it longer
                return original(*arguments, **named)
            if not one.decorates:
                return self._called(one, original, arguments, named, _given(one, arguments, named))
            decorator = original(*arguments, **named)

            @functools.wraps(decorator)
            def decorating(*functions: Any, **more: Any) -> Any:
                given = _given(one, (*arguments, *functions), named)
                return self._called(one, decorator, functions, more, given)

            return decorating if self._wrapped else decorator

        return wrapper

    def _called(
        self,
        one: _Function,
        original: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        given: _Given | None,
    ) -> Any:
        if not self._wrapped or self._calls.inside or self._is_in_torch:
            return self._refusing(one, original, arguments, named, given)
        site = self._sites.here()
        if site.by_torch:  # torch.export makes thousands of these calls
            with self._lock:
                if not self._pending.issuperset(one.registries):
                    self.look()
                    self._pending.update(one.registries)
        else:
            self.look()
        self._calls.inside = True
        try:
            return self._refusing(one, original, arguments, named, given)
        finally:
            self._calls.inside = False
            if not site.by_torch:
                with self._lock:
                    self._note(self._tables.changes(one.registries), one.name, site)

    def _refusing(
        self,
        one: _Function,
        original: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        given: _Given | None,
    ) -> Any:
        try:
            return original(*arguments, **named)
        except (RuntimeError, AssertionError) as error:
            if given is not None and not self._is_in_torch:
                self._refused(one, given, error)
            raise

    def _refused(self, one: _Function, given: _Given, error: Exception) -> None:
        site = self._sites.here()
        registry, operator, key, there, function = given
        if site.by_torch or self._calls.error is error:  # one call in another
            return
        self._calls.error = error
        text = (str(error).splitlines() or [type(error).__name__])[0]
        slot = registry, operator_text(operator), key
        before = None if there is None else Entry(slot[1], key, there)
        after = Entry(slot[1], key, function)
        self._add(PythonWrite(*slot, before, after, one.name, site, refused=True, text=text))

    # -- writes

    def _note(
        self, changes: Sequence[TableChange], call: str, site: CallSite | None, *, by_torch: bool = False
    ) -> None:
        for change in changes:
            own = by_torch or (site is None and self._is_torchs(change))
            file = "" if own or not self._bodies else self._bodies[-1].file
            self._add(PythonWrite(*change, call, site, own, file=file))

    def _is_torchs(self, change: TableChange) -> bool:
        """Whether an assignment is PyTorch's, as far as what was assigned shows it."""
        slot = change[:3]
        if slot in self._foreign:
            return False
        is_expected = slot in self._of_torch or change.registry in self._pending
        if not is_expected and (change.after is None or change.before is not None):
            return False
        namespace = change.operator.partition("::")[0]
        if not is_expected and namespace not in PYTORCH_NAMESPACES and self._bodies and not self._is_in_torch:
            return False  # whose function it is does not matter: PyTorch has no operator in this namespace
        return change.after is None or self._functions.of(change.after.value).site.startswith(_PYTORCH)

    def _add(self, write: PythonWrite) -> None:
        self.writes.append(write)
        if write.by_torch:
            self._of_torch.add(write[:3])
        else:
            self._foreign.add(write[:3])
            if self._wrote is not None:
                module = self._bodies[-1].module if write.site is None and self._bodies else ""
                self._wrote(len(self.writes) - 1, module)

    def _replace(self, owner: Any, name: str, original: Any, wrapper: Any) -> None:
        own = vars(owner).get(name)

        def undo() -> None:
            if vars(owner).get(name) is wrapper:  # else somebody wrapped this wrapper, which now only passes calls on
                if own is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, own)

        self._wrapped[id(owner), name] = undo
        setattr(owner, name, wrapper)

    def _put_back(self) -> None:
        while self._wrapped:
            at = next(reversed(self._wrapped))  # the last one first
            self._wrapped[at]()
            self._wrapped.pop(at, None)


_held: dict[str, tuple[int, object, list[Any]]] = {}


def _holders(name: str, function: object) -> list[Any]:
    """The modules of PyTorch that have imported a function by its name."""
    known = _held.get(name)
    if known is None or known[0] != len(sys.modules) or known[1] is not function:
        modules = [module for at, module in list(sys.modules.items()) if at.startswith("torch.")]
        found = [module for module in modules if getattr(module, "__dict__", {}).get(name) is function]
        known = _held[name] = len(sys.modules), function, found
    return known[2]


_PYTORCH = ("torch/", "functorch/", "torchgen/")
PYTORCH_NAMESPACES = frozenset(("aten", "higher_order", "prim", "prims", "python", "quantized"))
"""Namespaces of operators for which PyTorch registers by itself."""


class _Calls(threading.local):
    """What a thread is doing: whether it is inside of a call that registers, and the last error that one raised."""

    inside = False
    error: Exception | None = None


class _Body(NamedTuple):
    """The body of a module that is running."""

    file: str
    is_torch: bool
    module: str


_Given: TypeAlias = "tuple[str, Any, str, Any, Any]"
"""What a call is about: the registry, the operator, the key, what is there, and the function."""


class _Function(NamedTuple):
    """A function that registers.

    Args:
        module: where it is.
        path: its name there.
        registries: those that it writes.
        decorates: whether it gives a decorator, which does it.
        given: finds what a call is about, where a call may be refused.
    """

    module: str
    path: str
    registries: tuple[str, ...]
    decorates: bool = True
    given: Callable[..., _Given | None] | None = None

    @property
    def name(self) -> str:
        """The function that users call."""
        known = {"_add_op_to_registry": "register_decomposition", "__init__": "HigherOrderOperator"}
        name = self.path.rpartition(".")[2]
        return known.get(name) or name.removeprefix("_")


def _given(one: _Function, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Given | None:
    """What a call is about; None where it does not say."""
    if one.given is None:
        return None
    try:
        return one.given(*arguments, **named)
    except Exception:  # the function itself says what is wrong with its arguments
        return None


def _added(registry: Any, operator: Any, function: Any) -> _Given | None:
    known = sys.modules["torch._decomp"].global_decomposition_table
    name = next((key for key, table in list(known.items()) if table is registry), None)
    if name is None:
        inductor = getattr(sys.modules.get("torch._inductor.decomposition"), "decompositions", None)
        if registry is not inductor:
            return None
        slot = ("inductor_decompositions", "")
    else:
        slot = ("meta_functions", "") if name == "meta" else ("decompositions", name)
    overloads = getattr(operator, "op_overloads", None)
    taken = [each for each in (overloads() if overloads else [operator]) if each in registry]
    return (slot[0], taken[0], slot[1], registry[taken[0]], function) if taken else None


def _py_impl(operator: Any, key: Any, function: Any) -> _Given | None:
    tables = [
        (
            "higher_order" if hasattr(operator, "functorch_table") and not hasattr(operator, "_schema") else registry,
            table,
        )
        for registry, names in (
            ("py_kernels", ("py_kernels",)),
            ("mode_rules", ("python_key_table", "python_key_mode_table", "functorch_table")),
        )
        for name in names
        if isinstance(table := getattr(operator, name, None), dict)
    ]
    found = next(((registry, table[key]) for registry, table in tables if key in table), None)
    return None if found is None else (found[0], operator, key_text(key), found[1], function)


def _op_impl(operator: Any, function: Any) -> _Given | None:
    table = sys.modules["torch._subclasses.fake_impls"].op_implementations_dict
    one = next(
        (each for each in (operator if isinstance(operator, list | tuple) else [operator]) if each in table), None
    )
    return None if one is None else ("fake_rules", one, "", table[one], function)


def _fallback(operator: Any, *more: Any, **named: Any) -> _Given | None:
    """Refused by a decomposition, which is in another registry: then nothing is there in its own."""
    known = getattr(sys.modules.get("torch._inductor.decomposition"), "decompositions", {})
    return ("inductor_fallbacks", operator, "", None, known[operator]) if operator in known else None


def _hop_fake(operator: Any, function: Any = None, **named: Any) -> _Given | None:
    table = sys.modules["torch._higher_order_ops.utils"].registered_hop_fake_fns
    return None if operator not in table else ("higher_order_fakes", operator, "", table[operator], function)


_DECOMPOSITIONS = ("decompositions", "meta_functions", "inductor_decompositions")
_LOWERINGS = ("inductor_lowerings", "inductor_fallbacks", "inductor_constraints", "inductor_user_lowerings")
_KERNELS = ("py_kernels", "mode_rules", "higher_order")
_FAKE_IMPLS, _LOWERING = "torch._subclasses.fake_impls", "torch._inductor.lowering"
_SHARDING = "torch.distributed.tensor"

_FUNCTIONS = (
    _Function("torch._decomp", "register_decomposition", _DECOMPOSITIONS),
    _Function("torch._decomp", "_add_op_to_registry", _DECOMPOSITIONS, decorates=False, given=_added),
    _Function("torch._decomp", "remove_decompositions", _DECOMPOSITIONS, decorates=False),
    _Function("torch._inductor.decomposition", "register_decomposition", _DECOMPOSITIONS),
    _Function("torch._ops", "OperatorBase.py_impl", _KERNELS, given=_py_impl),
    _Function("torch._ops", "HigherOrderOperator.py_impl", _KERNELS),
    _Function("torch._ops", "OperatorBase.py_functionalize_impl", _KERNELS, decorates=False),
    _Function("torch._ops", "HigherOrderOperator.py_autograd_impl", _KERNELS, decorates=False),
    _Function("torch._ops", "HigherOrderOperator.__init__", _KERNELS, decorates=False),
    _Function(_FAKE_IMPLS, "register_op_impl", ("fake_rules", "fake_checks"), given=_op_impl),
    _Function(_FAKE_IMPLS, "_deregister_op_impl", ("fake_rules", "fake_checks"), decorates=False),
    _Function(_FAKE_IMPLS, "register_fast_op_impl", ("fast_fake_rules",)),
    _Function("torch.library", "Library._register_torch_dispatch_rule", ("torch_library",), decorates=False),
    _Function("torch._higher_order_ops.utils", "register_fake", ("higher_order_fakes", *_KERNELS), decorates=False),
    _Function("torch._higher_order_ops.effects", "_register_effectful_op", ("torch_library",), decorates=False),
    _Function(_LOWERING, "register_lowering", _LOWERINGS),
    _Function(_LOWERING, "_register_lowering", _LOWERINGS, decorates=False),
    _Function(_LOWERING, "make_fallback", _LOWERINGS, decorates=False, given=_fallback),
    _Function(_LOWERING, "add_layout_constraint", _LOWERINGS, decorates=False),
    _Function(f"{_SHARDING}.experimental", "register_sharding", ("dtensor_rules",)),
    _Function(f"{_SHARDING}.experimental._register_sharding", "register_sharding", ("dtensor_rules",)),
    _Function(f"{_SHARDING}._ops.utils", "register_op_strategy", ("dtensor_rules",)),
    _Function(f"{_SHARDING}._ops.utils", "register_prop_rule", ("dtensor_rules",)),
    _Function(f"{_SHARDING}._ops.registration", "register_op_strategy", ("dtensor_rules",)),
    _Function(f"{_SHARDING}._ops.registration", "register_prop_rule", ("dtensor_rules",)),
    _Function(f"{_SHARDING}._ops.single_dim_strategy", "register_single_dim_strategy", ("dtensor_rules",)),
    _Function("torch.nested._internal.ops", "register_func", ("jagged",)),
    _Function("torch.nested._internal.ops", "register_jagged_func", ("jagged",)),
)
"""The functions that register, the inner ones too, which code calls that holds the outer ones."""

_MODULES = dict.fromkeys(one.module.partition(".")[2].replace(".", "/") for one in _FUNCTIONS)
_FILES = ("utils/_pytree.py", *(f"{path}{end}" for path in _MODULES for end in (".py", "/__init__.py")))
"""The files of these, below the folder of torch: no registration is theirs while no module body runs."""
