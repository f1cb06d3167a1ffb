"""`codegen --backend`: the code of a backend; the long test compares it with torchgen."""

from __future__ import annotations

import re

import pytest

from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.backend_files import kernel_class, registered_wrappers
from dispatchlab.codegen.read.backend_file import BackendFile, BackendFileError, read_backend_file
from dispatchlab.model.keys import DispatchKey

NATIVES = """
- func: twice(Tensor self, SymInt n=2) -> Tensor
  variants: function, method
  dispatch: {CPU: twice}
- func: twice_(Tensor(a!) self, SymInt n=2) -> Tensor(a!)
  variants: function, method
  dispatch: {CPU: twice_}
- func: twice.out(Tensor self, SymInt n=2, *, Tensor(a!) out) -> Tensor(a!)
  dispatch: {CPU: twice_out}
- func: made(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor
  dispatch: {CPU: made}
  autogen: made.out
- func: lists(Tensor[] self) -> Tensor[]
  dispatch: {CPU: lists}
- func: lists_(Tensor(a!)[] self) -> ()
  dispatch: {CPU: lists_}
  autogen: lists.out
- func: straight(Tensor input) -> Tensor
"""  # noqa: E501


def backend(text: str) -> BackendFile:
    head = "" if text.startswith("backend:") else "backend: PrivateUse1\ncpp_namespace: npu\n"
    return read_backend_file(f"{head}{text}\n", read_native_functions(NATIVES), file="npu.yaml")


def code(text: str) -> str:
    """What is generated, on one line."""
    found = backend(text)
    parts = (registered_wrappers(found, key) for key in found.keys)
    return " ".join(" ".join((kernel_class(found, read_native_functions(NATIVES)), *parts)).split())


def test_variants_without_a_kernel_copy_what_the_functional_kernel_returns() -> None:
    found = code("supported: [twice]")
    assert (
        "struct PrivateUse1NativeFunctions { static at::Tensor twice(const at::Tensor & self, int64_t n); };" in found
    )
    assert "return npu::PrivateUse1NativeFunctions::twice(self, n.guard_int(__FILE__, __LINE__));" in found
    assert (
        "= wrapper_PrivateUse1__twice(self, n); at::_copy_from(wrapper_PrivateUse1__twice__tmp, self); return" in found
    )
    assert "at::_copy_from_and_resize(wrapper_PrivateUse1_out_twice_out_tmp, out); return out;" in found
    assert re.findall(r'm\.impl\("(\S+)"', found) == ["twice", "twice.out", "twice_"]
    alone = code("supported: [twice]\nuse_out_as_primary: True\nsymint: [twice]\nclass_name: Kernels")
    assert re.findall(r'm\.impl\("(\S+)"', alone) == ["twice"]
    assert "return npu::Kernels::twice_symint(self, n);" in alone


def test_a_device_guard_comes_of_the_options_or_of_a_tensor() -> None:
    found = code("supported: [made, straight, twice.out]\ndevice_guard: True")
    assert "const DeviceGuard device_guard(device_or_default(device)); return" in found
    assert "wrapper_PrivateUse1__made(size, out.scalar_type(), out.layout(), out.device(), ::std::nullopt);" in found
    assert 'check_and_update_common_device(common_device, input, "wrapper_PrivateUse1__straight", "input"); ' in found
    assert "device_guard(device_of(input));" in found
    assert (
        '"wrapper_PrivateUse1_out_twice_out", "out"); c10::impl::check_and_update_common_device(common_device, self'
        in found
    )
    assert "device_guard(device_of(self));" in found
    assert "device" not in code("supported: [straight]")


def test_gradients_have_a_file_of_their_own() -> None:
    found = backend("supported: [twice]\nautograd: [straight]")
    assert found.keys == (DispatchKey.PrivateUse1, DispatchKey.AutogradPrivateUse1)
    at_autograd = registered_wrappers(found, DispatchKey.AutogradPrivateUse1)
    assert "TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {" in at_autograd
    assert "twice" not in at_autograd


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("supported: [twise]", "3:13: there is no native function 'twise'; did you mean twice?"),
        ("supported: [lists]", "3:13: no kernel of lists_ can be made of this one: it returns nothing; name lists_"),
        ("supported: [straight]\nsymint: [straight]", "4:10: straight takes no symbolic integer: "),
        ("supported: [straight]\nsymint: [twice]", "4:10: twice has no kernel; list it under `supported`"),
        ("supported: [twice]\nautograd: [twice_]", "4:12: twice_ is under `autograd`, and twice under `supported`; "),
        ("supported: []", "3:12: no operator has a kernel for PrivateUse1; list some under `supported`"),
        ("suported: [twice]", "3:1: 'suported' is not a field of a backend; did you mean supported?"),
        ("supported: twice", "3:12: expected a list of operators but found 'twice'"),
        ("supported: [twice]\ndevice_guard: maybe", "4:15: expected True or False but found 'maybe'"),
        ("supported: [twice]\nclass_name: a::B", "4:13: 'a::B' is not the name of a class"),
        ("backend: npu\ncpp_namespace: npu\nsupported: [twice]", "1:10: 'npu' is not a dispatch key; a device that"),
        ("backend: CPU\ncpp_namespace: npu\nsupported: [twice]", "1:10: PyTorch has kernels for CPU itself; "),
        ("backend: Meta\nsupported: [twice]", "1:1: `cpp_namespace` is missing in a backend; that is: "),
        ("backend: FPGA\ncpp_namespace: a::b::c\nsupported: [twice]", "2:16: 'a::b::c' is not a C++ namespace; "),
        ("backend: Tracer\ncpp_namespace: a\nautograd: [twice]\nsupported: [made]", "3:11: there is no key Autograd"),
        ("backend: [", "2:1: this is not YAML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(BackendFileError) as caught:
        backend(text)
    assert str(caught.value).startswith(f"npu.yaml:{said}")
