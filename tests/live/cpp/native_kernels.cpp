// Kernels of many C++ signatures for the tests of the live engine; the bindings of PyTorch register only one. Two of
// them infer the same schema, `(Tensor _0) -> Tensor _0`. A registration is a handle that takes itself back.

#include <torch/extension.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>

#include <functional>
#include <map>

namespace {

struct Registration {
  std::unique_ptr<c10::RegistrationHandleRAII> handle;

  void reset() {
    handle.reset();
  }
};

template <class Function>
Registration registered(c10::OperatorName name, int64_t key, Function* kernel, const std::string& debug) {
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
      debug))};
}

using Register = std::function<Registration(c10::OperatorName, int64_t, const std::string&)>;

template <class Function>
struct Refusing;

// A kernel for registrations that nobody calls.
template <class Return, class... Arguments>
struct Refusing<Return(Arguments...)> {
  static Return call(Arguments...) {
    TORCH_CHECK(false, "this kernel is only registered");
  }
};

template <class Function>
Register never_called() {
  return [](c10::OperatorName name, int64_t key, const std::string& debug) {
    return registered(std::move(name), key, &Refusing<Function>::call, debug);
  };
}

at::Tensor by_reference(const at::Tensor& x) {
  return x;
}

at::Tensor by_value(at::Tensor x) {
  return x;
}

template <class Function>
Register called(Function* kernel) {
  return [kernel](c10::OperatorName name, int64_t key, const std::string& debug) {
    return registered(std::move(name), key, kernel, debug);
  };
}

using at::Tensor;

using Many = std::tuple<Tensor, std::vector<Tensor>, int64_t, bool>(
    const Tensor&,
    const std::optional<Tensor>&,
    at::TensorList,
    int64_t,
    double,
    bool,
    std::string_view,
    const at::Scalar&,
    at::Device,
    at::ScalarType,
    at::Layout,
    at::MemoryFormat,
    std::optional<at::Generator>,
    std::optional<int64_t>,
    at::ArrayRef<double>);

constexpr const char* kMany =
    "std::tuple<at::Tensor, std::vector<at::Tensor, std::allocator<at::Tensor> >, long, bool> (at::Tensor const&, "
    "std::optional<at::Tensor> const&, c10::ArrayRef<at::Tensor>, long, double, bool, std::basic_string_view<char, "
    "std::char_traits<char> >, c10::Scalar const&, c10::Device, c10::ScalarType, c10::Layout, c10::MemoryFormat, "
    "std::optional<at::Generator>, std::optional<long>, c10::ArrayRef<double>)";

const std::map<std::string, Register>& kernels() {
  static const std::map<std::string, Register> all = {
      {"at::Tensor (at::Tensor const&)", called(by_reference)},
      {"at::Tensor (at::Tensor)", called(by_value)},
      {"at::Tensor (at::Tensor const&, at::Tensor const&)", never_called<Tensor(const Tensor&, const Tensor&)>()},
      {"at::Tensor (at::Tensor const&, c10::ArrayRef<long>)", never_called<Tensor(const Tensor&, at::IntArrayRef)>()},
      {"at::Tensor (at::Tensor const&, c10::SymInt)", never_called<Tensor(const Tensor&, c10::SymInt)>()},
      {"at::Tensor (at::Tensor const&, double)", never_called<Tensor(const Tensor&, double)>()},
      {"at::Tensor (at::Tensor const&, long)", never_called<Tensor(const Tensor&, int64_t)>()},
      {"at::Tensor (at::Tensor const&, long, c10::ArrayRef<long>, std::optional<long>)",
       never_called<Tensor(const Tensor&, int64_t, at::IntArrayRef, std::optional<int64_t>)>()},
      {"at::Tensor (c10::ArrayRef<at::Tensor>)", never_called<Tensor(at::TensorList)>()},
      {"void ()", never_called<void()>()},
      {kMany, never_called<Many>()},
  };
  return all;
}

Registration impl(
    const std::string& name,
    const std::string& overload,
    int64_t key,
    const std::string& signature,
    const std::string& debug) {
  auto found = kernels().find(signature);
  TORCH_CHECK_VALUE(found != kernels().end(), "no kernel with the signature ", signature);
  return found->second(c10::OperatorName(name, overload), key, debug);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Registration>(m, "Registration").def("reset", &Registration::reset);
  m.def("signatures", [] {
    py::list found;
    for (const auto& [signature, kernel] : kernels()) {
      found.append(signature);
    }
    return py::tuple(found);
  });
  m.def("impl", &impl);
}
