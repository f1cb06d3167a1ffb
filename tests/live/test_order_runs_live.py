"""Orders of imports in forked processes, whatever the modules do to theirs; and what is read of a function."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.pytorch.introspection.function_content import Contents
from dispatchlab.pytorch.recording.end_state import EndState
from dispatchlab.pytorch.recording.order_check import check_orders
from dispatchlab.pytorch.recording.order_runs import OrderRun, OrderServer
from dispatchlab.scenario.import_orders import Order
from tests.live import forked

# -- processes

_PID = "import os, pathlib\npathlib.Path(__file__).with_suffix('.pid').write_text(str(os.getpid()))\n"
_MODULES = {
    "order_plain": "import torch\nlibrary = torch.library.Library('order_runs', 'FRAGMENT')\n"
    "library.define('plain(Tensor x) -> Tensor')\nlibrary.impl('plain', lambda x: x + 1, 'CPU')\n",
    "order_large": "import torch\nlibrary = torch.library.Library('order_runs', 'FRAGMENT')\n"
    "library.define('large(Tensor x) -> Tensor')\n"
    "library.impl('large', lambda x, numbers=list(range(20_000)): x, 'CPU')\n",
    "order_raises": "print('a line')\nraise ValueError('nobody home\\nat all')\n",
    "order_exits": "import sys\nsys.exit(7)\n",
    "order_ends": "os._exit(9)\n",
    "order_crashes": "import ctypes\nimport faulthandler\nfaulthandler.disable()\nctypes.string_at(0)\n",
    "order_hangs": "import time\nwhile True:\n    time.sleep(60)\n",
}
_ALIVE = """
import torch
torch.library.define("order_alive_{v}::one", "(Tensor x) -> Tensor")
class Function(torch.autograd.Function):
    forward = staticmethod(lambda context, x: x)
torch.library.impl("order_alive_{v}::one", "CPU", lambda x: {result})
"""
_MODULES |= {f"order_alive_{v}": _ALIVE.format(v=v, result="Function.apply(x)") for v in "12"}
_MODULES["order_reads_alive"] = _ALIVE.format(v=3, result="x + len(torch.library._keep_alive[-1].ns)")
_SETS = """
import contextvars, ctypes, decimal, faulthandler, gc, os, sys, tracemalloc, warnings
import torch
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    v = {v}
    def __torch_function__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {{}}))
mode, hooks = Mode(), torch.autograd.graph.saved_tensors_hooks(lambda t: {v}, lambda t: {v})
mode.__enter__()
hooks.__enter__()
torch.set_autocast_dtype("mps", (torch.half, torch.bfloat16)[{v} - 1])
torch._C._functorch.set_inplace_requires_grad_allowed({v} == 1)
torch._C._set_check_sparse_tensor_invariants({v} == 1)
torch._C._stash_obj_in_tls("order_runs", {v})
torch.ops.aten.sin.default.order_runs = torch.ops.order_runs_number = {v}
torch.ops.aten.order_runs = [{v}]
torch._library.simple_registry.singleton.order_runs = {v}
variable = vars(torch).setdefault("order_runs_variable", contextvars.ContextVar("variable"))
variable.set({v})
warnings.simplefilter(("error", "ignore")[{v} - 1], BytesWarning)
sys.addaudithook(lambda *event: {v} and None)
os.register_at_fork(before=lambda: {v})
(faulthandler.enable, faulthandler.disable)[{v} - 1]()
(tracemalloc.start, tracemalloc.stop)[{v} - 1]()
ctypes.set_errno({v})
decimal.DefaultContext.prec = {v}
gc.set_debug({v})
gc.get_referents(int.__dict__)[0]["order_runs_of_int"] = {v}
lib = torch.library.Library("order_runs", "FRAGMENT")
try:
    lib.define("tagged() -> ()", tags=((), (torch.Tag.core,))[{v} - 1])
except RuntimeError:
    pass
"""
_MODULES |= {f"order_sets_{v}": _SETS.format(v=v) for v in (1, 2)}
_DEFINES = """import torch
library = torch.library.Library("order_runs", "FRAGMENT")
try:
    library.define("taken(Tensor x) -> Tensor")
except RuntimeError:
    pass
"""
_MODULES |= {"order_keeps": _DEFINES, "order_releases": f"{_DEFINES}library._destroy()\n"}
_MODULES["order_pipes"] = "pipe = os.pipe()\n"
_TOUCHES = "import torch\npacket = getattr(torch.ops.order_touched, 'f', None)\n"
_MODULES |= {
    "order_touched": "import torch\nlibrary = torch.library.Library('order_touched', 'FRAGMENT')\n"
    "library.define('f(Tensor x) -> Tensor')\n",
    "order_touches": f"{_TOUCHES}overload = packet and packet.default\n",
    "order_changes_tags": f"{_TOUCHES}if packet:\n    packet.default._tags = [torch.Tag.core]\n",
    "order_keeps_call": "import torch\nlibrary = torch.library.Library('order_called', 'FRAGMENT')\n"
    "library.define('f(Tensor x) -> Tensor')\nlibrary.define('own(Tensor x) -> Tensor')\n"
    "call = torch.ops.order_called.f._op\nlibrary.impl('own', lambda x: call(x, x), 'CPU')\n",
    "order_adds_overload": "import torch\nlibrary = torch.library.Library('order_called', 'FRAGMENT')\n"
    "library.define('f.two(Tensor x, Tensor y) -> Tensor')\n",
    "order_sets_level": "import logging\nlogging.getLogger('order_level').setLevel(10)\n",
    "order_asks_level": "import logging\nlogging.getLogger('order_asked').isEnabledFor(20)\n",
}
_ORDERS: tuple[Order, ...] = (
    ("order_plain",),
    ("order_large", "order_plain"),
    ("order_plain", "order_large"),
    ("order_raises", "order_plain"),
    ("order_plain", "order_exits"),
    ("order_plain", "order_ends"),
    ("order_crashes", "order_plain"),
    ("order_missing", "order_plain"),
    ("order_sets_1", "order_sets_2"),
    ("order_sets_2", "order_sets_1"),
    ("order_pipes",),
)


def _with_limit(orders: tuple[Order, ...], limit_s: float) -> list[OrderRun]:
    with OrderServer(limit_s=limit_s, jobs=3) as server:
        return server.run(orders)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the modules, which can be imported."""
    path = tmp_path_factory.mktemp("orders")
    for name, text in _MODULES.items():
        (path / f"{name}.py").write_text(_PID + text)
    sys.path.insert(0, str(path))
    yield path
    sys.path.remove(str(path))


def _children() -> set[str]:
    """The processes that this one has started and that are there, where that can be looked up."""
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


@pytest.fixture(scope="module")
def children_before() -> set[str]:
    """Those that tests share, and that other tests have left."""
    forked.address_of()
    return _children()


@pytest.fixture(scope="module")
def runs(folder: Path, children_before: set[str]) -> Mapping[Order, OrderRun]:
    """What came of each order. The limit is for the order that hangs alone."""
    found = [*_with_limit(_ORDERS, 600), *_with_limit((("order_plain", "order_hangs"),), 0.2)]
    assert [run.order for run in found] == [*_ORDERS, ("order_plain", "order_hangs")]
    return {run.order: run for run in found}


def test_what_two_modules_set_in_turn_is_seen_wherever_it_is_kept(runs: Mapping[Order, OrderRun]) -> None:
    first, second = "order_sets_1", "order_sets_2"
    one, other = (runs[order].state for order in ((first, second), (second, first)))
    assert one is not None
    assert other is not None
    assert (one.failures, other.failures) == ({}, {})
    different = {what for what in {*one.texts, *other.texts} if one.texts.get(what) != other.texts.get(what)}
    unseen = [part for part in _SET_IN_TURN if not any(what.startswith(part) for what in different)]
    assert unseen == []
    assert any(what.endswith(".order_runs_of_int") for what in different)


_SET_IN_TURN = (
    *("setting mode 0: ", "setting hooks of saved tensors: ", "setting type of autocast of mps"),
    *("setting get_inplace_requires_grad_allowed", "setting _check_sparse_tensor_invariants"),
    *("torch._C._stash_obj_in_tls 1", "replaced torch.ops.aten.sin.default.order_runs"),
    *(
        "replaced torch.ops.order_runs_number",
        "replaced torch.ops.aten.order_runs",
        "state of torch._library.simple_registry.singleton.order_runs",
        "state of context variable variable",
    ),
    *("process filters of warnings", "sys.addaudithook 1", "os.register_at_fork 1", "process faults are handled"),
    *("process memory is traced", "process last error of C", "process default context of decimal"),
    *("process flags of the garbage collector", "tags of order_runs::tagged"),
)


def test_a_pipe_that_is_left_open_is_named(runs: Mapping[Order, OrderRun]) -> None:
    state = runs["order_pipes",].state
    assert state is not None
    assert any(sentence.startswith("pipe is open") for sentence in state.hidden)


@pytest.mark.usefixtures("folder")
def test_an_order_takes_no_file_away_that_other_tests_share() -> None:
    address = Path(forked.address_of())
    _with_limit((("order_plain",),), 600)
    assert address.exists()


@pytest.mark.usefixtures("folder")
def test_a_def_that_one_order_refuses_is_a_difference_though_it_is_caught_and_released_otherwise() -> None:
    with OrderServer(limit_s=600, jobs=2) as server:
        (found,) = check_orders(server, ("order_keeps", "order_releases"), (), {}, 24).findings
    assert found.what == "refused calls for order_runs::taken"
    assert found.before == "order_releases.py:6 where the def is that of order_keeps.py:6"
    assert found.after == "nothing"
    assert found.sites == ("order_keeps.py:6", "order_releases.py:6")
    assert found.certain


@pytest.mark.usefixtures("folder")
def test_what_only_says_that_something_was_asked_for_is_no_difference() -> None:
    with OrderServer(limit_s=600, jobs=2) as server:
        pairs = (
            *(("order_touched", "order_touches"), ("order_sets_level", "order_asks_level")),
            ("order_touched", "order_changes_tags"),
        )
        touched, levels, changed = (check_orders(server, pair, (), {}, 24) for pair in pairs)
    assert (touched.ran, touched.findings) == (2, ())
    assert (levels.ran, levels.findings) == (2, ())
    assert "tags that torch.ops keeps of order_touched::f.default" in [finding.what for finding in changed.findings]


@pytest.mark.usefixtures("folder")
def test_a_kept_function_of_c_is_another_one_where_it_tries_other_overloads() -> None:
    with OrderServer(limit_s=600, jobs=2) as server:
        findings = check_orders(server, ("order_keeps_call", "order_adds_overload"), (), {}, 24).findings
    assert "kernel of order_called::own at CPU: global call, overloads" in [finding.what for finding in findings]


_ORDERS_OF_ALIVE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dispatchlab.pytorch.recording.order_check import check_orders
from dispatchlab.pytorch.recording.order_runs import OrderServer
with OrderServer(limit_s=600, jobs=2) as server:
    agreeing = check_orders(server, ("order_alive_1", "order_alive_2"), (), {}, 24)
    reading = check_orders(server, ("order_alive_1", "order_reads_alive"), (), {}, 24)
assert (agreeing.ran, agreeing.of, agreeing.findings) == (2, 2, ()), agreeing
print(json.dumps([agreeing.open, [finding.what for finding in reading.findings]]))
"""


def test_in_which_order_pytorch_keeps_libraries_alive_is_no_difference_unless_a_module_reads_it(folder: Path) -> None:
    # In a process of its own: what other tests have imported into this one is reached by the class of a module.
    program = [sys.executable, "-c", _ORDERS_OF_ALIVE, str(folder)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert ended.returncode == 0, ended.stderr
    (sentence,), different = json.loads(ended.stdout)
    assert sentence.startswith("files are written")  # in which the tests look up processes
    assert {what.partition(":")[0] for what in different} == {"state of torch.library._keep_alive"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("module", "reason"), [("order_raises", "nobody home"), ("order_ends", "exit code 9")])
def test_orders_that_agree_in_failing_prove_nothing(module: str, reason: str) -> None:
    with OrderServer(limit_s=600, jobs=2) as server:
        found = check_orders(server, (module, "order_plain"), (), {}, 24)
    assert (found.ran, found.of, found.are_all, found.findings) == (2, 2, False, ())
    (sentence,) = found.open
    assert sentence.startswith(f"{module}, order_plain cannot be imported once more in a forked process")
    assert reason in sentence


@pytest.mark.parametrize(
    ("order", "ended", "module"),
    [
        (("order_plain", "order_ends"), "ends its process with exit code 9", "order_ends"),
        (("order_crashes", "order_plain"), "is ended by SIGSEGV", "order_crashes"),
        (("order_plain", "order_hangs"), "takes longer than 0.4 s", "order_hangs"),
    ],
)
def test_the_end_of_a_process_is_told(runs: Mapping[Order, OrderRun], order: Order, ended: str, module: str) -> None:
    assert runs[order] == OrderRun(order, None, ended, module, is_late=module == "order_hangs")


def test_a_module_that_exits_ends_its_order(runs: Mapping[Order, OrderRun]) -> None:
    run = runs["order_plain", "order_exits"]
    assert (run.state, "7" in run.ended) == (None, True), run.ended


def test_a_module_that_raises_is_a_failure_and_the_next_one_is_imported(
    runs: Mapping[Order, OrderRun], folder: Path
) -> None:
    failed = runs["order_raises", "order_plain"].state
    missing = runs["order_missing", "order_plain"].state
    plain = runs["order_plain",].state
    assert failed is not None
    assert missing is not None
    assert plain is not None
    assert failed.failures == {"order_raises": f"ValueError: nobody home, raised at {folder}/order_raises.py:4"}
    assert missing.failures == {
        "order_missing": "ModuleNotFoundError: No module named 'order_missing'; install it, in its checkout with "
        "`pip install -e .`, or leave it out"
    }
    assert plain.failures == {}
    assert _own(failed) == _own(missing) == _own(plain) != {}
    assert "CPU" in plain.texts["dump of order_runs::plain"]
    assert "order_runs::plain" in plain.sites


def test_results_come_back_whole_and_are_the_same_in_both_orders(runs: Mapping[Order, OrderRun]) -> None:
    one, other = (runs[order].state for order in (_ORDERS[1], _ORDERS[2]))
    assert one is not None
    assert other is not None
    path = "kernel of order_runs::large at CPU: default 0"
    assert one.texts[path] == "list of 20000"
    assert [one.texts[f"{path}, [{number}]"] for number in range(20_000)] == [str(number) for number in range(20_000)]
    assert _own(one) == _own(other)
    assert (one.failures, one.sites) == (other.failures, other.sites)


def _own(state: EndState) -> dict[str, str]:
    """What is said of the operators of this test: what other tests leave here is not the same in two runs."""
    return {name: text for name, text in state.texts.items() if "order_runs" in name}


def test_no_process_is_left_and_nothing_reaches_this_one(
    runs: Mapping[Order, OrderRun], folder: Path, children_before: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    pids = {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}
    assert pids.keys() >= _MODULES.keys() & {module for order in _ORDERS for module in order}
    assert os.getpid() not in pids.values()
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert _children() <= children_before
    assert not {*_MODULES} & {*sys.modules}
    assert len(runs) == len(_ORDERS) + 1
    again = _with_limit((("order_raises",),), 600)
    assert (len(again), capfd.readouterr()) == (1, ("", ""))


# -- what a function is

_OTHER = "v = {v}\ndef g(x):\n    return x + v\nclass C:\n    v = {v}\n"
_SOURCES = {
    "code": "def f(x):\n    return x + {v}",
    "code of an inner function": "def f(x):\n    return [y + {v} for y in x]",
    "default": "def f(x, y={v}):\n    return x + y",
    "keyword default": "def f(x, *, y={v}):\n    return x + y",
    "closure": "def outer(v):\n    def f(x):\n        return x + v\n    return f\nf = outer({v})",
    "partial argument": "def g(x, y):\n    return x + y\nf = functools.partial(g, {v})",
    "partial keyword": "def g(x, y):\n    return x + y\nf = functools.partial(g, y={v})",
    "partial function": "f = functools.partial(lambda x, y: x + {v})",
    "bound object": "class C:\n    def m(self, x):\n        return x + self.v\nc = C()\nc.v = {v}\nf = c.m",
    "bound object with slots": "class C:\n    __slots__ = ('v',)\n    def m(self, x):\n        return x + self.v\n"
    "c = C()\nc.v = {v}\nf = c.m",
    "callable object": "class C:\n    def __call__(self, x):\n        return x + {v}\nf = C()",
    "attribute of the function": "def f(x):\n    return x + f.v\nf.v = {v}",
    "global": "v = {v}\ndef f(x):\n    return x + v",
    "global of an inner function": "v = {v}\ndef f(x):\n    return lambda: x + v",
    "global function": "def g(x):\n    return x + {v}\ndef f(x):\n    return g(x)",
    "item of a global": "v = {{'a': [0, ({v},)]}}\ndef f(x):\n    return x + v['a'][1][0]",
    "member of a set": "v = {{{v}, 'a'}}\ndef f(x):\n    return x in v",
    "end of a long text": "v = 'a' * 1000 + str({v})\ndef f(x):\n    return x + v",
    "global of another module": "import order_other\ndef f(x):\n    return x + order_other.v",
    "module imported by the code": "def f(x):\n    import order_other\n    return x + order_other.v",
    "function of another module": "from order_other import g\ndef f(x):\n    return g(x)",
    "class of another module": "from order_other import C\ndef f(x):\n    return x + C.v",
    "class attribute": "class C:\n    v = {v}\ndef f(x):\n    return x + C.v",
    "attribute of a base": "class B:\n    v = {v}\nclass C(B):\n    pass\ndef f(x):\n    return x + C().v",
    "static method": "class C:\n    @staticmethod\n    def m(x):\n        return x + {v}\ndef f(x):\n    return C.m(x)",
    "property": "class C:\n    @property\n    def v(self):\n        return {v}\ndef f(x):\n    return x + C().v",
    "wrapped function": "@functools.cache\ndef g(x):\n    return x + {v}\ndef f(x):\n    return g(x)",
    "tensor": "v = torch.tensor([0.0, {v}])\ndef f(x):\n    return x + v",
    "dtype of a tensor": "v = torch.zeros(2, dtype=(torch.half, torch.int)[{v} - 1])\ndef f(x):\n    return x + v",
    "shape of a tensor": "v = torch.zeros({v}, 2)\ndef f(x):\n    return x + v",
    "parameter of a module": "v = torch.nn.Linear(1, 1)\ntorch.nn.init.constant_(v.weight, {v})\n"
    "torch.nn.init.zeros_(v.bias)\ndef f(x):\n    return v(x)",
    "operator": "v = [None, torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor][{v}]\ndef f(x):\n    return v(x, x)",
    "name in globals": "v = {v}\ndef f(x):\n    return x + globals()['v']",
    "getter": "import operator\nf = operator.itemgetter({v})",
    "attribute of a table": "class T(dict):\n    pass\nt = T()\nt.v = {v}\ndef f(x):\n    return x + t.v",
    "attribute of a list": "class T(list):\n    pass\nt = T()\nt.v = {v}\ndef f(x):\n    return x + t.v",
    "table that hides its entries": "class T(dict):\n    def items(self):\n        return ()\nt = T(v={v})\n"
    "def f(x):\n    return x + t['v']",
    "default of a table": "import collections\nt = collections.defaultdict(lambda: {v})\n"
    "def f(x):\n    return x + t['v']",
    "length of a queue": "import collections\nt = collections.deque(maxlen={v})\ndef f(x):\n    return x + t.maxlen",
    "object in a set": "class C:\n    pass\nc = C()\nc.v = {v}\nt = {{c}}\ndef f(x):\n    return x + next(iter(t)).v",
    "object that is a key": "class C:\n    pass\nc = C()\nc.v = {v}\nt = {{c: 1}}\n"
    "def f(x):\n    return x + next(iter(t)).v",
    "attribute of a partial": "f = functools.partial(max, 0)\nf.v = {v}",
    "metaclass": "class M(type):\n    v = {v}\nclass C(metaclass=M):\n    pass\ndef f(x):\n    return x + C.v",
    "class of no module": "n = {{}}\nexec('class C:\\n    v = {v}', n)\nc = n['C']\ndef f(x):\n    return x + c.v",
    "globals of no module": "n = {{'v': {v}}}\nexec('def f(x):\\n    return x + v', n)\nf = n['f']",
    "module that is not loaded": "import types\nm = types.ModuleType('bare')\nm.v = {v}\ndef f(x):\n    return x + m.v",
    "default that is a module": "import order_other\ndef f(x, m=order_other):\n    return x + m.v",
    "object that has a module": "import order_other\nclass C:\n    m = order_other\ndef f(x):\n    return x + C().m.v",
    "name in a format": "import order_other\ndef f(x):\n    return x + float('{{0.v}}'.format(order_other))",
    "name in a pattern": "import order_other, types\ndef f(x):\n    match order_other:\n"
    "        case types.ModuleType(v=one):\n            return x + one",
    "name in a pickle": "import pickle\ndef f(x):\n    return x + pickle.loads(b'corder_other\\nv\\n.')",
    "end of a long pattern": "import re\np = re.compile('a?' * 150 + str({v}))\n"
    "def f(x):\n    return x + len(p.pattern)",
    "class that says to be another": "class RLock:\n    __members__ = {{}}\n    def __repr__(self):\n"
    "        return 'R L'\nc = RLock()\nc.v = {v}\ndef f(x):\n    return x + c.v",
    "call at the end of an object": "import weakref\nclass C:\n    pass\nc = C()\nweakref.finalize(c, int, {v})\n"
    "def f(x):\n    return x + bool(c)",
    "cause of an exception": "e = ValueError()\ne.__cause__ = ValueError({v})\n"
    "def f(x):\n    return x + len(e.__cause__.args)",
    "parts of a sparse tensor": "with torch.sparse.check_sparse_tensor_invariants(True):\n"
    "    t = torch.sparse_coo_tensor([[0] * {v}], [6 / {v}] * {v}, (2,))\ndef f(x):\n    return x + t._nnz()",
    "object in an array": "import numpy\nr = [{v}]\na = numpy.empty(1, dtype=object)\na[0] = r\n"
    "def f(x):\n    return x + a[0][0]",
    "storage beyond a tensor": "t = torch.tensor([0, {v}])[:1]\ndef f(x):\n    return x + t.as_strided((2,), (1,))[1]",
    "hook after a gradient": "t = torch.ones(1, requires_grad=True)\n"
    "t.register_post_accumulate_grad_hook(lambda t: {v})\ndef f(x):\n    return x + t",
    "attribute of a library": "lib = torch.library.Library('order_texts', 'FRAGMENT')\nlib.v = {v}\n"
    "def f(x):\n    return x + lib.v",
    "function that a function of TorchScript calls": "f = torch.jit.CompilationUnit('def g(x: int) -> int:\\n'\n"
    "    '    return x + {v}\\n\\ndef f(x: int) -> int:\\n    return g(x)\\n').f",
}
_HIDDEN = {
    "history of a tensor": "t = torch.ones(1, requires_grad=True) ** {v}\ndef f(x):\n    return x + t",
    "queue of C below a class": "import queue\nclass Q(queue.SimpleQueue):\n    pass\nq = Q()\nq.put({v})\n"
    "def f(x):\n    return x + q.get()",
    "groups of a match": "import re\nm = re.match('(a)?' * {v}, 'a')\ndef f(x):\n    return x + len(m.groups())",
}


def _texts(
    source: str, v: int, file: str, monkeypatch: pytest.MonkeyPatch, *, lines_before: int = 0
) -> Mapping[str, str]:
    """What is read of `f` where it and the other module have this value."""
    names = {"order_other": _OTHER, "order_mine": f"import functools\nimport torch\n{source}"}
    for name, text in names.items():
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        filled = "\n" * lines_before + text.format(v=v)
        exec(compile(filled, f"{file}/{name}.py", "exec"), vars(module))
    contents = Contents(list(names), {})
    contents.read([("f", vars(sys.modules["order_mine"])["f"])])
    contents.read_modules()
    assert not contents.is_cut
    return {**contents.texts, "hidden": str(sorted(contents.opaque))}


@pytest.mark.parametrize("part", _HIDDEN)
def test_what_shows_nothing_of_what_it_holds_is_named(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _texts(_HIDDEN[part], 1, "/here", monkeypatch)["hidden"] != "[]"


@pytest.mark.parametrize("part", _SOURCES)
def test_each_part_of_a_function_changes_a_text_and_its_file_does_not(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = _texts(_SOURCES[part], 1, "/here", monkeypatch)
    assert "raises" not in " ".join(one.values())
    assert _texts(_SOURCES[part], 1, "/elsewhere", monkeypatch, lines_before=5) == one
    assert _texts(_SOURCES[part], 2, "/here", monkeypatch) != one


def test_what_the_code_does_not_reach_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import order_other\nw = {v}\nclass D:\n    w = {v}\ndef f(x):\n    return x + 1"
    one, other = (_texts(source, v, "/here", monkeypatch) for v in (1, 2))
    assert one == other != {}
