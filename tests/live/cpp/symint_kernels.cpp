// A package in C++: kernels with SymInt arguments, a schema that PyTorch prints and does not read, a custom class.
#include <torch/library.h>

namespace {

struct Counter : torch::CustomClassHolder {};

at::Tensor resized(const at::Tensor& x, c10::SymInt n, c10::SymIntArrayRef sizes) {
  return x;
}

int64_t plain(const at::Tensor& x, int64_t n) {
  return n;
}

void written(at::Tensor out) {}

}  // namespace

TORCH_LIBRARY(dlabtest_symint, m) {
  m.class_<Counter>("Counter").def(torch::init<>());
  m.def("resized(Tensor x, SymInt n, SymInt[] sizes) -> Tensor");
  m.def("plain(Tensor x, int n) -> int");
  m.def("written(Tensor! out) -> ()");
  m.def("counted(__torch__.torch.classes.dlabtest_symint.Counter c, Tensor x) -> Tensor");
  m.impl("written", c10::DispatchKey::CPU, TORCH_FN(written));
}

TORCH_LIBRARY_IMPL(dlabtest_symint, CPU, m) {
  m.impl("resized", resized);
  m.impl("plain", plain);
}
