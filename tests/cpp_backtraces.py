"""Real backtraces of PyTorch's operators, taken by gdb where the innermost function of a walk begins.

A release build has many frames inlined, and leaves those that end with a call of the next. The names of kernels that
are inlined in what wraps them are in the name of that.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dispatchlab.questions.native_functions.cpp_frames import Frame, Layer
from dispatchlab.questions.native_functions.walk_calls import Walk, walk_call

RECORDED = Path(__file__).parent / "data" / "codegen" / "backtraces-torch-2.13.json"


@dataclass(frozen=True, slots=True)
class Case:
    """One call: how `--walk` names it, how its arguments are described, and the call itself."""

    walked: str
    specs: tuple[str, ...]
    code: str

    def walk(self) -> Walk:
        """The frames that it should go through."""
        guarded = ("Autograd", "ADInplaceOrView") if self.code.startswith("inference") else ()
        return walk_call(self.walked, self.specs, exclude=guarded)


_UNARY = (
    *("abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "deg2rad", "digamma"),
    *("erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac", "i0", "isnan", "isinf", "isposinf", "isneginf"),
    *("isfinite", "lgamma", "log", "log10", "log1p", "log2", "logical_not", "logit", "nan_to_num", "neg", "positive"),
    *("rad2deg", "reciprocal", "relu", "round", "rsqrt", "selu", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc"),
    *("sinh", "sqrt", "square", "tan", "tanh", "trunc", "sum", "mean", "prod", "all", "any", "argmax", "argmin"),
    *("amax", "amin", "median", "clone", "celu", "bernoulli", "histc", "count_nonzero"),
    *("logsumexp", "argsort", "sort", "unique_consecutive", "flatten", "ravel", "isreal", "fix"),
)
_BINARY = (
    *("add", "sub", "mul", "div", "atan2", "maximum", "minimum", "fmod", "remainder", "eq", "ne", "lt", "le", "gt"),
    *("ge", "logaddexp", "logaddexp2", "hypot", "copysign", "nextafter", "pow", "logical_and", "logical_or"),
    *("logical_xor", "heaviside", "xlogy", "fmax", "fmin", "floor_divide", "dot", "outer", "dist", "isclose"),
    *("allclose", "equal", "kron", "inner", "float_power", "true_divide", "rsub", "ger", "vdot"),
)
_IN_PLACE = (
    *("abs_", "ceil_", "cos_", "exp_", "floor_", "neg_", "relu_", "round_", "sigmoid_", "sin_", "sqrt_", "tanh_"),
    *("zero_", "trunc_", "square_", "log1p_", "erf_"),
)
_IN_PLACE_OF_TWO = ("add_", "sub_", "mul_", "div_", "atan2_", "eq_", "fmod_", "pow_", "copysign_", "xlogy_")
_OUT = ("abs", "ceil", "cos", "exp", "log", "neg", "round", "sigmoid", "sin", "sqrt", "tanh", "isposinf", "erf")
_OUT_OF_TWO = ("add", "sub", "mul", "div", "maximum", "atan2", "fmod", "eq", "copysign")
_VIEWS = {
    **{"t": "M.t()", "view": "B.view(2, 1)", "transpose": "M.transpose(0, 1)", "unsqueeze": "B.unsqueeze(0)"},
    **{"expand": "B.expand(3, 2)", "permute": "M.permute(1, 0)", "select": "M.select(0, 1)", "detach": "B.detach()"},
    **{"diagonal": "M.diagonal()", "unfold": "B.unfold(0, 1, 1)", "as_strided": "B.as_strided((1,), (1,))"},
    **{"squeeze": "M.squeeze()", "narrow.": "B.narrow(0, 0, 1)", "reshape": "B.reshape(2, 1)", "unbind": "M.unbind()"},
    **{
        "clone": "B.clone()",
        "fill_.Scalar": "B.fill_(1.0)",
        "masked_fill_.Scalar": "B.masked_fill_(K, 1.0)",
        "mv": "M.mv(B)",
    },
    **{"index_select": "M.index_select(0, N)", "gather": "B.gather(0, N)", "var.correction": "B.var()"},
}
_FACTORIES = {
    **{"empty": "3", "zeros": "3", "ones": "3", "rand": "3", "randn": "3", "full": "(2,), 1.0", "eye": "2"},
    **{"linspace": "0, 1, 3", "logspace": "0, 1, 3", "randperm": "3", "empty_strided": "(2,), (1,)"},
    **{"hann_window": "3", "tril_indices": "2, 2"},
    **{f"{name}_like": "B" for name in ("empty", "zeros", "ones", "rand", "randn")},
}
_OTHERS = {
    **{"torch.mm": "torch.mm(M, M)", "torch.matmul": "torch.matmul(M, M)", "torch.addmm": "torch.addmm(M, M, M)"},
    **{"torch.bmm": "torch.bmm(T, T)", "torch.cat": "torch.cat([B, C])", "torch.stack": "torch.stack([B, C])"},
    **{
        "torch.where": "torch.where(K, B, C)",
        "torch.cumsum": "torch.cumsum(B, 0)",
        "torch.flip": "torch.flip(B, (0,))",
    },
    **{"torch.linalg.det": "torch.linalg.det(M)", "torch.linalg.inv": "torch.linalg.inv(M)"},
    **{"torch.special.erfcx": "torch.special.erfcx(B)", "torch.special.ndtri": "torch.special.ndtri(B)"},
    **{"torch.nn.functional.gelu": "torch.nn.functional.gelu(B)", "torch._C._nn.linear": "torch._C._nn.linear(M, M)"},
    **{"torch._C._nn.softplus": "torch._C._nn.softplus(B)", "torch.softmax": "torch.softmax(B, 0)"},
    **{"torch.triu": "torch.triu(M)", "torch.roll": "torch.roll(B, 1)", "torch.addcmul": "torch.addcmul(B, B, B)"},
    **{"torch.lerp": "torch.lerp(B, C, B)", "torch.clamp": "torch.clamp(B, 0.0)", "torch.topk": "torch.topk(B, 1)"},
}


def cases() -> Iterator[Case]:
    """Calls of more than 200 operators: functions, methods, out variants; plain, with gradients, in inference mode."""
    for name in _UNARY:
        yield Case(f"torch.{name}", (), f"torch.{name}({_REST.get(name, 'B')})")
    for name in _UNARY[::3]:
        yield Case(f"torch.{name}", ("cpu requires_grad",), f"torch.{name}({_REST.get(name, 'B').replace('B', 'G')})")
        yield Case(f"torch.{name}", ("inference",), f"inference(lambda: torch.{name}({_REST.get(name, 'B')}), 'B')")
    for name in _BINARY:
        yield Case(f"torch.{name}", (), f"torch.{name}(B, C)")
    for name in _BINARY[::4]:
        yield Case(f"torch.{name}", ("cpu", "cpu requires_grad"), f"torch.{name}(B, G)")
        yield Case(f"torch.{name}", ("inference", "inference"), f"inference(lambda: torch.{name}(B, C), 'BC')")
    for name in ("add", "mul", "sub"):
        yield Case(f"torch.{name}", ("sparse", "sparse"), f"torch.{name}(S, S)")
    for name in ("neg", "sin", "sqrt", "sum"):
        yield Case(f"torch.{name}", ("sparse",), f"torch.{name}(S)")
    for name in _IN_PLACE:
        yield Case(f"Tensor.{name}", (), f"B.{name}()")
    for name in _IN_PLACE[::4]:
        yield Case(f"Tensor.{name}", ("inference",), f"inference(lambda: B.{name}(), 'B')")
    for name in _IN_PLACE_OF_TWO:
        yield Case(f"Tensor.{name}", (), f"B.{name}(C)")
    for name in _OUT:
        yield Case(f"torch.{name}", ("out=cpu",), f"torch.{name}(B, out=O{'K' if name == 'isposinf' else ''})")
    for name in _OUT_OF_TWO:
        yield Case(f"torch.{name}", ("out=cpu",), f"torch.{name}(B, C, out=O{'K' if name == 'eq' else ''})")
    for name, code in _VIEWS.items():
        walked = f"aten::{name.rstrip('.')}" if "." in name else f"Tensor.{name}"
        yield Case(walked, (), code)
        if "_." not in name and "B." in code:
            yield Case(walked, ("cpu requires_grad",), code.replace("B", "G"))
            yield Case(walked, ("inference",), f"inference(lambda: {code}, 'B')")
    for name, rest in _FACTORIES.items():
        yield Case(
            f"aten::{name}" if name in ("linspace", "logspace") else f"torch.{name}", (), f"torch.{name}({rest})"
        )
    for name, code in _OTHERS.items():
        yield Case(name, ("cpu", "cpu", "cpu") if name == "torch.where" else (), code)


_REST = {"logsumexp": "B, 0", "histc": "B, 4"}

_PROGRAM = """
import json, sys, torch
B, C, M, T = torch.rand(2), torch.rand(2), torch.eye(2), torch.ones(1, 2, 2)
G, S, K, N = torch.rand(2, requires_grad=True), torch.eye(2).to_sparse(), torch.tensor([True, False]), torch.tensor([0])
O, OK = torch.empty(2), torch.empty(2, dtype=torch.bool)
def inference(function, names):
    held = {name: globals()[name] for name in names}
    with torch.inference_mode():
        for name in names:
            globals()[name] = held[name].clone()
        marked(function)
    globals().update(held)
def marked(function):
    print("CALL", flush=True)
    function()
    print("DONE", flush=True)
for at, code in enumerate(json.loads(sys.argv[1])):
    print(f"CASE {at}", flush=True)
    try:
        eval(code) if code.startswith("inference") else marked(lambda: eval(code))
    except Exception as error:
        print("FAILED", type(error).__name__, str(error).splitlines()[0], flush=True)
"""

_GDB = """
set pagination off
set confirm off
set breakpoint pending on
python
import gdb, json
class Stop(gdb.Breakpoint):
    def stop(self):
        frame, names = gdb.newest_frame(), []
        while frame is not None and len(names) < 40:
            names.append(frame.name() or "")
            if "THPVariable" in names[-1] or "_PyEval" in names[-1]:
                break
            frame = frame.older()
        print("STOP " + json.dumps(names), flush=True)
        return False
for name in json.loads(open(TARGETS).read()):
    Stop(name)
end
run
"""


def record(chosen: Sequence[Case], folder: Path) -> dict[str, list[str]]:
    """The names of the frames of each case, the outermost first, where it got to its function."""
    walks = {case: case.walk() for case in chosen}
    targets = sorted({target for walk in walks.values() for target in [innermost(walk)] if target})
    (folder / "targets.json").write_text(json.dumps(targets))
    (folder / "program.py").write_text(_PROGRAM)
    (folder / "script.gdb").write_text(_GDB.replace("TARGETS", repr(str(folder / "targets.json"))))
    gdb = shutil.which("gdb")
    assert gdb is not None
    ended = subprocess.run(
        [
            *(gdb, "-batch", "-nx", "-x", str(folder / "script.gdb"), "--args", sys.executable),
            *(str(folder / "program.py"), json.dumps([case.code for case in chosen])),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found: dict[str, list[str]] = {}
    at, inside = -1, False
    for line in ended.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "CASE":
            at = int(rest)
        elif kind in ("CALL", "DONE"):
            inside = kind == "CALL"
        elif kind == "FAILED":
            raise AssertionError(f"{chosen[at].code}: {rest}")
        elif kind == "STOP" and inside:
            names = [cpp_function(name) for name in reversed(json.loads(rest))]
            target = innermost(walks[chosen[at]])
            if names[-1] == target and names[0].startswith("torch::autograd::THPVariable"):
                found.setdefault(chosen[at].code, names)
    return found


def innermost(walk: Walk) -> str:
    """The function by hand in which a walk ends; empty when it ends elsewhere."""
    ends = [one for one in walk.frames if one.layer in (Layer.IMPL, Layer.NATIVE)]
    return ends[0].function if ends else ""


def cpp_function(name: str) -> str:
    """The name of a function without arguments; of what wraps a kernel, the name of that kernel."""
    name = re.sub(r"@plt$| \[clone [^\]]*\]", "", name).replace("(anonymous namespace)::", "")
    if "CompileTimeFunctionPointer<" in name:
        kernel = re.search(r"CompileTimeFunctionPointer<.*?, &?\(?&?((?:\w+::)+\w+)\)?>", name)
        pointers = re.findall(r"&\(?((?:\w+::)+\w+)", name)
        if pointers or kernel:
            return str(pointers[0] if pointers else kernel[1] if kernel else "")
    shown, depth = "", 0
    for character in name:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if depth == 0 and character not in "<>()":
            shown += character
    return shown.strip()


_SHOWN = (
    *(Layer.BINDING, Layer.AUTOGRAD, Layer.VIEWS_AND_WRITES, Layer.BACKEND_SELECT, Layer.WRAPPER),
    *(Layer.IMPL, Layer.NATIVE),
)


def walked_names(frames: Sequence[Frame]) -> list[str]:
    """The frames of a walk that a release build keeps, down to the function by hand."""
    names: list[str] = []
    for frame in frames:
        if "{lambda" in frame.function or (frame.layer not in _SHOWN and "::_ops::" not in frame.function):
            continue
        names.append(frame.function.replace("(anonymous namespace)::", ""))
        if frame.layer in (Layer.IMPL, Layer.NATIVE):
            break
    return names


def real_names(names: Sequence[str]) -> list[str]:
    """The frames of a backtrace, a kernel and what wraps it as one."""
    kernels = [name for name in names if not name.startswith("c10::")]
    return [name for at, name in enumerate(kernels) if at == 0 or kernels[at - 1] != name]


def difference(walk: Walk, recorded: Sequence[str]) -> str:
    """How a walk differs from a backtrace; empty when it does not.

    What returns a reference or a bool ends with the call of the next, so that a release build has no frame of it any
    more: there the backtrace may leave out frames. In all other functions the frames are the same, one by one.
    """
    mine, theirs = walked_names(walk.frames), real_names(recorded)
    returns = walk.function.schema.returns
    leaves_out = any((one.alias and one.alias.is_write) or str(one.type) == "bool" for one in returns)
    if mine == theirs:
        return ""
    waiting = iter(mine)
    if leaves_out and all(name in waiting for name in theirs) and any("::_ops::" in name for name in theirs):
        return ""
    return f"{walk.function.short_name}:\n  walk {mine}\n  real {theirs}"


def load() -> Mapping[str, list[str]]:
    """The recorded backtraces by the code of their case."""
    found: Mapping[str, list[str]] = json.loads(RECORDED.read_text())
    return found
