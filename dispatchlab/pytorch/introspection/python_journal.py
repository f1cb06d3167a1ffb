"""Journal of the Python-side registries: every write while it is on, in order, with who made it and what was there."""

from __future__ import annotations

import functools
import importlib._bootstrap_external as bootstrap
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.model.python_layer import (
    EFFECT,
    EVERY_REGISTRY,
    PythonRegistration,
    PythonRegistry,
    RegisteringFunction,
    Second,
)
from dispatchlab.pytorch.bridge.call_sites import CallSite, CallSites, torch_folder
from dispatchlab.pytorch.bridge.registry_tables import (
    RENAMES_PRIVATEUSE1,
    Entry,
    entries_of,
    is_plain,
    key_text,
    operator_text,
    own_tables,
    plain_table,
    tables_of,
)
from dispatchlab.pytorch.introspection.package_paths import package_path, site_chain
from dispatchlab.pytorch.introspection.python_registries import registration_of
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.pytorch.introspection.python_tables import PythonTables, TableChange

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
# What a call writes that was there already is no change, and may be one in another order. So an effect counts as
# written whenever it is called for, also where None takes away what is not there.
#
# Where a function refuses to register, it says so by an exception. It is a write that was refused if the entry that
# it is about has something already; another error is no registration at all.


# Note [Modules of others]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# To look at all registries takes a millisecond, and a package may import hundreds of modules of another one that has
# nothing to do with PyTorch, such as sympy. What is in such a module's body without the word torch, and is imported by
# a module of the same package, counts as a part of that: what it would assign is taken note of when that one ends. So
# does whatever the body of a package imports from inside of it, since that body begins first in every order. The
# modules of the packages that are recorded are all looked at, since their order is what is asked about.

_LONGEST_SOURCE = 2**24


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
        watched: the packages whose modules are all looked at; all when left out. See Note [Modules of others].
        wrote: is called after each write that is not PyTorch's with its number, while the code that made it is running;
            after an assignment with the module that was running, too, which may have ended.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        *,
        tables: PythonTables | None = None,
        every_module: bool = True,
        watched: Collection[str] | None = None,
        wrote: Callable[[int, str], None] | None = None,
    ) -> None:
        self.writes: list[PythonWrite] = []
        self.modules: list[Any] = []
        """The modules whose bodies ran, but for those of PyTorch, in the order in which they began."""
        self._tables = tables or PythonTables()
        self._every_module, self._wrote = every_module, wrote
        self._watched = None if watched is None else frozenset(name.partition(".")[0] for name in watched)
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
        """The slots that other code than PyTorch's has changed.

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
            if file and made.site.startswith(PYTORCH_FOLDERS):  # the function is PyTorch's, and the assignment is not
                made = made._replace(site=file)
        return made if write.site is None else made._replace(site=site_chain(write.site, self._roots))

    def before(self, write: PythonWrite) -> PythonRegistration | None:
        """What was there before a write; None when nothing was."""
        return None if write.before is None else registration_of(write.registry, write.before, self._functions)

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
        if (is_torch and outer) or not (is_torch or outer or self._every_module) or self._is_beside(module, file):
            return False
        self.look()
        self._bodies.append(_Body(file, is_torch, str(getattr(module, "__name__", ""))))
        return True

    def _is_beside(self, module: Any, file: str) -> bool:
        """Whether a module counts as a part of the one that imports it. See Note [Modules of others]."""
        if self._watched is None or not self._bodies or not file.endswith(".py"):
            return False
        name, outer = str(getattr(module, "__name__", "")), self._bodies[-1].module
        top = name.partition(".")[0]
        if top in self._watched or top != outer.partition(".")[0]:
            return False
        if name.startswith(f"{outer}."):
            return True
        try:
            return b"torch" not in read_file(file, limit=_LONGEST_SOURCE, what="modules")
        except (OSError, ReadError):
            return False

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
            module, _, names = one.function.path.partition(":")
            owner: Any = sys.modules.get(module)
            *path, name = names.split(".")
            for part in path:
                owner = getattr(owner, part, None)
            original = getattr(owner, name, None)
            if original is not None and (id(owner), name) not in self._wrapped:
                wrapper = self._around(one, original)
                self._replace(owner, name, original, wrapper)
                for holder in _holders(name, original) if not path else ():
                    self._replace(holder, name, original, wrapper)

    def _around(self, one: _Function, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            if not self._wrapped:  # somebody holds it longer
                return original(*arguments, **named)
            if not one.function.decorates:
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
                    changes = self._tables.changes(one.registries)
                    self._note(changes or list(_written_again(one, arguments)), one.name, site)

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
        return change.after is None or self._functions.of(change.after.value).site.startswith(PYTORCH_FOLDERS)

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


PYTORCH_FOLDERS = ("torch/", "functorch/", "torchgen/")
"""What the sites of PyTorch's own code begin with."""

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
        function: what is known of it.
        registry: the registry that it is listed at.
    """

    function: RegisteringFunction
    registry: PythonRegistry

    @property
    def registries(self) -> tuple[str, ...]:
        """Those that it writes."""
        return self.registry.name, *self.function.also

    @property
    def name(self) -> str:
        """The function that users call."""
        known = {"_add_op_to_registry": "register_decomposition", "__init__": "HigherOrderOperator"}
        name = self.function.path.rpartition(":")[2].rpartition(".")[2]
        return known.get(name) or name.removeprefix("_")


def _given(one: _Function, arguments: tuple[Any, ...], named: dict[str, Any]) -> _Given | None:
    """What a call is about; None where it does not say."""
    given = _GIVEN.get(one.function.path)
    try:
        if given is not None:
            return given(*arguments, **named)
        rule, is_refused_here = one.registry.rule, one.function.decorates and is_plain(one.registry.name)
        if is_refused_here and rule is not None and rule.second is Second.REFUSED:
            return _in_its_table(one.registry.name, *arguments)
    except Exception:  # the function itself says what is wrong with its arguments
        pass
    return None


def _added(table: Any, operator: Any, function: Any) -> _Given | None:
    """What `_add_op_to_registry` is about, which is given the table."""
    registries = ("decompositions", "meta_functions", "inductor_decompositions")
    tables = (one for registry in registries for one in tables_of(registry))
    slot = next((one for one in tables if one.entries is table), None)
    overloads = getattr(operator, "op_overloads", None)
    taken = next((one for one in (overloads() if overloads else [operator]) if one in table), None)
    return None if slot is None or taken is None else (slot.registry, taken, slot.key, table[taken], function)


def _py_impl(operator: Any, key: Any, function: Any) -> _Given | None:
    for name, table in own_tables(operator):
        if key in table:
            registry = "py_kernels" if name == "py_kernels" else "mode_rules"
            of = registry if hasattr(operator, "_schema") else "higher_order"
            return of, operator, key_text(key), table[key], function
    return None


def _in_its_table(registry: str, operator: Any, function: Any) -> _Given | None:
    table = plain_table(registry)
    operators = operator if isinstance(operator, list | tuple) else [operator]
    taken = next((one for one in operators if one in table), None)
    return None if taken is None else (registry, taken, "", table[taken], function)


def _fallback(operator: Any, *more: Any, **named: Any) -> _Given | None:
    """Refused by a decomposition, which is in another registry: then nothing is there in its own."""
    known = getattr(sys.modules.get("torch._inductor.decomposition"), "decompositions", {})
    return ("inductor_fallbacks", operator, "", None, known[operator]) if operator in known else None


def _written_again(one: _Function, arguments: tuple[Any, ...]) -> Iterator[TableChange]:
    """The effects that a call wrote which changed nothing."""
    if one.function.path == EFFECTS and len(arguments) > 1:
        operator, given = arguments[0], arguments[1]
        name = sys.modules[EFFECTS.partition(":")[0]]._get_op_qualname(operator)
        for effect in sys.modules["torch._library.effects"].EffectType:
            key = f"{EFFECT}{effect.name}"
            if given in (effect, None):
                entry = next((each for each in entries_of(one.registry.name) if each[:2] == (name, key)), None)
                yield TableChange(one.registry.name, name, key, entry, entry)


EFFECTS = "torch._higher_order_ops.effects:_register_effectful_op"


def _rename(name: str) -> _Given | None:
    (table,) = tables_of("privateuse1_name")
    there = table.entries.get(RENAMES_PRIVATEUSE1)
    return None if there in (None, name) else ("privateuse1_name", RENAMES_PRIVATEUSE1, "", there, name)


_GIVEN: Mapping[str, Callable[..., _Given | None]] = {
    "torch._decomp:_add_op_to_registry": _added,
    "torch._ops:OperatorBase.py_impl": _py_impl,
    "torch._inductor.lowering:make_fallback": _fallback,
    "torch.utils.backend_registration:rename_privateuse1_backend": _rename,
    "torch._C:_rename_privateuse1_backend": _rename,
}
"""What finds out what a call is about, where another call than one for a plain table may be refused."""

_FUNCTIONS = tuple(_Function(function, one) for one in EVERY_REGISTRY for function in one.calls)
"""The functions that register, the inner ones too, which code calls that holds the outer ones."""

_MODULES = dict.fromkeys(one.function.path.partition(":")[0].partition(".")[2].replace(".", "/") for one in _FUNCTIONS)
_FILES = ("utils/_pytree.py", *(f"{path}{end}" for path in _MODULES for end in (".py", "/__init__.py")))
"""The files of these, below the folder of torch: no registration is theirs while no module body runs."""
