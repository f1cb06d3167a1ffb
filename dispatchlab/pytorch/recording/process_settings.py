"""How the process is set: what kernels read beside their arguments, as texts that two processes compare."""

from __future__ import annotations

import gc
import itertools
import linecache
import os
import random
import re
import signal
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from dispatchlab.model.keys import AUTOCAST_KEY_OF_BACKEND, DEVICE_OF_BACKEND
from dispatchlab.pytorch.bridge.torch import bindings, torch
from dispatchlab.pytorch.introspection.function_content import digest
from dispatchlab.pytorch.recording.state_kind import Kind


def settings() -> Iterator[tuple[str, str]]:
    """What kernels read of the process beside their arguments."""
    c, module = bindings(), torch()
    for name in _SETTINGS:
        function = getattr(c, name, None) or getattr(module, name, None)
        if function is not None:
            with suppress(RuntimeError, TypeError, AssertionError), warnings.catch_warnings(action="ignore"):
                yield f"{Kind.SETTING}{name}", str(function())  # some are deprecated
    for function in _getters():
        with suppress(RuntimeError, TypeError, AssertionError), warnings.catch_warnings(action="ignore"):
            value = function()
            if isinstance(value, bool | int | str | tuple | list | module.dtype | None):
                yield f"{Kind.SETTING}{function.__name__}", str(value)
    for backend in AUTOCAST_KEY_OF_BACKEND:
        device = c._get_privateuse1_backend_name() if backend == "PrivateUse1" else DEVICE_OF_BACKEND[backend]
        with suppress(RuntimeError, TypeError, AttributeError):
            yield f"{Kind.SETTING}autocast of {device}", f"{module.is_autocast_enabled(device)}"
            yield f"{Kind.SETTING}type of autocast of {device}", f"{module.get_autocast_dtype(device)}"
    for backend in ("generic", "cuda", "mkldnn"):
        for operation in ("all", "matmul", "conv", "rnn"):
            with suppress(RuntimeError, AttributeError):
                precision = c._get_fp32_precision_getter(backend, operation)
                yield f"{Kind.SETTING}fp32_precision of {backend} {operation}", str(precision)
    yield f"{Kind.RNG}torch", digest(str(module.get_rng_state().tolist()))
    yield f"{Kind.RNG}Python", digest(str(random.getstate()))
    if "numpy" in sys.modules:
        yield f"{Kind.RNG}numpy", digest(str(sys.modules["numpy"].random.get_state()))
    for backend in ("cudnn", "mkldnn", "mkl", "cuda", "mps", "opt_einsum"):
        flags = getattr(module.backends, backend, None)
        for flag in ("enabled", "deterministic", "benchmark", "allow_tf32", "strategy"):
            with suppress(Exception):
                value = getattr(flags, flag)
                if isinstance(value, bool | str):
                    yield f"{Kind.SETTING}torch.backends.{backend}.{flag}", str(value)
    for name in _CONFIGS:
        config = sys.modules.get(name)
        with suppress(Exception):
            for field, entry in list(getattr(config, "_config", {}).items()):
                value = getattr(entry, "user_override", entry)
                value = value.get(None) if isinstance(value, ContextVar) else value
                if isinstance(value, bool | int | float | str | tuple | list | None):
                    yield f"{Kind.SETTING}{name}.{field}", repr(value)[:200]
    kinds = [type(mode) for mode in _modes()]
    yield f"{Kind.SETTING}modes", ", ".join(f"{kind.__module__}:{kind.__qualname__}" for kind in kinds)
    yield from ((f"{Kind.ENVIRONMENT}{name}", value) for name, value in list(os.environ.items()))
    for name, shown in _OF_PROCESS.items():
        with suppress(Exception):
            yield f"{Kind.PROCESS}{name}", str(shown())


def thread_state() -> Iterator[tuple[str, object]]:
    """What the bindings keep of a thread: modes, and the hooks of tensors that are saved."""
    yield from ((f"{Kind.SETTING}mode {at}", mode) for at, mode in enumerate(_modes()))
    with suppress(AttributeError, RuntimeError, TypeError):
        yield (
            f"{Kind.SETTING}hooks of saved tensors",
            bindings()._autograd._top_saved_tensors_default_hooks(*_EVEN_IF_OFF),
        )


_EVEN_IF_OFF: Final = (True,)  # an argument that has no name


def _modes() -> tuple[Any, ...]:
    modes = sys.modules["torch.utils._python_dispatch"]._get_current_dispatch_mode_stack()
    functions = sys.modules["torch.overrides"]._get_current_function_mode_stack()
    return (*functions, *modes)


def _filters_of_warnings() -> list[str]:
    """The filters of warnings, and which of two with other actions comes first where one warning may meet both."""
    filters = [(_filter_text(one), one) for one in warnings.filters]
    pairs = itertools.combinations(filters, 2)
    order = (f"{text} before {later}" for (text, one), (later, other) in pairs if _may_meet(one, other))
    return sorted([*(text for text, _ in filters), *order])


def _filter_text(one: Sequence[Any]) -> str:
    action, message, category, module, line = one
    return f"{action} {_pattern(message)} {name_of(category)} {_pattern(module)} {line}"


def _pattern(value: Any) -> str:
    return str(getattr(value, "pattern", value) or "")


def _may_meet(one: Sequence[Any], other: Sequence[Any]) -> bool:
    if one[0] == other[0] or not (issubclass(one[2], other[2]) or issubclass(other[2], one[2])):
        return False
    begins = [[_LITERAL.match(_pattern(each[at]).lower())[0] for at in (1, 3)] for each in (one, other)]  # type: ignore[index]
    return all(left.startswith(right) or right.startswith(left) for left, right in zip(*begins, strict=True))


_LITERAL: Final = re.compile(r"[\w ,']*")
"""What a pattern begins with that only stands for itself."""


def _umask() -> int:
    found = os.umask(0o77)
    os.umask(found)
    return found


def _handler(number: int) -> str:
    return name_of(signal.getsignal(number))


def name_of(function: object) -> str:
    """What a function or a class is called, with its module."""
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', function)}"


ASKED_BY_NAME: Final[Mapping[str, Callable[[], object]]] = {
    "onceregistry": lambda: vars(warnings)["onceregistry"],
    "get_overloads": lambda: {name: dict(own) for name, own in vars(typing)["_overload_registry"].items()},
    "getline": lambda: {name: lines for name, lines in linecache.cache.items() if not os.path.exists(name)},
}
"""What is read where code names something that it is asked through."""
_OF_DIALECTS: Final = ("delimiter", "quotechar", "escapechar", "doublequote", "lineterminator", "quoting")


def _loaded(module: str) -> Any:
    """A module that is loaded; raises KeyError otherwise."""
    return sys.modules[module]


_OF_PROCESS: Final[Mapping[str, Callable[[], object]]] = {
    "mask of new files": _umask,
    "thresholds of the garbage collector": gc.get_threshold,
    "timeout of sockets": lambda: _loaded("socket").getdefaulttimeout(),
    "limits": lambda: [
        _loaded("resource").getrlimit(number)
        for name, number in sorted(vars(_loaded("resource")).items())
        if name.startswith("RLIMIT_")
    ],
    "errors of numpy": lambda: _loaded("numpy").geterr(),
    "locale": lambda: _loaded("locale").setlocale(_loaded("locale").LC_ALL, None),
    "context of decimal": lambda: _loaded("decimal").getcontext(),
    "recursion limit": sys.getrecursionlimit,
    "interval of threads": sys.getswitchinterval,
    "handlers of signals": lambda: [_handler(number) for number in sorted(signal.valid_signals())],
    "denormal numbers": lambda: (torch().full((8,), 1e-45) * 1).tolist(),
    "folder": os.getcwd,
    "garbage collector": gc.isenabled,
    "longest number": sys.get_int_max_str_digits,
    "flags of dlopen": sys.getdlopenflags,
    "functions of tracing": lambda: [name_of(each) for each in (sys.gettrace(), sys.getprofile())],
    "hooks of generators": lambda: [name_of(each) for each in sys.get_asyncgen_hooks()],
    "depth of coroutines": sys.get_coroutine_origin_tracking_depth,
    "timers": lambda: [signal.getitimer(timer)[1] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
    "blocked signals": lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "processors": lambda: sorted(os.sched_getaffinity(0)),
    "dialects of csv": lambda: [
        (name, *(getattr(_loaded("csv").get_dialect(name), each) for each in _OF_DIALECTS))
        for name in sorted(_loaded("csv").list_dialects())
    ],
    "largest field of csv": lambda: _loaded("csv").field_size_limit(),
    "filters of warnings": _filters_of_warnings,
    "faults are handled": lambda: _loaded("faulthandler").is_enabled(),
    "memory is traced": lambda: _loaded("tracemalloc").is_tracing(),
    "last error of C": lambda: _loaded("ctypes").get_errno(),
    "flags of the garbage collector": gc.get_debug,
    "default context of decimal": lambda: (_loaded("decimal").DefaultContext, _loaded("decimal").ExtendedContext),
    "tools of monitoring": lambda: [
        (tool, name, vars(sys)["monitoring"].get_events(tool))
        for tool in range(6)
        if (name := vars(sys)["monitoring"].get_tool(tool)) is not None
    ],
}
"""What kernels may ask the process for."""

_SETTINGS: Final = (
    *("_get_privateuse1_backend_name", "get_default_dtype", "get_default_device", "is_grad_enabled"),
    *("is_inference_mode_enabled", "are_deterministic_algorithms_enabled", "get_num_threads", "initial_seed"),
    *("is_deterministic_algorithms_warn_only_enabled", "get_float32_matmul_precision", "is_autocast_enabled"),
    *("is_autocast_cpu_enabled", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled"),
    *("_dispatch_tls_local_include_set", "_dispatch_tls_local_exclude_set", "_is_torch_function_enabled"),
    *("is_anomaly_enabled", "_get_warnAlways", "_get_deterministic_fill_uninitialized_memory"),
    *("_is_multithreading_enabled", "_get_linalg_preferred_backend", "is_flush_denormal"),
)
_GETTER: Final = re.compile(r"_?((get|is|jit_get|jit_can|debug_get|check|saved_tensors_hooks)_.*|.*_(enabled|allowed))")
_NO_SETTING: Final = re.compile(
    "cuda_|schema|nvfuser|_stats|exception|sequence|accelerator|upgrader|_stack$|tracing_state|value_trace|available"
)


@cache
def _getters() -> tuple[Callable[[], object], ...]:
    """The functions of the bindings that say how something is set, as their names tell."""
    c = bindings()
    spaces = [
        space for space in (c, getattr(c, "_functorch", None), getattr(c, "_autograd", None)) if space is not None
    ]
    functions = [
        function
        for space in spaces
        for name, function in vars(space).items()
        if _GETTER.fullmatch(name) and not _NO_SETTING.search(name) and name not in _SETTINGS
    ]
    return tuple(function for function in functions if callable(function) and not isinstance(function, type))


_CONFIGS: Final = (
    *("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.fx.experimental._config"),
    *("torch.compiler.config", "torch._export.config"),
)
