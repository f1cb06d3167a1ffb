"""Codegen: from native_functions.yaml to structured kernels and their registrations.

- `load_native_functions`, `read_native_functions`: a file as frozen values (`read`), or every problem that it has
  (`problems`);
- `NativeFunction`, `FunctionGroup`, `ViewGroup`: an operator, its variants, its views (`native_function`, `groups`).
"""

from __future__ import annotations

from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions, read_native_functions
from dispatchlab.codegen.read.problems import NativeYamlError, Rule, YamlProblem

__all__ = [
    "FunctionGroup",
    "NativeFunction",
    "NativeFunctions",
    "NativeYamlError",
    "Rule",
    "ViewGroup",
    "YamlProblem",
    "load_native_functions",
    "read_native_functions",
]
