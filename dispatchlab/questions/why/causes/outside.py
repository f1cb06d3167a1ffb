"""What looks like the dispatcher and is not: it is named, and what it rather is."""

from __future__ import annotations

import builtins
import re
from typing import Final, TypeAlias

from dispatchlab.model.failure import Failure, Fix
from dispatchlab.questions.why.cause import Explanation, cause

Row: TypeAlias = tuple[str, str, str]
"""A pattern, what it says (with the groups of the pattern in braces), and the fix; an empty one where there is none."""


def _from_rows(failure: Failure, rows: tuple[Row, ...]) -> Explanation | None:
    """Return what the first row says whose pattern matches."""
    for pattern, sentence, fix in rows:
        found = failure.search(pattern)
        if found is not None:
            groups = [(group or "").strip() for group in (found[0], *found.groups())]
            at = f" ({failure.at}: `{failure.at.text}`)" if failure.at and failure.at.text else ""
            fixes = (_fix(fix.format(*groups)),) if fix else ()
            return Explanation(sentence.format(*groups) + at, fixes)
    return None


def _fix(text: str) -> Fix:
    """Return a fix: `wrap: <>.float()` is put around tensors, `word: OLD -> NEW` changes the call; both are tried."""
    kind, _, rest = text.partition(": ")
    if kind == "wrap":
        shown, _, note = rest.partition("  # ")
        return Fix(text=shown.replace("<>", "x") + (f"  # {note}" if note else ""), wrap=shown.replace("<>", "{}"))
    if kind == "word":
        old, _, new = rest.partition(" -> ")
        return Fix(text=f"x{new.partition('  # ')[0]}", old=old, new=new.partition("  # ")[0])
    return Fix(text=text)


_SHAPES: Final[tuple[Row, ...]] = (
    (
        r"view size is not compatible with input tensor's size and stride",
        "the tensor is not contiguous, so view() cannot give its memory another shape",
        "word: .view( -> .reshape(",
    ),
    (
        r"(?:Given groups=\d+, weight of size \[[^\]]*\], )?expected input\[[^\n]*\] "
        r"to have (\d+) channels, but got (\d+)",
        "the kernel ran and the shapes do not fit: {0}",
        "give the layer an input of {1} channels, or make the layer with in_channels={2}",
    ),
    (
        r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)",
        "the kernel ran and the shapes do not fit: {0}",
        "the last dimension of the first (here {2}) must be the first of the second (here {3}): in_features={2}",
    ),
    (
        r"(The size of tensor a [^\n]*|shape '[^']+' is invalid for input[^\n]*|Sizes of tensors must match[^\n]*|"
        r"The expanded size of the tensor [^\n]*|stack expects each tensor to be equal size[^\n]*|"
        r"size mismatch, [^\n]*|einsum\(\): [^\n]*|inconsistent tensor size[^\n]*|Given normalized_shape[^\n]*|"
        r"Calculated padded input size per channel[^\n]*|Expected input batch_size [^\n]*|"
        r"Expected size for first two dimensions of [^\n]*|batch1 must be a 3D[^\n]*|Dimension out of range[^\n]*|"
        r"output with shape [^\n]* doesn't match the broadcast shape[^\n]*|Expected [^\n]*\d-?D[^\n]*|"
        r"The shape of the mask [^\n]*|shape mismatch: [^\n]*|selected index k out of range|"
        r"input\.size\(-1\) must be equal to input_size[^\n]*|tensor\.mH is only supported[^\n]*|"
        r"embed_dim must be divisible by num_heads)",
        "the kernel ran and the shapes do not fit: {0}",
        "print the shapes before the call, and change them with reshape, transpose or unsqueeze",
    ),
    (
        r"Error\(s\) in loading state_dict for (\w+):\s*(.*)",
        "the checkpoint does not fit the model {1}: {2}",
        "load_state_dict(..., strict=False) leaves out keys; for other shapes build the model as the checkpoint's was",
    ),
)


@cause("WHY908", "shapes that do not fit", wrong="registering anything", dispatcher=False)
def shapes(failure: Failure) -> Explanation | None:
    """Recognise a shape error of a kernel."""
    return _from_rows(failure, _SHAPES)


_DTYPES: Final[tuple[Row, ...]] = (
    (
        r'"(\w+)" not implemented for \'(\w+)\'',
        "the kernel {1} ran and has no code for the dtype {2}",
        "wrap: <>.float()  # or another dtype that the kernel takes",
    ),
    (
        r"(?:expected m1 and m2 to have the same dtype, but got: |"
        r"mat1 and mat2 must have the same dtype, but got )([^\n]+)",
        "the kernel ran and its tensors have two dtypes: {1}",
        "cast one of them: x.to(weight.dtype), or model.to(x.dtype)",
    ),
    (
        r"(Input type \([^\n]* should be the same|Index put requires the source and destination dtypes match[^\n]*|"
        r"scatter\(\): Expected self\.dtype to be equal to src\.dtype|expected scalar type \w+ but found \w+|"
        r"Found dtype \w+ but expected \w+)",
        "the kernel ran and its tensors have two dtypes: {0}",
        "cast one of them: x.to(other.dtype)  # under autocast, too: results of linear and conv are bfloat16 or half",
    ),
    (
        r"(expected target dtype to be Long[^\n]*|tensors used as indices must be long[^\n]*|"
        r"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int[^\n;]*)",
        "the kernel ran and wants integers of the dtype Long: {0}",
        "indices.long()  # before the call",
    ),
    (
        r"result type (\w+) can't be cast to the desired output type (\w+)",
        "an in-place call or out= cannot keep {1} values in a tensor of the dtype {2}",
        "the call that returns a new tensor, such as x = x + y, or x.to(y.dtype) first",
    ),
    (
        r"(mean\(\): could not infer output dtype[^\n]*|Subtraction, the `-` operator[^\n]*|"
        r"only Tensors of floating point[^\n]*dtype can require gradients)",
        "the kernel has no code for this dtype: {0}",
        "wrap: <>.float()",
    ),
)


@cause("WHY907", "a dtype that a kernel does not take", wrong="registering a kernel", dispatcher=False)
def dtypes(failure: Failure) -> Explanation | None:
    """Recognise a kernel that has no code for a dtype, or gets two."""
    return _from_rows(failure, _DTYPES)


_DEVICES: Final[tuple[Row, ...]] = (
    (
        r"Cannot copy out of meta tensor; no data|(?:Tensor\.item\(\) cannot be called on meta|"
        r"can't convert meta device type) tensor",
        "a tensor on the device meta has a shape and no data to copy",
        "module.to_empty(device=...), then load or initialise the weights",
    ),
    (
        r"(Expected all tensors to be on the same device[^\n]*|Tensor on device \S+ is not on the expected device \S+|"
        r"Input type \(torch\.cuda\.\w+\) and weight type \(torch\.\w+\)[^\n]*)",
        "the operator has its kernels, and the tensors of one call are on different devices: {0}",
        "x.to(y.device)  # before the call; for a model: model.to(device)",
    ),
    (
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver on your system|"
        r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        "this PyTorch or this machine has no CUDA ({0})",
        'device = "cuda" if torch.cuda.is_available() else "cpu"; torch.load(..., map_location="cpu")',
    ),
    (
        r"((?:CUDA )?out of memory[^\n]*|DefaultCPUAllocator: (?:can't allocate|not enough) memory[^\n]*)",
        "the allocator has no memory left: {0}",
        "a smaller batch, torch.no_grad() for inference, or tensors freed before",
    ),
    (
        r"(CUDA error: [^\n]*|CUBLAS_STATUS_\w+|cuDNN error: \w+)",
        "a kernel of CUDA ran and failed: {0}",
        "CUDA_LAUNCH_BLOCKING=1 shows the call; an assert is mostly an index out of range: run it on the CPU",
    ),
)


@cause("WHY909", "devices and memory", wrong="registering a kernel or a fake", dispatcher=False)
def devices(failure: Failure) -> Explanation | None:
    """Recognise operands on two devices, no device, no memory, and meta tensors without data."""
    return _from_rows(failure, _DEVICES)


_VALUES: Final[tuple[Row, ...]] = (
    (
        r"(Target -?\d+ is out of bounds|index -?\d+ is out of bounds[^\n]*|index out of range in self|"
        r"(?:index_select|gather|scatter)\(\): (?:index|Index)[^\n]*out of[^\n]*|index \d+ out of range[^\n]*)",
        "the kernel ran and an index is out of bounds: {1}",
        "assert index.min() >= 0 and index.max() < size  # num_embeddings, classes, or the size of the dimension",
    ),
    (
        r"(Boolean value of Tensor with more than one value is ambiguous|a Tensor with \d+ elements cannot be \w+)",
        "a number is asked of a tensor that has several: {1}",
        "x.any(), x.all() or torch.where(condition, a, b); x[0].item() for one element",
    ),
    (
        r"(unsupported operation: (?:more than one|some) element[^\n.]*)",
        "an in-place write meets memory that is shared: {1}",
        "x.clone()  # before the write: an expanded or overlapping tensor has one memory for several elements",
    ),
    (
        r"((?:linalg|cholesky)[\w.]*: [^\n]*(?:singular|positive-def)[^\n]*|Function '\w+' returned nan[^\n]*)",
        "the kernel ran on values that it cannot take: {1}",
        "look at the values: torch.isfinite(x).all(), or add eps * torch.eye(n)",
    ),
    (
        r"\.numpy\(\) is not supported for tensor subclasses",
        "numpy() of a tensor subclass, which has no memory of its own",
        "the tensor that it holds: x.elem.numpy()",
    ),
    (
        r"(view_as_real doesn't work on unresolved conj|view is not supported for conjugate view tensors)",
        "the tensor has its conjugate bit set: torch.conj is lazy, and a view of its memory would not be conjugated",
        "wrap: <>.resolve_conj()",
    ),
)


@cause("WHY911", "values that a kernel cannot take", wrong="registering anything", dispatcher=False)
def values(failure: Failure) -> Explanation | None:
    """Recognise indices out of bounds, singular matrices, NaN and shared memory."""
    return _from_rows(failure, _VALUES)


_AUTOGRAD: Final[tuple[Row, ...]] = (
    (
        r"(\w+)\(\): functions with out=\.\.\. arguments don't support automatic differentiation",
        "torch.{1} with out= does not record gradients, and an argument requires them",
        "y = torch.{1}(...)  # without out=; or the call under torch.no_grad()",
    ),
    (
        r"(a (?:view of a )?leaf Variable that requires grad is being used in an in-place operation|"
        r"one of the variables needed for gradient computation has been modified by an inplace operation)",
        "autograd refuses an in-place write: {1}",
        "the call that returns a new tensor, such as x = x + 1; with torch.no_grad(): ... for a parameter's update",
    ),
    (
        r"Trying to backward through the graph a second time",
        "backward() ran twice over one graph, whose saved tensors were freed",
        "loss.backward(retain_graph=True)  # the first time; or compute the loss again, or detach() what is kept",
    ),
    (
        r"grad can be implicitly created only for scalar outputs|Expected f\(\*args\) to return a scalar Tensor",
        "the gradient of something that is no scalar is asked",
        "loss.sum().backward(), or backward(gradient=...); torch.func.vjp or jacrev for a vector",
    ),
    (
        r"Can't call numpy\(\) on Tensor that requires grad",
        "numpy() of a tensor that requires gradients",
        "word: .numpy( -> .detach().numpy(",
    ),
    (
        r"One of the differentiated Tensors appears to not have been used|appears to not have been used in the graph",
        "autograd.grad is asked for a tensor that the result does not depend on",
        "torch.autograd.grad(..., allow_unused=True)  # gives None for it",
    ),
    (
        r"element 0 of tensors does not require grad and does not have a grad_fn",
        "no tensor that the loss is made of requires gradients",
        "x.requires_grad_() for an input, and no detach(), .data or torch.no_grad() on the way",
    ),
    (
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
        "deepcopy of a tensor that has a grad_fn",
        "x.detach().clone()  # keep this in the module, or a Parameter",
    ),
    (
        r"cannot resize variables that require grad",
        "resize_() of a tensor that requires gradients",
        "a new tensor: torch.empty(size), or x.detach().resize_(size)",
    ),
)


@cause("WHY910", "how autograd is used", wrong="register_autograd", dispatcher=False)
def autograd(failure: Failure) -> Explanation | None:
    """Recognise what autograd refuses of a program, where every operator has its formula."""
    leaf = any("that is not a leaf Tensor is being accessed" in event.detail for event in failure.of("warning"))
    if (
        leaf
        and failure.kinds & {"AssertionError", "TypeError", "AttributeError"}
        and "grad" in failure.text + at_of(failure)
    ):
        return Explanation(
            f".grad of a tensor that is no leaf is None ({failure.at}: `{at_of(failure)}`)",
            (Fix(text="x.retain_grad()  # before backward; or ask the leaf: x = torch.ones(2, requires_grad=True)"),),
        )
    return _from_rows(failure, _AUTOGRAD)


def at_of(failure: Failure) -> str:
    """Return the text of the line that failed."""
    return failure.at.text if failure.at else ""


@cause("WHY904", "a lazy conjugate", wrong=".detach() or .cpu()")
def lazy_conjugate(failure: Failure) -> Explanation | None:
    """Recognise numpy() of a tensor whose conjugate or negative bit is set."""
    found = failure.search(r"Can't call numpy\(\) on Tensor that has (conjugate|negative) bit set")
    if found is None:
        return None
    resolve = "resolve_conj" if found[1] == "conjugate" else "resolve_neg"
    lazy = "torch.conj" if found[1] == "conjugate" else "the imaginary part of a conjugate (a lazy torch.neg)"
    return Explanation(
        f"the tensor has its {found[1]} bit set: {lazy} is a view that only operators resolve (by the "
        f"{found[1].capitalize()} fallback), and numpy() is none",
        (Fix(text=f"x.{resolve}().numpy()", old=".numpy(", new=f".{resolve}().numpy("),),
    )


_LIBRARIES: Final[tuple[Row, ...]] = (
    (
        r"([\w./+-]*\.so[\w.]*): undefined symbol: (\w+)",
        "{1} needs the symbol {2} (undefined symbol): it was built for another version of PyTorch, or not linked",
        "rebuild or reinstall the extension for this PyTorch: pip install --no-build-isolation --force-reinstall ...",
    ),
    (
        r"([\w./+-]+\.so[\w.]*): cannot open shared object file",
        "{1} cannot be opened: the file, or a library that the extension needs, is not on this machine",
        "install what provides it, build it, or add its folder to LD_LIBRARY_PATH",
    ),
    (
        r"(?:/\S+/)?(lib[\w+-]+\.so[\w.]*): version `(\w+)' not found",
        "{1} is older than what the extension was built with ({2})",
        "rebuild the extension on this machine, or install a newer runtime of C++",
    ),
    (
        r"(Ninja is required to load C\+\+ extensions|Error compiling objects for extension|Error building extension "
        r"'\w+'|CUDA_HOME environment variable is not set)",
        "the extension was not built: {1}",
        "read the compiler's first error above; install ninja and a compiler, and set CUDA_HOME for CUDA",
    ),
    (
        r"No module named '([\w.]+)'",
        "the module {1} is not installed, or not on sys.path",
        "install what provides {1}, or run where it is",
    ),
    (
        r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'",
        "{2} has no {1}: another version of it is installed, or two modules import one another",
        "install the version that has {1}, or import it inside of the function",
    ),
)


@cause("WHY905", "a library or module that is missing or does not fit", wrong="a kernel or a fake", dispatcher=False)
def libraries(failure: Failure) -> Explanation | None:
    """Recognise libraries that cannot be loaded, extensions that were not built, and modules that are not there."""
    return _from_rows(failure, _LIBRARIES)


@cause("WHY901", "a choice of attention backends", wrong="a kernel for CPU", dispatcher=False)
def attention_backends(failure: Failure) -> Explanation | None:
    """Recognise an attention call for which sdpa_kernel leaves no backend."""
    text = r"No viable backend for scaled_dot_product_attention was found|No available kernel\. Aborting execution"
    if failure.search(text) is None:
        return None
    at = next((frame for frame in failure.frames if "sdpa_kernel" in frame.text), None)
    where = f" at {at}" if at else ""
    return Explanation(
        f"sdpa_kernel{where} leaves no SDPBackend that takes these inputs: attention's own selection "
        "inside of one kernel",
        (Fix(text="sdpa_kernel([..., SDPBackend.MATH])  # or remove the context manager"),),
    )


_SAVED: Final[tuple[Row, ...]] = (
    (
        r"Unsupported global: GLOBAL ([\w.]+) was not an allowed global",
        "torch.load takes tensors and plain values alone (weights_only=True), and the file holds {1}",
        "torch.serialization.add_safe_globals([...])  # with {1}; or weights_only=False for a file that you trust",
    ),
    (
        r"(?:Can't pickle|cannot pickle|Can't get local object) ([^\n]{1,80})",
        "pickle cannot save {1}: it finds functions and classes by their name in a module",
        "a function or class at the top of a module, or save state_dict() alone",
    ),
    (
        r"in_dims is not compatible|Got in_dim=|Expected all tensors to have the same size in the mapped dimension|"
        r"must only return Tensors, got type|vmap\([^\n]*\): ",
        "torch.vmap was called with dimensions that its arguments or results do not have: {0}",
        "torch.vmap(f, in_dims=(0, None))  # an entry for each argument, None for what is no tensor; return tensors",
    ),
)


@cause("WHY912", "how a function of PyTorch is called", wrong="registering anything", dispatcher=False)
def usage(failure: Failure) -> Explanation | None:
    """Recognise pickles, checkpoints and the arguments of vmap."""
    return _from_rows(failure, _SAVED)


@cause("WHY919", "an exception of the program itself", wrong="registering anything", dispatcher=False)
def own_exception(failure: Failure) -> Explanation | None:
    """Recognise what the program's own line raises: a key, an attribute, an assertion about a value."""
    at = failure.at
    if at is None or not failure.chain:
        return None
    raised = failure.chain[0]
    own_raise = at.text.startswith("raise ") or "assert" in at.text
    checked = failure.stack[-1] if failure.stack else ""
    of_python = checked.startswith(
        ("torch.nn.", "torch.optim.", "torch.utils.data", "torch.distributed.", "torch.serial")
    )
    own_raise = own_raise or (of_python and raised.name in ("ValueError", "TypeError", "AssertionError"))
    python = (
        "KeyError",
        "ZeroDivisionError",
        "AttributeError",
        "NameError",
        "UnboundLocalError",
        "StopIteration",
        "FileNotFoundError",
        "PermissionError",
        "ImportError",
        "UnicodeDecodeError",
        "JSONDecodeError",
        "OSError",
        "CalledProcessError",
        "RecursionError",
    )
    if not own_raise and raised.name not in python and not _in_python(failure):
        return None
    about = re.search(r"dispatch|schema|operator|kernel|backend|torch\.ops|regist|NYI", raised.text)
    if about is not None and not own_raise:
        return None
    text = raised.text.splitlines()[0][:160] if raised.text else ""
    what = f"{raised.name}{f': {text}' if text else ''}"
    noted = failure.of("define", "custom_op", "impl", "entered mode", "compiled")
    if raised.name == "AssertionError" and noted:
        names = sorted({e.subject for e in noted})[:4]
        what += f"; nothing that was noted of {', '.join(names)} explains the value"
    fix = "look at the values there: the operators found their kernels and ran" if "torch" in failure.source else ""
    return Explanation(
        f"the program's own line fails at {at}: `{at.text}` ({what})", (Fix(text=fix),) if fix and own_raise else ()
    )


def _in_python(failure: Failure) -> bool:
    """Return whether a plain exception of Python comes out of the user's own function."""
    raised = failure.chain[0]
    inner = failure.stack[-1].rpartition(".")[2] if failure.stack else ""
    mine = failure.at is not None and inner == failure.at.function
    return (
        mine
        and hasattr(builtins, raised.name)
        and raised.name in ("TypeError", "ValueError")
        and bool(
            re.search(
                r"^\w+\(\) (?:takes|missing|got)|invalid literal|not subscriptable|not iterable|unpack", raised.text
            )
        )
    )
