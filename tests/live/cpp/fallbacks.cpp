// Backend fallbacks as an accelerator's extension registers them: one that refuses every call, and a fallthrough.

#include <torch/library.h>

namespace {

void refuse(const c10::OperatorHandle& operator_, torch::jit::Stack*) {
  TORCH_CHECK(false, operator_.schema().name(), " has no kernel on this device");
}

} // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
