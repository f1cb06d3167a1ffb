"""What PyTorch asks of a backend at PrivateUse1: parts, each with a small program that fails without it; run here."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from dispatchlab.errors import DispatchLabError
from dispatchlab.pytorch.bridge.torch import import_package, torch

# Note [The required parts]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# They are in an order in which the program of a part needs that part, and of the others none but some before it. That
# is measured: the backend in tests/live/cpp/npu.cpp runs all these programs, and with one part left out the program of
# that part is the first that fails. What no program was found to need is not listed, such as `isBuilt` of the hooks.


class Part(NamedTuple):
    """Something that PyTorch asks of a backend.

    Args:
        name: the operator of a kernel, the key of a fallback, or what has another name in PyTorch; `{}` is the device.
        use: what needs it.
        program: Python that fails without it; `D` is the name of the device.
    """

    name: str
    use: str
    program: str


class PartFound(NamedTuple):
    """A part of a backend after its program ran.

    Args:
        part: the part, with the name of the device.
        error: what its program raised; empty when it came to its end.
    """

    part: Part
    error: str


class NoBackendError(DispatchLabError):
    """A package that should bring a device brings none."""

    package: str

    template = (
        "importing {package} brings no device at PrivateUse1: it gives PrivateUse1 no name and registers no hooks; "
        "name the package that a user of the device imports"
    )


_X = "x = torch.ones(2, 3).to(D)\n"
_HOOKS = "PrivateUse1HooksInterface::"
_FORK_RNG = "with torch.random.fork_rng(device_type=D): pass"

PARTS = (
    Part("torch.{}", "the module of the device: whatever makes a tensor", "torch.get_device_module(D)"),
    Part("torch.{}.is_available", "torch.accelerator", "torch.accelerator.is_available()"),
    Part("torch.{}.device_count", "torch.accelerator, torch.load", "torch.accelerator.device_count()"),
    Part(f"{_HOOKS}isAvailable", "being the accelerator", "assert torch._C._get_accelerator().type == D"),
    Part("a device guard", "copies, torch.accelerator", "torch.accelerator.current_device_index()"),
    Part("aten::empty.memory_format", "factories", "torch.empty(2, device=D)"),
    Part("aten::empty_strided", "copies and results", "torch.empty_strided((2,), (1,), device=D)"),
    Part("aten::_copy_from", "copies", "assert torch.ones(2).to(D).cpu().sum() == 2"),
    Part("aten::_local_scalar_dense", "numbers of tensors", "assert torch.ones(()).to(D).item() == 1"),
    Part("aten::view", "views", f"{_X}assert x.view(3, 2).data_ptr() == x.data_ptr(), 'the view is a copy'"),
    Part("aten::as_strided", "views", f"{_X}assert x.t().data_ptr() == x.data_ptr(), 'the view is a copy'"),
    Part("aten::resize_", "outputs that grow", "assert torch.empty(0, device=D).resize_(3).shape == (3,)"),
    Part(
        "aten::_copy_from_and_resize",
        "outputs of a fallback to the CPU, where there is one",
        f"{_X}if torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.PrivateUse1): x.erfinv_()",
    ),
    Part("an allocator", "storages", "assert torch.UntypedStorage(3, device=D).nbytes() == 3"),
    Part(
        "aten::set_.source_Storage_storage_offset",
        "deepcopy, torch.load",
        f"{_X}torch.empty(0, device=D).set_(x.untyped_storage(), 0, (3, 2), (2, 1))",
    ),
    Part("aten::set_.source_Storage", "copies of storages", f"{_X}x.untyped_storage().clone()"),
    Part(f"{_HOOKS}resizePrivateUse1Bytes", "storages that grow, FSDP", f"{_X}x.untyped_storage().resize_(99)"),
    Part(
        f"{_HOOKS}hasPrimaryContext",
        "backward",
        f"{_X}x.requires_grad_()\nx.view(6).backward(torch.ones(6).to(D))\nassert x.grad is not None",
    ),
    Part(f"{_HOOKS}getNewGenerator", "generators", "assert torch.Generator(D).device.type == D"),
    Part(f"{_HOOKS}getPinnedMemoryAllocator", "pinned memory, DataLoader", "torch.ones(2).pin_memory()"),
    Part(
        "torch.{0}.manual_seed_all and torch.{0}._is_in_bad_fork",
        "torch.manual_seed",
        "import warnings\nwarnings.simplefilter('error')\ntorch.manual_seed(1)",
    ),
    Part("torch.{0}.get_rng_state and torch.{0}.set_rng_state", "fork_rng", _FORK_RNG),
    Part("torch.{}.get_amp_supported_dtype", "autocast", "with torch.autocast(D, torch.bfloat16): pass"),
    Part("AutocastPrivateUse1", "autocast", f"{_X}with torch.autocast(D, torch.bfloat16): x.view(3, 2)"),
    Part(
        "generate_methods_for_privateuse1_backend",
        "methods of tensors and modules",
        "assert getattr(getattr(torch.nn.ReLU(), D)(), 'training') and getattr(torch.ones(2), 'is_' + D) is False",
    ),
)
"""What PyTorch asks of a backend. See Note [The required parts]."""


def check_backend(package: str, seconds: float) -> tuple[str, str, tuple[PartFound, ...]]:
    """Import the package of a backend, and run the program of each part in a copy of this process.

    Args:
        package: what a user of the device imports.
        seconds: how long one program may take.

    Returns:
        The name of the device, the version of PyTorch, and the parts.

    Raises:
        ImportFailedError: the package cannot be imported.
        NoBackendError: it brings no device.
    """
    module: Any = torch()
    import_package(package)
    device = str(module._C._get_privateuse1_backend_name())
    found = []
    if device == "privateuseone" and raised("torch._C._get_accelerator()\nassert torch.Generator(D)", seconds, device):
        raise NoBackendError(package)
    for part in PARTS:
        named = part._replace(name=part.name.format(device))
        found.append(PartFound(named, raised(part.program, seconds, device)))
    return device, str(module.__version__), tuple(found)


def run_programs(sources: Sequence[str], seconds: float) -> tuple[str, list[str]]:
    """Run programs, each in a copy of this process.

    Args:
        sources: the programs.
        seconds: how long one may take.

    Returns:
        The version of PyTorch, and what each program raised; empty where it came to its end.
    """
    return str(torch().__version__), [raised(source, seconds) for source in sources]


def raised(program: str, seconds: float, device: str = "") -> str:
    """What a program raises in a copy of this process; empty when it comes to its end."""
    inward, outward = os.pipe()
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            silent = os.open(os.devnull, os.O_RDWR)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            exec(compile(program, "<program>", "exec"), {"torch": torch(), "D": device})
            os.write(outward, b"-")
        except BaseException as error:
            os.write(outward, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(0)
    os.close(outward)
    with os.fdopen(inward, "rb") as file:
        ready, _, _ = select.select([inward], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        said = file.read().decode(errors="replace")
    if not ready:
        return f"it did not end within {seconds:g} s"
    if os.WIFSIGNALED(status):
        return f"it ended the process with {signal.Signals(os.WTERMSIG(status)).name}"
    return "" if said == "-" else said or "it ended the process"
