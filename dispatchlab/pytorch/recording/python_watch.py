"""Watch what packages register in Python beside the dispatch tables, with the line of the package that did."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from types import ModuleType
from typing import TypeAlias

from dispatchlab.model.python_layer import ASSIGNMENT, PythonLayer, PythonRegistration, WriteEffect
from dispatchlab.pytorch.bridge.torch import bindings, torch
from dispatchlab.pytorch.introspection.module_uses import tables_used_in
from dispatchlab.pytorch.introspection.package_paths import package_path
from dispatchlab.pytorch.introspection.python_journal import PYTORCH_FOLDERS, PYTORCH_NAMESPACES, PythonJournal
from dispatchlab.pytorch.introspection.python_tables import tables_now
from dispatchlab.records.builds import bundled_for
from dispatchlab.records.file import bundled_name, open_bundled, python_layer_of
from dispatchlab.records.python_compare import is_left_by_call

# Note [What a package registers in Python]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Every write into a registry is one registration, in the order in which they were made: what is written over is listed
# before what took its place (Note [How writes are seen]). Two kinds
# of writes are not those of the package:
#
# - what PyTorch itself brings, when the package imports Inductor, say: what its modules write while they are imported,
#   what its functions register, and what the bundled registries of this version have;
# - what a call of torch.library that is a registration of the record left behind it: the fake implementation, the parts
#   of a custom operator, a kernel of its own. A torch_dispatch rule and an effect reach no dispatch table, so that they
#   are listed.
#
# What a package takes out of a registry is a write as well, and so is what it puts back, since another package may have
# written between. A function that refuses to register, because the entry is taken, would not have refused in another
# order, so the refused function is listed, too, unless it is PyTorch's own entry that is in its way in every order.
# Last come the slots that the code of another module than the one that writes them may look up or take out (Note [Uses
# of tables]), so that no verdict is a proof.
#
# The site is the line of the package that made the call, where the call goes through a function that can be wrapped;
# else the line of the function, which for a decorator is the same.


Slot: TypeAlias = tuple[str, str, str]
"""The registry, the operator and the key of a registration in Python."""


class PythonWatch:
    """Reads the Python-side registries before and after an import, and notes who registers meanwhile.

    Args:
        roots: the folders in which packages are found.
        wrote: see `PythonJournal`.
        packages: what is imported; see Note [Modules of others] in introspection/python_journal.py.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        wrote: Callable[[int, str], None] | None = None,
        packages: Collection[str] | None = None,
    ) -> None:
        self._roots, self._wrote, self._packages = roots, wrote, packages
        self._journal: PythonJournal | None = None
        self.numbers: list[int] = []
        """The number of the write of each registration that `found` gave; of those at the end there is none."""
        self.refused_by_torch: list[PythonRegistration] = []
        """What was refused since PyTorch itself has such an entry, once `found` was asked."""

    def __enter__(self) -> PythonWatch:
        self._journal = PythonJournal(
            self._roots, tables=tables_now(), wrote=self._wrote, watched=self._packages
        ).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._noted.close()

    @property
    def _noted(self) -> PythonJournal:
        assert self._journal is not None, "the watch is on"
        return self._journal

    @property
    def modules(self) -> Sequence[ModuleType]:
        """The modules whose bodies ran since, but for those of PyTorch and what it imports."""
        return self._noted.modules

    def found(self, called: Collection[str]) -> tuple[PythonRegistration, ...]:
        """What was registered since, without what is PyTorch's own. See Note [What a package registers in Python].

        Args:
            called: the operators for which functions of torch.library were called that the record has.
        """
        journal = self._noted
        journal.look()
        own = _own_layers(str(torch().__version__))
        known = frozenset(bindings()._dispatch_get_all_op_names())
        made: list[PythonRegistration] = []
        slots: set[Slot] = set()
        for number, write in enumerate(journal.writes):
            if write.by_torch or not (write.after or write.site or _is_known(write.operator, known)):
                continue
            one = journal.registration(write)
            before = journal.before(write)
            by_itself = one.is_effect and write.site is not None
            if not by_itself and is_left_by_call(one if write.after or before is None else before, called):
                continue
            if write.site is None and write.before is None and one.slot not in slots and _is_own(one, own):
                continue
            beside = "" if one.described.rule is None else one.described.rule.beside
            in_the_way = (beside, one.operator, one.key) if beside else one.slot
            if write.refused and in_the_way not in slots:  # PyTorch's own entry is there in every order
                self.refused_by_torch.append(one._replace(call=write.call))
                continue
            slots.add(one.slot)
            effect: WriteEffect = "refused" if write.refused else "" if write.after is not None else "removed"
            self.numbers.append(number)
            made.append(one._replace(active=True, call=write.call or ASSIGNMENT, effect=effect))
        return (*made, *self._used(made))

    def _used(self, made: Sequence[PythonRegistration]) -> Iterator[PythonRegistration]:
        """The slots that one module writes, in registries that the code of another one may look up or write itself."""
        slots: dict[str, dict[Slot, set[str]]] = {}
        for one in made:
            paths = {path.rpartition(":")[0] or path for path in one.site.split(" via ")}
            slots.setdefault(one.registry, {}).setdefault(one.slot, set()).update(paths)
        for module in self._noted.modules if slots else ():
            lines: dict[str, int] = {}
            for use in tables_used_in(module):
                lines.setdefault(use.registry, use.line)
            path = package_path(str(module.__file__), self._roots) if lines else ""
            for registry, line in lines.items():
                for slot, writers in slots.get(registry, {}).items():
                    if writers - {path}:
                        yield PythonRegistration(*slot, site=f"{path}:{line}", effect="used")


def _is_known(operator: str, known: Collection[str]) -> bool:
    """Whether an operator is there: what its library took with it, nobody has removed."""
    return operator in known or operator.partition("::")[0] in ("higher_order", "python") or operator.endswith(".*")


def _own_layers(version: str) -> Sequence[PythonLayer]:
    """The Python layers that are known of a version of PyTorch, of any build."""
    name = bundled_for(version)
    if name is None:
        return ()
    names = dict.fromkeys((name.removesuffix("-cpu"), name, f"{name}-cpu"))
    layers = (python_layer_of(open_bundled(each)) for each in names if bundled_name(each))
    return [layer for layer in layers if layer is not None]


def _registries_in(layer: PythonLayer) -> frozenset[str]:
    """The registries that a layer has something of; one that was recorded before there was a reader has none."""
    kept = _registries.get(layer.torch)
    if kept is None:
        kept = _registries[layer.torch] = frozenset(each.registry for each in layer)
    return kept


_registries: dict[str, frozenset[str]] = {}


def _is_own(one: PythonRegistration, layers: Sequence[PythonLayer]) -> bool:
    """Whether PyTorch registers this by itself."""
    if not one.site.startswith(PYTORCH_FOLDERS):
        return False
    if one.registry == "fake_checks":  # a rule of PyTorch's for every operator with a property
        return True
    for layer in layers:
        if any((other.slot, other.function) == (one.slot, one.function) for other in layer.of(one.operator)):
            return True
    is_unknown = not any(one.registry in _registries_in(layer) for layer in layers)
    return is_unknown and one.operator.partition("::")[0] in PYTORCH_NAMESPACES
