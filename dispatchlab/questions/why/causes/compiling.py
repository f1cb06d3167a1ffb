"""torch.compile, export, ONNX and DTensor: operators and functions that they do not take."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.text_rows import register_rows
from dispatchlab.questions.why.causes.wording import line_of_definition, registered_lines

_CHECKS = {
    "test_schema": "that the kernel writes and aliases what the schema says",
    "test_autograd_registration": "that gradients are registered at an autograd key",
    "test_faketensor": "that the fake kernel gives what the kernel gives",
    "test_aot_dispatch_dynamic": "that forward and backward run compiled with dynamic shapes as without",
}


@cause("WHY709", "an exported operator that is not there", wrong="exporting again: the file is right")
def export_without_operator(failure: Failure) -> Explanation | None:
    """Recognise a saved program whose operator this process has not defined; the log alone names it."""
    pattern = r"failed to resolve (?:torch\.ops\.)?([\w.]+) to an operator"
    logged = [found for event in failure.of("warning") if (found := re.search(pattern, event.detail))]
    found = failure.search(pattern) or (logged[-1] if logged and "deserializ" in failure.text else None)
    if found is None:
        return None
    name = operator_name(found[1])
    return Explanation(
        f"the saved program calls {name}, and nothing in this process has defined it (torch.export.load)",
        (Fix(text=f"import the module that defines {name.partition('.')[0]} before torch.export.load(...)"),),
        registered_lines(failure, name),
    )


@cause("WHY710", "opcheck finds a fault", wrong="test_utils= without that test")
def opcheck_fault(failure: Failure) -> Explanation | None:
    """Recognise a test of torch.library.opcheck that fails for none of the other causes."""
    found = failure.search(r"opcheck\(op, \.\.\.\): (test_\w+) failed with ([^\n]+?)(?: \(scroll up|\n|$)")
    if found is None:
        return None
    test, what = found.groups()
    called = next((e for e in failure.of("custom_op", "define") if e.subject.partition("::")[2] in failure.call), None)
    facts = failure.registry.operator(called.subject) if called else None
    written = re.search(r"Argument (\w+) is not defined as mutable but was mutated", what)
    if written is not None and facts is not None:
        place, fix = "its schema", f"lib.define(...)  # Tensor(a!) {written[1]} in {facts.schema}"
        if facts.custom_op:
            place, fix = "mutates_args", f'@torch.library.custom_op("{facts.packet}", mutates_args=("{written[1]}",))'
        return Explanation(
            f"{facts.name} mutates {written[1]}, and {place} does not name it{line_of_definition(facts, failure)}: "
            f"opcheck's {test} sees the write",
            (Fix(text=fix), Fix(text=f"or write a copy in the kernel: {written[1]} = {written[1]}.clone()")),
        )
    return Explanation(
        f"opcheck's {test} of {facts.name if facts else 'the operator'} fails, which tests "
        f"{_CHECKS.get(test, 'the registrations')}: {what}",
        (Fix(text=f"mend what it names; torch.library.opcheck(op, args, test_utils={test!r}) runs this test alone"),),
        ((f"schema: {facts.schema}",) if facts else ()),
    )


register_rows("compiling")
