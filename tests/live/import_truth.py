"""What importing a group of modules leads to in every order, asked of the running PyTorch alone.

A process that has imported PyTorch is forked for each order. The child imports the modules, evaluates the probes of the
group and answers with their results as text. Nothing of dispatchlab has a part in it, so that verdicts can be compared
with it.

Note [The parts of PyTorch that are there before]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The first call of a custom operator imports TorchDynamo, which takes a second. So the process that is forked has done
that. A group in which it matters who is the first to import a part of PyTorch says `bare`, and its orders are forked
from a process that has imported `torch` and nothing else.

Note [When orders agree]
~~~~~~~~~~~~~~~~~~~~~~~~
Two orders agree where all probes give the same, and where every module registered the same and raised the same. A
kernel that another order does not register, or that it wraps, is a difference, although no probe may reach it: nobody
who calls later knows that. So the calls of the binding below `torch.library` are noted, with the functions that they
are given, and so are the tables of decompositions and of what `torch.library` keeps in Python. A call that one order
alone refuses is a difference, though its module catches that. What a module reads, and then makes no use of, is none,
and neither is in which order the modules have registered.

Which kernel is in force, and which ones lie below it, is a difference where the kernels come from other lines.
PyTorch's dumps say so, and so do its errors. Probes do not see it where nobody has defined the operator yet, where no
other kernel is there to be called through, and where two kernels give the same by chance. So code that comes later
has its turn, too: it defines the operators that the probes name and that nobody has, registers a kernel of its own as
long as none is there (`allow_override=False`), and asks the probes again. It finds settings of PyTorch and of the
process as well. What a module keeps in its own globals, or in those of its helpers, shows only where an operator
makes use of it.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import itertools
import json
import logging
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import md5
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

Order: TypeAlias = tuple[str, ...]
Results: TypeAlias = Mapping[str, str]

MOST_ORDERS = 24
PARTS = ("torch._dynamo", "torch._subclasses.schema_check_mode")
"""See Note [The parts of PyTorch that are there before]."""

_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Group:
    """Modules that are imported in every order, and what is asked afterwards.

    Args:
        name: the kind of the group, a slash, and its own name.
        why: why the order decides, or why it does not.
        modules: those that are imported, in the first order.
        sources: the text of each module, those included that only other modules import.
        probes: expressions; `torch`, `ops`, `x` and the functions of `_Probes` are at hand.
        bare: whether orders begin with nothing but `torch` imported.
    """

    name: str
    why: str
    modules: tuple[str, ...]
    sources: Mapping[str, str]
    probes: tuple[str, ...]
    bare: bool = False

    @property
    def kind(self) -> str:
        """What the name begins with."""
        return self.name.partition("/")[0]

    @property
    def orders(self) -> list[Order]:
        """Every order, the first one first; of more than four modules some."""
        return list(itertools.islice(itertools.permutations(self.modules), MOST_ORDERS))

    def write(self, folder: Path) -> None:
        """Write the sources into a folder."""
        for module, text in self.sources.items():
            (folder / f"{module}.py").write_text(text)

    def __str__(self) -> str:
        texts = "".join(f"--- {module}\n{text}" for module, text in self.sources.items())
        return f"=== {self.name}: {self.why}\n{texts}--- probes\n" + "\n".join(self.probes) + "\n"


@dataclass(frozen=True)
class Truth:
    """What the orders of a group led to.

    Args:
        results: by order, the result of each probe that gave the same twice in one order.
        dropped: the probes that did not.
        seconds: CPU seconds of all orders.
    """

    results: Mapping[Order, Results]
    dropped: tuple[str, ...]
    seconds: float

    @property
    def differences(self) -> dict[str, dict[str, list[Order]]]:
        """By probe whose result depends on the order, each result with the orders that lead to it."""
        found: dict[str, dict[str, list[Order]]] = {}
        for order, results in self.results.items():
            for probe, result in results.items():
                found.setdefault(probe, {}).setdefault(result, []).append(order)
        return {probe: by_result for probe, by_result in found.items() if len(by_result) > 1}

    @property
    def is_stuck(self) -> bool:
        """Whether an order did not end or killed its process."""
        return any(_DIED in results for results in self.results.values())

    @property
    def is_unknown(self) -> bool:
        """Whether no difference was found, and an order did not end or gave two results for a probe."""
        return not self.differences and (self.is_stuck or bool(self.dropped))


_DIED = "the process"


def truth_of(group: Group, *, timeout: float = 300) -> Truth:
    """What every order of a group leads to.

    Args:
        group: the group.
        timeout: seconds that an order may take.

    Returns:
        The results, also of orders that end their process or run out of time.
    """
    begin = _cpu_seconds()
    results = {order: _results(group, order, timeout) for order in group.orders}
    first = group.modules
    again = _results(group, first, timeout)
    probes = {probe for each in results.values() for probe in each}
    dropped = {probe for probe in probes if results[first].get(probe) != again.get(probe)}
    kept = {
        order: {probe: text for probe, text in each.items() if probe not in dropped} for order, each in results.items()
    }
    return Truth(kept, tuple(sorted(dropped)), _cpu_seconds() - begin)


def truths(groups: Sequence[Group]) -> Iterator[tuple[Group, Truth]]:
    """What every order of each group leads to, the bare groups first; in a process that has imported nothing else."""
    for group in sorted(groups, key=lambda group: not group.bare):
        yield group, truth_of(group)


def _cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system + times.user + times.system


def _results(group: Group, order: Order, timeout: float) -> Results:
    """The results of one order, in a folder and a process of its own."""
    _prepare(bare=group.bare)
    with tempfile.TemporaryDirectory(prefix="order-") as folder:
        group.write(Path(folder))
        answer = forked(lambda: _imported(order, group.probes, folder), timeout=timeout)
    if isinstance(answer, str):
        return {_DIED: answer}
    return {probe: text.replace(folder, "folder") for probe, text in answer.items()}


@lru_cache
def _prepare(*, bare: bool) -> None:
    """Import what the forked processes share; bare groups have to come first."""
    sys.dont_write_bytecode = True
    torch = import_module("torch")
    torch.set_num_threads(1)
    if not bare:
        for part in PARTS:
            import_module(part)
    elif PARTS[0] in sys.modules:
        raise RuntimeError("bare groups have to be run before others, in a process that has imported torch alone")
    gc.collect()
    gc.freeze()


def forked(work: Callable[[], Any], *, timeout: float) -> Any:
    """What some work gives in a process of its own, by JSON.

    Args:
        work: gives what JSON can say.
        timeout: seconds after which the process is killed.

    Returns:
        What it gave; a text if the process ended without an answer.

    Raises:
        RuntimeError: if the work raised.
    """
    inward, outward = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(inward)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            try:
                answer = {"done": work()}
            except BaseException:
                answer = {"failed": traceback.format_exc()}
            with os.fdopen(outward, "w") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(outward)
    text, deadline, in_time = b"", time.monotonic() + timeout, True
    while True:
        in_time = bool(select.select([inward], [], [], max(0.0, deadline - time.monotonic()))[0])
        chunk = os.read(inward, 1 << 16) if in_time else b""
        if not chunk:
            break
        text += chunk
    os.close(inward)
    if not in_time:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not in_time or not text:
        return "ran out of time" if not in_time else f"ended with status {status}"
    found = json.loads(text)
    if "failed" in found:
        raise RuntimeError(found["failed"])
    return found["done"]


def _imported(order: Order, probes: Sequence[str], folder: str) -> dict[str, str]:
    """Import in this order, in the child, and evaluate the probes; what is not imported does not stop the rest."""
    warnings.simplefilter("ignore")
    atexit._clear()  # those of the parent, which would take the folder away
    # A fork has to make PyTorch's pool of threads again. Threads of autograd would do it at the same time and abort.
    import_module("torch").set_num_threads(1)
    sys.path.insert(0, folder)
    os.chdir(folder)
    names = _Probes().names()
    registered = _Registered()
    results = {f"import {module}": _attempt(import_module, module) for module in order}
    results |= registered.results()
    results |= {name: _attempt(shown_by) for name, shown_by in _SETTINGS.items()}
    results |= {probe: _attempt(eval, probe, dict(names)) for probe in probes}
    operators = sorted(set(re.findall(r"\bops\.t\.(\w+)\(x\)", "\n".join(probes))))
    for come_later in (_define_missing, _register_kernels):
        for name, answer in come_later(operators).items():
            results[f"{LATER}{come_later.__name__} {name}"] = answer
            asked = probes if answer == "None" else ()
            own = [probe for probe in asked if re.search(rf"\bops\.t\.{name}\b", probe)]
            results |= {f"{LATER}{come_later.__name__} {probe}": _attempt(eval, probe, dict(names)) for probe in own}
    return results


LATER = "later "
"""What the results of code that comes later begin with. See Note [When orders agree]."""


def _define_missing(operators: Sequence[str]) -> dict[str, str]:
    """Define the operators that nobody has defined."""
    torch = import_module("torch")
    library = torch.library.Library("t", "FRAGMENT")
    _KEPT.append(library)
    missing = [name for name in operators if not torch._C._jit_get_schemas_for_operator(f"t::{name}")]
    return {name: _attempt(library.define, f"{name}(Tensor x) -> Tensor") for name in missing}


def _register_kernels(operators: Sequence[str]) -> dict[str, str]:
    """Register a kernel for the CPU wherever Python lets it, which does not override another."""
    library = import_module("torch").library.Library("t", "FRAGMENT")
    _KEPT.append(library)
    impl = partial(library.impl, dispatch_key="CPU", allow_override=False)
    return {name: _attempt(impl, name, lambda x: x * 3) for name in operators}


_KEPT: list[Any] = []
"""The libraries of what comes later."""


def _modes() -> list[str]:
    functions = import_module("torch.overrides")._get_current_function_mode_stack()
    modes = import_module("torch.utils._python_dispatch")._get_current_dispatch_mode_stack()
    return [f"{type(mode).__module__}:{type(mode).__qualname__}" for mode in (*functions, *modes)]


def _levels() -> dict[str, int]:
    loggers = logging.getLogger().manager.loggerDict.items()
    return {name: logger.level for name, logger in loggers if isinstance(logger, logging.Logger) and logger.level}


_ENVIRONMENT = frozenset(os.environ.items())

_SETTINGS: Mapping[str, Callable[[], object]] = {
    "environment": lambda: dict(os.environ.items() - _ENVIRONMENT),
    "builtins": lambda: {name: value for name, value in vars(builtins).items() if type(value) in (bool, int, str)},
    "default dtype": lambda: import_module("torch").get_default_dtype(),
    "gradients": lambda: import_module("torch").is_grad_enabled(),
    "modes": _modes,
    "levels of loggers": _levels,
}
"""What code that comes later can ask for."""


class _Registered:
    """Notes what is registered from its making on. See Note [When orders agree]."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._spaces: dict[int, str] = {}
        self._written: set[str] = set()
        self._names = set(_operators())
        self._binding = import_module("torch")._C._DispatchModule
        self._tables = {each: dict(table) for each, table in _tables()}
        for name in ("impl", "define", "fallback"):
            self._note(self._binding, name)
        torch = import_module("torch")
        self._note(torch._C, "_dispatch_library")
        for name in ("impl", "_register_fake"):  # may refuse what does not get to the binding
            self._note(torch.library.Library, name)

    def _note(self, owner: Any, name: str) -> None:
        original = getattr(owner, name, None)
        if original is None:  # before PyTorch 2.5 the bindings have no fallback
            return

        def noted(*arguments: Any, **named: Any) -> Any:
            call = " ".join([name, *map(_made_by, (*arguments[1:], *named.values()))])
            try:
                result = original(*arguments, **named)
            except Exception as error:
                self._calls.append(f"{call} raises {type(error).__name__} in {_running_module()}")
                raise
            self._calls += [call] if owner is self._binding else []
            if name == "_dispatch_library":
                self._spaces[id(result)] = arguments[1]
            elif owner is self._binding and name == "impl":
                written, space = str(arguments[1]), self._spaces.get(id(arguments[0]), "")
                self._written.add(written if "::" in written else f"{space}::{written}")
            return result

        setattr(owner, name, noted)

    def results(self) -> dict[str, str]:
        """The calls, the entries of tables that are not as they were, and the kernels of what was written, by key."""
        changed = [
            f"{name} {shown(key)} {_made_by(value)}"
            for name, table in _tables()
            for key, value in list(table.items())
            if self._tables[name].get(key) is not value
        ]
        kernels = [
            f"{name} {line}"
            for name in sorted(self._written | (set(_operators()) - self._names))
            for line in import_module("torch")._C._dispatch_dump(name).splitlines()
            if not line.startswith(("name:", "schema:", "debug:", "alias analysis"))
        ]
        return {
            "what is registered": "\n".join(sorted(self._calls)),
            "what tables have": "\n".join(sorted(changed)),
            "kernels": "\n".join(kernels),
        }


def _operators() -> list[str]:
    names: list[str] = import_module("torch")._C._dispatch_get_all_op_names()
    return names


def _running_module() -> str:
    """The module of the group whose body runs; of a thread the function that it began with."""
    frame = sys._getframe()
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _tables() -> Iterator[tuple[str, dict[Any, Any]]]:
    """The tables of Python that a statement may write."""
    torch = import_module("torch")
    for kind, table in torch._decomp.global_decomposition_table.items():
        yield f"decomposition {kind}", table
    entries = torch._library.simple_registry.singleton._data
    # Before PyTorch 2.5 fakes are called abstract implementations, and before 2.10 there are no effects.
    fakes = {name: getattr(entry, "fake_impl", None) or entry.abstract_impl for name, entry in entries.items()}
    yield "fake", {name: one.kernel for name, one in fakes.items() if one.kernel}
    effects = {name: entry.effect.effect for name, entry in entries.items() if hasattr(entry, "effect")}
    yield "effect", {name: one for name, one in effects.items() if one}
    yield "fake rule", torch._subclasses.fake_impls.op_implementations_dict


def _made_by(value: object) -> str:
    """A function by its module, name and line; anything else as it is shown."""
    inner: Any = getattr(value, "func", value)  # of a fake of torch.library
    code = getattr(inner, "__code__", None)
    return shown(value) if code is None else f"{inner.__module__}:{inner.__qualname__}:{code.co_firstlineno}"


def _attempt(work: Callable[..., object], *arguments: object) -> str:
    try:
        return shown(work(*arguments))
    except BaseException as error:
        lines = str(error).splitlines() or [""]
        return f"raises {type(error).__name__}: {_ADDRESS.sub('0x', lines[0])}"


class _Probes:
    """What probes have at hand; made before anything is imported, so that no import changes it."""

    def __init__(self) -> None:
        self.torch = import_module("torch")
        make = self.torch.tensor
        self.x = make([1.0, 2.0], dtype=self.torch.float32, device="cpu")
        numbers = [sign * 1.7**power for power in range(-20, 21, 2) for sign in (1, 0, -0.3)]
        self.numbers = make([numbers, numbers[::-1]], dtype=self.torch.float64, device="cpu").T.contiguous()

    def names(self) -> dict[str, Any]:
        """The names, for `eval`."""
        own = {name: getattr(self, name) for name in ("fake", "decomposed", "grad", "meta", "vmapped", "lines", "many")}
        return {"torch": self.torch, "ops": self.torch.ops, "x": self.x, "y": self.x + 2, **own}

    def fake(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function gives for fake tensors."""
        with import_module("torch._subclasses.fake_tensor").FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensor = self.torch.Tensor
            return function(*(mode.from_tensor(each) if isinstance(each, tensor) else each for each in arguments))

    def decomposed(self, operator: Any, *arguments: Any) -> Any:
        """What the decomposition of an operator gives."""
        return import_module("torch._decomp").get_decompositions([operator])[operator](*arguments)

    def grad(self, function: Callable[..., Any]) -> Any:
        """The gradient of the sum of what a function gives for `x`."""
        leaf = self.x.clone().requires_grad_()
        function(leaf).sum().backward()
        return leaf.grad

    def meta(self, function: Callable[..., Any]) -> Any:
        """What a function gives for a tensor without data."""
        return function(self.torch.empty(2, device="meta"))

    def vmapped(self, function: Callable[..., Any]) -> Any:
        """What a function gives for each row."""
        return self.torch.vmap(function)(self.torch.stack([self.x, self.x]))

    def many(self, function: Callable[..., Any], *arguments: Any) -> str:
        """What a function gives for many numbers, of several types and shapes, as a digest each."""
        leaf = self.numbers.clone().requires_grad_()
        given = (self.numbers.float(), self.numbers, leaf, self.numbers.long(), self.numbers[:0], self.numbers[0, 0])
        return " ".join(_short(_attempt(function, each, *arguments)) for each in given)

    def lines(self, operator: str) -> list[str]:
        """The keys that an operator has kernels at, without source locations."""
        text = self.torch._C._dispatch_dump(operator)
        return [re.sub(r"registered at \S+|:: .*", "", line).strip() for line in text.splitlines()[:2]] + sorted(
            line.partition(":")[0] for line in text.splitlines()[2:]
        )


def _short(text: str) -> str:
    return text if text.startswith("raises ") else f"{text.partition('[')[0]}{md5(text.encode()).hexdigest()[:8]}"


def shown(value: object) -> str:
    """A result as text: all elements of a tensor, and nothing that differs from process to process."""
    torch = import_module("torch")
    if isinstance(value, torch.Tensor):
        with ExitStack() as stack:
            stack.enter_context(torch._C.DisableTorchFunction())
            stack.enter_context(import_module("torch.utils._python_dispatch")._disable_current_modes())
            is_fake = value.device.type == "meta" or hasattr(value, "fake_mode")
            what = "fake" if is_fake else value.tolist()
            history = " requires grad" if value.requires_grad else ""
            return f"{value.dtype} {tuple(value.shape)} {value.device} {what}{history}"
    match value:
        case ModuleType():
            return "a module"
        case dict():
            return "{" + ", ".join(sorted(f"{shown(key)}: {shown(each)}" for key, each in value.items())) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(shown, value)) + "]"
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(shown, value))) + "}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    return _ADDRESS.sub("0x", repr(value))


def groups_in(text: str) -> Iterator[Group]:
    """Groups in the format of `str(group)`.

    A module that uses `lib` begins with a fragment of the namespace `t`, and one that uses `torch` imports it; modules
    whose names begin with `common` are imported by others only; `(bare)` before the colon makes a group `bare`.
    """
    for chunk in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        head, _, body = chunk.partition("\n")
        name, _, why = head.partition(": ")
        parts = dict(part.split("\n", 1) for part in re.split(r"^--- ", body, flags=re.MULTILINE)[1:])
        probes = tuple(line for line in parts.pop("probes").splitlines() if line)
        sources = {module: _begun(source) for module, source in parts.items()}
        modules = tuple(module for module in sources if not module.startswith("common"))
        yield Group(name.removesuffix(" (bare)"), why, modules, sources, probes, name.endswith("(bare)"))


HEAD = 'import torch\nlib = torch.library.Library("t", "FRAGMENT")\n'


def _begun(source: str) -> str:
    if re.search(r"\blib\b", source):
        return HEAD + source
    return ("import torch\n" if re.search(r"\btorch\b", source) else "") + source
