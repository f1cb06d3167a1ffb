"""Registrations that PyTorch refuses: twice, against the schema, of the wrong kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dispatchlab.model.failure import Event, Failure, Fix
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    listed,
    nearest,
    registered_lines,
    short_site,
    signature_of,
)

_CPP_TYPES: Final = {
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "c10::string_view",
    "Tensor": "const at::Tensor&",
}


@cause("WHY201", "an operator is defined twice", wrong="a kernel: the def is what is there twice")
def defined_twice(failure: Failure) -> Explanation | None:
    """Recognise a def of an operator that has one."""
    found = failure.search(
        r"Tried to register an operator \((\w+::([\w.]+)(\(.*?\) -> [^\n]*?))\) with the same name.*?multiple times"
        r".*?Duplicate registration: (?:registered at )?(\S+?)\.?\sOriginal registration: (?:registered at )?(\S+)"
    )
    if found is None:
        return None
    schema, base, _, again, before = found.groups()
    name = schema.partition("(")[0]
    namespace = name.partition("::")[0]
    lines = registered_lines(failure, name)
    first = next((line.partition(": ")[0] for line in lines), short_site(before))
    at = failure.at
    same = at is not None and any(str(at) == line.partition(": ")[0] for line in lines)
    why = "the same line ran twice" if same else f"the second time at {at or short_site(again)}"
    facts = failure.registry.operator(name)
    sentence = f"{name} is defined twice: it was already defined at {first}, and {why}"
    if facts is not None and facts.schema and facts.schema != schema:
        return Explanation(
            f"{sentence}, with another schema",
            (Fix(text=f'give it an overload name: "{base}.other{schema.removeprefix(name)}"'),),
            (f"the first: {facts.schema}", f"the second: {schema}"),
        )
    if namespace in ("aten", "prims"):
        return Explanation(
            f"{name} is defined twice: PyTorch defines it at {first}, and {why}",
            (
                Fix(
                    text=f'torch.library.Library("{namespace}", "IMPL").impl("{base}", kernel, KEY)',
                    needs="your kernel",
                ),
            ),
        )
    guard = f'hasattr(torch.ops.{namespace}, "{base.partition(".")[0]}") or '
    call = failure.call if "\n" not in failure.call else ""
    return Explanation(
        sentence,
        (
            Fix(text=f"{guard}...  # define it once", old=call, new=f"{guard}{call}"),
            Fix(text=f'in tests: with torch.library._scoped_library("{namespace}", "FRAGMENT") as lib: ...'),
        ),
        tuple(line for line in lines if ": define " in line or ": custom_op " in line),
    )


@cause("WHY202", "TORCH_LIBRARY twice for a namespace", wrong="TORCH_LIBRARY_IMPL for a file that defines operators")
def library_twice(failure: Failure) -> Explanation | None:
    """Recognise two libraries of kind DEF for one namespace."""
    found = failure.search(
        r"Only a single TORCH_LIBRARY can be used to register the namespace (\w+).*?"
        r"Previous registration of TORCH_LIBRARY was (?:registered at )?(\S+?); "
        r"latest registration was (?:registered at )?(\S+)"
    )
    if found is None:
        return None
    namespace, before, again = (text.rstrip(".") for text in found.groups())
    loads = [event.subject for event in failure.of("loaded library", "failed library")]
    fix = (
        Fix(text=f'torch.library.Library("{namespace}", "FRAGMENT")', old='"DEF"', new='"FRAGMENT"')
        if ".py" in again
        else Fix(text=f"TORCH_LIBRARY_FRAGMENT({namespace}, m) in the second file, or another namespace for it")
    )
    second = str(failure.at) if failure.at and ".py" in again else short_site(again)
    return Explanation(
        f"the namespace {namespace} is opened twice by TORCH_LIBRARY, which may be done once: first at "
        f"{_relative(before)}, second at {second}",
        (fix,),
        tuple(f"loaded: {load}" for load in loads[-2:]),
    )


def _relative(site: str) -> str:
    text = short_site(site)
    return text.rpartition("/")[2] if text.startswith("/") else text


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


_TWICE: Final = (
    r"already a kernel registered from python overriding (?P<base>[\w.]+)'s behavior for (?P<key>\w+) dispatch key "
    r"and (?P<ns>\w+) namespace",
    r"register_fake\(\.\.\.\): the operator (?P<ns>\w+)::(?P<base>[\w.]+) already has a (?:fake|Dispatch\w+::Meta)",
    r"Trying to override a python impl for DispatchKey\.(?P<key>\w+) on operator (?P<ns>\w+)::(?P<base>[\w.]+)",
    r"duplicate registrations for (?P<ns>\w+)\.(?P<base>[\w.]+)",
)


@cause("WHY205", "a kernel is registered twice", wrong="defining the operator again")
def kernel_twice(failure: Failure) -> Explanation | None:
    """Recognise a second kernel, fake or decomposition that may not override the first."""
    found = next((hit for pattern in _TWICE if (hit := failure.search(pattern))), None)
    if found is None:
        return None
    key = found.groupdict().get("key") or ("Meta" if "register_fake" in found[0] else "")
    name = f"{found['ns']}::{found['base'].removesuffix('.default')}"
    lines = [line for line in registered_lines(failure, name) if not key or line.endswith(f"at {key}")]
    before = next((f" at {line.partition(': ')[0]}" for line in lines), "")
    what = f"kernel for {key}" if key and key != "Meta" else "fake or Meta kernel" if key else "decomposition"
    at = f", and {failure.at} registers a second" if failure.at else ""
    off = "allow_override=False"
    allow = Fix(text="allow_override=True  # where the second should win", old=off, new="allow_override=True")
    return Explanation(
        f"{name} already has a {what}, registered{before or ' by PyTorch'}{at}",
        (
            *((allow,) if off in failure.call else ()),
            Fix(text="keep one of the two; in tests use torch.library._scoped_library, so that the first one goes"),
        ),
        tuple(lines),
    )


@cause("WHY206", "a fake kernel for a composite operator", wrong="a Meta kernel: it is refused for the same reason")
def fake_on_composite(failure: Failure) -> Explanation | None:
    """Recognise register_fake for an operator that decomposes."""
    found = failure.search(r"should not register a meta kernel directly to the operator '([\w:.]+)'") or failure.search(
        r"register_fake\(\.\.\.\): the operator ([\w:.]+) already has an implementation for this device"
    )
    if found is None:
        return None
    name = found[1]
    impl = next((e for e in failure.registrations(name) if e.detail == "CompositeImplicitAutograd" and e.at), None)
    at = f" at {impl.at}" if impl else ""
    base = name.partition("::")[2]
    return Explanation(
        f"{name} has a CompositeImplicitAutograd kernel{at}, which runs on fake tensors itself: it takes no fake",
        (
            Fix(text="drop the fake: the operators that the kernel calls have theirs"),
            Fix(text=f'or lib.impl("{base}", kernel, "CompositeExplicitAutograd")  # opaque: it takes a fake'),
        ),
        registered_lines(failure, name),
    )


_ANNOTATIONS: Final[Mapping[str, str]] = {
    "numpy.ndarray": "torch.Tensor",
    "torch.nn.parameter.Parameter": "torch.Tensor",
    "torch.Size": "list[int]",
    "list": "list[torch.Tensor]",
    "tuple": "list[int]",
    "typing.Union[int, float]": "float",
    "int | float": "float",
}


@cause("WHY207", "an annotation that infer_schema refuses", wrong="a kernel or a fake: there is no schema yet")
def unsupported_annotation(failure: Failure) -> Explanation | None:
    """Recognise a function whose annotations or defaults make no schema."""
    if (found := failure.search(r"infer_schema\(func\): (.+?)(?: Got func with signature ([^\n]+?)\)?$|$)")) is None:
        return None
    said, of = found[1], _operator_at(failure)
    if (hit := re.match(r"Parameter (\w+) has unsupported type (.+?)\. (?:The valid|We do not)", said)) is not None:
        name, kind = hit[1], hit[2].removeprefix("<class '").removesuffix("'>")
        sentence = f"the parameter {name}{of} has the type {kind}, which is not supported in a schema"
        fix = _of_kind(name, kind)
    elif (hit := re.match(r"Parameter (\w+) must have a type annotation", said)) is not None:
        sentence = f"the parameter {hit[1]}{of} has no annotation, and the schema is made of annotations"
        fix = f"{hit[1]}: torch.Tensor  # or int, float, bool, str, list[...]"
        if hit[1] == "self":
            sentence = f"the function{of} is a method: `self` has no type in a schema"
            fix = "a function outside of the class, without self: @torch.library.custom_op takes no method"
    elif (hit := re.match(r"Return has unsupported type (.+?)\. The", said)) is not None:
        kind = hit[1].removeprefix("<class '").removesuffix("'>")
        sentence = f"the function{of} returns {kind}, which is not supported in a schema"
        fix = "-> torch.Tensor  # or a tuple of Tensors, list[torch.Tensor], int, float, bool, None"
    elif said.startswith("No return type annotation"):
        sentence = f"the function{of} has no annotation of what it returns, and the schema is made of annotations"
        fix = "-> torch.Tensor:  # or tuple[torch.Tensor, torch.Tensor], None"
    elif "varargs" in said:
        sentence = f"the function{of} takes *args, **kwargs or positional-only parameters, which no schema has"
        fix = "sizes: list[int]  # one list in place of *sizes; each keyword of **kwargs as a parameter with a default"
    elif (
        hit := re.match(r"Parameter (\w+) has an unsupported default value type <class '([\w.]+)'", said)
    ) is not None:
        sentence = f"the parameter {hit[1]}{of} has a default of type {hit[2]}, which is not supported in a schema"
        kind = {"list": "list[int]", "torch.Tensor": "torch.Tensor"}.get(hit[2], "int")
        fix = f"{hit[1]}: {kind} | None = None  # and `if {hit[1]} is None: ...` in the function"
    elif (hit := re.match(r"Unsupported type annotation (\S+?)\. It is not a type", said)) is not None:
        sentence = f"the annotation {hit[1]}{of} is a text that names no type where the function stands"
        fix = f"import what {hit[1]} names at the top of the module, or write torch.Tensor without quotes"
    else:
        return None
    return Explanation(sentence, (Fix(text=fix),), (f"signature: {found[2]}",) if found[2] else ())


def _of_kind(name: str, kind: str) -> str:
    """Return what to write in place of an annotation."""
    element = re.match(r"(?:tuple|typing\.Tuple)\[([\w.]+)", kind)
    if element is not None:
        return f"{name}: list[{element[1]}]"
    optional = re.match(r"typing\.Optional\[(.+)\]$", kind)
    if optional is not None and optional[1] in _ANNOTATIONS:
        return f"{name}: {_ANNOTATIONS[optional[1]]} | None"
    if kind in _ANNOTATIONS:
        return f"{name}: {_ANNOTATIONS[kind]}"
    return (
        f"pass what {name} holds as Tensor, int, float, bool, str, or a list of these, "
        "and keep the rest outside of the operator"
    )


def _operator_at(failure: Failure) -> str:
    """Return ` of NS::NAME` for the operator that the user's line registers."""
    texts = [failure.call, failure.at.text if failure.at else "", *(frame.text for frame in failure.frames[::-1])]
    found = next((hit for text in texts if (hit := re.search(r"""["'](\w+::[\w.]+)["']""", text))), None)
    return f" of {found[1]}" if found is not None else ""


_MUTATES: Final = (
    (r"\{(?P<what>[^}]+)\} in mutates_args were not found", "mutates_args names {what}, which is no parameter"),
    (r"Parameter (?P<what>\w+) is in mutable_args but only Tensors", "mutates_args names {what}, which is no tensor"),
    (r"mutates_args must either be a sequence", "mutates_args is a single text"),
    (r"missing 1 required keyword-only argument: 'mutates_args'", "custom_op was called without mutates_args"),
)


@cause("WHY208", "mutates_args names what the function does not have", wrong="a def of another schema")
def wrong_mutates_args(failure: Failure) -> Explanation | None:
    """Recognise mutates_args that is missing, or with a name that is no tensor parameter."""
    for pattern, sentence in _MUTATES:
        if (found := failure.search(pattern)) is not None:
            says = sentence.format(**{key: value.replace("'", "") for key, value in found.groupdict().items()})
            return Explanation(
                f"{says}: the registration{_operator_at(failure)} cannot make a schema",
                (Fix(text='mutates_args=("x",)  # the names of the tensor parameters that it writes; () for none'),),
            )
    return None


_SCHEMA_WORDS: Final[Mapping[str, str]] = {
    "tensor": "Tensor",
    "torch.Tensor": "Tensor",
    "long": "int",
    "int64": "int",
    "int64_t": "int",
    "double": "float",
    "float32": "float",
    "string": "str",
    "boolean": "bool",
    "List[int]": "int[]",
    "list[int]": "int[]",
    "List[Tensor]": "Tensor[]",
    "list[Tensor]": "Tensor[]",
    "Optional[int]": "int?",
    "Optional[float]": "float?",
    "Optional[Tensor]": "Tensor?",
    "=true": "=True",
    "=false": "=False",
    "-> void": "-> ()",
    "-> None": "-> ()",
}


@cause("WHY209", "a schema that cannot be parsed", wrong="importing the package again")
def bad_schema(failure: Failure) -> Explanation | None:
    """Recognise a schema text that the parser of PyTorch refuses."""
    here = failure.search(r"(?:\w+Error: )?\n?([^\n]+):\n([^\n]*\([^\n]*)(?:\n( *)~* *<--- HERE)?")
    other = failure.search(r"(Non-default positional argument follows default argument)\. Parameter \w+ in ([^\n]+)")
    parser = failure.search(r"expected|unknown type specifier|invalid numeric|[Dd]uplicate|Only|legal")
    defines = re.search(
        r"def|custom_op|triton_op|schema|load_(?:inline|library)|\bload\(",
        f"{failure.call} {failure.at.text if failure.at else ''}",
    )
    if (parser is None or here is None or defines is None or "builtin op" in failure.text) and other is None:
        return None
    found = other or here
    assert found is not None
    what, schema = found[1].strip(), found[2].strip()
    word = re.match(r"[\w.]+", found[2][len(found[3]) :]) if other is None and found[3] else None
    better = _better(schema)
    at = f" at `{word[0]}`" if word is not None else ""
    what = what.partition(". Common")[0].removesuffix(" here")
    types = "Tensor, int, float, bool, str, Scalar, Device, ScalarType; T? optional, T[] a list"
    fix = Fix(text=f"types are {types}; -> (T, T) for several, -> () for none")
    if other is not None:
        fix = Fix(text="put the arguments without a default first, or give each that follows one a default")
    elif better != schema:
        fix = Fix(text=better, old=schema, new=better)
    return Explanation(f"the schema {schema} cannot be parsed{at}: {what}", (fix,))


def _better(schema: str) -> str:
    """Return a schema with the words that others write in place of the schema's own."""
    for wrong, right in _SCHEMA_WORDS.items():
        edge = r"(?![\w\[])" if wrong[-1].isalnum() else ""
        schema = re.sub(
            rf"(?<![\w.]){re.escape(wrong)}{edge}" if wrong[0].isalpha() else re.escape(wrong), right, schema
        )
    # Python writes `x: Tensor`.
    schema = re.sub(r"([(, ])(\w+): ([\w\[\]?]+)", r"\1\3 \2", schema)
    return schema if "->" in schema or not schema.endswith(")") else f"{schema} -> Tensor"


_REFUSED: Final = (
    (
        r"def\(\"(?P<what>[\w:.]+)\"\): Cannot define an operator inside of a TORCH_LIBRARY_IMPL",
        "{what} is defined in a Library of kind IMPL, which takes kernels alone",
        'lib = torch.library.Library(NAMESPACE, "FRAGMENT")  # takes defs and kernels',
    ),
    (
        r"Explicitly provided namespace \((?P<what>\w+)\) in (?:operator name|schema string) does not match "
        r"namespace of enclosing TORCH_LIBRARY block \((?P<other>\w+)\)",
        "an operator of the namespace {what} is registered in a Library of the namespace {other}",
        'torch.library.Library("{what}", "FRAGMENT")  # a Library of that namespace',
    ),
    (
        r"Explicitly provided dispatch key \((?P<what>\w+)\) is inconsistent with the dispatch key of the enclosing "
        r"TORCH_LIBRARY_IMPL block \((?P<other>\w+)\)",
        "a kernel for {what} is registered in a Library that was made for {other}",
        'torch.library.Library(NAMESPACE, "IMPL", "{what}")  # or leave the key of the Library out',
    ),
    (
        r"Fallback can only be registered using library fragment on the global namespace \"_\" but it is (?P<what>\w+)",
        "a fallback is registered in the Library of the namespace {what}, and holds for all operators",
        'torch.library.Library("_", "IMPL").fallback(kernel, KEY)',
    ),
    (
        r"Unsupported kind: (?P<what>\w+)",
        "a Library of the kind {what} does not exist",
        'torch.library.Library(NAMESPACE, "FRAGMENT")  # or "DEF", "IMPL"',
    ),
    (
        r"(?P<what>\w+) is a reserved namespace",
        "the namespace {what} is reserved for PyTorch",
        'torch.library.Library("mylib", "FRAGMENT")  # a namespace of your own',
    ),
    (
        r"expected schema to look like e\.g\. \"\(Tensor x\) -> Tensor\" "
        r"but got \"(?P<what>[^(\"]*)(?P<other>\([^\"]*)\"",
        "the schema of torch.library.define begins with the name {what}, which stands in its first argument",
        'torch.library.define(NAME, "{other}")',
    ),
    (
        r"Expected `qualname` to be of the form \"namespace::name\", but got (?P<what>\w+)",
        "the operator name {what} has no namespace",
        '"mylib::{what}"  # the namespace, two colons and the name',
    ),
    (
        r"(?P<what>\w+) is not a legal overload name",
        "the name of an operator ends with .{what}, which no overload may be called",
        "the name without .{what}: the overload without a name is the default",
    ),
    (
        r"(?P<what>Library) object has been destroyed",
        "a {what} is used after it was destroyed",
        'torch.library.Library(NAMESPACE, "FRAGMENT")  # a new one',
    ),
    (
        r"(?P<what>impl)\(\) missing 1 required positional argument: 'types'",
        "torch.library.{what} was called without the devices or keys that the kernel is for",
        'torch.library.impl(NAME, "cpu")  # the name, then the devices or a key',
    ),
    (
        r"Input function is required to be a callable but found type <class '(?P<what>\w+)'>",
        "impl was given a value of type {what} in place of the kernel",
        "lib.impl(NAME, kernel, KEY)  # the function stands second",
    ),
    (
        r"Functions without tensor inputs are required to have a `(?P<what>device): torch\.device` argument",
        "the custom operator takes no tensor, so that nothing but a parameter `{what}` can choose its kernel",
        "{what}: torch.device  # add it as a parameter, or leave device_types out",
    ),
)


@cause("WHY210", "a registration that the library cannot hold", wrong="another namespace for the callers")
def refused_registration(failure: Failure) -> Explanation | None:
    """Recognise what a Library, a name or a kind does not take."""
    if failure.search(r"custom_op|torch\.library|triton_op") is None and "custom_op" in failure.call:
        name = re.search(r"""["']([\w.]+)["']""", failure.call)
        if name is not None and failure.search("not enough values to unpack") is not None:
            shown = name[1].replace(".", "::") if "." in name[1] else f"mylib::{name[1]}"
            return Explanation(
                f"the operator name {name[1]} has no namespace: it is NAMESPACE::NAME",
                (Fix(text=f'"{shown}"', old=name[0], new=f'"{shown}"'),),
            )
    for pattern, sentence, fix in _REFUSED:
        if (found := failure.search(pattern)) is not None:
            words = {key: value or "" for key, value in found.groupdict().items()}
            at = f" at {failure.at}" if failure.at else ""
            return Explanation(f"{sentence.format(**words)}{at}", (Fix(text=fix.format(**words)),))
    return None


@cause(
    "WHY211", "a function that does not take the schema's arguments", wrong="another schema, where callers use this one"
)
def kernel_signature(failure: Failure) -> Explanation | None:
    """Recognise a kernel, backward or setup_context that its operator calls with arguments that it does not take."""
    found = failure.search(
        r"TypeError: ([\w.<>]+)\(\) (missing \d+ required [\w-]+ arguments?: [^\n]+|takes [^\n]+|"
        r"got an unexpected keyword[^\n]+)"
    )
    if found is None or failure.search(r"__torch_function__|fake tensor call") is not None:
        return None
    unfit = [e for e in failure.of("unfit function") if e.at and e.at.function == found[1].rpartition(".")[2]]
    if not unfit or "fake" in unfit[-1].detail.partition(":")[0]:
        return None
    named = [e for e in unfit if re.search(rf"\b{re.escape(_base(e))}\b", failure.call)]
    event = (named or unfit)[-1]
    facts = failure.registry.operator(event.subject)
    role, _, has = event.detail.partition(": ")
    schema = facts.schema if facts else ""
    function = found[1].rpartition(".")[2]
    define = f"def {function}({{}}): ..." if function.isidentifier() else "lambda {}: ..."
    keywords = ", keyword_only_inputs" if "*, " in schema else ""
    wanted = {
        "setup_context": f"ctx, inputs{keywords}, output",
        "backward": ", ".join(["ctx", *_gradients(schema)]),
    }.get(role, signature_of(schema))
    what = {"custom_op": "the function", "setup_context": "setup_context", "backward": "the backward"}.get(
        role, f"the {role} kernel"
    )
    return Explanation(
        f"{what} of {event.subject} at {event.at} takes ({has.strip()}), and PyTorch calls it with ({wanted}): "
        f"{found[2]}",
        (Fix(text=define.format(wanted)),),
        ((f"schema: {schema}",) if schema else ()),
    )


def _base(event: Event) -> str:
    return event.subject.partition("::")[2].partition(".")[0]


def _gradients(schema: str) -> list[str]:
    returns = schema.rpartition("-> ")[2]
    count = returns.count(",") + 1 if returns != "()" else 0
    return ["grad"] if count == 1 else [f"grad{index}" for index in range(count)]


@cause("WHY212", "a kernel whose result is not what its schema says", wrong="another key: the kernel ran")
def wrong_result(failure: Failure) -> Explanation | None:
    """Recognise a kernel that returned another kind or number of values."""
    results = failure.of("wrong result")
    refused = failure.search(
        r"Unable to cast |is not an instance of 'sequence'|to return None but it returned something else|"
        r"NoneType|Expected \w* ?to return|return(?:ed)? .* values?"
    )
    if not results or (refused is None and "AssertionError" not in failure.kinds):
        return None
    event = results[-1]
    given, _, wanted = event.detail.partition("\n")
    place = next((e.at for e in reversed(failure.of("function")) if e.subject == event.subject and e.at), None)
    at = f" at {place}" if place else ""
    facts = failure.registry.operator(event.subject)
    returns = {
        "nothing": "return None  # and write the argument that the schema marks",
        "Tensor": "return a torch.Tensor",
    }.get(wanted, f"return a tuple of {wanted}")
    fix = Fix(text=f"{returns}; or write what it gives in the schema: -> {_schema_of(given)}")
    if given == "ndarray" and wanted == "Tensor":
        fix = Fix(text="return torch.from_numpy(result)")
    return Explanation(
        f"the kernel of {event.subject}{at} gave {given}, and its schema says {wanted}",
        (fix,),
        ((f"schema: {facts.schema}",) if facts and facts.schema else ()),
    )


def _schema_of(given: str) -> str:
    counted = re.match(r"(\d+) values", given)
    if counted is not None:
        return f"({', '.join(['Tensor'] * int(counted[1]))})"
    return {"NoneType": "()", "Tensor": "Tensor", "Parameter": "Tensor"}.get(given, given)


_KEYS: Final = (
    "CPU",
    "CUDA",
    "MPS",
    "XPU",
    "HPU",
    "XLA",
    "MTIA",
    "Meta",
    "PrivateUse1",
    "Autograd",
    "AutogradCPU",
    "AutogradCUDA",
    "AutocastCPU",
    "AutocastCUDA",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "SparseCPU",
    "QuantizedCPU",
    "BackendSelect",
)
_OTHER_KEYS: Final[Mapping[str, str]] = {
    "gpu": "CUDA",
    "autocast": "AutocastCUDA",
    "default": "CompositeExplicitAutograd",
    "composite": "CompositeImplicitAutograd",
    "all": "CompositeExplicitAutograd",
    "rocm": "CUDA",
    "hip": "CUDA",
}


@cause("WHY213", "a dispatch key that does not exist", wrong="a def: the operator is there")
def unknown_key(failure: Failure) -> Explanation | None:
    """Recognise the name of a key that PyTorch does not have."""
    found = failure.search(r"could not parse dispatch key: (\w*)")
    if found is None:
        return None
    key = found[1]
    lower = {known.lower(): known for known in _KEYS}
    other = _OTHER_KEYS.get(key.lower()) or lower.get(key.lower()) or lower.get(nearest(key.lower(), list(lower)), "")
    if failure.device and key.lower() == failure.device:
        other = "PrivateUse1"
    if key == "Autocast":
        other = "AutocastCPU" if re.search(r"autocast\([^)]*[\"']cpu", failure.source) else "AutocastCUDA"
    note = "  # each device has an autocast key of its own" if key == "Autocast" else ""
    fixes = (Fix(text=f'"{other}"{note}', old=f'"{key}"', new=f'"{other}"'),) if other else ()
    return Explanation(
        f'there is no dispatch key "{key}"{_operator_at(failure)}: keys are {listed(_KEYS[:8], most=8)} and others',
        fixes or (Fix(text='"CPU"  # or another of these keys'),),
    )


_DEVICES: Final[Mapping[str, str]] = {
    "npu": "import torch_npu",
    "hpu": "import habana_frameworks.torch",
    "musa": "import torch_musa",
    "mlu": "import torch_mlu",
    "dml": "import torch_directml",
    "ort": "import torch_ort",
    "tpu": "import torch_xla",
    "neuron": "import torch_neuronx",
}


@cause("WHY214", "a device that no backend has named", wrong="a kernel: no tensor is there to call it with")
def unknown_device(failure: Failure) -> Explanation | None:
    """Recognise the name of a device that PyTorch does not know."""
    found = failure.search(r"Expected one of cpu, cuda.*? device type at start of device string: (\w+)")
    if found is None:
        return None
    name = found[1]
    if name in ("gpu", "nvidia", "rocm", "hip"):
        why, fix = "the device of a GPU is cuda", Fix(text='"cuda" if torch.cuda.is_available() else "cpu"')
    elif name in _DEVICES:
        why, fix = "the extension that names PrivateUse1 so was not imported", Fix(text=f"{_DEVICES[name]}  # first")
    else:
        why = "no extension has named PrivateUse1 so"
        fix = Fix(text=f'import the extension of {name}; it calls torch.utils.rename_privateuse1_backend("{name}")')
    return Explanation(f"PyTorch has no device {name}: {why}", (fix,))
