"""The frames of a call in C++, from the Python binding down to the function by hand, as generated code names them.

    torch::autograd::THPVariable_add
    at::Tensor::add
    at::_ops::add_Tensor::call
    ...
    torch::autograd::VariableType::(anonymous namespace)::add_Tensor

Each hop of the dispatcher adds the frames of its look-up and those of the kernel that it finds; which hops there are is
given. A build without optimization has all of these frames, a release build has some of them inlined.
Source: torchgen/packaged/autograd/gen_python_functions.py, gen_variable_type.py, gen_inplace_or_view_type.py,
torchgen/gen.py, torchgen/dest, aten/src/ATen/core/dispatch/Dispatcher.h, aten/src/ATen/core/boxing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.emit.registrations import BY_HAND, Body, GeneratedKernel, Part, cpp_name, shard, wrapper_name
from dispatchlab.codegen.emit.ufunc_loops import ufunc_loops
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction, Variant
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.model.cpp_signature import is_symint_schema
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.explain.result import Chosen, Hop


class Layer(WordEnum):
    """What a frame is part of."""

    BINDING = "Python binding"
    API = "C++ API"
    DISPATCHER = "dispatcher"
    AUTOGRAD = "autograd kernel"
    VIEWS_AND_WRITES = "ADInplaceOrView kernel"
    BACKEND_SELECT = "BackendSelect kernel"
    TRACER = "Tracer kernel"
    FUNCTIONALIZE = "Functionalize kernel"
    WRAPPER = "wrapper"
    META = "structured meta"
    IMPL = "structured impl"
    STUB = "ufunc stub"
    LOOP = "ufunc loop"
    NATIVE = "function by hand"
    OTHER = "kernel by hand"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a call.

    Args:
        layer: what it is part of.
        function: the C++ function, without its arguments.
        file: the file that it is in; generated ones by the name that PyTorch's build gives them.
        key: the dispatch key whose kernel it is part of, for the frames from a look-up to the next one.
        inlined: it is a part of the frame that calls it even in a build for debugging, which shows it nonetheless.
        lab: where the lab has the same, when it ran the call.
    """

    layer: Layer
    function: str
    file: str
    key: DispatchKey | None = None
    inlined: bool = False
    lab: str = ""


class Entry(WordEnum):
    """What is called: a function of Python, a method of Python's tensors, or the function of C++."""

    FUNCTION = "function"
    METHOD = "method"
    CPP = "C++"


_NO_BINDING = re.compile(
    "alias|contiguous|dim|get_device|is_contiguous|is_cuda|is_sparse|is_sparse_csr|numel|size|storage_offset|stride"
    "|sym_is_contiguous|sym_size|sym_stride|sym_storage_offset|sym_numel|.*_backward|.*_backward_(out|input|weight|bias)"
    "|.*_forward|.*_forward_out|.*_jvp|_unsafe_view|tensor|_?sparse_(coo|compressed|csr|csc|bsr|bsc)_tensor.*|_range.*"
    "|_sparse_add_out|_sparse_div.*|_sparse_mul.*|_sparse_sub.*|_sparse_dense_add_out|index|index_out"
    "|unique_dim_consecutive|_cumsum.*|_cumprod.*|_sum.*|_prod.*|_th_.*|_thnn_.*|range.*|_solve.*|_inverse.*"
    "|_cholesky.*|_triangular_solve.*|_qr.*|_svd.*|slice|item|_local_scalar_dense|to|_to_copy|_to_copy_out"
    "|_reshape_copy|_reshape_copy_out|copy_sparse_to_sparse_|copy_|_foreach_copy|numpy_T|matrix_H|mT|mH"
    "|nonzero(_(out|numpy))?|set_data|.*_overrideable|data|is_leaf|output_nr|_version|requires_grad_|retains_grad|set_"
    "|_fw_primal|fake_quantize_per_tensor_affine_cachemask|fake_quantize_per_channel_affine_cachemask"
    "|_new_zeros_with_same_feature_meta|_has_same_storage_numel|_reshape_alias|replace_|copy|lift.*|normal_functional"
    "|nbytes|itemsize|_batch_norm_with_update|_batch_norm_with_update_out|_batch_norm_no_update"
)
"""Functions that Python has no generated binding of. Source: `_SKIP_PYTHON_BINDINGS`."""


def has_binding(function: NativeFunction, entry: Entry) -> bool:
    """Whether Python has a generated binding of a function, as a function or as a method."""
    if function.is_generated and "view_copy" not in function.tags:
        return False
    if entry is Entry.CPP or _NO_BINDING.fullmatch(cpp_name(function)):
        return False
    variant = Variant.METHOD if entry is Entry.METHOD else Variant.FUNCTION
    return variant in function.variants and not (function.python_module and entry is Entry.METHOD)


def runs_below_autograd(function: NativeFunction, entry: Entry) -> bool:
    """Whether the binding excludes autograd, as that of a factory does. Source: gen_variable_factories.py."""
    return entry is not Entry.CPP and has_binding(function, entry) and _is_made_by_factory(function)


def _is_made_by_factory(function: NativeFunction) -> bool:
    makes = bool(function.parts.options) or function.parts.name.base.endswith("_like")
    return makes and Variant.METHOD not in function.variants


def frames_of_call(
    function: NativeFunction,
    group: FunctionGroup | None,
    kernels: Sequence[GeneratedKernel],
    hops: Sequence[Hop],
    entry: Entry,
) -> tuple[Frame, ...]:
    """All frames, the outermost first.

    Args:
        function: what is called.
        group: the structured group that it is in; None for any other function.
        kernels: what is generated for the function.
        hops: the look-ups of the call, and the kernels that they found.
        entry: what is called in Python, or that C++ calls.
    """
    frames = [*_entry_frames(function, entry)]
    by_key = {kernel.key: kernel for kernel in kernels}
    boxed = False
    for number, hop in enumerate(hops):
        kernel = hop.kernel
        generated = None if kernel is None else _generated(kernel, by_key)
        is_boxed = kernel is not None and _is_boxed(function, kernel, generated)
        lookup = _lookup(function, first=hop.kind == "call", from_box=boxed and number > 0, to_box=is_boxed)
        frames += [replace(frame, key=hop.key) for frame in lookup]
        if kernel is None or hop.refusal is not None:
            break
        last = number == len(hops) - 1
        body = _kernel(function, group, hop.key, kernel, generated, last=last)
        frames += [replace(frame, key=hop.key) for frame in body]
        boxed = is_boxed
    return tuple(frames)


# -- Python and the C++ API

_GENERATED = "torch/csrc/autograd/generated/"


def _entry_frames(function: NativeFunction, entry: Entry) -> Iterator[Frame]:
    suffix = "_symint" if is_symint_schema(function.schema) else ""
    name = cpp_name(function)
    method = Variant.METHOD in function.variants and not function.parts.outs
    if has_binding(function, entry):
        python = f"torch::autograd::THPVariable_{function.name.name}"
        module = function.python_module
        if entry is Entry.METHOD:
            file = "python_variable_methods.cpp"
        elif module is not None:
            file = f"python_{module}_functions.cpp"
        else:
            file = f"python_torch_functions_{shard(function.parts.name.base, 3)}.cpp"
        yield Frame(Layer.BINDING, python, _GENERATED + file)
        yield Frame(Layer.BINDING, f"{python}::{{lambda()#1}}::operator()", _GENERATED + file)
        if _is_made_by_factory(function):
            yield Frame(Layer.API, f"torch::{name}{suffix}", _GENERATED + "variable_factories.h")
    if method:
        yield Frame(Layer.API, f"at::Tensor::{name}{suffix}", "ATen/core/TensorBody.h")
    else:
        yield Frame(Layer.API, f"at::{name}{suffix}", f"ATen/ops/{function.parts.name.base}.h")


_OPERATOR_SHARDS = 5


def _operators_file(function: NativeFunction) -> str:
    return f"ATen/Operators_{shard(function.parts.name.base, _OPERATOR_SHARDS)}.cpp"


# -- the dispatcher


def _lookup(function: NativeFunction, *, first: bool, from_box: bool, to_box: bool) -> Iterator[Frame]:
    """The frames from a call or redispatch of an operator to its kernel, without both ends of the kernel."""
    verb = "call" if first else "redispatch"
    if from_box:
        yield _frame("c10::OperatorHandle::redispatchBoxed", "Dispatcher.h", inlined=True)
        yield _frame("c10::Dispatcher::redispatchBoxed", "Dispatcher.h")
        yield _frame("c10::KernelFunction::callBoxed", "KernelFunction_impl.h", inlined=True)
        yield _frame("c10::BoxedKernel::callBoxed", "BoxedKernel_impl.h")
        if not to_box:
            yield _frame("c10::impl::make_boxed_from_unboxed_functor::call", _FUNCTORS)
            yield _frame("c10::impl::call_functor_with_args_from_stack", _FUNCTORS)
            yield _frame("c10::impl::wrap_kernel_functor_unboxed_::call", _FUNCTORS)
            yield _frame("c10::impl::detail::WrapFunctionIntoFunctor_::operator()", _FUNCTION, inlined=True)
        return
    yield Frame(Layer.API, f"at::_ops::{function.flat_name}::{verb}", _operators_file(function))
    yield _frame(f"c10::TypedOperatorHandle::{verb}", "Dispatcher.h", inlined=True)
    yield _frame(f"c10::Dispatcher::{verb}", "Dispatcher.h", inlined=first)
    yield _frame("c10::KernelFunction::call", "KernelFunction_impl.h", inlined=True)
    if to_box:
        yield _frame("c10::impl::BoxedKernelWrapper::call", "boxing.h")
        yield _frame("c10::BoxedKernel::callBoxed", "BoxedKernel_impl.h")
        return
    yield _frame("c10::callUnboxedKernelFunction", "KernelFunction_impl.h")
    yield _frame("c10::impl::wrap_kernel_functor_unboxed_::call", _FUNCTORS)
    yield _frame("c10::impl::detail::WrapFunctionIntoFunctor_::operator()", _FUNCTION, inlined=True)


_FUNCTORS, _FUNCTION = "make_boxed_from_unboxed_functor.h", "WrapFunctionIntoFunctor.h"


def _frame(function: str, file: str, *, inlined: bool = False) -> Frame:
    folder = "dispatch" if file == "Dispatcher.h" else "boxing/impl" if file in _IMPL else "boxing"
    return Frame(Layer.DISPATCHER, function, f"ATen/core/{folder}/{file}", inlined=inlined)


_IMPL = (_FUNCTORS, _FUNCTION, "boxing.h")


# -- kernels


def _generated(kernel: Chosen, by_key: Mapping[DispatchKey, GeneratedKernel]) -> GeneratedKernel | None:
    """The generated kernel that a slot holds; None when something else is registered there."""
    key = DispatchKey.__members__.get(kernel.source)
    generated = None if key is None else by_key.get(key)
    if generated is None:
        return None
    stem = re.sub(r"_\d+\.cpp$|\.cpp$", "", generated.file)
    return generated if re.search(rf"(?:^|[ /]){re.escape(stem)}(?:_\d+)?\.cpp:", kernel.debug) else None


def _is_boxed(function: NativeFunction, kernel: Chosen, generated: GeneratedKernel | None) -> bool:
    """Whether a kernel takes a stack: fallbacks, kernels of Python, and generated ones that raise in backward."""
    if generated is not None:
        return generated.inferred is None
    return not _is_by_hand(function, kernel) and not _GENERATED_AUTOGRAD.search(kernel.debug)


def _is_by_hand(function: NativeFunction, kernel: Chosen) -> bool:
    """Whether it is one of the kernels of autograd and views that C++ has by hand, with an ordinary signature."""
    return cpp_name(function) in BY_HAND and "VariableTypeManual.cpp" in kernel.debug


_LAYERS = {
    Part.BACKEND: Layer.WRAPPER,
    Part.BACKEND_SELECT: Layer.BACKEND_SELECT,
    Part.FUNCTIONALIZATION: Layer.FUNCTIONALIZE,
    Part.AUTOGRAD: Layer.AUTOGRAD,
    Part.VIEWS_AND_WRITES: Layer.VIEWS_AND_WRITES,
    Part.TRACER: Layer.TRACER,
}
_ANONYMOUS = "(anonymous namespace)"


def _kernel(
    function: NativeFunction,
    group: FunctionGroup | None,
    key: DispatchKey,
    kernel: Chosen,
    generated: GeneratedKernel | None,
    *,
    last: bool,
) -> Iterator[Frame]:
    """The frames of a kernel, down to where it redispatches or to the function by hand."""
    if generated is None:
        if _GENERATED_AUTOGRAD.search(kernel.debug):
            yield from _autograd_without_formulas(function, kernel, last=last)
        else:
            yield from _other_kernel(function, key, kernel, last=last)
        return
    layer = _LAYERS[generated.part]
    flat = wrapper_name(function)
    match generated.part:
        case Part.BACKEND:
            yield from _backend(function, group, generated)
            return
        case Part.BACKEND_SELECT:
            yield Frame(layer, f"at::{_ANONYMOUS}::{flat}", "ATen/RegisterBackendSelect.cpp")
            return
        case Part.FUNCTIONALIZATION:
            yield Frame(
                layer,
                f"at::{generated.name}" if generated.body is Body.FUNCTIONALIZES else generated.name,
                f"ATen/{generated.file}",
            )
            return
        case Part.AUTOGRAD:
            namespace = f"torch::autograd::VariableType::{_ANONYMOUS}"
        case Part.VIEWS_AND_WRITES:
            namespace = f"torch::ADInplaceOrView::{_ANONYMOUS}"
        case Part.TRACER:
            namespace = f"torch::TraceType::{_ANONYMOUS}"
    file = _GENERATED + generated.file
    if generated.inferred is None:
        file = "torch/csrc/autograd/autograd_not_implemented_fallback.cpp"
        yield Frame(layer, "torch::autograd::autogradNotImplementedFallbackImpl", file)
        return
    name = generated.name.partition("::")[2] if generated.part is Part.AUTOGRAD else flat
    yield from _redispatching(function, layer, f"{namespace}::{name}", file, last=last)


def _redispatching(function: NativeFunction, layer: Layer, name: str, file: str, *, last: bool) -> Iterator[Frame]:
    """A kernel that redispatches: in a lambda, where there is a result to wait for."""
    yield Frame(layer, name, file)
    if last:
        return
    if function.kind is SchemaKind.FUNCTIONAL and function.schema.returns:
        yield Frame(layer, f"{name}::{{lambda()#1}}::operator()", file)
    yield _redispatch_api(function)


_GENERATED_AUTOGRAD = re.compile(r"(?:^|[ /])torch/csrc/autograd/generated/(VariableType(?:_\d+)?\.cpp):")


def _autograd_without_formulas(function: NativeFunction, kernel: Chosen, *, last: bool) -> Iterator[Frame]:
    """A generated autograd kernel of which only its file is known, as there is no derivatives.yaml."""
    file = _GENERATED_AUTOGRAD.search(kernel.debug)
    assert file is not None
    name = f"torch::autograd::VariableType::{_ANONYMOUS}::{wrapper_name(function)}"
    yield from _redispatching(function, Layer.AUTOGRAD, name, _GENERATED + file[1], last=last)


def _redispatch_api(function: NativeFunction) -> Frame:
    suffix = "_symint" if is_symint_schema(function.schema) else ""
    name = f"{cpp_name(function)}{'f' if function.parts.outs else ''}{suffix}"
    return Frame(Layer.API, f"at::redispatch::{name}", "ATen/RedispatchFunctions.h", inlined=False)


def _other_kernel(function: NativeFunction, key: DispatchKey, kernel: Chosen, *, last: bool) -> Iterator[Frame]:
    """A kernel that is not generated: those of autograd and views by hand, and whatever else is registered."""
    if _is_by_hand(function, kernel):
        views = key is DispatchKey.ADInplaceOrView
        layer = Layer.VIEWS_AND_WRITES if views else Layer.AUTOGRAD
        namespace = "torch::ADInplaceOrView" if views else "torch::autograd::VariableType"
        name = f"{namespace}::{_ANONYMOUS}::{cpp_name(function)}"
        yield Frame(layer, name, "torch/csrc/autograd/VariableTypeManual.cpp")
        if not last:
            yield _redispatch_api(function)
        return
    if "VariableFallbackKernel.cpp" in kernel.debug:
        name = "torch::autograd::basicAutogradNotImplementedFallbackImpl"
        yield Frame(Layer.AUTOGRAD, name, "torch/csrc/autograd/autograd_not_implemented_fallback.cpp")
        return
    where = kernel.debug.removeprefix("registered at ").partition(" ")[0]
    where = re.sub(r"^.*/(?=(?:torch|aten|build|functorch)/)", "", where)
    yield Frame(Layer.OTHER, f"the {kernel.reason} of {key}", where or "a place that is not known")


def _backend(function: NativeFunction, group: FunctionGroup | None, generated: GeneratedKernel) -> Iterator[Frame]:
    file = f"ATen/{generated.file}"
    spaces = f"at::{_ANONYMOUS}" if generated.body in _STRUCTURED else f"at::{_ANONYMOUS}::{_ANONYMOUS}"
    yield Frame(Layer.WRAPPER, f"{spaces}::{generated.name}", file)
    match generated.body:
        case Body.STRUCTURED if group is not None:
            kernel = group.out.kernel_at(generated.key)
            assert kernel is not None
            yield from _structured_impl(group, kernel)
        case Body.META if group is not None:
            name = group.functional.flat_name
            yield Frame(Layer.META, f"at::meta::structured_{name}::meta", "aten/src/ATen/native (by hand)")
        case Body.DEFAULT if group is not None:
            yield Frame(Layer.API, f"at::{cpp_name(group.out)}", f"ATen/ops/{function.parts.name.base}.h")
            yield Frame(Layer.API, f"at::_ops::{group.out.flat_name}::call", _operators_file(group.out))
        case Body.CALLS_NATIVE:
            yield Frame(Layer.NATIVE, generated.calls, "aten/src/ATen/native (by hand)")
        case _:
            pass


_STRUCTURED = (Body.STRUCTURED, Body.META, Body.DEFAULT)


def _structured_impl(group: FunctionGroup, kernel: BackendKernel) -> Iterator[Frame]:
    loops = ufunc_loops(group)
    impl = f"{kernel.namespace}::structured_{kernel.name}::impl"
    if loops is None or kernel.key not in (DispatchKey.CPU, DispatchKey.CUDA):
        yield Frame(Layer.IMPL, impl, "aten/src/ATen/native (by hand)")
        return
    name = loops.name
    body = f"at::native::{_ANONYMOUS}::{name}_kernel"
    if kernel.key is DispatchKey.CUDA:
        yield Frame(Layer.IMPL, impl, f"ATen/UfuncCUDA_{name}.cu")
        yield Frame(Layer.LOOP, f"at::native::{name}_kernel", f"ATen/UfuncCUDA_{name}.cu")
        yield Frame(Layer.LOOP, "at::native::gpu_kernel", "aten/src/ATen/native/cuda/Loops.cuh")
        return
    file = f"ATen/UfuncCPUKernel_{name}.cpp"
    yield Frame(Layer.IMPL, impl, f"ATen/UfuncCPU_{name}.cpp")
    yield Frame(Layer.STUB, "at::native::DispatchStub::operator()", "aten/src/ATen/native/DispatchStub.h")
    yield Frame(Layer.LOOP, body, file)
    yield Frame(Layer.LOOP, f"{body}::{{lambda()#1}}::operator()", file)
    yield Frame(Layer.LOOP, "at::native::CPU_CAPABILITY::cpu_kernel_vec", _LOOPS)
    yield Frame(Layer.LOOP, "at::TensorIteratorBase::for_each", "aten/src/ATen/TensorIterator.cpp")
    yield Frame(Layer.LOOP, "at::TensorIteratorBase::serial_for_each", "aten/src/ATen/TensorIterator.cpp")
    yield Frame(Layer.LOOP, "c10::function_ref::callback_fn", "c10/util/FunctionRef.h")
    yield Frame(Layer.LOOP, "at::native::CPU_CAPABILITY::VectorizedLoop2d::operator()", _LOOPS, inlined=True)
    yield Frame(Layer.LOOP, "at::native::CPU_CAPABILITY::vectorized_loop", _LOOPS)
    for ufunc in loops.ufuncs[:1]:
        yield Frame(Layer.NATIVE, f"at::native::ufunc::{ufunc}", f"aten/src/ATen/native/ufunc/{ufunc}.h")


_LOOPS = "aten/src/ATen/native/cpu/Loops.h"
