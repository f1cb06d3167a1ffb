"""Codegen: from native_functions.yaml to structured kernels and their registrations.

- `load_native_functions`, `read_native_functions`: a file as frozen values, or every problem that it has.
- `NativeFunction`, `FunctionGroup`, `ViewGroup`: an operator, its variants, its views.

Packages, each above the ones before it:

- read: native_functions.yaml as values;
- emit: Python modules and scenarios of structured groups; runtime: the imports of these modules, and Python bindings.
"""

from __future__ import annotations

from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions, read_native_functions
from dispatchlab.codegen.read.problems import NativeYamlError, Rule

__all__ = [
    "FunctionGroup",
    "NativeFunction",
    "NativeFunctions",
    "NativeYamlError",
    "Rule",
    "ViewGroup",
    "load_native_functions",
    "read_native_functions",
]
