"""Registrations that PyTorch refuses: twice, against the schema, of the wrong kind."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import registered_lines, short_site

_CPP_TYPES = {
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "c10::string_view",
    "Tensor": "const at::Tensor&",
}


@cause("WHY201", "an operator is defined twice", wrong="a second overload, or allow_override for a def")
def defined_twice(failure: Failure) -> Explanation | None:
    """Recognise a def of an operator that has one."""
    found = failure.search(
        r"Tried "
        r"to "
        r"register "
        r"an operator \((\w+::[\w.]+)\(.*?multiple times.*?Duplicate registration: (?:registered at )?(\S+?)\.?\s"
        r"Original registration: (?:registered at )?(\S+)"
    )
    if found is None:
        return None
    name, again, before = found.groups()
    lines = registered_lines(failure, name)
    first = lines[0].partition(": ")[0] if lines else short_site(before)
    at = failure.at
    same = at is not None and any(str(at) == line.partition(": ")[0] for line in lines)
    why = "the same line ran twice" if same else f"the second time at {at or short_site(again)}"
    base = name.partition("::")[2]
    return Explanation(
        f"{name} is defined twice: it was already defined at {first}, and {why}",
        (
            Fix(
                text=f"if not hasattr(torch.ops.{name.partition('::')[0]}, {base.partition('.')[0]!r}): "
                "...define it once"
            ),
            Fix(
                text=f"in tests: with torch.library._scoped_library({name.partition('::')[0]!r}, "
                "'FRAGMENT') as lib: ..."
            ),
        ),
        lines,
    )


@cause("WHY202", "TORCH_LIBRARY twice for a namespace", wrong="TORCH_LIBRARY_IMPL for a file that defines operators")
def library_twice(failure: Failure) -> Explanation | None:
    """Recognise two libraries of kind DEF for one namespace."""
    found = failure.search(
        r"Only a single TORCH_LIBRARY can be used to register the namespace (\w+).*?"
        r"Previous "
        r"registration of TORCH_LIBRARY was (?:registered at )?(\S+?); latest registration was (?:registered at )?(\S+)"
    )
    if found is None:
        return None
    namespace, before, again = found.groups()
    loads = [event.subject for event in failure.of("loaded library", "failed library")]
    in_python = failure.search(r"library\.py") is not None or before.endswith(".py") or ".py:" in before
    fix = (
        f'torch.library.Library("{namespace}", "FRAGMENT") in the second file'
        if in_python and ".py" in again
        else f"TORCH_LIBRARY_FRAGMENT({namespace}, m) in the second file, or another namespace for it"
    )
    return Explanation(
        f"two files open TORCH_LIBRARY for the namespace {namespace}, and it may be opened once: first "
        f"{before}, second {again}",
        (Fix(text=fix),),
        tuple(f"loaded: {load}" for load in loads[-2:]),
    )


@cause("WHY203", "a C++ kernel that does not fit its schema", wrong="a kernel for another key")
def kernel_schema(failure: Failure) -> Explanation | None:
    """Recognise a kernel whose C++ signature infers another schema."""
    found = failure.search(
        r"operator: (?P<name>[\w:.]+).*?schema: (?P<schema>[^\n]+).*?inferred schema: (?P<inferred>[^\n]+)"
        r".*?reason: (?P<reason>[^\n]+)"
    ) or failure.search(
        r"(?P<name>\w+::[\w.]+)\n\s+(?P<schema>[^\n]+)\n.*?inferred "
        r"schema: (?P<inferred>[^\n]+).*?reason: (?P<reason>[^\n]+)"
    )
    if found is None or "schema" not in failure.text:
        return None
    types = re.search(
        r"(?:argument (\d+)|position (\d+)|return\w* (\d+)): (\S+) vs (\S+?)\.?$", found["reason"].strip()
    )
    fix = f"write the schema that the kernel has: {found['inferred']}, or change the kernel to {found['schema']}"
    if types is not None:
        wanted, has = types[4], types[5]
        cpp = _CPP_TYPES.get(wanted, wanted)
        fix = f"take {cpp} in the C++ kernel (the schema says {wanted}), or write {has} in the schema"
    name = found["name"].rstrip(".")
    return Explanation(
        f"the C++ kernel of {name} does not fit its schema: {found['reason'].strip().rstrip('.')}",
        (Fix(text=fix),),
        (f"schema: {found['schema']}", f"the kernel's: {found['inferred']}"),
    )


@cause("WHY204", "a C++ type that no schema has", wrong="another compiler or another version of ninja")
def unsupported_cpp_type(failure: Failure) -> Explanation | None:
    """Recognise a kernel that takes int, float or another type that no schema can say."""
    found = failure.search(r"unsupported (integral|floating-point|floating point|integer)?\s*(input|output) type")
    if found is None:
        return None
    site = failure.search(r"(\S+\.(?:cpp|cc|cu|h)):(\d+):\d+:\s+required from here")
    at = "" if site is None else f" at {site[1].rpartition('/')[2]}:{site[2]}"
    line = failure.search(r"Func = ([^\];]+)")
    signature = "" if line is None else line[1].strip()
    is_float = "float" in (found[1] or "")
    wanted, written = ("double", "float") if is_float else ("int64_t", "int")
    return Explanation(
        f"the C++ kernel registered{at} has {'a result' if found[2] == 'output' else 'an argument'} of type {written}, "
        f"which no schema has: the type must be {wanted}",
        (
            Fix(
                text=f"write {wanted} for {written} in the C++ function"
                + ("" if is_float else "; the schema keeps `int`")
            ),
        ),
        ((f"kernel: {signature}",) if signature else ()),
    )


@cause("WHY205", "a kernel is registered twice in Python", wrong="defining the operator again")
def kernel_twice(failure: Failure) -> Explanation | None:
    """Recognise a second kernel in Python for one key of an operator."""
    found = failure.search(
        r"already a kernel registered from python overriding (\w+::[\w.]+)'?s behavior for (\w+) dispatch key"
    )
    if found is None:
        return None
    name, key = found.groups()
    lines = [line for line in registered_lines(failure, name) if line.endswith(f"at {key}")]
    before = lines[0].partition(": ")[0] if lines else "an earlier line"
    return Explanation(
        f"{name} already has a kernel for {key} from Python, registered at {before}",
        (
            Fix(text="keep one of the two; in tests use torch.library._scoped_library, so that the first one goes"),
            Fix(
                text=f'lib.impl("{name.partition("::")[2]}", kernel, "{key}", allow_override=True)  # '
                "where the second should win"
            ),
        ),
        tuple(lines),
    )


@cause("WHY206", "a fake kernel is registered twice", wrong="another fake: the operator has one already")
def fake_twice(failure: Failure) -> Explanation | None:
    """Recognise register_fake for an operator that has a fake or a Meta kernel."""
    found = failure.search(
        r"register_fake\(.*?\)?: the operator (\w+::[\w.]+) already has (an? [\w ]+?)(?: registered|"
        r" implementation|\.| at)"
    )
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    meta = facts.kernels.get("Meta", "") if facts else ""
    has = short_site(facts.fake) if facts and facts.fake else short_site(meta)
    return Explanation(
        f"{name} already has {found[2]}" + (f", from {has}" if has else ""),
        (Fix(text="register one of the two: drop this register_fake, or the Meta kernel"),),
        registered_lines(failure, name),
    )


@cause("WHY207", "an annotation that infer_schema refuses", wrong="a kernel or a fake: there is no schema yet")
def unsupported_annotation(failure: Failure) -> Explanation | None:
    """Recognise a parameter of a custom operator whose type has no schema type."""
    found = failure.search(r"infer_schema\(func\): Parameter (\w+) has unsupported type (.+?)\. The valid types are")
    if found is not None:
        name, kind = found.groups()
        kind = kind.removeprefix("<class '").removesuffix("'>")
        return Explanation(
            f"the parameter {name} has the type {kind}, which is not supported in a schema",
            (
                Fix(
                    text=f"pass what {name} holds as Tensor, int, float, bool, str, or a list of these, "
                    "and keep the rest outside of the operator"
                ),
            ),
        )
    found = failure.search(r"infer_schema\(func\): Parameter (\w+) must have a type annotation")
    if found is not None:
        return Explanation(
            f"the parameter {found[1]} has no annotation, and the schema is made of annotations",
            (Fix(text=f"{found[1]}: torch.Tensor  # or int, float, bool, str, list[...]"),),
        )
    found = failure.search(
        r"infer_schema\(func\): (?:Return|return) (?:has|type) unsupported(?: return)? type (.+?)\. The"
    )
    if found is not None:
        return Explanation(
            f"the function returns {found[1]}, which is not supported in a schema",
            (Fix(text="-> torch.Tensor  # or a tuple of Tensors, int, float, bool, None"),),
        )
    return None


@cause("WHY208", "mutates_args names what the function does not have", wrong="a def of another schema")
def wrong_mutates_args(failure: Failure) -> Explanation | None:
    """Recognise mutates_args with a name that is no tensor parameter."""
    found = (
        failure.search(r"(?:mutates_args|mutated).*?(?:not|must be|unknown)")
        if failure.kinds & {"ValueError"}
        else None
    )
    if found is None or "infer_schema" not in failure.text:
        return None
    return Explanation(
        f"mutates_args does not fit the function: {failure.chain[-1].text.splitlines()[0]}",
        (Fix(text='mutates_args=("x",)  # the names of the tensor parameters that it writes; () for none'),),
    )


@cause("WHY209", "a schema that cannot be parsed", wrong="importing the package again")
def bad_schema(failure: Failure) -> Explanation | None:
    """Recognise a schema text that the parser of PyTorch refuses."""
    here = failure.search(
        r"((?:Unknown|Expected|expected|Only|Default|default|Schemas|Duplicate|invalid|"
        r"Invalid)[^\n]*)\n([^\n]*)\n\s*~*\s*<--- HERE"
    )
    if here is None or "Unknown builtin op" in failure.text:
        return None
    return Explanation(
        f"the schema cannot be parsed: {here[1].strip().rstrip(':')}",
        (
            Fix(
                text="types are Tensor, int, float, bool, str, Scalar, Device, ScalarType; T?, T[] of "
                "these; -> (T, T) for several"
            ),
        ),
        (f"in: {here[2].strip()}",),
    )


@cause("WHY210", "a def in a library of kind IMPL", wrong="another namespace")
def define_in_impl(failure: Failure) -> Explanation | None:
    """Recognise what a library of its kind may not do."""
    found = failure.search(
        r"(?:Cannot define|cannot define|def\(\)?.*?IMPL|(\w+)\(\.\.\.\)?: Cannot (?:define|register) )[^\n]*"
    )
    if found is None or "TORCH_LIBRARY_IMPL" not in failure.text:
        return None
    return Explanation(
        f"the library cannot hold this registration: {failure.chain[-1].text.splitlines()[0]}",
        (Fix(text='lib = torch.library.Library(NAMESPACE, "FRAGMENT")  # which takes defs and kernels'),),
    )


@cause(
    "WHY211", "a kernel that does not take the schema's arguments", wrong="another schema, where callers use this one"
)
def kernel_signature(failure: Failure) -> Explanation | None:
    """Recognise a Python kernel that its operator calls with arguments that it does not take."""
    if "TypeError" not in failure.kinds or failure.search(r"__torch_function__|fake tensor call"):
        return None
    found = failure.search(
        r"TypeError: ([\w.<>]+)\(\) (missing \d+ required [\w-]+ arguments?: [^\n]+|takes [^\n]+|"
        r"got an unexpected keyword[^\n]+)"
    )
    called = [name for name in failure.stack if name.startswith("torch._ops.")]
    if found is None or not called:
        return None
    impls = [event for event in failure.of("impl", "custom_op") if event.at is not None]
    for event in reversed(impls):
        facts = failure.registry.operator(event.subject)
        if facts is not None and facts.schema and facts.base.partition(".")[0] in failure.call:
            key = f" for {event.detail}" if event.kind == "impl" else ""
            return Explanation(
                f"the kernel of {facts.name}{key} does not take the arguments of its schema: {found[1]}() {found[2]}",
                (Fix(text=f"def {found[1].rpartition('.')[2]}(...)  # must take what the schema has: {facts.schema}"),),
                (f"{event.at}: registered",),
            )
    return None
