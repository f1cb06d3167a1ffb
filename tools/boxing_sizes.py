"""Measure what a boxed kernel saves: `python tools/boxing_sizes.py` compiles it and writes docs/design/boxing.md.

A kernel that does the same for every operator, notes its name and calls on, is compiled for 1, 10 and 100 operators in
four forms; the C++ is a model of PyTorch's `IValue`, `Stack` and `OperatorHandle`, and needs none of its headers.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "design" / "boxing.md"

COUNTS = (1, 10, 100)
OPTIONS = ("-std=c++17", "-O2", "-c")

_MODEL = """\
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

struct Impl;
void retain(Impl*);
void release(Impl*);
struct Tensor {
  Impl* impl;
  Tensor(Impl* given) : impl(given) {}
  Tensor(const Tensor& other) : impl(other.impl) { retain(impl); }
  Tensor(Tensor&& other) noexcept : impl(std::exchange(other.impl, nullptr)) {}
  ~Tensor() { release(impl); }
};
using Ints = std::vector<int64_t>;
using IValue = std::variant<int64_t, double, bool, Ints, Tensor>;
using Stack = std::vector<IValue>;
struct OperatorHandle {
  const char* name;
  void redispatchBoxed(Stack&) const;
  template <typename Result, typename... Arguments> Result redispatch(Arguments...) const;
};
void note(const char*);
"""

_TYPES = ("const Tensor&", "int64_t", "double", "bool", "const Ints&")


def signature(number: int) -> tuple[str, ...]:
    """The types of the arguments of an operator; no two of 100 operators have the same."""
    base = len(_TYPES)
    return ("const Tensor&", _TYPES[number % base], _TYPES[number // base % base], _TYPES[number // base**2 % base])


def _unboxed(number: int, types: tuple[str, ...]) -> str:
    listed = ", ".join(f"{one} a{at}" for at, one in enumerate(types))
    passed, given = ", ".join(f"a{at}" for at in range(len(types))), ", ".join(types)
    return (
        f"extern const OperatorHandle op{number};\nTensor kernel{number}({listed}) {{\n  note(op{number}.name);\n"
        f"  return op{number}.redispatch<Tensor, {given}>({passed});\n}}\n"
    )


_TEMPLATE = """\
template <const OperatorHandle& op, typename... Arguments> Tensor kernel(Arguments... given) {
  note(op.name);
  return op.redispatch<Tensor, Arguments...>(given...);
}
"""

_BOXED = "void kernel(const OperatorHandle& op, Stack& stack) {\n  note(op.name);\n  op.redispatchBoxed(stack);\n}\n"

_CONVERSION = """\
using Kernel = void (*)(const OperatorHandle&, Stack&);
template <typename... Arguments> Tensor call_boxed(Kernel kernel, const OperatorHandle& op, Arguments... given) {
  Stack stack;
  stack.reserve(sizeof...(given));
  (stack.emplace_back(given), ...);
  kernel(op, stack);
  return std::get<Tensor>(std::move(stack.back()));
}
"""


def source(form: str, count: int) -> str:
    """The C++ of a form for so many operators."""
    types = [signature(number) for number in range(count)]
    if form == "unboxed":
        return _MODEL + "".join(map(_unboxed, range(count), types))
    if form == "template":
        made = (
            f"extern const OperatorHandle op{number};\n"
            f"template Tensor kernel<op{number}, {', '.join(one)}>({', '.join(one)});\n"
            for number, one in enumerate(types)
        )
        return _MODEL + _TEMPLATE + "".join(made)
    if form == "boxed":
        return _MODEL + _BOXED
    made = (
        f"template Tensor call_boxed<{', '.join(one)}>(Kernel, const OperatorHandle&, {', '.join(one)});\n"
        for one in types
    )
    return _MODEL + _BOXED + _CONVERSION + "".join(made)


FORMS = {
    "unboxed": "a function for each operator",
    "template": "a template that is instantiated for each operator",
    "boxed": "one function for all",
    "boxed, called unboxed": "the same, with a conversion for each signature",
}


def size_of(text: str, compiler: str = "g++") -> int:
    """The bytes of code and data of what a compiler makes of a text."""
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder, "kernels.cpp"), Path(folder, "kernels.o")
        file.write_text(text, encoding="utf-8")
        subprocess.run([compiler, *OPTIONS, file, "-o", made], check=True)
        shown = subprocess.run(["size", made], check=True, capture_output=True, text=True).stdout
    return int(shown.splitlines()[1].split()[3])


def page(sizes: Mapping[str, Sequence[int]], machine: str) -> str:
    """The page that shows these sizes, in the order of `COUNTS` for each form."""
    lines = "".join(
        f"| {form} | {what} | {' | '.join(f'{size:,}' for size in sizes[form])} |\n" for form, what in FORMS.items()
    )
    (boxed, unboxed, called) = (sizes[form][-1] for form in ("boxed", "unboxed", "boxed, called unboxed"))
    return _PAGE.format(
        head=" | ".join(f"{count:,} operator{'s' * (count > 1)}" for count in COUNTS),
        line="---|" * len(COUNTS),
        rows=lines,
        options=" ".join(OPTIONS),
        machine=machine,
        most=COUNTS[-1],
        kernels=-(-(called - boxed) // (unboxed - boxed)),
    )


_PAGE = """\
# What a boxed kernel saves

The walkthrough says of a boxed kernel that it makes the binary smaller: one kernel serves all operators. Here is how
much. A kernel that does the same for every operator (it notes the name and calls on) is compiled in each form; all
operators have another signature. Bytes of the object file's code and data, as `size` counts them:

| form | what it is | {head} |
|---|---|{line}
{rows}
- *unboxed* and *template* grow with each operator: a template is one text, and a function for each instance.
- *boxed* does not grow. This is the kernel of a fallback, such as the one that batches any operator.
- A boxed kernel that is called with unboxed arguments needs a conversion for each signature. All boxed kernels share
  them, and PyTorch makes them with each operator. Where they are made for boxed kernels alone, these are smaller from
  {kernels} kernels on, of {most} operators.

Measured with `{options}` by `python tools/boxing_sizes.py`, which writes this page. The C++ is a model of `IValue`,
`Stack` and `OperatorHandle`: PyTorch's own do more, and are larger.

{machine}.
"""


def main(compiler: str = "g++") -> None:
    """Compile all of them, and write the page."""
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout.splitlines()[0]
    sizes = {form: [size_of(source(form, count), compiler) for count in COUNTS] for form in FORMS}
    PAGE.write_text(page(sizes, f"{version}, {platform.machine()}, {datetime.now(tz=UTC):%B %Y}"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
