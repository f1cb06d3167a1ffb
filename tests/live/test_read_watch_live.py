"""What packages ask of the dispatcher while they are imported is noted with its line, and nothing else is."""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
import pickle
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch

from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.recording.dispatcher_reads import DispatcherRead, ModuleWrite, dependences
from dispatchlab.pytorch.recording.module_watch import ModuleWatch
from dispatchlab.pytorch.recording.python_watch import PythonWatch
from dispatchlab.pytorch.recording.read_watch import ReadWatch
from dispatchlab.pytorch.recording.watch import RegistrationWatch
from tests.live.packages import dispatchlab, package

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch warns of itself

OPS: Any = torch.ops
HEAD = "import functools, importlib.util, sys, threading\nimport torch\n"
LINE = HEAD.count("\n") + 1


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """What the packages of these tests ask about."""
    library: Any = torch.library.Library("asked", "DEF")  # type: ignore[no-untyped-call]
    library.define("foo(Tensor x) -> Tensor")
    library.define("foo.pair(Tensor x, Tensor y) -> Tensor")
    library.impl("foo", torch.neg, "CPU")
    torch.library.register_fake("asked::foo", torch.empty_like, lib=library)
    yield
    library._destroy()


class Packages:
    """Imports modules with given sources under the watches of a recording."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reads(self, *others: AbstractContextManager[object], **sources: str) -> tuple[DispatcherRead, ...]:
        """What was asked while modules were imported in this order, with other watches on."""
        for name, source in sources.items():
            (self.folder / f"{name}.py").write_text(HEAD + source)
        importlib.invalidate_caches()
        roots = package_roots()
        modules = ModuleWatch(tuple(sources), roots)
        watch = ReadWatch(
            modules.running, roots, tuple(sources), lambda: [sys.modules[one] for one in sources if one in sys.modules]
        )
        with ExitStack() as stack:
            for each in (*others, modules, watch):
                stack.enter_context(each)
            for name in sources:
                importlib.import_module(name)
        return watch.reads


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Packages]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Packages(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def hooks() -> list[object]:
    """What the watch puts something in the place of."""
    ops, c = torch._ops, torch._C
    classes = (ops._OpNamespace, ops._Ops, ops._HigherOrderNamespace, ops.OpOverloadPacket, ops.OpOverload)
    return [
        *(dict(vars(each)) for each in classes),
        {name: value for name, value in vars(c).items() if name.startswith(("_dispatch_", "_jit_get", "_get_"))},
        torch.library.get_kernel,
        dict(vars(torch._library.simple_registry.SimpleLibraryRegistry)),
        torch._library.custom_ops._maybe_get_opdef,
        torch._decomp.get_decompositions,
        torch._decomp.core_aten_decompositions,
        importlib.util.find_spec,
    ]


QUESTIONS: list[tuple[str, str, str, str, str | None]] = [
    ("torch.ops.asked.foo", "torch.ops", "asked::foo", "", "yes"),
    ("hasattr(torch.ops.asked, 'gone')", "torch.ops", "asked::gone", "", "no"),
    ("getattr(torch.ops.asked, 'gone', None)", "torch.ops", "asked::gone", "", "no"),
    ("functools.partial(getattr, torch.ops.asked)('foo')", "torch.ops", "asked::foo", "", "yes"),
    ("exec('torch.ops.asked.foo')", "torch.ops", "asked::foo", "", "yes"),
    ("torch.ops.asked.foo.pair", "torch.ops", "asked::foo.pair", "", "yes"),
    ("hasattr(torch.ops.asked.foo, 'gone')", "torch.ops", "asked::foo.gone", "", "no"),
    ("torch.ops.asked.foo.overloads()", "overloads()", "asked::foo", "", "default; pair"),
    ("torch.ops.asked.foo.op_overloads()", "op_overloads()", "asked::foo", "", "yes"),
    ("torch.ops.asked.foo._qualified_op_name", "_qualified_op_name", "asked::foo", "", "asked::foo"),
    ("torch.ops.asked.foo._overload_names", "_overload_names", "asked::foo", "", "default; pair"),
    ("torch.ops.asked.foo.default._schema", "_schema", "asked::foo", "", "asked::foo(Tensor x) -> Tensor"),
    ("torch.ops.asked.foo(torch.ones(1))", "a call", "asked::foo", "", ""),
    ("torch.ops.asked.foo.default(torch.ones(1))", "a call", "asked::foo", "", ""),
    ("dir(torch.ops.asked)", "dir()", "asked::*", "", None),
    ("list(torch.ops.asked)", "iter()", "asked::*", "", "yes"),
    ("dir(torch.ops)", "dir()", "*", "", None),
    ("torch.ops.higher_order.cond", "torch.ops", "higher_order higher_order::cond", "", "yes"),
    ("torch._C._dispatch_has_kernel('asked::foo')", "_dispatch_has_kernel", "asked::foo", "", "yes"),
    (
        "torch._C._dispatch_has_kernel_for_dispatch_key('asked::foo', 'CUDA')",
        "_dispatch_has_kernel_for_dispatch_key",
        "asked::foo",
        "CUDA",
        "no",
    ),
    (
        "torch.ops.asked.foo.default.has_kernel_for_dispatch_key(torch.DispatchKey.CPU)",
        "_dispatch_has_kernel_for_dispatch_key",
        "asked::foo",
        "CPU",
        "yes",
    ),
    ("torch._C._dispatch_dump('asked::foo')", "_dispatch_dump", "asked::foo", "", None),
    ("torch._C._dispatch_dump_table('asked::foo')", "_dispatch_dump_table", "asked::foo", "", None),
    ("torch._C._dispatch_get_all_op_names()", "_dispatch_get_all_op_names", "*", "", None),
    (
        "torch._C._dispatch_has_backend_fallback(torch.DispatchKey.IPU)",
        "_dispatch_has_backend_fallback",
        "_",
        "IPU",
        "no",
    ),
    ("torch._C._jit_get_operation('asked::foo')", "_jit_get_operation", "asked::foo", "", "default; pair"),
    ("torch._C._jit_get_schemas_for_operator('asked::gone')", "_jit_get_schemas_for_operator", "asked::gone", "", "no"),
    ("torch._C._jit_get_all_schemas()", "_jit_get_all_schemas", "*", "", None),
    ("torch._C._get_schema('asked::foo', 'pair')", "_get_schema", "asked::foo.pair", "", None),
    ("torch.library.get_kernel('asked::foo', 'CPU')", "get_kernel", "asked::foo", "CPU", None),
    (
        "torch._library.simple_registry.singleton.find('asked::foo')",
        "simple_registry.find",
        "torch_library asked::foo",
        "",
        None,
    ),
    ("torch._library.utils.lookup_op('asked::foo.pair')", "torch.ops", "asked::foo.pair", "", "yes"),
    ("torch._library.custom_ops._maybe_get_opdef('asked::foo')", "_maybe_get_opdef", "custom_ops asked::foo", "", "no"),
    (
        "torch._decomp.get_decompositions([torch.ops.asked.foo, torch.ops.aten.addr])",
        "get_decompositions",
        "decompositions asked::foo",
        "post_autograd",
        "no",
    ),
    (
        "torch._decomp.get_decompositions([torch.ops.aten.addr.default], type='post_autograd')",
        "get_decompositions",
        "decompositions aten::addr",
        "post_autograd",
        "torch._refs:addr",
    ),
    ("torch._decomp.core_aten_decompositions()", "core_aten_decompositions", "decompositions *", "", "yes"),
    ("torch.ops.aten.addr in torch._decomp.decomposition_table", "the table", "decompositions *", "", ""),
    ("torch._C._get_privateuse1_backend_name()", "the name", "privateuse1", "", None),
]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[DispatcherRead, ...]:
    """What was asked by a module that has each question in a line of its own."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("questions")
        monkeypatch.syspath_prepend(str(folder))
        return Packages(folder).reads(questions="\n".join(line for line, *_ in QUESTIONS))


@pytest.mark.parametrize("number", range(len(QUESTIONS)), ids=[line for line, *_ in QUESTIONS])
def test_each_way_to_ask_is_noted(answered: tuple[DispatcherRead, ...], number: int) -> None:
    _, how, about, key, answer = QUESTIONS[number]
    found = [read for read in answered if (read.how, read.about, read.key) == (how, about, key)]
    found = [read for read in found if read.site == f"questions.py:{LINE + number}"]
    assert [read.module for read in found] == ["questions"]
    assert answer is None or found[0].answer == answer
    assert "0x" not in found[0].answer
    assert len(found[0].answer) < 150


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("'one' in sys.modules", "sys.modules"),
        ("sys.modules.get('one.part')", "sys.modules"),
        ("any(name in sys.modules for name in ['one', 'none'])", "sys.modules"),
        ("importlib.util.find_spec('one')", "find_spec"),
        ("try:\n    import one\nexcept ImportError:\n    pass", "import"),
        ("try:\n    from one import HERE\nexcept Exception:\n    pass", "import"),
        ("try:\n    importlib.import_module('one')\nexcept (ValueError, ImportError):\n    pass", "import"),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import one", "import"),
    ],
)
def test_a_question_about_another_package_is_noted(packages: Packages, line: str, how: str) -> None:
    found = [read for read in packages.reads(one="HERE = 1", two=line) if read.about.startswith("module one")]
    assert [(read.how, read.module) for read in found] == [(how, "two")]
    assert found[0].site.startswith("two.py:")


@pytest.mark.parametrize(
    "line",
    [
        "import one",
        "try:\n    import one\nexcept ValueError:\n    pass",
        "try:\n    import json\nexcept ImportError:\n    pass",
        "'json' in sys.modules",
        "'two' in sys.modules",
        "sys.modules[__name__]",
        "importlib.util.find_spec('json')",
        "NAME = 'one'",
    ],
)
def test_what_asks_about_no_other_package_is_no_read(packages: Packages, line: str) -> None:
    assert packages.reads(one="HERE = 1", two=line) == ()


@pytest.mark.parametrize("others", [(), ("calls", "python")], ids=["alone", "recorded"])
def test_no_registration_is_a_read(packages: Packages, others: tuple[str, ...]) -> None:
    source = """
lib = torch.library.Library("none_asked", "DEF")
more = torch.library.Library("none_asked", "FRAGMENT")
backend = torch.library.Library("_", "IMPL")
backend.fallback(torch.library.fallthrough_kernel, "IPU")
lib.define("foo(Tensor x) -> Tensor")
more.define("bar(Tensor x, *, Tensor y) -> Tensor")
lib.impl("foo", lambda x: x, "CPU")
torch.library.define("none_asked::plain", "(Tensor x) -> Tensor", lib=lib)
torch.library.impl("none_asked::plain", "cpu", lambda x: x, lib=lib)
torch.library.register_fake("none_asked::plain", lambda x: x, lib=lib)
torch.library.register_autograd("none_asked::plain", lambda ctx, grad: grad, lib=lib)
torch.library.register_vmap("none_asked::plain", lambda info, dims, x: (x, 0), lib=lib)
torch.library.register_autocast("none_asked::plain", "cuda", torch.float16, lib=lib)
torch.library.register_kernel("none_asked::plain", "xpu", lambda x: x, lib=lib)


@torch.library.custom_op("none_asked::made", mutates_args=(), device_types="cpu")
def made(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


made.register_fake(lambda x: x)
made.register_kernel("cuda")(lambda x: x)
made.register_autograd(lambda ctx, grad: grad)
made.register_vmap(lambda info, dims, x: (x, 0))
made.register_autocast("cuda", torch.float16)
torch.library.register_fake("none_asked::made", lambda x: x)


class Sub(torch.Tensor):
    pass


torch.library.register_torch_dispatch("none_asked::plain", Sub, lambda *_: None, lib=lib)
made.register_torch_dispatch(Sub, lambda *_: None)


@torch.library.triton_op("none_asked::tri", mutates_args=())
def tri(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


try:
    lib.define("foo(Tensor x) -> Tensor")
except RuntimeError:
    pass
try:
    torch.library.register_fake("none_asked::gone", lambda x: x)
    torch.library.register_autograd("none_asked::gone", lambda ctx, grad: grad)
except (AttributeError, RuntimeError):
    pass
gone = torch.library.Library("none_asked", "FRAGMENT")
gone.define("gone(Tensor x) -> Tensor")
gone._destroy()
"""
    watches: dict[str, AbstractContextManager[object]] = {
        "calls": RegistrationWatch(),
        "python": PythonWatch(package_roots()),
    }
    assert packages.reads(*(watches[name] for name in others), one=source) == ()
    module: Any = sys.modules["one"]
    assert module.tri._qualname == "none_asked::tri"  # it ran to its end
    for library in (module.backend, module.more, module.lib):
        library._destroy()


def test_registering_in_python_reads_the_operator_and_nothing_else(packages: Packages) -> None:
    source = """
lib = torch.library.Library("py_asked", "DEF")
lib.define("foo(Tensor x) -> Tensor")
foo = torch.ops.py_asked.foo
from torch._decomp import register_decomposition
register_decomposition(foo)(lambda x: x)
foo.default.py_impl(torch.DispatchKey.Meta)(lambda x: x)
"""
    found = packages.reads(PythonWatch(package_roots()), one=source)
    assert {(read.how, read.about) for read in found} == {("torch.ops", "py_asked::foo")}
    del torch._decomp.decomposition_table[sys.modules["one"].foo.default]


def test_what_parts_of_pytorch_ask_when_they_are_imported_is_no_read(packages: Packages) -> None:
    part = "torch.ao.quantization.fx._lower_to_native_backend"
    asked = "from torch.ao.ns.fx import mappings as asks_hundreds"
    sys.modules.pop("torch.ao.ns.fx.mappings", None)
    assert packages.reads(one=f"import {part}\n{asked}\nimport torch._refs.special") == ()


def test_what_the_kernel_of_a_package_asks_is_noted_too(packages: Packages) -> None:
    source = """
lib = torch.library.Library("in_kernel", "DEF")
lib.define("foo(Tensor x) -> Tensor")
def kernel(x):
    return torch.ops.asked.foo(x)
lib.impl("foo", kernel, "CPU")
torch.ops.in_kernel.foo(torch.ones(1))
"""
    found = packages.reads(one=source)
    assert [(read.about, read.how) for read in found] == [
        ("in_kernel::foo", "torch.ops"),
        ("in_kernel::foo", "a call"),
        ("asked::foo", "torch.ops"),
        ("asked::foo", "a call"),
    ]


def test_a_thread_asks_for_the_module_that_waits_for_it(packages: Packages) -> None:
    source = """
threads = [threading.Thread(target=lambda: torch.ops.asked.foo.default) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    found = packages.reads(one=source)
    assert {(read.module, read.about) for read in found} == {("one", "asked::foo")}


def test_a_read_belongs_to_the_body_that_runs_and_to_the_line_that_asks(packages: Packages) -> None:
    found = packages.reads(
        helper="def has(name):\n    return hasattr(torch.ops.asked, name)\n", one="from helper import has\nhas('foo')"
    )
    assert [(read.module, read.site) for read in found] == [("one", f"helper.py:{LINE + 1}")]


def test_answers_and_errors_are_those_of_pytorch(packages: Packages) -> None:
    source = """
def error(run):
    try:
        return run()
    except Exception as error:
        return type(error), str(error)
RESULTS = [
    error(lambda: torch.ops.asked.gone),
    error(lambda: torch.ops.asked.foo.gone),
    error(lambda: torch.ops.asked.foo.pair),
    error(lambda: torch.ops.asked.foo.pair.gone),
    error(lambda: torch.ops.higher_order.gone),
    error(lambda: torch._C._dispatch_dump("nonsense")),
    error(lambda: torch._C._dispatch_has_kernel_for_dispatch_key("asked::gone", "CPU")),
    error(lambda: torch._C._dispatch_has_kernel()),
    error(lambda: torch.library.get_kernel(3, "CPU")),
    error(lambda: torch._decomp.get_decompositions([], type="none")),
    error(lambda: torch.ops.asked.foo.overloads()),
    error(lambda: torch.ops.asked.foo.default._schema),
    error(lambda: dir(torch.ops.asked.foo)),
    error(lambda: isinstance(torch.ops.asked.foo, torch._ops.OpOverloadPacket)),
    error(lambda: hash(torch.ops.asked.foo)),
]
"""
    (packages.folder / "without.py").write_text(HEAD + source)
    importlib.import_module("without")
    packages.reads(one=source)
    assert sys.modules["one"].RESULTS == sys.modules["without"].RESULTS


def test_operators_are_what_they_are_without_the_watch() -> None:
    packet = OPS.asked.foo
    overload = packet.default
    fields = dict(vars(packet))
    signature = inspect.signature(type(overload).__call__)
    with ReadWatch(lambda: "one", ()):
        assert OPS.asked.foo is packet
        assert packet.default is overload
        assert vars(packet) == fields
        assert vars(OPS.asked)["foo"] is packet
        assert copy.deepcopy(packet) is packet
        assert inspect.signature(type(overload).__call__) == signature
        assert OPS.asked.foo.pair is vars(packet)["pair"]
        assert pickle.loads(pickle.dumps(torch.add)) is torch.add
        del packet.pair
        assert "pair" not in vars(packet)
        assert packet.pair is vars(packet)["pair"]
    assert vars(packet)["pair"] is packet.pair


def test_everything_is_put_back(packages: Packages) -> None:
    before = hooks()
    source = """
from torch._C import _dispatch_has_kernel as has
from torch._decomp import get_decompositions
from importlib.util import find_spec
torch.ops.asked.foo.pair
assert has is torch._C._dispatch_has_kernel
"""
    packages.reads(one=source)
    assert hooks() == before
    module = sys.modules["one"]
    assert module.has is torch._C._dispatch_has_kernel
    assert module.get_decompositions is torch._decomp.get_decompositions
    assert module.find_spec is importlib.util.find_spec


@pytest.mark.parametrize("error", ["RuntimeError", "KeyboardInterrupt", "SystemExit"])
def test_everything_is_put_back_when_an_import_ends_early(packages: Packages, error: str) -> None:
    before = hooks()
    with pytest.raises((RuntimeError, KeyboardInterrupt, SystemExit)):
        packages.reads(one=f"torch.ops.asked.foo\nraise {error}")
    assert hooks() == before


def test_everything_is_put_back_when_the_hooks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    before = hooks()

    def fail(watch: ReadWatch) -> None:
        assert hooks() != before
        raise KeyboardInterrupt

    monkeypatch.setattr(ReadWatch, "_wrap_functions", fail)
    with pytest.raises(KeyboardInterrupt):
        ReadWatch(lambda: "one", ()).__enter__()
    assert hooks() == before


def test_a_wrapper_that_somebody_holds_only_passes_calls_on() -> None:
    watch = ReadWatch(lambda: "one", ())
    with watch:
        held = functools.partial(torch._C._dispatch_has_kernel)
        find = torch._library.simple_registry.singleton.find
    seen = watch.reads
    assert held("asked::foo")
    assert find("asked::foo").fake_impl.kernel is not None
    assert watch.reads == seen


def test_operators_work_in_compiled_functions_while_the_watch_is_on(packages: Packages) -> None:
    source = """
@torch.compile(backend="eager")
def f(x):
    y = torch.ops.asked.foo(x)
    torch._dynamo.graph_break()
    return torch.ops.asked.foo.default(y) + 1
RESULT = f(torch.ones(2)).tolist()
"""
    packages.reads(one=source)
    assert sys.modules["one"].RESULT == [2.0, 2.0]
    module: Any = sys.modules["one"]
    assert module.f(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_threads_that_look_up_at_once_get_the_same_operator() -> None:
    found: list[object] = []
    with ReadWatch(lambda: "one", ()):
        threads = [Thread(target=lambda: found.append(OPS.asked.foo.pair)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8
    assert {str(each) for each in found} == {"asked.foo.pair"}


def test_record_shows_what_may_depend_on_another_package(tmp_path: Path) -> None:
    first = """\
import torch
lib = torch.library.Library("t", "FRAGMENT")
lib.define("foo(Tensor x) -> Tensor")
torch.library.register_fake("t::foo", torch.empty_like)
torch._decomp.register_decomposition(torch.ops.t.foo)(lambda x: -x)
backend = torch.library.Library("_", "IMPL")
backend.fallback(torch.library.fallthrough_kernel, "IPU")
torch.utils.rename_privateuse1_backend("zoo")
"""
    second = """\
import sys
import torch
hasattr(torch.ops.t, "foo")
hasattr(torch.ops.t, "bar")
torch._library.simple_registry.singleton.find("t::foo")
torch._decomp.get_decompositions([torch.ops.aten.addr, torch.ops.t.foo])
torch._C._dispatch_has_backend_fallback(torch.DispatchKey.IPU)
torch._C._dispatch_has_backend_fallback(torch.DispatchKey.CUDA)
torch._C._get_privateuse1_backend_name()
"early" in sys.modules
torch.ops.aten.add.Tensor(torch.ones(1), 1)
"""
    package(tmp_path, "early", init=first)
    package(tmp_path, "late", init=second)
    result = dispatchlab(tmp_path, "record", "early", "late", "-o", "record.yaml")
    assert result.returncode == 0, result.stderr
    lines = [line.partition(": ")[2] for line in result.stderr.splitlines() if "may depend on it" in line]
    assert [line.removesuffix(": what late registers may depend on it") for line in lines] == [
        f"late/__init__.py:{line}"
        for line in (
            "3 asks whether t::foo exists (torch.ops), which early registers at early/__init__.py:3",
            "5 asks simple_registry.find of t::foo, which early registers at early/__init__.py:4",
            "6 asks whether t::foo exists (torch.ops), which early registers at early/__init__.py:3",
            "6 asks get_decompositions of t::foo at post_autograd, which early registers at early/__init__.py:5",
            "7 asks _dispatch_has_backend_fallback at IPU, which early registers at early/__init__.py:7",
            "9 asks the name of privateuse1, which early renames at early/__init__.py:8",
            "11 calls aten::add.Tensor, which early registers at early/__init__.py:7",
            "10 asks whether module early exists (sys.modules)",
        )
    ]


def test_what_a_module_imports_before_it_asks_depends_on_no_order(tmp_path: Path) -> None:
    ops = "import torch\nlib = torch.library.Library('t', 'DEF')\nlib.define('foo(Tensor x) -> Tensor')\n"
    asks = "import torch\nhasattr(torch.ops.t, 'foo')\n"
    package(tmp_path, "whole", init="from . import above\nfrom . import sure, late", ops=ops, above=asks,
            sure=f"from . import ops\n{asks}", late=f"{asks}from . import ops")  # fmt: skip
    result = dispatchlab(tmp_path, "record", "whole", "-o", "record.yaml")
    assert result.returncode == 0, result.stderr
    lines = [line.partition(": ")[2] for line in result.stderr.splitlines() if "may depend on it" in line]
    assert [line.partition(" asks")[0] for line in lines] == ["whole/above.py:2", "whole/late.py:2"]


def read(about: str, **more: Any) -> DispatcherRead:
    return DispatcherRead("torch.ops", about, more.pop("key", ""), "b", "b.py:4", **more)


def write(about: str, key: str = "", module: str = "a") -> ModuleWrite:
    return ModuleWrite(about, key, module, f"{module}.py:7")


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        (read("t::foo"), write("t::foo")),
        (read("t::foo"), write("t::foo.a")),
        (read("t::foo.a"), write("t::foo.a")),
        (read("t::*"), write("t::foo.a")),
        (read("*"), write("t::foo")),
        (read("_", key="CPU"), write("_", "CPU")),
        (read("t::foo", computed=True), write("_", "CPU")),
        (read("t::foo", key="CPU", computed=True), write("_", "CPU")),
        (read("decompositions t::foo"), write("decompositions t::foo.a")),
        (read("decompositions t::foo.a"), write("decompositions t::foo.*")),
        (read("decompositions *"), write("decompositions t::foo")),
        (read("module a"), write("module a.part")),
        (read("module a.part"), write("module a")),
        (read("privateuse1"), write("privateuse1")),
    ],
)
def test_a_read_of_what_another_module_writes_is_a_dependence(asked: DispatcherRead, written: ModuleWrite) -> None:
    assert dependences([asked], [write("other_rules u::other"), written]) == ((asked, written),)
    assert dependences([asked], [written._replace(module="b")]) == ()


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        (read("t::foo"), write("t::bar")),
        (read("t::foo.a"), write("t::foo")),
        (read("t::foo.a"), write("t::foo.b")),
        (read("t::*"), write("u::foo")),
        (read("_", key="CPU"), write("_", "CUDA")),
        (read("t::foo"), write("_", "CPU")),
        (read("t::foo", key="CPU", computed=True), write("_", "CUDA")),
        (read("decompositions t::foo"), write("t::foo")),
        (read("decompositions t::foo"), write("fake_rules t::foo")),
        (read("decompositions *"), write("fake_rules t::foo")),
        (read("*"), write("decompositions t::foo")),
        (read("module a"), write("module ab")),
    ],
)
def test_a_read_of_something_else_is_no_dependence(asked: DispatcherRead, written: ModuleWrite) -> None:
    assert dependences([asked], [written]) == ()


def test_a_dependence_is_one_sentence() -> None:
    ((asked, written),) = dependences([read("t::foo")], [write("t::foo")])
    (found,) = dependences([asked], [written])
    assert str(found) == (
        "b.py:4 asks whether t::foo exists (torch.ops), which a registers at a.py:7: what b registers may depend on it"
    )
