"""Load generated modules without files: made, compiled and run in memory, with their source in tracebacks."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from types import ModuleType

from dispatchlab.codegen.emit.generate import chosen_groups
from dispatchlab.codegen.emit.python_source import module_text
from dispatchlab.codegen.emit.structured_plan import plan_of
from dispatchlab.codegen.read.native_functions import NativeFunctions


def generated_modules(natives: NativeFunctions, *, file: str, only: Sequence[str] = ()) -> Mapping[str, ModuleType]:
    """The modules of structured groups by name, ready to `register`.

    Args:
        natives: what the source file says.
        file: what it is called in the texts.
        only: operators, groups or globs; empty for all.

    Raises:
        NoSuchGroupError: one of `only` is not there.
    """
    return {
        plan.name: _module(plan.name, module_text(plan, file)) for plan in map(plan_of, chosen_groups(natives, only))
    }


def _module(name: str, text: str) -> ModuleType:
    path = f"<generated>/{name}.py"
    module = ModuleType(f"generated.{name}")
    module.__file__ = path
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), module.__dict__)
    return module
