"""Import orders: import packages in several orders, each in a new process, and compare the states."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import islice, permutations, takewhile
from math import factorial
from pathlib import Path

from dispatchlab.model.order_run import PROCESS, SUCCEEDS, Order, OrderRun
from dispatchlab.model.snapshot import main_key
from dispatchlab.registries.debug_text import file_in, keys_text, sites_in, stale_order_text
from dispatchlab.views.formatting import counted, readable

# Note [What is compared]
# ~~~~~~~~~~~~~~~~~~~~~~~
# A package is a program, and its code can hide a difference anywhere. So the orders of imports are run, what is read
# after each is compared, and nothing is proved: "no difference in 6 of 6 import orders" is about `COMPARED`, in these
# orders, on this machine. What is not the same in two runs of one order, such as the time of an import, does not come
# of the order: it is named, and not compared.
#
# The orders are those of the packages that were named and of those of their modules that register something. A module
# below a package that was named has no order of its own: Python imports the package around it first.

COMPARED = (
    "whether each import succeeds; registrations, table and slots of the operators that are new or changed; backend "
    "fallbacks; the registries of Python; the public variables of the packages' modules, and of modules that two of "
    "them import, by type, length and plain value"
)
"""What is compared, for the output."""

MOST_ORDERS = 12
"""Up to so many orders are all run; of more, so many are chosen."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference after two orders.

    Args:
        what: its subject, such as `registrations of my::op` or `variable my_package.TABLE`.
        cause: the two registrations or writes with their source locations, and which one wins.
        fix: the smallest change that removes the difference.
        expected: one order.
        actual: the other order.
        diff: a unified diff of the two states.
        sites: the lines that cause it, each as `file:line`, if they are known.
    """

    what: str
    cause: str
    fix: str
    expected: Order
    actual: Order
    diff: str
    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportComparison:
    """The effect of import orders.

    Args:
        packages: the packages, as the user named them.
        modules: the modules whose order was changed: the packages, and some of their modules.
        orders: the orders that ran; all others are compared with the first order. None if there is only one order.
        of: the number of possible orders.
        differences: the differences.
        unstable: what was not compared, because it differs between two runs of one order.
        registering: the number of modules that register.
        fixed: sentences about changes by another order that the packages' own imports exclude.
    """

    packages: tuple[str, ...]
    modules: tuple[str, ...]
    orders: tuple[Order, ...] = ()
    of: int = 1
    differences: tuple[Difference, ...] = ()
    unstable: tuple[str, ...] = ()
    registering: int = 0
    fixed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The findings as a clause."""
        around = self.packages[0].partition(".")[0]
        if self.fixed:
            return f"one order, by the imports of {around}"
        if not self.orders and self.registering < 2:
            return f"not asked: {'one' if self.registering else 'no'} module registers"
        if not self.orders:
            return f"not asked: Python imports {around} before each of its modules, so there is one order"
        ran = f"{len(self.orders):,} of {readable(self.of)} import orders"
        if not self.differences:
            return f"no difference in {ran}"
        more = f" (and {counted(len(self.differences) - 1, 'more difference')})" * (len(self.differences) > 1)
        return f"differs: {self.differences[0].cause}{more}"

    @property
    def not_run(self) -> str:
        """Why some orders were not run, a sentence; empty if all ran."""
        if not 0 < len(self.orders) < self.of:
            return ""
        if len(self.orders) < min(self.of, MOST_ORDERS):
            return f"the imports take long, so not all {min(self.of, MOST_ORDERS)} chosen orders ran"
        why = f"each order is a new process, so of more than {MOST_ORDERS} orders, {MOST_ORDERS} are run"
        left = counted(self.of - len(self.orders), "order")
        return f"{left} not run: {why} (the given order, its reverse, and others at random)"

    @property
    def exit_code(self) -> int:
        """5 if an import ended its process in some order, 1 if there is a difference, else 0."""
        return 5 if any(one.what == PROCESS for one in self.differences) else 1 if self.differences else 0


def compare_import_orders(
    packages: Sequence[str],
    *,
    registering: Collection[str] | None = None,
    along: Collection[str] = (),
    first: Sequence[str] = (),
    needed: Collection[str] | None = None,
    enough_s: float = math.inf,
    prepared: Callable[..., tuple[OrderRun, ...]] | None = None,
    started: Callable[[str], None] = lambda _: None,
) -> ImportComparison:
    """Import packages in every order, or in some orders if there are many, and compare. See Note [What is compared].

    Args:
        packages: the modules to import.
        registering: the modules that register; default: find them.
        along: modules without an own order, because a package imports them.
        first: the packages around all modules; `prepared` imports them first, once for all orders.
        needed: the modules whose import must succeed in one of the orders; default: all.
        enough_s: of many orders no other one begins once the imports of two took this processor time.
        prepared: `runs_in_copy` of a process that has imported libraries; default: a new process for all orders.
        started: a function that gets the number of orders and modules.

    Raises:
        ImportFailedError: the import of a needed module fails in every order.
        ImportTimeoutError: a package takes too long.
        TorchMissingError: there is no PyTorch.
    """
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.live.worker.process import import_limit
    from dispatchlab.processes import most_jobs

    named, limit_s = tuple(dict.fromkeys(packages)), import_limit()
    if registering is not None and len(modules := modules_with_orders(named, registering, along)) == 1:
        return _comparison(named, modules, registering, (), None)
    with LiveEngine() as engine:

        def run(*orders: Order, enough_s: float = math.inf) -> tuple[OrderRun, ...]:
            runs = prepared(registering, orders, limit_s, most_jobs(), first, enough_s) if prepared else ()
            function = "dispatchlab.live.recording.order_runs:run_orders"
            runs = runs or engine.ask(function, orders, limit_s, most_jobs(), (), enough_s)
            _raise_for(runs, needed)
            return runs

        fixed: tuple[str, ...] = ()
        if registering is None:
            started(f"importing {' and '.join(named)}")
            (whole,) = run(named)
            registering = whole.registering
            fixed = tuple(_fixed_orders(named[0], whole.found))
        modules = modules_with_orders(named, registering, along)
        orders = orders_of(modules, MOST_ORDERS)
        if len(orders) == 1:
            return replace(_comparison(named, modules, registering, (), None), fixed=fixed)
        started(f"importing {', '.join(modules)} in {counted(len(orders), 'order')}")
        enough_s = enough_s if len(orders) < factorial(len(modules)) else math.inf
        runs = run(*orders, enough_s=enough_s)
        again = run(orders[0])[0] if any(one.found != runs[0].found for one in runs) else None
        return _comparison(named, modules, registering, runs, again)


def _fixed_orders(package: str, found: Mapping[str, str]) -> Iterator[str]:
    """Return sentences about the order in which a package imports its own modules."""
    for what, dump in found.items():
        sites: dict[str, list[str]] = {}
        for key, site in _kernels(dump) if what.startswith("registrations of ") else ():
            sites.setdefault(key, []).append(site)
        for key, each in sites.items():
            if len({*map(file_in, each)}) > 1:
                set_one = f"both set the {key} kernel of {what.removeprefix('registrations of ')}"
                decides = f"The imports of {package} decide the order, so a sorter of imports can change"
                yield f"the registrations at {' and '.join(sorted(each))} {set_one}. {decides} the kernel in force"


def modules_with_orders(
    packages: Sequence[str], registering: Collection[str], along: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the packages, and the other registering modules, without modules that a package imports."""
    tops = {package.partition(".")[0] for package in packages}
    others = (name for name in sorted(registering) if name.partition(".")[0] in tops and name not in along)
    return (*packages, *(one for one in others if not any(f"{one}.".startswith(f"{each}.") for each in packages)))


def orders_of(modules: Sequence[str], most: int) -> tuple[Order, ...]:
    """Return every order of some modules; for more than `most`, the given order, its reverse, and random orders."""
    if factorial(len(modules)) <= most:
        return tuple(permutations(modules))
    chosen = {tuple(modules): None, tuple(reversed(modules)): None}
    shuffle = random.Random(0)
    while len(chosen) < most:
        chosen[tuple(shuffle.sample(modules, len(modules)))] = None
    return tuple(islice(chosen, most))


def _comparison(
    packages: tuple[str, ...],
    modules: tuple[str, ...],
    registering: Collection[str],
    runs: Sequence[OrderRun],
    again: OrderRun | None,
) -> ImportComparison:
    """Compare the results of orders with those of the first order, and these with `again`, a second run of it."""
    unstable = set() if again is None else _unlike(runs[0], again)
    differences: dict[str, Difference] = {}
    for run in runs[1:]:
        found = _outermost(_unlike(runs[0], run) - unstable)
        for what in sorted(found, key=_rank):
            differences.setdefault(what, _difference(what, runs[0], run))
    return ImportComparison(
        packages,
        modules,
        tuple(run.order for run in runs),
        factorial(len(modules)),
        tuple(sorted(differences.values(), key=lambda one: _rank(one.what))),
        tuple(sorted(unstable)),
        sum(name.partition(".")[0] in {one.partition(".")[0] for one in packages} for name in registering),
    )


_ASPECTS = ("registrations of ", "table of ", "slots of ")
_RANKS = (PROCESS, "import of ", *_ASPECTS, "fallback of ", "variable ", "module ")


def _rank(what: str) -> tuple[int, str]:
    """Return a rank that puts the most important first."""
    return next((at for at, start in enumerate(_RANKS) if what.startswith(start)), len(_ASPECTS) + 2), what


def _unlike(one: OrderRun, other: OrderRun) -> set[str]:
    """Return the differences after two runs."""
    names = one.found.keys() | other.found.keys()
    unlike = {name for name in names if one.found.get(name) != other.found.get(name)}
    return unlike & {PROCESS} or unlike


def _outermost(found: AbstractSet[str]) -> set[str]:
    """Return the differences, without those that follow from another difference.

    The registrations of an operator decide its table, its slots and its entries in registries of Python, and a
    fallback decides tables. An import that fails decides the imported modules, and only these modules have variables.
    """
    failed, fallback = (any(what.startswith(start) for what in found) for start in ("import of ", "fallback of "))
    modules = {f"variable {what.removeprefix('module ')}." for what in found if what.startswith("module ")}

    def follows(what: str) -> bool:
        aspect, _, operator = what.partition(" of ")
        earlier = takewhile(lambda one: one != f"{aspect} of ", _ASPECTS)
        decided = any(f"{one}{operator.partition(' at ')[0]}" in found for one in earlier)
        return decided or (failed and what.startswith("module ")) or (fallback and aspect == "table")

    return {what for what in found if not follows(what) and not what.startswith(tuple(modules))}


def _difference(what: str, one: OrderRun, other: OrderRun) -> Difference:
    before, after = (run.found.get(what, "nothing").splitlines() for run in (one, other))
    first, second = (", ".join(run.order) for run in (one, other))
    names = [f"in the order {first}", f"in the order {second}"]
    lines = list(unified_diff(before, after, f"after {first}", f"after {second}", lineterm="", n=0))
    sides = [[line[1:] for line in lines[2:] if line.startswith(mark)] for mark in "-+"]
    sites = [site for side in sides for line in side for site in _sites(line)]
    if what.startswith("slots of "):
        operator = what.removeprefix("slots of ")
        kernels = _kernels(one.found.get(f"registrations of {operator}", ""))
        sites = [site for _, site in kernels]
        cause, fix = _stale(operator, kernels, dict(zip(names, sides, strict=True)))
    elif what.startswith("variable "):
        sites = _lines_of_variable(what.removeprefix("variable "), {**other.files, **one.files})
        cause, fix = f"{what} {names[0]}: {sides[0][0]}. In the order {second}: {sides[1][0]}", _READ_LATE
    elif what.startswith(("import of ", "module ", PROCESS)):
        ends = [re.sub(r"\. .*?(?=, raised at |$)", "", side[0]) for side in sides]
        cause = f"{what} {names[0]}: {ends[0]}. In the order {second}: {ends[1]}"
        fix = _ONE_DEF if "multiple times" in cause else _NEEDS
    else:
        made_anew = any(name.startswith(what.replace("registrations of", "custom_ops of")) for name in one.found)
        cause, fix = _registered(what, names, sides, wins="later" if made_anew else "earlier")
    of_meta = "Meta kernel" in cause or what.endswith(" at fake")  # then the import of any module may be the reason
    imports = "import of " if of_meta else what.replace("module ", "import of ")
    refusal = "because it has a CompositeImplicitAutograd kernel"
    texts = [text for run in (one, other) for name, text in run.found.items() if name.startswith(imports)]
    fix = _NO_META if any(refusal in text for text in texts) else fix
    diff = "".join(f"{line}\n" for line in lines)
    return Difference(what, cause, fix, one.order, other.order, diff, tuple(dict.fromkeys(sites)))


_ONE_ORDER = "keep one of the two registrations. Or write an import of one module into the other module"
_READ_LATE = "look it up when you need it, not while the module is imported, or first import what it depends on"
_FRESH = "the kernel in the dispatch table"  # for a slot that is not stale
_ONE_DEF = "keep one of the two definitions. Or write an import of one module into the other module"
_NEEDS = "import in a module what it needs, so that it can be imported first"
_NO_META = "drop the fake or Meta kernel, or register the composite kernel as CompositeExplicitAutograd"
_ALWAYS = "register it in every order, without checking what was imported before"


def _stale(operator: str, kernels: Sequence[tuple[str, str]], ends: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return the cause and the fix if slots differ, but registrations do not; `ends` has the stale slots by order."""
    heads = (line.partition(": ")[0] for side in ends.values() for line in side)
    keys = list(dict.fromkeys(head for head in heads if "::" not in head))  # the others are about the operator
    key = main_key(keys) if keys else "every key"
    held = {order: next((row for row in side if row.startswith(f"{key}: ")), _FRESH) for order, side in ends.items()}
    runs = (f"{next(_sites(row), row)} {order}" for order, row in held.items())
    cause = f"{stale_order_text(keys_text(key, len(keys)), kernels, operator=operator)}: {', and '.join(runs)}"
    # One kernel more does not help where several keys differ.
    one_key = f'drop one of the two, or lib.impl("{operator.partition("::")[2]}", fn, "{key}")'
    return f"{cause}. No dump shows the difference", one_key if len(keys) == 1 else _ONE_ORDER


def _registered(what: str, names: Sequence[str], sides: Sequence[Sequence[str]], *, wins: str) -> tuple[str, str]:
    """Return the cause and the fix if two registrations set one entry (`wins` if a def), or one is missing."""
    thing = "the " + re.sub(r"^(custom_ops|torch_library) of (.+) at (.+)$", r"\3 of \2 (\1)", what)
    every, key = [{"": "\n".join(side)} for side in sides], ""
    if what.startswith("registrations of "):
        operator = what.removeprefix("registrations of ")
        every = [{line.partition(":")[0]: line for line in side if "(inactive)" not in line} for side in sides]
        key = next((key for key in every[0] if key in every[1]), next(iter(every[0] | every[1]), ""))
        is_def = key in ("debug", "schema")
        thing = f"the definition of {operator}" if is_def else f"the {key.removesuffix('[alias]')} kernel of {operator}"
    one, other = (next(_sites(rows.get(key, "")), "") for rows in every)
    if one and other and one != other:
        wins = wins if thing.startswith("the definition") else "later"
        both = f"the registrations at {' and '.join(sorted((one, other)))} both set {thing}"
        return f"{both}. The registration of the {wins} import is in force", _ONE_ORDER
    if site := one or other:
        there, gone = names if one else reversed(names)
        rows = every[bool(one)].items()  # of the order without it
        keys = (head for head, line in rows if head[:1].isupper() and head != key and site in _sites(line))
        if elsewhere := next(keys, ""):
            return f"{site} sets {thing} {there}, and the {elsewhere} kernel {gone}", _READ_LATE
        return f"{site} sets {thing} {there}, but not {gone}", _ALWAYS
    values = [rows.get(key, "").removeprefix("schema: ").partition("\n")[0] or "nothing" for rows in every]
    text = f"{thing} is {values[0]} {names[0]}, and {values[1]} {names[1]}"
    return text, _ONE_DEF if thing.startswith("the definition") else _ALWAYS


def _kernels(dump: str) -> list[tuple[str, str]]:
    """Return the kernels in a dump, with their keys and source locations."""
    rows = ((line.partition(":")[0], line) for line in dump.splitlines() if line[:1].isupper())
    named = ((key.removesuffix(" (inactive)").removesuffix("[alias]"), line) for key, line in rows)
    return [(key, site) for key, line in named for site in _sites(line)]


def _sites(line: str) -> Iterator[str]:
    """Return the source lines that a line of a dump, a table or a registry names, each as `file:line`."""
    for part in line.split("registered at ")[1:]:
        for path, number in sites_in(part.partition(" [")[0].partition(" :: ")[0].strip()):
            yield f"{path}:{number}"


def _lines_of_variable(name: str, files: Mapping[str, str]) -> list[str]:
    """Return the first line of a module that sets a variable, as `file:line`; empty if it cannot be found."""
    module, _, variable = name.rpartition(".")
    file = Path(files.get(module, ""))
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.suffix == ".py" else []
    sets = re.compile(rf"\s*{re.escape(variable)}\b\s*[:=,]|.*\b(?:import|as)\b.*\b{re.escape(variable)}\b")
    depth = module.count(".") + 1 + (file.stem == "__init__")
    path = "/".join(file.parts[-depth:])
    return [f"{path}:{number}" for number, line in enumerate(lines, 1) if sets.match(line)][:1]


def _raise_for(runs: Sequence[OrderRun], needed: Collection[str] | None) -> None:
    """Raise the error of a needed module whose import fails in every order."""
    from dispatchlab.live.bridge.torch import ImportEndedError, ImportFailedError

    if all(run.ended for run in runs):
        raise ImportEndedError(runs[0].module, runs[0].ended)
    for module in runs[0].order if needed is None else needed:
        reasons = [run.found.get(f"import of {module}", SUCCEEDS) for run in runs]
        if SUCCEEDS not in reasons:
            raise ImportFailedError(module, reasons[0])
