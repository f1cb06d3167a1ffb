"""The registrations of a scenario file: the shapes and fields of each kind, kernels, and library blocks.

See Note [Names and debug texts that are left out].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from dispatchlab.errors import RegistrationError
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    TAKE_OVERRIDE,
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import KNOWN_CLASSES, parse_name, parse_schema, parse_schema_or_name
from dispatchlab.scenario.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    did_you_mean,
    expected,
    list_of,
    one_of,
    parsed,
    scalar,
)
from dispatchlab.scenario.yaml_tree import Listing, Mapping, Node, Scalar, quoted

if TYPE_CHECKING:
    from dispatchlab.scenario.named_functions import NamedFunction
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


def _sentence(node: Node, context: Context) -> str:
    text = scalar(node, "a sentence").text
    if not text.strip():
        raise expected("a sentence", node)
    return text


def _key(node: Node, context: Context) -> DispatchKey | None:
    text = scalar(node, "a dispatch key").text
    try:
        return DispatchKey[text] or None
    except KeyError:
        hint = did_you_mean(text, DispatchKey.__members__) if text else "leave the field out for no key"
        if not hint and text.islower():
            hint = "for a device of your own, write PrivateUse1"
        raise expected("a dispatch key", node, hint) from None


def _row(node: Node, context: Context) -> DispatchKey:
    key = _key(node, context) or DispatchKey.Undefined
    if not key.is_runtime:
        why = "an alias key stands for several rows" if key.is_alias else "there is one row for each of its backends"
        raise Wrong(node, f"expected a key that has a row in the table but found {key}", why)
    return key


_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _namespace(node: Node, context: Context) -> str:
    text = scalar(node, "a namespace").text
    if not _NAMESPACE.fullmatch(text):
        raise expected("a namespace", node, "a namespace is letters, digits and _, and starts with no digit")
    return text


def _library(node: Node, context: Context) -> str | None:
    namespace = _namespace(node, context)
    return None if namespace == "_" else namespace


def _operator(node: Node, context: Context) -> OperatorName:
    return parsed(scalar(node, "the name of an operator"), parse_name, context)


def _definition(node: Node, context: Context) -> FunctionSchema | OperatorName:
    return parsed(scalar(node, "a schema"), _definition_parser(context.classes, typevars=True), context)


@cache
def _definition_parser(classes: frozenset[str], *, typevars: bool) -> Callable[[str], FunctionSchema | OperatorName]:
    return partial(parse_schema_or_name, typevars=typevars, custom_classes=KNOWN_CLASSES | classes)


def _index(node: Node, context: Context) -> int:
    text = scalar(node, "the number of a registration").text
    if not re.fullmatch("[0-9]{1,9}", text):
        raise expected("the number of a registration, from 0", node)
    return int(text)


_PREFIX = "_"
"""Stands for the missing name while the parser is at work."""


@cache
def _anonymous_parser(classes: frozenset[str]) -> Callable[[str], FunctionSchema]:
    def parse(text: str) -> FunctionSchema:
        return clone_with_name(parse_schema(text, custom_classes=KNOWN_CLASSES | classes), OperatorName("", ""))

    return parse


SENTENCE = Shape("a sentence", _sentence, {"type": "string", "minLength": 1})
KEY = Shape("a dispatch key", _key, {"$ref": "#/$defs/key"})
ROW = Shape("a dispatch key", _row, {"enum": [key.name for key in SLOT_KEYS]})
NAMESPACE = Shape("a namespace", _namespace, {"type": "string", "pattern": f"^{_NAMESPACE.pattern}$"})
LIBRARY = Shape("a namespace or _", _library, NAMESPACE.schema)
OPERATOR = Shape("the name of an operator", _operator, {"type": "string", "minLength": 1})
DEFINITION = Shape("a schema", _definition, {"type": "string", "minLength": 1})
INDEX = Shape("the number of a registration", _index, {"type": "integer", "minimum": 0})


# Note [Calls of torch.library]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.library.register_fake` and its kin end in kernels and defs, which any engine can register, but on their way
# they have rules of their own: a fake before its def is refused, and so is a Meta kernel beside a composite one. So
# such a registration is a block of what it registers, for every engine, and says besides which call made it, for the
# running PyTorch, which makes that call again. What `custom_op` gives can be registered on further; upstream takes
# these back with the operator only, so they are parts of its block and no registrations of their own.

CALL = Field(
    "call",
    one_of("a function of torch.library", {str(each): each for each in TorchLibraryFunction}),
    "The function of torch.library that was called.",
    required=True,
)
CALL_OPERATOR_FIELD = Field("operator", OPERATOR, "The operator that it is about.", required=True)
ON = Field("on", list_of(TEXT, "a list of device types"), "Device types, or the class of a torch dispatch rule.")
CALL_DEBUG = Field("debug", TEXT, "Where it was called.")

PART_TABLE = Table("a part of a custom_op", (CALL, ON, CALL_DEBUG))


def _parts(node: Node, context: Context) -> tuple[Entry, ...]:
    if not isinstance(node, Listing):
        raise expected("a list of parts", node)
    return tuple(Entry.read(child, PART_TABLE, context) for child in node.items)


PARTS = Field(
    "parts",
    Shape("a list of parts", _parts, {"type": "array", "items": {"type": "object"}}),
    "What was registered on the operator that custom_op gives, in order.",
)
ALLOW_OVERRIDE = Field(
    "allow_override",
    one_of("true or false", {"true": True, "false": False}, schema={"type": "boolean"}),
    "The argument allow_override of `impl` or `register_fake`. Default: PyTorch's default.",
)
LAYER_TABLE = Table("a call of torch.library", (CALL, CALL_OPERATOR_FIELD, ON, PARTS, ALLOW_OVERRIDE))


def _made_by(node: Node, context: Context) -> TorchLibraryCall:
    if not isinstance(node, Mapping):
        raise expected("a call of torch.library", node, "write a mapping with `call` and `operator`")
    entry = Entry.read(node, LAYER_TABLE, context)
    if not entry.is_right:
        return TorchLibraryCall(TorchLibraryFunction.DEFINE, OperatorName("", ""))
    function, operator = entry[CALL], entry[CALL_OPERATOR_FIELD]
    parts = tuple(
        TorchLibraryCall(part[CALL], operator, part.get(ON, ()), debug=part.get(CALL_DEBUG, ""))
        for part in entry.get(PARTS, ())
    )
    if parts and function is not TorchLibraryFunction.CUSTOM_OP:
        raise Wrong(entry.node_of(PARTS), f"only custom_op has parts, and this is {function}")
    override = entry.get(ALLOW_OVERRIDE)
    if override is not None and function not in TAKE_OVERRIDE:
        raise Wrong(entry.node_of(ALLOW_OVERRIDE), f"only impl and register_fake take it, and this is {function}")
    return TorchLibraryCall(function, operator, entry.get(ON, ()), parts, allow_override=override)


MADE_BY = Field(
    "made_by",
    Shape("a call of torch.library", _made_by, LAYER_TABLE.schema),
    "The call of torch.library that makes this block. The installed PyTorch makes the call; the lab engine makes the "
    "`registrations`.",
)


FORMS = {
    "boxed": Kernel(KernelForm.BOXED),
    "fallthrough": Kernel(KernelForm.FALLTHROUGH),
    "unboxed": Kernel(KernelForm.UNBOXED),
}
"""The kernels that have a word of their own; `unboxed` is one whose schema is unknown."""

FALLBACK_FORMS = {word: kernel for word, kernel in FORMS.items() if word != "unboxed"}
"""The same for fallbacks, which serve every schema and so are never unboxed."""

_REFERENCE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*(\.[^\W\d]\w*)*)")


def _kernel(node: Node, context: Context) -> Kernel:
    wanted = "boxed, fallthrough, an inferred schema such as (Tensor _0) -> Tensor _0, or package.module:function"
    value = scalar(node, wanted)
    if value.text in FORMS:
        return FORMS[value.text]
    if value.text.lstrip().startswith("("):
        inferred = parsed(value, _anonymous_parser(context.classes), context, prefix=_PREFIX)
        symint = is_symint_schema(inferred)
        return Kernel(KernelForm.UNBOXED, inferred=inferred, signature=cpp_signature(inferred), symint=symint)
    return _function_kernel(value, context, wanted, FORMS)


def _fallback(node: Node, context: Context) -> Kernel:
    wanted = "fallthrough, boxed or package.module:function"
    value = scalar(node, wanted)
    if value.text in FALLBACK_FORMS:
        return FALLBACK_FORMS[value.text]
    if value.text.lstrip().startswith("("):
        raise expected(wanted, node, "a fallback serves every operator, so its kernel has no schema of its own")
    return _function_kernel(value, context, wanted, FALLBACK_FORMS)


def _function_kernel(node: Scalar, context: Context, wanted: str, forms: Iterable[str]) -> Kernel:
    match = _REFERENCE.fullmatch(node.text)
    if match is None:
        raise expected(wanted, node, did_you_mean(node.text, forms))
    if node.text in context.functions:
        return Kernel(KernelForm.BOXED, function=context.functions[node.text], reference=node.text)
    if context.find is None:
        message = f"{quoted(node.text)} imports {match['module']}, which runs its code"
        raise Wrong(
            node, message, "allow it with --allow-import (load_scenario(..., allow_import=True)) if you trust it"
        )
    found: NamedFunction = context.find(node.text)
    if found.wrong:
        raise Wrong(node, found.wrong, found.hint, node.column_of(found.column) if found.column else None)
    return Kernel(KernelForm.BOXED, reference=node.text)


_REFERENCE_SCHEMA = {"type": "string", "pattern": r"^[^\s():]+:[^\s():]+$"}
KERNEL = Shape(
    "a kernel",
    _kernel,
    {"anyOf": [{"enum": list(FORMS)}, {"type": "string", "pattern": r"^\s*\("}, _REFERENCE_SCHEMA]},
)
FALLBACK = Shape("a kernel", _fallback, {"anyOf": [{"enum": list(FALLBACK_FORMS)}, _REFERENCE_SCHEMA]})


# Note [Names and debug texts that are left out]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A name without a namespace gets the scenario's; inside a block it stays as it is written, because what a block does
# with a bare name (and with a foreign one) is the engine's to decide and worth observing. A debug text that is left out
# says `registered at {file name}:{line}`, of the entry, or of its block for entries inside one, as upstream's does. The
# file name has no folder, so that a golden file does not depend on where it was made.

UNKNOWN = "none"
"""Written after `signature:` when it is unknown."""


def _nodes(node: Node, context: Context) -> tuple[Node, ...]:
    if not isinstance(node, Listing):
        raise expected("a list of registrations", node)
    return node.items


def _signature(node: Node, context: Context) -> str:
    text = scalar(node, "a C++ signature").text
    if not text.strip():
        raise expected("a C++ signature", node, "leave the field out for the signature that the schema gives")
    return text


REGISTRATION_LIST = Shape(
    "a list of registrations",
    _nodes,
    {"type": "array", "items": {"$ref": "#/$defs/registration"}},
)
_NESTED = Shape("a list of registrations", _nodes, {"type": "array", "items": {"$ref": "#/$defs/nested"}})
_ALIAS_KINDS: dict[str, AliasKind | None] = {**{str(kind): kind for kind in AliasKind}, "default": None}
_ALIAS = one_of("an alias kind", _ALIAS_KINDS)
_KIND = one_of("a kind of library block", {str(kind): kind for kind in BlockKind})
_TAGS = list_of(TEXT, "a list of tags", empty=True)

DISPATCH = Field("dispatch", KEY, "The dispatch key; Undefined is the same as no key at all.")
DEBUG = Field("debug", TEXT, "Where it comes from, as dumps print it; by default `registered at file:line`.")
DEF_DEBUG = Field(
    "def_debug",
    TEXT,
    "The debug text of a def that has a kernel; then `debug` is the text of the kernel. Default: as for `debug`.",
)
KERNEL_FIELD = Field(
    "kernel",
    KERNEL,
    "`boxed` (default of an impl), `fallthrough`, `unboxed` (of unknown schema), the schema of an unboxed kernel, such "
    "as `(Tensor _0) -> Tensor _0`, or a function as `package.module:function`. Default of a def: no kernel.",
)
SIGNATURE = Field(
    "signature",
    Shape("a C++ signature", _signature, {"type": "string", "minLength": 1}),
    "The hidden C++ signature of an unboxed kernel. Default: the signature of its schema. The value `none`: unknown.",
)
SCHEMA = Field(
    "def", DEFINITION, "The schema of the operator. Or only its name; then `kernel` gives the schema.", required=True
)
ALIAS = Field(
    "alias",
    _ALIAS,
    "What the def promises about aliasing: FROM_SCHEMA when left out, or CONSERVATIVE when the schema is inferred; "
    "default leaves it unset.",
)
TAGS = Field("tags", _TAGS, "Names of tags.")
OPERATOR_FIELD = Field("impl", OPERATOR, "Registers a kernel of this operator.", required=True)
FALLBACK_FIELD = Field("fallback", FALLBACK, "Registers the kernel that every operator falls back to.", required=True)
NAME = Field("name", OPERATOR, "Registers a name alone: the operator's entry, no schema and no kernel.", required=True)
CLAIM = Field("claim", NAMESPACE, "Reserves this namespace, as a DEF library does.", required=True)
LIBRARY_FIELD = Field(
    "library",
    LIBRARY,
    "The namespace of the block; _ is the wildcard. Its registrations are made together and released together.",
    required=True,
)
KIND = Field("kind", _KIND, "What the block may hold.", required=True)
NESTED = Field("registrations", _NESTED, "In the order in which they run.")

DEF_TABLE = Table("a def", (SCHEMA, ALIAS, TAGS, DISPATCH, KERNEL_FIELD, SIGNATURE, DEBUG, DEF_DEBUG))
IMPL_TABLE = Table("an impl", (OPERATOR_FIELD, DISPATCH, KERNEL_FIELD, SIGNATURE, DEBUG))
FALLBACK_TABLE = Table("a fallback", (FALLBACK_FIELD, DISPATCH, DEBUG))
NAME_TABLE = Table("a name", (NAME,))
CLAIM_TABLE = Table("a claim", (CLAIM, DEBUG))
BLOCK_TABLE = Table("a library block", (LIBRARY_FIELD, KIND, DISPATCH, MADE_BY, DEBUG, NESTED))

NESTED_TABLES = (DEF_TABLE, IMPL_TABLE, FALLBACK_TABLE)
TOP_TABLES = (*NESTED_TABLES, NAME_TABLE, CLAIM_TABLE, BLOCK_TABLE)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings that give a registration its defaults.

    Args:
        tables: the allowed kinds of registrations.
        namespace: the namespace of names without a namespace; empty inside a block.
        debug: the text of a block's members; None at top level.
        file: the name of the file, without its folder.
    """

    tables: tuple[Table, ...]
    namespace: str
    debug: str | None
    file: str


def read_registration(node: Node, around: Surroundings, context: Context) -> Registration | None:
    """Return the registration that a node describes; None when it is wrong, after reporting why.

    Raises:
        Wrong: the kind of registration is not clear.
    """
    table = _table_of(node, around.tables)
    entry = Entry.read(node, table, context)
    location = context.location(node)
    default = around.debug if around.debug is not None else f"registered at {around.file}:{node.line}"
    debug = entry.get(DEBUG, default)
    if table is BLOCK_TABLE:
        nested = Surroundings(NESTED_TABLES, "", debug, around.file)
        inner = read_all(entry.get(NESTED, ()), nested, context)
        if not entry.is_right:
            return None
        members = tuple(member for member in inner if isinstance(member, Def | Impl | Fallback))
        made_by = entry.get(MADE_BY)
        if made_by is not None and entry[LIBRARY_FIELD] is None:
            raise Wrong(entry.node_of(MADE_BY), "a call of torch.library has a namespace, and this library has none")
        return Block(entry[LIBRARY_FIELD], entry[KIND], members, entry.get(DISPATCH), debug, made_by, location)
    if not entry.is_right:
        return None
    if table is DEF_TABLE:
        made = _def(entry, around, context)
        if made.kernel is None:
            return replace(made, debug=debug, location=location)
        def_debug = entry.get(DEF_DEBUG, default)
        return replace(made, debug=def_debug, location=location, kernel_debug="" if debug == def_debug else debug)
    if table is IMPL_TABLE:
        operator = entry[OPERATOR_FIELD].within(around.namespace)
        return Impl(operator, entry.get(DISPATCH), _kernel_of(entry), debug, location)
    if table is FALLBACK_TABLE:
        return Fallback(entry.get(DISPATCH), entry[FALLBACK_FIELD], debug, location)
    if table is NAME_TABLE:
        return NameOnly(entry[NAME].within(around.namespace), location)
    return Claim(entry[CLAIM], debug, location)


def read_all(nodes: tuple[Node, ...], around: Surroundings, context: Context) -> list[Registration | None]:
    """Return the registrations of a list, with None for each wrong one; report every problem."""
    read: list[Registration | None] = []
    for node in nodes:
        try:
            read.append(read_registration(node, around, context))
        except Wrong as wrong:
            context.report(wrong)
            read.append(None)
    return read


def _table_of(node: Node, tables: tuple[Table, ...]) -> Table:
    heads = {table.head: table for table in tables}
    if not isinstance(node, Mapping):
        raise expected(f"a registration ({', '.join(heads)})", node)
    keys = [key for key, _ in node.pairs if isinstance(key, Scalar)]
    kinds = [key for key in keys if key.text in heads]
    if not kinds:
        near = (did_you_mean(key.text, heads) for key in keys)
        hint = next(filter(None, near), f"start it with one of {', '.join(heads)}")
        found = f"a mapping with {', '.join(quoted(key.text) for key in keys[:3])}" if keys else "an empty mapping"
        raise Wrong(keys[0] if keys else node, f"expected a registration but found {found}", hint)
    if other := next((key for key in kinds if key.text != kinds[0].text), None):
        message = f"an entry is one registration, but `{kinds[0].text}` and `{other.text}` are both present"
        raise Wrong(other, message, "start a new entry with a dash")
    return heads[kinds[0].text]


def _def(entry: Entry, around: Surroundings, context: Context) -> Def:
    named = entry[SCHEMA]
    schema: FunctionSchema | OperatorName
    if KERNEL_FIELD not in entry:
        if isinstance(named, OperatorName):
            hint = "write its arguments and returns, or a `kernel` that gives them"
            raise Wrong(entry.node_of(SCHEMA), f"expected a schema but found the name {named} alone", hint)
        for field in (DISPATCH, SIGNATURE, DEF_DEBUG):
            if field in entry:
                message = f"`{field.name}` belongs to a kernel, and this def has none"
                raise Wrong(entry.node_of(field), message, "add `kernel`, or make it an impl of its own")
        # As in a library block: `tensor` is a slip and no type variable, which a def with a kernel alone may have.
        node = scalar(entry.node_of(SCHEMA), "a schema")
        parsed(node, _definition_parser(context.classes, typevars=False), context)
        kernel = None
    else:
        kernel = _kernel_of(entry)
    if isinstance(named, OperatorName):
        schema = _inferred(named.within(around.namespace), kernel, entry, context)
        alias = entry.get(ALIAS, AliasKind.CONSERVATIVE)
    else:
        schema = clone_with_name(named, named.name.within(around.namespace))
        alias = entry.get(ALIAS, AliasKind.FROM_SCHEMA)
    tags: tuple[str, ...] = entry.get(TAGS, ())
    return Def(schema, alias, frozenset(tags), kernel=kernel, key=entry.get(DISPATCH))


def _inferred(
    name: OperatorName, kernel: Kernel | None, entry: Entry, context: Context
) -> FunctionSchema | OperatorName:
    if kernel is None:
        return name
    try:
        if kernel.function is not None:
            from dispatchlab.model.infer_schema import infer_schema

            return clone_with_name(infer_schema(kernel.function), name)
        if kernel.reference is None or context.find is None:
            return name
        found: NamedFunction = context.find(kernel.reference)
        if found.no_schema:
            raise Wrong(entry.node_of(KERNEL_FIELD), found.no_schema, "or write the schema out")
        return clone_with_name(_anonymous_parser(context.classes)(_PREFIX + found.schema), name)
    except RegistrationError as error:
        raise Wrong(entry.node_of(KERNEL_FIELD), error.message, "or write the schema out") from None


def _kernel_of(entry: Entry) -> Kernel:
    kernel = entry.get(KERNEL_FIELD, Kernel())
    if SIGNATURE not in entry:
        return kernel
    if kernel.form is not KernelForm.UNBOXED:
        message = f"only an unboxed kernel has a signature, and this one is {kernel.form}"
        raise Wrong(entry.node_of(SIGNATURE), message, "give the kernel as its schema, `(Tensor _0) -> Tensor _0`")
    signature = entry[SIGNATURE]
    return replace(kernel, signature=None if signature == UNKNOWN else signature)


def _registry_name(node: Node, context: Context) -> str:
    from dispatchlab.model.python_layer import REGISTRY_NAMED  # costs start-up, and few have any

    text = scalar(node, "a registry of Python").text
    if text not in REGISTRY_NAMED:
        raise expected("a registry of Python", node, did_you_mean(text, REGISTRY_NAMED))
    return text


_NAME = Shape("a registry of Python", _registry_name, {"type": "string", "minLength": 1})
_REGISTRY = Field("registry", _NAME, "The registry, by the name that `dispatchlab dump` has for it.", required=True)
_OPERATOR = Field(
    "operator", TEXT, "The operator, with its namespace; the default overload without a name.", required=True
)
_KEY = Field("key", TEXT, "What it is kept by besides: a dispatch key, a mode, a table, a device.")
_FUNCTION = Field("function", TEXT, "The function, as module:name.")
_SITE = Field("site", TEXT, "The line that registered it.")
_NEEDS = Field("needs", TEXT, "The module of PyTorch that has to be imported for it.")

PYTHON_FIELDS = (_OPERATOR, _KEY, _FUNCTION, _SITE, _NEEDS)
"""The fields of a registration of Python besides its registry."""

_TABLE = Table("a registration of Python", (_REGISTRY, *PYTHON_FIELDS))


def _read(node: Node, context: Context) -> tuple[PythonRegistration, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise expected("a list of registrations of Python", node)
    return tuple(_registration(child, context) for child in node.items)


def _registration(node: Node, context: Context) -> PythonRegistration:
    from dispatchlab.model.python_layer import PythonRegistration  # costs start-up, and few have any

    entry = Entry.read(node, _TABLE, context)
    if entry.is_right:
        try:
            return _python_code(entry)
        except Wrong as wrong:
            context.report(wrong)
    return PythonRegistration("", "")  # every problem is reported already, and the scenario is not made


def _python_code(entry: Entry) -> PythonRegistration:
    """Return the registrations of an entry without problems.

    Raises:
        Wrong: no operator can have that name.
    """
    from dispatchlab.model.python_layer import PythonRegistration  # costs start-up, and few have any

    operator = entry[_OPERATOR]
    namespace, _, name = operator.partition("::")
    if not namespace or not name:
        wanted = "the name of an operator with its namespace"
        raise expected(wanted, entry.node_of(_OPERATOR), "write namespace::name")
    key, function, site, needs = (entry.get(field, "") for field in (_KEY, _FUNCTION, _SITE, _NEEDS))
    return PythonRegistration(entry[_REGISTRY], operator, key, function, site, needs)


PYTHON = Field(
    "python",
    Shape(
        "a list of registrations of Python",
        _read,
        {"type": "array", "items": _TABLE.schema},
    ),
    "What the packages register in Python beside the dispatch tables, as `dispatchlab record` found it. If two entries "
    "have the same registry, operator and key, the later entry is in force.",
)


def python_fields(one: PythonRegistration) -> Iterator[tuple[str, str]]:
    """Return the fields of a registration in their written form, without empty fields."""
    named = (("registry", one.registry), *((field.name, getattr(one, field.name)) for field in PYTHON_FIELDS))
    return ((name, text) for name, text in named if text)
