"""What looks like the dispatcher and is not: it is named, and what it rather is."""

from __future__ import annotations

from dispatchlab.model.failure import Failure, Fix
from dispatchlab.questions.why.cause import Explanation, cause


@cause("WHY901", "a choice of attention backends", wrong="a kernel for CPU", dispatcher=False)
def attention_backends(failure: Failure) -> Explanation | None:
    """Recognise an attention call for which sdpa_kernel leaves no backend."""
    if (
        failure.search(
            r"No viable backend for scaled_dot_product_attention was found|No available kernel\. Aborting execution"
        )
        is None
    ):
        return None
    at = next((frame for frame in failure.frames if "sdpa_kernel" in frame.text), None)
    where = f" at {at}" if at else ""
    return Explanation(
        f"sdpa_kernel{where} leaves no SDPBackend that takes these inputs: attention's own selection "
        "inside of one kernel",
        (Fix(text="sdpa_kernel([..., SDPBackend.MATH])  # or remove the context manager"),),
    )


@cause("WHY902", "a meta tensor without data", wrong="register_fake", dispatcher=False)
def meta_without_data(failure: Failure) -> Explanation | None:
    """Recognise a copy out of a meta tensor."""
    if failure.search(r"Cannot copy out of meta tensor; no data") is None:
        return None
    return Explanation(
        "a tensor on the device meta has no data to copy",
        (Fix(text="module.to_empty(device=...), then load or initialise the weights"),),
    )


@cause("WHY903", "out= with gradients", wrong="register_autograd", dispatcher=False)
def out_with_gradients(failure: Failure) -> Explanation | None:
    """Recognise an out= call whose arguments require gradients."""
    found = failure.search(r"(\w+)\(\): functions with out=\.\.\. arguments don't support automatic differentiation")
    if found is None:
        return None
    return Explanation(
        f"torch.{found[1]} with out= does not record gradients, and an argument requires them",
        (Fix(text=f"y = torch.{found[1]}(...) without out=, or the call under torch.no_grad()"),),
    )


@cause("WHY904", "a lazy conjugate", wrong=".detach() or .cpu()")
def lazy_conjugate(failure: Failure) -> Explanation | None:
    """Recognise numpy() of a tensor whose conjugate or negative bit is set."""
    found = failure.search(r"Can't call numpy\(\) on Tensor that has (conjugate|negative) bit set")
    if found is None:
        return None
    resolve = "resolve_conj" if found[1] == "conjugate" else "resolve_neg"
    return Explanation(
        f"the tensor has its {found[1]} bit set: torch.{'conj' if resolve == 'resolve_conj' else 'neg'} is "
        "lazy, a fallback resolves it in operators, and numpy() is none",
        (Fix(text=f"x.{resolve}().numpy()", code=""),),
    )


@cause("WHY905", "a library for another PyTorch", wrong="a kernel or a fake", dispatcher=False)
def undefined_symbol(failure: Failure) -> Explanation | None:
    """Recognise a shared library with a symbol that this PyTorch does not have."""
    found = failure.search(r"([\w./+-]*\.so[\w.]*): undefined symbol: (\w+)")
    if found is None:
        return None
    return Explanation(
        f"{found[1].rpartition('/')[2]} needs the symbol {found[2]} (undefined symbol): it was built for "
        "another version of PyTorch, or not linked",
        (Fix(text=f"rebuild or reinstall the extension for PyTorch {failure.registry.version}"),),
    )


@cause("WHY906", "a shared library that cannot be opened", wrong="a kernel or a fake", dispatcher=False)
def missing_library(failure: Failure) -> Explanation | None:
    """Recognise a library of the system that is missing."""
    found = failure.search(r"([\w./+-]+\.so[\w.]*): cannot open shared object file")
    if found is None:
        return None
    return Explanation(
        f"{found[1]} cannot be opened: a library that the extension needs is not on this machine",
        (Fix(text=f"install what provides {found[1].rpartition('/')[2]}, or add its folder to LD_LIBRARY_PATH"),),
    )


@cause("WHY907", "a dtype that a kernel does not implement", wrong="registering a kernel", dispatcher=False)
def dtype_not_implemented(failure: Failure) -> Explanation | None:
    """Recognise a kernel that has no code for a dtype."""
    found = failure.search(r'"(\w+)" not implemented for \'(\w+)\'')
    if found is None:
        return None
    return Explanation(
        f"the kernel {found[1]} ran and has no code for the dtype {found[2]}",
        (Fix(text="x.float()  # or another dtype that the kernel takes", wrap="{}.float()"),),
    )


@cause("WHY908", "shapes that do not fit", wrong="registering anything", dispatcher=False)
def shapes(failure: Failure) -> Explanation | None:
    """Recognise a shape error of a kernel."""
    found = failure.search(
        r"(mat1 and mat2 shapes cannot be multiplied[^\n]*|The size of tensor a [^\n]*|"
        r"shape '[^']+' is invalid for input[^\n]*|"
        r"Expected [^\n]* but got (?:input|tensor)[^\n]*size[^\n]*|size mismatch[^\n]*|"
        r"Sizes of tensors must match[^\n]*)"
    )
    if found is None:
        return None
    at = failure.at
    return Explanation(f"the kernel ran and the shapes do not fit{f' at {at}' if at else ''}: {found[1].strip()}")


@cause("WHY909", "tensors on two devices", wrong="registering a kernel", dispatcher=False)
def two_devices(failure: Failure) -> Explanation | None:
    """Recognise operands that are on different devices."""
    found = failure.search(
        r"Expected all tensors to be on the same device, but (?:found|got)[^\n]*?(\w+:?\d*) (?:and|"
        r",) ?[^\n]*?(\w+:?\d*)"
    )
    if found is None:
        return None
    return Explanation(
        "the kernel ran and its tensors are on different devices",
        (Fix(text="x.to(y.device)  # before the call"),),
    )


@cause("WHY910", "a leaf that is written in place", wrong="register_autograd", dispatcher=False)
def leaf_in_place(failure: Failure) -> Explanation | None:
    """Recognise an in-place write to a leaf that requires gradients, or to what backward needs."""
    found = failure.search(
        r"(a leaf Variable that requires grad is being used in an in-place operation|"
        r"one of the variables needed for gradient computation has been modified by an inplace operation|"
        r"a view of a leaf Variable that requires grad is being used in an in-place operation)"
    )
    if found is None:
        return None
    return Explanation(
        f"autograd refuses an in-place write: {found[1]}",
        (Fix(text="the call that returns a new tensor, or torch.no_grad() around the write"),),
    )
