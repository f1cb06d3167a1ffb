// Kernels of two C++ signatures that infer the same schema, `(Tensor _0) -> Tensor _0`, for the tests of the live
// engine: the bindings of PyTorch register only one of the two. A registration is a handle that takes itself back.

#include <torch/extension.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>

namespace {

constexpr const char* kByReference = "at::Tensor (at::Tensor const&)";
constexpr const char* kByValue = "at::Tensor (at::Tensor)";

at::Tensor by_reference(const at::Tensor& x) {
  return x;
}

at::Tensor by_value(at::Tensor x) {
  return x;
}

struct Registration {
  std::unique_ptr<c10::RegistrationHandleRAII> handle;

  void reset() {
    handle.reset();
  }
};

template <class Function>
Registration registered(c10::OperatorName name, int64_t key, Function* kernel, std::string debug) {
  std::optional<c10::DispatchKey> at;
  if (key >= 0) {
    at = static_cast<c10::DispatchKey>(key);
  }
  return {std::make_unique<c10::RegistrationHandleRAII>(c10::Dispatcher::singleton().registerImpl(
      std::move(name),
      at,
      c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel),
      c10::impl::CppSignature::make<Function>(),
      c10::detail::inferFunctionSchemaFromFunctor<Function*>(),
      std::move(debug)))};
}

Registration impl(
    const std::string& name,
    const std::string& overload,
    int64_t key,
    const std::string& signature,
    const std::string& debug) {
  c10::OperatorName operator_name(name, overload);
  if (signature == kByReference) {
    return registered(std::move(operator_name), key, by_reference, debug);
  }
  TORCH_CHECK_VALUE(signature == kByValue, "no kernel with the signature ", signature);
  return registered(std::move(operator_name), key, by_value, debug);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Registration>(m, "Registration").def("reset", &Registration::reset);
  m.def("signatures", [] { return py::make_tuple(kByReference, kByValue); });
  m.def("impl", &impl);
}
