"""Compare what `explain --mode` predicts for the operators of packages with what runs.

A program: `python -m tests.deep.package_modes RECORD PATHS MODULE...` imports packages, calls every operator that
`readiness_arguments` and `package_arguments` have arguments for on each path, and prints the comparisons as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

from dispatchlab.model.python_layer import Mode
from tests.deep.package_arguments import MORE_ARGUMENTS, NAMESPACES, any_arguments, module_calls
from tests.deep.readiness_arguments import ARGUMENTS


def calls_of_packages() -> list[Any]:
    """A call of each operator that there are arguments for and that a package has registered."""
    import torch

    from tests.live.mode_calls import Calls, OperatorCall

    known = sorted(torch._C._dispatch_get_all_op_names())
    mode = Calls()
    for call in module_calls():
        with mode, contextlib.suppress(Exception):
            call()
    found = {name: call for name, call in mode.found.items() if call.operator.namespace in NAMESPACES}
    for name in known:
        made = {**ARGUMENTS, **MORE_ARGUMENTS}.get(name)
        if made is not None:
            found[name] = OperatorCall(_overload(name), tuple(made()), {})
        elif name.partition("::")[0] in NAMESPACES and name not in found:
            operator = _overload(name)
            if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"):
                found[name] = OperatorCall(operator, *any_arguments(operator._schema))
    return list(found.values())


def _overload(name: str) -> Any:
    import torch

    namespace, _, base = name.partition("::")
    base, _, overload = base.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def compared(source: str, paths: Sequence[str], modules: Sequence[str]) -> dict[str, Any]:
    """What is predicted off a record of packages, compared with what runs on each path."""
    from tests.live import mode_calls, traced_modes, transform_calls

    for module in modules:
        import_module(module)
    calls = calls_of_packages()
    found = {}
    transforms = [path for path in paths if path in transform_calls.CONTEXTS]
    ran = transform_calls.ran_in_each(transforms, calls) if transforms else {}
    for path in paths:
        if path in ("fake", "symbolic"):
            made = mode_calls.compared(calls, path, source=source)
        elif path in ran:
            made = transform_calls.compared(calls, cast(Mode, path), source=source, ran=ran[path])
        else:
            made = traced_modes.compared_along(path, calls, source=source)
        found[path] = made._asdict()
    return {"operators": [str(call.operator.name()) for call in calls], "paths": found}


def main(source: str, paths: str, *modules: str) -> None:
    """Print the comparisons along paths, which commas separate."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        found = compared(source, paths.split(","), modules)
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
