"""Generated structured groups as modules, without files."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from types import ModuleType

from dispatchlab.codegen.emit.generate import chosen_groups
from dispatchlab.codegen.emit.generated_group import generated_group
from dispatchlab.codegen.emit.python_source import module_text
from dispatchlab.codegen.read.native_functions import NativeFunctions


def generated_modules(natives: NativeFunctions, *, file: str) -> Mapping[str, ModuleType]:
    """The modules of structured groups by name, ready to `register`."""
    groups = [generated_group(group) for group in chosen_groups(natives, ())]
    return {each.name: _loaded(each.name, module_text(each, file)) for each in groups}


def _loaded(name: str, text: str) -> ModuleType:
    path = f"<generated>/{name}.py"
    module = ModuleType(f"generated.{name}")
    module.__file__ = path
    # NB: with this, tracebacks show the lines
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), module.__dict__)
    return module
