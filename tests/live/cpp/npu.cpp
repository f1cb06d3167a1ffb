// A device in memory of the host, at PrivateUse1: what PyTorch asks of a backend, and kernels that the test selects.
//
// NPU_KERNELS names a file with the operators that get a kernel, one on a line, behind a key where it is registered at
// another one; NPU_FALLBACK=1 registers PyTorch's fallback to the CPU; NPU_LOG names a file that gets a line for each call that reaches the device, before it runs.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_thnn_differentiable_gru_cell_backward.h>
#include <ATen/ops/_thnn_differentiable_lstm_cell_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

namespace {

const c10::Device kNpu(c10::kPrivateUse1, 0);

bool without(const std::string& part) {
  const char* name = std::getenv("NPU_WITHOUT");
  return name != nullptr && part == name;
}

// -- memory, the guard, the generator and the hooks

void forget_storage(void* storage) {
  delete static_cast<c10::Storage*>(storage);
}

struct NpuAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    return {data, data, raw_deleter(), kNpu};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* data) {
      if (data != nullptr) {
        c10::GetDefaultCPUAllocator()->raw_deallocate(data);
      }
    };
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

NpuAllocator allocator; // registered as REGISTER_ALLOCATOR would
const bool has_allocator = !without("allocator") && (c10::SetAllocator(c10::kPrivateUse1, &allocator), true);

struct NpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return c10::kPrivateUse1;
  }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  c10::Device exchangeDevice(c10::Device) const override {
    return kNpu;
  }
  c10::Device getDevice() const override {
    return kNpu;
  }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kNpu);
  }
  c10::Stream getNewStream(c10::Device, int) const override {
    return c10::Stream(c10::Stream::DEFAULT, kNpu);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kNpu);
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  // The engine of autograd records events; every call here is over when it returns.
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
};
// as C10_REGISTER_GUARD_IMPL would
const bool has_guard =
    !without("guard") && (c10::impl::DeviceGuardImplRegistrar(c10::kPrivateUse1, new NpuGuard), true);

struct NpuGenerator final : at::CPUGeneratorImpl {
  NpuGenerator() {
    device_ = kNpu;
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct NpuHooks final : at::PrivateUse1HooksInterface {
  using Default = at::PrivateUse1HooksInterface; // whose methods raise
  bool isBuilt() const override {
    return without(__func__) ? Default::isBuilt() : true;
  }
  bool isAvailable() const override {
    return without(__func__) ? Default::isAvailable() : true;
  }
  bool hasPrimaryContext(c10::DeviceIndex at) const override {
    return without(__func__) ? Default::hasPrimaryContext(at) : true;
  }
  c10::DeviceIndex deviceCount() const override {
    return without(__func__) ? Default::deviceCount() : 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return without(__func__) ? Default::getCurrentDevice() : 0;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex at) const override {
    return without(__func__) ? Default::exchangeDevice(at) : 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex at) const override {
    return without(__func__) ? Default::maybeExchangeDevice(at) : 0;
  }
  at::Device getDeviceFromPtr(void*) const override {
    return kNpu;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::make_generator<NpuGenerator>();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex at) const override {
    return without(__func__) ? Default::getNewGenerator(at) : at::make_generator<NpuGenerator>();
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return without(__func__) ? Default::getPinnedMemoryAllocator() : c10::GetDefaultCPUAllocator();
  }
  bool isPinnedPtr(const void*) const override {
    return false;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    if (without(__func__)) {
      return Default::resizePrivateUse1Bytes(storage, bytes);
    }
    auto data = allocator.allocate(bytes);
    std::memcpy(data.get(), storage.data(), std::min(bytes, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  }
};

// -- kernels: each runs the CPU's on the same memory

void log(const char* what, const c10::OperatorHandle& op) {
  if (const char* path = std::getenv("NPU_LOG")) {
    std::ofstream(path, std::ios::app) << what << ' ' << op.operator_name() << '\n';
  }
}

at::Tensor over(const at::Tensor& tensor, c10::Device device, c10::Allocator* of) {
  const auto& storage = tensor.storage();
  c10::DataPtr data(storage.mutable_data(), new c10::Storage(storage), &forget_storage, device);
  c10::Storage shared(c10::Storage::use_byte_size_t{}, storage.nbytes(), std::move(data), of, true);
  const auto key = device.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  auto made = at::detail::make_tensor<c10::TensorImpl>(std::move(shared), c10::DispatchKeySet(key), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  made._set_conj(tensor.is_conj());
  made._set_neg(tensor.is_neg());
  return made;
}

// The CPU's tensors in the place of the device's, for the time of a call.
struct OnCpu {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs; // the device's, the CPU's
  std::vector<std::pair<at::Generator, at::Generator>> generators;

  at::Tensor tensor(const at::Tensor& one) {
    if (!one.defined() || !one.is_privateuseone()) {
      return one;
    }
    for (const auto& [device, cpu] : pairs) {
      if (device.is_same(one)) {
        return cpu;
      }
    }
    pairs.emplace_back(one, over(one, c10::kCPU, c10::GetDefaultCPUAllocator()));
    return pairs.back().second;
  }

  c10::IValue value(const c10::IValue& one) {
    if (one.isTensor()) {
      return tensor(one.toTensor());
    }
    if (one.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor each : one.toTensorList()) {
        made.push_back(tensor(each));
      }
      return made;
    }
    if (one.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor> each : one.toOptionalTensorList()) {
        made.push_back(each.has_value() ? std::optional<at::Tensor>(tensor(*each)) : std::nullopt);
      }
      return made;
    }
    if (one.isDevice() && one.toDevice().is_privateuseone()) {
      return c10::Device(c10::kCPU);
    }
    if (one.isGenerator() && one.toGenerator().device().is_privateuseone()) {
      auto made = at::make_generator<at::CPUGeneratorImpl>();
      made.set_state(one.toGenerator().get_state());
      generators.emplace_back(one.toGenerator(), made);
      return made;
    }
    return one;
  }

  at::Tensor back(const at::Tensor& one) const {
    if (!one.defined()) {
      return one;
    }
    for (const auto& [device, cpu] : pairs) {
      if (cpu.is_same(one)) {
        return device;
      }
    }
    return one.is_cpu() ? over(one, kNpu, &allocator) : one;
  }

  c10::IValue value_back(const c10::IValue& one) const {
    if (one.isTensor()) {
      return back(one.toTensor());
    }
    if (one.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor each : one.toTensorList()) {
        made.push_back(back(each));
      }
      return made;
    }
    return one;
  }

  // What the CPU's kernel resized is resized on the device.
  void finish() {
    for (const auto& [device, cpu] : pairs) {
      if (device.data_ptr() != cpu.data_ptr() || device.sizes() != cpu.sizes() || device.strides() != cpu.strides()) {
        auto* changed = device.unsafeGetTensorImpl();
        changed->set_storage_keep_dtype(over(cpu, kNpu, &allocator).storage());
        changed->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      }
    }
    for (auto& [device, cpu] : generators) {
      device.set_state(cpu.get_state());
    }
  }
};

void own_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  log("own", op);
  at::AutoDispatchBelowADInplaceOrView guard;
  const auto& schema = op.schema();
  const std::string name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  const auto count = schema.arguments().size();
  auto arguments = torch::jit::pop(*stack, count);
  auto given = [&](size_t at) { return arguments[at].toTensor(); };
  auto sizes = [&](size_t at) { return arguments[at].toIntVector(); };
  const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);

  const bool is_view = std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& one) {
    return one.alias_info() != nullptr && !one.alias_info()->isWrite();
  });
  if (is_view || (name.rfind("aten::set_.", 0) == 0 && name != "aten::set_.source_Tensor")) {
    stack->insert(stack->end(), arguments.begin(), arguments.end()); // the CPU's kernel changes no memory
    op.redispatchBoxed(cpu, stack);
  } else if (name == "aten::set_.source_Tensor") {
    auto self = given(0), source = given(1);
    self.unsafeGetTensorImpl()->set_storage_keep_dtype(source.storage());
    self.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
    stack->emplace_back(self);
  } else if (name == "aten::_efficientzerotensor") { // a tensor of zeros that has no memory
    static at::native::ZeroTensorAllocator zeros(kNpu);
    const auto keys = c10::DispatchKeySet({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
    const auto dtype = arguments[1].toOptional<c10::ScalarType>().value_or(at::kFloat);
    stack->emplace_back(at::Tensor(at::detail::empty_generic(sizes(0), &zeros, keys, dtype, std::nullopt)));
  } else if (name == "aten::resize_") {
    auto self = given(0);
    at::native::resize_(self, sizes(1), arguments[2].toOptional<at::MemoryFormat>());
    stack->emplace_back(self);
  } else if (name == "aten::_copy_from" || name == "aten::_copy_from_and_resize") {
    auto self = given(0), to = given(1);
    if (name == "aten::_copy_from_and_resize") {
      at::native::resize_(to, self.sizes(), std::nullopt);
    }
    OnCpu on_cpu;
    on_cpu.tensor(to).copy_(on_cpu.tensor(self));
    stack->emplace_back(to);
  } else {
    OnCpu on_cpu;
    for (auto& one : arguments) {
      one = on_cpu.value(one);
    }
    std::vector<c10::IValue> made;
    const auto plus = [&](const at::Tensor& one, size_t bias) {
      return arguments[bias].isTensor() && arguments[bias].toTensor().defined() ? one + given(bias) : one;
    };

    if (name == "aten::convolution_overrideable") {
      const auto bias = arguments[2].toOptional<at::Tensor>();
      made = {at::convolution(given(0), given(1), bias, sizes(3), sizes(4), sizes(5), arguments[6].toBool(), sizes(7),
                              arguments[8].toInt())};
    } else if (name == "aten::convolution_backward_overrideable") {
      const auto mask = arguments[9].toBoolList();
      const std::vector<int64_t> bias_sizes{given(0).size(1)};
      auto [input, weight, bias] = at::convolution_backward(
          given(0), given(1), given(2), c10::OptionalIntArrayRef(bias_sizes), sizes(3), sizes(4),
          sizes(5), arguments[6].toBool(), sizes(7), arguments[8].toInt(), {mask[0], mask[1], mask[2]});
      made = {input, weight, bias};
    } else if (name == "aten::_thnn_fused_lstm_cell") { // the operators of cells have no kernel for the CPU
      const auto gates = plus(plus(given(0) + given(1), 3), 4);
      const auto part = gates.chunk(4, 1);
      const auto cell = part[1].sigmoid() * given(2) + part[0].sigmoid() * part[2].tanh();
      made = {part[3].sigmoid() * cell.tanh(), cell, gates};
    } else if (name == "aten::_thnn_fused_lstm_cell_backward_impl") {
      const auto optional = [&](size_t at) { return arguments[at].toOptional<at::Tensor>(); };
      const auto [gates, _, cell, bias, other] = at::_thnn_differentiable_lstm_cell_backward(
          optional(0), optional(1), given(4), at::zeros({}), std::nullopt, std::nullopt, given(2), given(3));
      made = {gates, cell, arguments[5].toBool() ? gates.sum(0) : at::Tensor()};
    } else if (name == "aten::_thnn_fused_gru_cell") {
      const auto input = plus(given(0), 3), hidden = plus(given(1), 4);
      const auto to = input.chunk(3, 1), of = hidden.chunk(3, 1);
      const auto fresh = (to[2] + (to[0] + of[0]).sigmoid() * of[2]).tanh();
      made = {fresh + (to[1] + of[1]).sigmoid() * (given(2) - fresh), at::cat({input, hidden, given(2)}, 1)};
    } else if (name == "aten::_thnn_fused_gru_cell_backward") {
      const auto width = given(0).size(1);
      const auto parts = given(1).split_with_sizes({3 * width, 3 * width, width}, 1);
      const auto [input, hidden, state, bias, other] = at::_thnn_differentiable_gru_cell_backward(
          given(0), parts[0], parts[1], parts[2], std::nullopt, std::nullopt);
      const auto summed = [&](const at::Tensor& one) { return arguments[2].toBool() ? one.sum(0) : at::Tensor(); };
      made = {input, hidden, state, summed(input), summed(hidden)};
    } else {
      made = std::move(arguments);
      op.redispatchBoxed(cpu, &made);
    }
    on_cpu.finish();
    for (const auto& one : made) {
      stack->push_back(on_cpu.value_back(one));
    }
  }
}

const std::string autocast = "AutocastPrivateUse1"; // in the place of a name: a fallthrough there

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  log("fallback", op);
  at::native::cpu_fallback(op, stack);
}

void kernels(torch::Library& m, const std::string& key) {
  const char* path = std::getenv("NPU_KERNELS");
  std::ifstream names(path == nullptr ? "" : path);
  for (std::string line; std::getline(names, line);) {
    const auto space = line.find(' ');
    if (line != autocast && (space == std::string::npos ? "" : line.substr(0, space)) == key) {
      m.impl(line.c_str() + space + 1, torch::CppFunction::makeFromBoxedFunction<&own_kernel>()); // npos + 1 is 0
    }
  }
}

at::Tensor twice(const at::Tensor& self) {
  return self * 2;
}

} // namespace

// An operator of its own, without a gradient.
TORCH_LIBRARY(npu, m) {
  m.def("twice(Tensor self) -> Tensor");
  m.impl("twice", c10::DispatchKey::PrivateUse1, &twice);
  m.impl("twice", c10::DispatchKey::Meta, &twice);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  if (!without("hooks")) {
    at::RegisterPrivateUse1HooksInterface(new NpuHooks);
  }
  kernels(m, "");
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  kernels(m, "AutogradPrivateUse1");
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  kernels(m, "CPU");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse2, m) {
  kernels(m, "PrivateUse2");
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  if (const char* wanted = std::getenv("NPU_FALLBACK"); wanted != nullptr && *wanted == '1') {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  const char* path = std::getenv("NPU_KERNELS");
  std::ifstream names(path == nullptr ? "" : path);
  for (std::string name; std::getline(names, name);) {
    if (name == autocast) {
      m.fallback(torch::CppFunction::makeFallthrough());
    }
  }
}
