"""Why a program failed, asked on the command line, of pytest, and from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import wrap

import pytest

pytest.importorskip("torch")

from dispatchlab import why
from dispatchlab.questions.why.run import why_text
from tests.live.packages import ROOT, dispatchlab_started
from tests.plugin_options import PLUGIN_OPTIONS

MISSING = """
import torch

lib = torch.library.Library("boxes", "DEF")
lib.define("area(Tensor x) -> Tensor")
lib.impl("area", lambda x: x.prod(), "CUDA")
"""
CALL = "torch.ops.boxes.area(torch.ones(2))\n"
CAUSE = "boxes::area has no kernel for CPU: it has kernels for CUDA ({}:6)"


def test_the_exit_code_is_the_programs_and_1_with_an_answer(tmp_path: Path) -> None:
    for text, code in ("print('fine')", 0), ("import sys; sys.exit(3)", 3), ("raise KeyError('a')", 1):
        (tmp_path / "program.py").write_text(text)
        ended = dispatchlab_started(tmp_path, "why", "program.py")
        assert ended.returncode == code, ended
    assert "KeyError" in ended.stdout
    assert ended.stderr.startswith('Traceback (most recent call last):\n  File "')
    assert "runpy" not in ended.stderr


def test_the_frames_of_a_recursion_are_printed_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def a(): b()\n\ndef b(): a()\n\na()\n")
    lines = dispatchlab_started(tmp_path, "why", "program.py").stderr.splitlines()
    assert len(lines) < 20
    (repeated,) = [line for line in lines if "repeated" in line]
    assert re.fullmatch(r"  \[Previous 2 frames repeated \d{3} more times\]", repeated)
    assert lines[-1].startswith("RecursionError: ")


def test_the_page_and_the_readme_print_what_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    program, printed = page.split("```python\n")[1].split("```\n")[0:3:2]
    (tmp_path / "program.py").write_text(program)
    lines = dispatchlab_started(tmp_path, "why", "program.py").stdout.splitlines()
    assert printed.splitlines() == lines[: len(printed.splitlines())]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = "$ dispatchlab why program.py  # prints first:\n"
    assert f"$ cat program.py\n{program}{command}" in readme
    shown = readme.partition(command)[2].partition("$ ")[0].splitlines()
    assert shown == [line for line in lines if line.startswith(("cause: ", "fix: "))] == lines[: len(shown)]


def test_json_has_the_cause_the_fixes_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MISSING + CALL)
    ended = dispatchlab_started(tmp_path, "why", "--format", "json", "program.py")
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["cause"]) == (1, CAUSE.format("program.py"))
    assert found["fixes"][0]["fix"]["text"] == 'lib.impl("area", kernel, "CPU")'
    assert found["at"]["line"] == 7


def test_a_traceback_is_answered_as_text(tmp_path: Path) -> None:
    text = "Traceback (most recent call last):\nAttributeError: '_OpNamespace' 'boxes' object has no attribute 'area'\n"
    (tmp_path / "error.txt").write_text(text)
    ended = dispatchlab_started(tmp_path, "why", "--text", "error.txt")
    assert ended.returncode == 1
    assert "boxes::area" in ended.stdout.splitlines()[0]
    (tmp_path / "error.txt").write_text("what is this")
    unknown = dispatchlab_started(tmp_path, "why", "--text", "error.txt")
    assert (unknown.returncode, "no known cause" in unknown.stdout) == (3, True)


def test_a_recorded_pytorch_answers_about_its_own_operators(tmp_path: Path) -> None:
    text = "NotImplementedError: Could not run 'aten::_cudnn_rnn' with arguments from the 'CPU' backend.\n"
    (tmp_path / "error.txt").write_text(text)
    ended = dispatchlab_started(tmp_path, "why", "--text", "error.txt", "--from", "torch-2.9", "--format", "github")
    assert ended.returncode == 1
    assert ended.stdout.startswith("::error title=dispatchlab WHY305")
    assert "aten::_cudnn_rnn has no kernel for CPU" in ended.stdout
    unknown = dispatchlab_started(tmp_path, "why", "--text", "error.txt", "--from", "torch-9")
    assert (unknown.returncode, "did you mean torch-2.9?" in unknown.stderr) == (2, True)


COULD_NOT_RUN = "NotImplementedError: Could not run '{0}' with arguments from the 'CUDA' backend. "
LISTED = """'{0}' is only available for these backends: [CPU, Meta, BackendSelect].

CPU: registered at /vision/torchvision/csrc/ops/cpu/kernel.cpp:112 [kernel]
Meta: registered at /dev/null:241 [kernel]
BackendSelect: fallthrough registered at ../aten/src/ATen/core/BackendSelectFallbackKernel.cpp:3 [backend fallback]
"""
OVERRIDDEN = """/x/torch/library.py:505: UserWarning: Warning only once for all operators
  Overriding a previously registered kernel for the same operator and the same dispatch key
  operator: boxes::area(Tensor x) -> Tensor
    registered at /x/boxes.py:2
  dispatch key: CPU
  previous kernel: registered at /x/boxes.py:3
       new kernel: registered at /x/boxes.py:6 (Triggered internally at /pytorch/OperatorEntry.cpp:208.)
  self.m.impl(
"""
NOT_REGISTERED = (
    "/x/torch/autograd/graph.py:824: UserWarning: boxes::area: an autograd kernel was not registered to the Autograd "
    "key(s) but we are trying to backprop through it.\n"
)
LOSS = """Traceback (most recent call last):
  File "/x/train.py", line 6, in <module>
    loss.backward()
RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
"""
TRACED = """Traceback (most recent call last):
  File "/x/train.py", line 12, in <module>
    f(torch.rand(5))
torch._dynamo.exc.UserError: Consider annotating your code using torch._check*(). Could not guard on data-dependent \
expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none)

from user code:
   File "/x/train.py", line 7, in f
    if n == 1:
"""

INDEXED = """torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call
  Explanation: Dynamo failed to run FX node with fake tensors: call_function <built-in function getitem>(*(FakeTensor(\
..., size=(4,)), FakeTensor(..., size=(4,))), **{}): got RuntimeError('tensors used as indices must be long, int, byte \
or bool tensors')
"""
READ = """Traceback (most recent call last):
  File "/x/train.py", line 16, in <module>
    print(f(torch.randn(5)))
torch._dynamo.exc.UserError: Could not extract specialized integer from data-dependent expression u0 (unhinted: u0).

Caused by: return keep(x) * 2  # x/train.py:15 in f (x/train.py:10 in _)

User Stack (most recent call last):
  File "/x/train.py", line 15, in f
    return keep(x) * 2
  File "/v/site-packages/torch/_library/custom_ops.py", line 863, in __call__
    return self._opoverload(*args, **kwargs)
"""


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        (
            COULD_NOT_RUN.format("aten::_slow_conv2d_forward"),
            "has no kernel for CUDA in the PyTorch that raised this, a build without CUDA",
            "or install a build of PyTorch with CUDA on a machine that has it",
        ),
        (
            (COULD_NOT_RUN + LISTED).format("torchvision::nms"),
            "this is a build of torchvision without CUDA",
            "install the build of torchvision with CUDA that belongs to this PyTorch",
        ),
        (
            (COULD_NOT_RUN + LISTED)
            .format("xformers::cutlass")
            .replace("CUDA", "GPU")
            .replace("CPU", "CUDA")
            .replace("GPU", "CPU"),
            "has no kernel for CPU: its kernels come with xformers, which has kernels for CUDA",
            "call it with CUDA tensors, x.cuda(), if PyTorch and the machine support CUDA",
        ),
        (
            (COULD_NOT_RUN + LISTED).format("boxes::area"),
            "has no kernel for CUDA: it has kernels for CPU (/vision/torchvision/csrc/ops/cpu/kernel.cpp:112)",
            'lib.impl("area", kernel, "CUDA")',
        ),
        (
            COULD_NOT_RUN.format("boxes::area"),
            "has no kernel for CUDA: which kernels it has cannot be told from the text",
            'lib.impl("area", kernel, "CUDA")  # of a custom_op: torch.library.register_kernel("boxes::area", "cuda")',
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
            "no kernel ran",
            "print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())",
        ),
        (
            "NotImplementedError: The operator 'aten::lu' is not currently implemented for the MPS device. If you want",
            "aten::lu has no kernel for MPS",
            'os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"',
        ),
        (OVERRIDDEN, "boxes::area gets a second kernel for CPU, registered at /x/boxes.py:6", "keep one of the two"),
        (NOT_REGISTERED, "backward reached boxes::area, which has no autograd", "torch.library.register_autograd("),
        (LOSS, "not connected to a parameter", "torch.no_grad(), detach(), .data, .item()"),
        ("".join(f"> {line}\n" for line in LOSS.splitlines()), "(/x/train.py:6: `loss.backward()`)", "detach()"),
        (TRACED, "`if n == 1:` at /x/train.py:7 asks whether Eq(u0, 1) (data-dependent)", "torch.where("),
        (
            "RuntimeError: This is not allowed since there's already a kernel registered from python overriding area's "
            "behavior for CPU dispatch key and boxes namespace.",
            "boxes::area already has a kernel for CPU, registered by Python",
            "keep one of the two",
        ),
        (
            "RuntimeError: function GeneratedBackwardFor_boxes_area_defaultBackward returned an incorrect number of "
            "gradients (expected 4, got 3)",
            "the backward of boxes::area returns 2 gradients, but must return 3: one for each argument of forward",
            "return grad, None, None  # one for each input of forward",
        ),
        (
            "RuntimeError: function CubeBackward returned an incorrect number of gradients (expected 2, got 1)",
            "returns 1 gradient, but must return 2: one for each argument of forward",
            "return grad, None  # one for each input of forward",
        ),
        (
            "TypeError: unsupported operand type(s) for *: 'Meters' and 'int'",
            "its __torch_dispatch__ or __torch_function__ returned NotImplemented for this operator, aten.mul.Tensor",
            "if func is torch.ops.aten.mul.Tensor: ...  # in Meters.__torch_dispatch__",
        ),
        (
            "AttributeError: '_OpNamespace' 'geo' object has no attribute 'hulls'",
            "geo::hulls is not defined in the program: the text does not show what the namespace geo has",
            "or correct the name",
        ),
        (
            "RuntimeError: Inference tensors cannot be saved for backward. Please do not use Tensors created in",
            "a tensor made under torch.inference_mode()",
            "clone the tensor that was made under inference_mode",
        ),
        (
            "AssertionError: Torch not compiled with CUDA enabled",
            "the PyTorch that raised this was built without CUDA",
            "torch.cuda.is_available()",
        ),
        (INDEXED, "no kernel ran: a traced call gets its dtypes from fake kernels", "dtype=torch.int64  # in the fake"),
        (READ, "_, the fake kernel of a custom operator, asks for a value", "n = torch.library.get_ctx().new_dynamic"),
        (
            'Traceback (most recent call last):\n  File "/home/me/prog.py", line 1, in <module>\n    import torch\n'
            '  File "/usr/lib/site-packages/torch/__init__.py", line 2189, in <module>\n    _C._initExtension()\n'
            '  File "/usr/lib/site-packages/torch/cuda/_utils.py", line 9, in <module>\n    from cuda import a\n'
            '  File "/home/me/my-code/cuda.py", line 2, in <module>\n    lib = torch.library.Library("mine", "DEF")\n'
            "AttributeError: partially initialized module 'torch' has no attribute 'library'",
            "cuda.py has the name of a module that PyTorch imports: Python runs cuda.py in place of that module",
            "rename cuda.py",
        ),
        (
            (COULD_NOT_RUN + LISTED.replace("/vision/torchvision/csrc/ops/cpu/kernel.cpp:112", "/x/boxes.py:3")).format(
                "boxes::area"
            ),
            "has no kernel for CUDA: it has kernels for CPU (Library at /x/boxes.py:3)",
            'lib.impl("area", kernel, "CUDA")',
        ),
        (
            "PythonDispatcher: registered at /pytorch/PythonFallbackKernel.cpp:196 [backend fallback]\n",
            "no known cause",
            "this is the end of PyTorch's message: paste it from the line with `Could not run`",
        ),
        (
            "RuntimeError: output with shape [3] doesn't match the broadcast shape [5, 3]",
            "or the call is under torch.vmap, and the tensor that it writes in place is not batched",
            "print the shapes",
        ),
        (
            "Could not run 'aten::_local_scalar_dense' with arguments from the 'Meta' backend.",
            "asks for a value of a tensor on the device meta: such a tensor has a shape and no data",
            "call it with tensors on a device with data: device='cpu' in place of 'meta'",
        ),
        (
            "TorchRuntimeError: RuntimeError when making fake tensor call\n"
            "  Explanation: Dynamo failed to run FX node with fake tensors: "
            'call_function acme.two.default(*(FakeTensor(..., size=(3,)),), **{}): got TypeError("Object of type '
            "'FakeTensor' is not an instance of 'sequence'\")",
            "the fake kernel of acme::two returns one tensor, but the schema has several results, or a list",
            "return x.new_empty(...), x.new_empty(...)",
        ),
        (
            "torch/_library/custom_ops.py:949: in wrapped_func\nE   RuntimeError: Expected the vmap staticmethod "
            "to have two returns, an output and out_dims with pytree structure. "
            "Got a <class 'torch.Tensor'> instead",
            "the function that register_vmap was given returns <class 'torch.Tensor'>, not (output, out_dims)",
            "return output, out_dims",
        ),
        ("what is this", "no known cause", "paste the whole text, from `Traceback` to the error"),
    ],
)
def test_a_text_is_answered_by_what_it_says_itself(text: str, cause: str, fix: str) -> None:
    answer = why_text(text.replace("\\\n", ""))
    assert cause in answer.cause
    assert [trial.fix.text for trial in answer.fixes if fix in trial.fix.text]
    assert ("lib.impl" in str(answer.fixes)) == fix.startswith("lib.impl")


WRAPPER = """\
import torch
class Packed(torch.Tensor):
    @staticmethod
    def __new__(cls, elem):
        return torch.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)
    def __init__(self, elem):
        self.elem = elem
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
print(Packed(torch.ones(2)) + 1)
"""
UNWRAP = "from torch.utils._pytree import tree_map_only; args, kwargs = tree_map_only({}, lambda t: t.elem, "


@pytest.mark.parametrize(("name", "cls"), [("program.py", "Packed"), ("gone.py", "CLASS")])
def test_a_text_about_a_wrapper_that_calls_itself_says_to_unwrap(name: str, cls: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WRAPPER, encoding="utf-8")
    frame = f'  File "{tmp_path}/{name}", line 10, in __torch_dispatch__\n    return func(*args, **(kwargs or {{}}))\n'
    answer = why_text(
        f"Traceback (most recent call last):\n{frame * 25}RecursionError: maximum recursion depth exceeded\n"
    )
    fixes = [trial.fix.text for trial in answer.fixes]
    assert len(fixes) == 1, fixes
    assert fixes[0].startswith(UNWRAP.format(cls))


def test_a_text_says_nothing_of_the_build_that_raised_it_but_what_it_lacks() -> None:
    answer = why_text(
        "NotImplementedError: Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend. This "
        "could be because the operator doesn't exist for this backend, or was omitted during the selective/custom "
        "build process (if using custom build)."
    )
    missing = "aten::empty.memory_format has no kernel for CUDA: the PyTorch that raised this was built without CUDA, "
    assert (answer.cause, answer.evidence) == (f"{missing}or the package for CUDA is not imported", ())


def test_a_text_does_not_claim_that_a_definition_in_a_function_has_not_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        'import torch\ndef register():\n    lib = torch.library.Library("boxes", "DEF")\n'
        '    lib.define("area(Tensor x) -> Tensor")\nregister()\ntorch.ops.boxes.area(torch.ones(2))\n',
        encoding="utf-8",
    )
    answer = why_text(
        f'Traceback (most recent call last):\n  File "{tmp_path}/program.py", line 6, in <module>\n'
        "    torch.ops.boxes.area(torch.ones(2))\n"
        "AttributeError: '_OpNamespace' 'boxes' object has no attribute 'area'\n"
    )
    assert "register(), which has not run, or whose Library was collected when register() ended" in answer.cause


FUNCTORCH = """Traceback (most recent call last):
  File "/home/anna/geo/b02.py", line 7, in <module>
    print(torch.vmap(acc)(torch.randn(4, 3)))
  File "/home/anna/venv/lib/python3.11/site-packages/torch/_functorch/vmap.py", line 507, in _flat_vmap
    batched_outputs = func(*batched_inputs, **kwargs)
  File "/home/anna/geo/b02.py", line 5, in acc
    out.add_(x)
RuntimeError: output with shape [3] doesn't match the broadcast shape [4, 3]
"""


def test_a_def_in_cpp_that_ends_the_process_is_explained_at_the_line_that_loads_it() -> None:
    answer = why_text(
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  Tried to register an operator (shop::f(Tensor x) -> Tensor) with the same name and overload name "
        "multiple times. Each overload's schema should only be registered with a single call to def(). Duplicate "
        "registration: registered at /src/main.cpp:6. Original registration: registered at /src/main.cpp:6\n"
        "Exception raised from registerDef at Dispatcher.cpp:248 (most recent call first):\n"
        "frame #0: c10::Error::Error() + 0x9d (0x7f in libc10.so)\n\n"
        "Fatal Python error: Aborted\n\n"
        "Current thread 0x00007f1d0ac2eb80 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 376 in __init__\n'
        '  File "/home/me/shop/ops.py", line 9 in load\n'
        '  File "/home/me/shop/train.py", line 3 in <module>\n'
    )
    assert answer is not None
    assert (answer.code, str(answer.at)) == ("WHY201", "/home/me/shop/ops.py:9")
    assert "shop::f is defined twice at " in answer.cause
    assert "main.cpp:6: this line has two defs of it, or its library was loaded twice" in answer.cause
    assert answer.error.startswith("RuntimeError: Tried to register an operator")


@pytest.mark.parametrize(
    "lead",
    [
        "",
        "> ",
        "> > ",
        "[rank3]: ",
        "2026-11-29 03:12:01,123 ERROR train: ",
        "2026-11-29T10:00:00Z pod/train-0 stderr F ",
        "\x1b[31m",
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_text_is_read_as_it_was_before_an_email_or_a_log_changed_it(lead: str, *, wrapped: bool) -> None:
    text = "".join(
        f"{lead}{part}\n"
        for line in FUNCTORCH.splitlines()
        for part in (wrap(line, 70, break_long_words=False, break_on_hyphens=False) if wrapped else [line])
    )
    answer = why_text(text)
    assert (answer.code, str(answer.at)) == ("WHY606", "/home/anna/geo/b02.py:5"), text
    assert answer.error.startswith("RuntimeError: output with shape [3]")


def test_a_text_in_a_record_of_a_log_is_read() -> None:
    answer = why_text(json.dumps({"level": "error", "text": FUNCTORCH, "at": 3}) + "\n{not a record}\n")
    assert (answer.code, str(answer.at)) == ("WHY606", "/home/anna/geo/b02.py:5")


NO_FILE = """Traceback (most recent call last):
  File "/x/io.py", line 9, in g
    open("x")
FileNotFoundError: [Errno 2] No such file or directory: 'x'
"""


@pytest.mark.parametrize(
    ("parts", "at", "evidence"),
    [
        ((FUNCTORCH, NO_FILE), "/home/anna/geo/b02.py:5", ("and 1 more error in this text",)),
        ((NO_FILE, "INFO retry\n", FUNCTORCH), "/home/anna/geo/b02.py:5", ("and 1 more error in this text",)),
        ((FUNCTORCH, FUNCTORCH.replace("b02", "b03")), "/home/anna/geo/b03.py:5", ()),
        (("____ test_a ____\n", NO_FILE, "____ test_b ____\n", FUNCTORCH), "/home/anna/geo/b02.py:5", ("and 1 more",)),
    ],
)
def test_of_several_tracebacks_the_last_with_a_known_cause_is_explained(
    parts: tuple[str, ...], at: str, evidence: tuple[str, ...]
) -> None:
    answer = why_text("".join(parts))
    assert (answer.code, str(answer.at)) == ("WHY606", at)
    assert answer.error.startswith("RuntimeError: output with shape [3]")
    assert [fact[: len(told)] for fact, told in zip(answer.evidence, evidence, strict=True)] == list(evidence)


@pytest.mark.parametrize(
    "link",
    [
        "\nDuring handling of the above exception, another exception occurred:\n\n",
        "\nThe above exception was the direct cause of the following exception:\n\n",
        "\n-- Process 1 terminated with the following error:\n",
    ],
)
def test_linked_tracebacks_are_one_error(link: str) -> None:
    answer = why_text(f"{NO_FILE}{link}{FUNCTORCH}")
    assert (answer.code, str(answer.at), answer.evidence) == ("WHY606", "/home/anna/geo/b02.py:5", ())


def test_a_text_about_a_namespace_that_a_notebook_opens_twice_gives_the_python_form() -> None:
    answer = why_text(
        "RuntimeError: Only a single TORCH_LIBRARY can be used to register the namespace geo; please put all of your "
        "definitions in a single TORCH_LIBRARY block. Previous registration of TORCH_LIBRARY was registered at "
        "<ipython-input-3-ab12>:2; latest registration was registered at <ipython-input-4-cd34>:2"
    )
    assert [trial.fix.text for trial in answer.fixes] == ['torch.library.Library("geo", "FRAGMENT")']


def test_a_message_inside_of_a_sentence_is_found_and_gets_no_type() -> None:
    answer = why_text("it says: Could not run 'aten::gelu' with arguments from the 'SparseCPU' ...")
    assert answer.code == "WHY304"
    assert answer.error.startswith("it says: Could not run")


def test_a_handler_whose_line_is_repeated_in_a_text_calls_itself() -> None:
    frame = '  File "/x/log.py", line 7, in __torch_function__\n    return func(*args, **(kwargs or {}))\n'
    answer = why_text(
        f"Traceback (most recent call last):\n{frame * 3}  [Previous line repeated 495 more times]\n"
        "RecursionError: maximum recursion depth exceeded\n"
    )
    assert answer.code == "WHY803"


def test_a_whole_text_without_a_known_cause_is_not_asked_for_again() -> None:
    answer = why_text('Traceback (most recent call last):\n  File "/x/a.py", line 2, in f\n    g()\nOddError: no\n')
    assert [trial.fix.text for trial in answer.fixes] == ["run the program: dispatchlab why PROGRAM.py"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["error.txt"], "for a traceback: dispatchlab why --text error.txt"),
        (["--text", "program.py"], "run a program without --text: dispatchlab why program.py"),
        (["--text", "error.txt", "program.py"], "run a program without --text: dispatchlab why program.py"),
        (["--from", "torch-2.9", "program.py"], "--from is for --text: a program runs on the installed PyTorch"),
    ],
)
def test_a_program_and_a_text_are_told_apart(arguments: list[str], said: str, tmp_path: Path) -> None:
    for name in ("error.txt", "program.py"):
        (tmp_path / name).write_text("raise ValueError\n", encoding="utf-8")
    ended = dispatchlab_started(tmp_path, "why", *arguments)
    assert (ended.returncode, said in " ".join(ended.stderr.split())) == (2, True), ended.stderr


def test_an_empty_text_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    (tmp_path / "error.txt").write_text("\n")
    for file, said in ("-", "standard input was empty; paste the error, then press Ctrl-D"), ("error.txt", "is empty"):
        ended = dispatchlab_started(tmp_path, "why", "--text", file)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert said in ended.stderr


def test_a_program_that_ends_well_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('fine')")
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "fine\ndispatchlab why: the program ended well; nothing to explain\n"


@pytest.mark.parametrize("end", ["", "import sys\nsys.exit(0)\n"])
def test_a_program_that_ends_well_with_a_warning_about_autograd_has_an_answer(end: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        'lib = torch.library.Library("quiet", "DEF")\n'
        'lib.define("double(Tensor x) -> Tensor")\n'
        'lib.impl("double", lambda x: x.detach() * 2, "CPU")\n'
        f"torch.ops.quiet.double(torch.ones(3, requires_grad=True)).sum().backward()\n{end}"
    )
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    cause = "cause: backward reached quiet::double, which has no autograd formula, defined at program.py:3\n"
    assert (ended.returncode, ended.stdout.startswith(cause)) == (0, True), ended.stdout
    assert "WHY501 a custom operator without a formula" in ended.stdout
    note = "dispatchlab why: the program ended well, but PyTorch warned of a missing autograd kernel\n"
    assert ended.stderr.endswith(note)


def test_a_program_that_ends_well_with_an_undeclared_write_has_an_answer(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        'lib = torch.library.Library("quiet", "DEF")\n'
        'lib.define("grow(Tensor x) -> ()")\n'
        'lib.impl("grow", lambda x: x.add_(1) and None, "CPU")\n'
        "torch.ops.quiet.grow(torch.zeros(1))\n"
    )
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    assert (ended.returncode, ended.stdout) == (
        0,
        "cause: quiet::grow mutates x, which its schema does not mark with (a!): compile drops or reorders the write, "
        "defined at program.py:3\n"
        'fix: lib.define("grow(Tensor(a!) x) -> ()")  (not tried: it is an edit of your program)\n'
        "seen: the call of quiet::grow changed x\n"
        "WHY421 an undeclared write of an argument; more: dispatchlab rule WHY421\n",
    )
    note = "dispatchlab why: the program ended well, but an operator wrote an undeclared argument\n"
    assert ended.stderr.endswith(note)
    annotated = dispatchlab_started(tmp_path, "why", "--format", "github", "program.py")
    assert (annotated.returncode, annotated.stdout.partition(" ")[0]) == (0, "::warning")


def test_a_program_that_ends_well_after_a_caught_exception_has_an_answer(tmp_path: Path) -> None:
    caught = f"try:\n    {CALL}except NotImplementedError:\n    print('skipped')\n"
    (tmp_path / "program.py").write_text(MISSING.lstrip() + caught)
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    assert (ended.returncode, ended.stdout.startswith("cause: boxes::area has no kernel for CPU")) == (0, True)
    assert ended.stderr.endswith("dispatchlab why: the program ended well, but it caught this exception\n")


@pytest.mark.parametrize("dtype", ["", ", dtype=torch.bfloat16"])
def test_a_fake_kernel_of_a_program_that_ends_well_is_tried(tmp_path: Path, dtype: str) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        '@torch.library.custom_op("quiet::grow", mutates_args=())\n'
        "def grow(x: torch.Tensor) -> torch.Tensor:\n"
        "    return (x + 1).to(torch.bfloat16)\n"
        f"grow.register_fake(lambda x: torch.empty_like(x{dtype}))\n"
        'torch.compile(grow, backend="eager")(torch.ones(2))\n'
    )
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    if dtype:
        assert (ended.returncode, ended.stdout) == (0, "")
        assert ended.stderr.endswith("dispatchlab why: the program ended well; nothing to explain\n")
        return
    said = "cause: the fake kernel of quiet::grow at program.py:5 and its kernel give different results: dtype"
    assert (ended.returncode, ended.stdout.startswith(said)) == (0, True), ended.stdout
    assert ended.stderr.endswith("dispatchlab why: the program ended well, but a fake kernel is wrong\n")


def test_a_kernel_that_returns_none_is_explained_in_a_program_that_ends_well(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\n"
        '@torch.library.custom_op("quiet::grow", mutates_args=())\n'
        "def grow(x: torch.Tensor) -> torch.Tensor:\n"
        "    pass\n"
        "grow(torch.zeros(1))\n"
    )
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    cause = "cause: the kernel of quiet::grow at program.py:2 returned NoneType, but its schema says Tensor\n"
    assert (ended.returncode, ended.stdout.startswith(cause)) == (0, True), ended.stdout
    assert "\nerror: " not in ended.stdout
    assert ended.stderr.endswith("dispatchlab why: the program ended well, but a kernel returned None\n")


def test_a_thread_that_fails_is_explained(tmp_path: Path) -> None:
    thread = "\nimport threading\ndef work():\n    " + CALL + "threading.Thread(target=work).start()\nprint('end')\n"
    (tmp_path / "program.py").write_text(MISSING.lstrip() + thread)
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    assert ended.returncode == 1
    assert ended.stdout.startswith("cause: boxes::area ")
    assert "nothing to explain" not in ended.stderr


def test_pytest_as_a_program_answers_for_its_first_failing_test(tmp_path: Path) -> None:
    (tmp_path / "test_boxes.py").write_text(f"{MISSING}def test_box():\n    {CALL}")
    command = ("why", "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN_OPTIONS, "test_boxes.py")
    ended = dispatchlab_started(tmp_path, *command)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (1, "cause: " + CAUSE.format("test_boxes.py"))
    (tmp_path / "test_boxes.py").write_text("def test_box():\n    assert not 1\n")
    ended = dispatchlab_started(tmp_path, *command)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("to see the cause of each failing test, run: pytest --why\n")


CAUGHT = f"{MISSING}import logging, sys\ndef main():\n    try:\n        {CALL}    except Exception as error:\n        "


@pytest.mark.parametrize(
    ("reports", "code", "answers"),
    [
        ("print('failed', error)\n        return 3", 3, True),
        ("logging.exception('failed')\n        return 1", 1, True),
        ("sys.exit(f'failed: {error}')", 1, True),
        ("print('failed', error)\n        return 0", 0, True),
        ("return 0", 0, False),
    ],
)
def test_a_failure_that_the_program_reports_itself_is_explained(
    reports: str, code: int, *, answers: bool, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(f"{CAUGHT}{reports}\nsys.exit(main())\n")
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    cause = "cause: " + CAUSE.format("program.py")
    assert (ended.returncode, ended.stdout.splitlines()[:1]) == (code, [cause] if answers else [])


def test_an_exit_that_no_exception_caused_has_no_cause(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import argparse, torch\nargparse.ArgumentParser().parse_args(['--no'])\n")
    ended = dispatchlab_started(tmp_path, "why", "program.py")
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("AttributeError: 'NoneType' object has no attribute 'norm'", "cannot tell from the text: "),
        ("RecursionError: maximum recursion depth exceeded", "cannot tell from the text: "),
        ("AssertionError", "cannot tell from the text: "),
        ("KeyError: torch.float16", "cannot tell from the text: "),
        ("AttributeError: module 'boxes' has no attribute 'area'", "not the dispatcher: "),
        ("ZeroDivisionError: division by zero", "not the dispatcher: "),
    ],
)
def test_a_text_that_cannot_decide_says_so(error: str, told: str) -> None:
    text = (
        f'Traceback (most recent call last):\n  File "/x/train.py", line 6, in <module>\n    assert area()\n{error}\n'
    )
    answer = why_text(text)
    assert answer.code == ("" if told.startswith("cannot tell") else "WHY919")
    assert answer.cause.startswith(told)
    assert ("run the program: dispatchlab why PROGRAM.py" in str(answer.fixes)) == told.startswith("cannot")


def test_a_number_has_no_cause() -> None:
    with pytest.raises(TypeError, match="pass an exception, or the text of a traceback, not 42"):
        why(42)  # type: ignore[arg-type]


def test_what_cannot_be_run_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    for arguments in ["why"], ["why", "-m"], ["why", "nothing.py"], ["why", "--text", "nothing.txt"]:
        ended = dispatchlab_started(tmp_path, *arguments)
        assert (ended.returncode, ended.stdout) == (2, ""), ended
        assert "Traceback" not in ended.stderr


DTENSOR = """
import torch
from torch.distributed import init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
x = distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (2,)), [Shard(0)])
x + torch.ones(4, 2)
"""
NO_TORCH = """
from torch import library, ones, ops

lib = library.Library("boxes", "DEF")
lib.define("area(Tensor x, Tensor y) -> Tensor")
lib.impl("area", lambda x, y: x * y, "CPU")
ops.boxes.area(ones(2), 3.0)
"""


@pytest.mark.parametrize("program", [DTENSOR, NO_TORCH])
def test_a_fix_that_was_tried_runs_as_it_is_printed(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    found = json.loads(dispatchlab_started(tmp_path, "why", "--format", "json", "program.py").stdout)
    fix = next(each["fix"]["text"] for each in found["fixes"] if each["outcome"] == "works")
    head, failing, _ = program.rpartition(program.splitlines()[-1])
    assert failing in fix or "torch.as_tensor(3.0)" in fix
    (tmp_path / "program.py").write_text(f"{head}{fix}\n")
    ended = run(tmp_path, "program.py")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_pytest_shows_a_cause_once(tmp_path: Path) -> None:
    tests = "".join(f"def test_{name}():\n    {CALL}\n" for name in ("one", "two"))
    (tmp_path / "test_boxes.py").write_text(MISSING + tests)
    ended = run(
        tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN_OPTIONS, "--why", "--tb=line", "test_boxes.py"
    )
    assert ended.stdout.count("cause: " + CAUSE.format("test_boxes.py")) == 1
    assert CAUSE.format("test_boxes.py") + " (see test_boxes.py::test_one)" in ended.stdout


MODE = """\
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Log(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

def test_mode():
    with Log():
        torch.ones(2) + 1

"""


@pytest.mark.parametrize(
    ("line", "seen", "cause"),
    [
        ("", "'box'", "WHY919"),
        ("with Log(): torch.ones(2) + 1", "'box'", "WHY919"),
        ("with Log() as log: torch.ones(2) + 1", "log", "WHY811"),
    ],
)
def test_pytest_explains_a_test_by_the_mode_that_it_asserts_about(
    line: str, seen: str, cause: str, tmp_path: Path
) -> None:
    (tmp_path / "test_modes.py").write_text(f"{MODE}def test_names():\n    {line}\n    assert 'matmul' in [{seen}]\n")
    options = ("-p", "no:cacheprovider", *PLUGIN_OPTIONS, "--why", "--tb=line", "test_modes.py")
    assert f"dispatchlab why: {cause}" in run(tmp_path, "-m", "pytest", *options).stdout


WRITES = """\
import torch

@torch.library.custom_op("boxes::grow", mutates_args=())
def grow(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1).clone()

def test_sizes():
    for size in range(1, 6):
        assert grow(torch.ones(size)).numel() == size

def test_keeps_its_input():
    x = torch.ones(2)
    grow(x)
    assert x.sum() == 2
"""


def test_pytest_sees_a_write_after_the_calls_of_another_test(tmp_path: Path) -> None:
    (tmp_path / "test_grow.py").write_text(WRITES)
    options = ("-p", "no:cacheprovider", *PLUGIN_OPTIONS, "--why", "--tb=line", "test_grow.py")
    assert "dispatchlab why: WHY421" in run(tmp_path, "-m", "pytest", *options).stdout


def test_python_asks_about_an_exception(tmp_path: Path) -> None:
    asks = "\ntry:\n    " + CALL + "except Exception as error:\n    print(repr(dispatchlab.why(error)))\n"
    head = "import dispatchlab\ndispatchlab.watch_exceptions()\n"
    (tmp_path / "program.py").write_text(head + MISSING.lstrip() + asks + CALL)
    ended = run(tmp_path, "program.py")
    assert ended.returncode == 1
    assert ended.stdout == f"<Result: {CAUSE.format('program.py').replace(':6)', ':7)')}>\n"
    assert ended.stderr.rstrip().endswith(
        "WHY306 an operator without a kernel for a backend; more: dispatchlab rule WHY306"
    )


COMPARES = """\
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Count(TorchDispatchMode):
    sums = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.sums += func == torch.ops.aten.sum
        return func(*args, **(kwargs or {}))

def test_count():
    with Count() as count:
        torch.ones(2).sum()
    assert count.sums == 1

"""


def test_a_cause_in_the_source_is_found_through_every_door(tmp_path: Path) -> None:
    (tmp_path / "test_count.py").write_text(COMPARES + "if __name__ == '__main__':\n    test_count()\n")
    options = ("-p", "no:cacheprovider", *PLUGIN_OPTIONS, "--why", "--tb=line", "test_count.py")
    assert "dispatchlab why: WHY820" in run(tmp_path, "-m", "pytest", *options).stdout
    (tmp_path / "hook.py").write_text(f"import dispatchlab\ndispatchlab.watch_exceptions()\n{COMPARES}test_count()\n")
    assert "WHY820 a comparison" in run(tmp_path, "hook.py").stderr
    assert "WHY820 a comparison" in dispatchlab_started(tmp_path, "why", "test_count.py").stdout


def test_threads_and_sitecustomize_show_a_cause_once(tmp_path: Path) -> None:
    turn_on = "import dispatchlab\ndispatchlab.watch_exceptions()\n"
    (tmp_path / "sitecustomize.py").write_text(turn_on)
    (tmp_path / "program.py").write_text(turn_on + MISSING + "import threading\ndef work():\n    " + CALL)
    with (tmp_path / "program.py").open("a") as program:
        program.write("thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    command = [sys.executable, "program.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0
    assert ended.stderr.count("\ncause: ") == 1
    assert ended.stderr.rstrip().endswith(
        "WHY306 an operator without a kernel for a backend; more: dispatchlab rule WHY306"
    )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_pasted_text_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"*__import__('pathlib').Path('{mark}').touch()or"
    answer = why_text(f"TypeError: unsupported operand type(s) for {code}: 'Meters' and 'int'\n")
    assert answer.code == "WHY801"
    assert not mark.exists()


OF_PYTEST = {
    "short": """
tests/test_x.py:4: in test_one
    assert area(torch.ones(2))
/lib/site-packages/torch/_ops.py:1275: in __call__
    return self._op(*args, **kwargs)
E   MESSAGE
E
E   CUDA: registered at boxes.cu:5 [kernel]
""",
    "long": """
    def test_one():
>       assert area(torch.ones(2))

tests/test_x.py:4:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def __call__(self, /, *args, **kwargs):
>       return self._op(*args, **kwargs)
               ^^^^^^^^^^^^^^^^^^^^^^^^^
E       MESSAGE
E
E       CUDA: registered at boxes.cu:5 [kernel]

/lib/site-packages/torch/_ops.py:1275: NotImplementedError
""",
    "line": """
E   MESSAGE

    CUDA: registered at boxes.cu:5 [kernel]
tests/test_x.py:4: MESSAGE
E   assert 1 == 2
tests/test_x.py:9: assert 1 == 2
""",
}


@pytest.mark.parametrize("style", OF_PYTEST)
def test_a_report_of_pytest_has_the_line_of_the_test(style: str) -> None:
    text = COULD_NOT_RUN.replace("CUDA", "CPU").format("boxes::area").strip()
    message = f"{text} 'boxes::area' is only available for these backends: [CUDA]."
    summary = "=== short test summary info ===\nFAILED tests/test_x.py::test_one - NotImplementedError: Could not ...\n"
    answer = why_text(f"=== FAILURES ===\n___ test_one ___\n{OF_PYTEST[style]}{summary}".replace("MESSAGE", message))
    has = "PyTorch lists kernels for CUDA" if style == "line" else "it has kernels for CUDA (boxes.cu:5)"
    assert answer.cause == f"boxes::area has no kernel for CPU: {has}"
    assert answer.at is not None
    assert str(answer.at) == "tests/test_x.py:4"
    assert answer.at.text == ("" if style == "line" else "assert area(torch.ones(2))")
    assert answer.evidence[-1:] == (("and 1 more error in this text",) if style == "line" else ())


def test_the_summary_of_pytest_alone_is_explained() -> None:
    error = COULD_NOT_RUN.format("boxes::area").strip()
    answer = why_text(f"FAILED tests/test_x.py::test_one - {error}\nFAILED tests/test_x.py::test_two - KeyError: 'a'\n")
    assert (answer.code, answer.error.partition(": ")[0]) == ("WHY306", "NotImplementedError")
    assert answer.fixes[1].fix.text == (
        "or, if a package that you installed has it, install the build of the package with CUDA"
    )
    assert answer.evidence == ("and 1 more error in this text",)
