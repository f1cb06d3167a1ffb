"""Load scenario files: return a `Scenario`, or raise one error that reports all problems of the file.

Editors complete and explain the fields with the JSON Schema that `json_schema` gives. What it cannot say (that a schema
parses, that a number is in range) is checked when the file is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TypeVar

from dispatchlab.errors import nearest
from dispatchlab.files import FileKind, ReadError, file_in, instead, read_file
from dispatchlab.model.keys import DispatchKey
from dispatchlab.prover.chains import Module, normal, shortest
from dispatchlab.prover.result import Expectation
from dispatchlab.scenario.registrations import (
    INDEX,
    NAMESPACE,
    NESTED_TABLES,
    OPERATOR,
    PYTHON,
    REGISTRATION_LIST,
    ROW,
    SENTENCE,
    TOP_TABLES,
    Surroundings,
    read_all,
)
from dispatchlab.scenario.scenario import SEMANTICS, Scenario, operators_named_by
from dispatchlab.scenario.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    expected,
    list_of,
    one_of,
    scalar,
)
from dispatchlab.scenario.yaml_tree import Listing, Mapping, Node, Problem, Scalar, YamlError, compose, in_order

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_NUMBERS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_CHAIN = list_of(INDEX, "a list of numbers of registrations", empty=True)
_CHAIN_LIST = list_of(_CHAIN, "a list of chains")


def _chains(node: Node, context: Context) -> tuple[tuple[int, ...], ...]:
    if isinstance(node, Listing) and any(isinstance(child, Listing) for child in node.items):
        chains = _CHAIN_LIST.read(node, context)
    else:
        chains = (_CHAIN.read(node, context),)
    try:
        return normal(chains)
    except ValueError as circle:
        raise _in_circle(node, circle) from None


def _in_circle(node: Node, circle: ValueError) -> Wrong:
    return Wrong(node, f"the order goes in a circle: {', '.join(map(str, circle.args))}", "leave one of the chains out")


def _modules(node: Node, context: Context) -> tuple[Module, ...]:
    if not isinstance(node, Mapping):
        raise expected("a mapping from modules to what they register", node)
    if not node.pairs:
        raise Wrong(node, "expected at least one module but found none", "leave the field out for free orders")
    modules: dict[str, Module] = {}
    for key, child in node.pairs:
        try:
            name = scalar(key, "the name of a module")
            if not _NAME.fullmatch(name.text):
                raise expected("the name of a module", name, "a module is named as `import` names it: package.module")
            if name.text in modules:
                raise Wrong(key, f"the module {name.text} appears twice")
            if not isinstance(child, Listing):
                raise expected("a list of registrations", child)
            numbers = tuple(number for item in child.items for number in _numbers(scalar(item, _WANTED)))
            modules[name.text] = Module(name.text, numbers)
        except Wrong as wrong:
            context.report(wrong)
    return tuple(modules.values())


def _numbers(node: Scalar) -> range:
    numbers = _NUMBERS.fullmatch(node.text)
    if numbers is None:
        raise expected(_WANTED, node)
    first, last = int(numbers[1]), int(numbers[2] or numbers[1])
    if last < first or last - first > _MOST:
        raise expected(_WANTED, node, "the first number is the smaller one")
    return range(first, last + 1)


_WANTED = "the number of a registration, or several as `0-3`"
_MOST = 1_000_000

ORDER_CHAINS = Shape("a list of numbers, or of lists of them", _chains, {"anyOf": [_CHAIN.schema, _CHAIN_LIST.schema]})
MODULE_BODIES = Shape(
    "a mapping from modules to what they register",
    _modules,
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "array", "items": {"type": ["integer", "string"]}},
    },
)


def check_numbers(node: Node, count: int, context: Context) -> None:
    """Report numbers of chains that no registration has."""
    for child in node.items if isinstance(node, Listing) else ():
        check_numbers(child, count, context)
    if isinstance(node, Scalar) and node.text.isdecimal() and len(node.text) < 10 and int(node.text) >= count:
        context.report(_no_such_registration(node, int(node.text), count))


def check_modules(
    node: Node, modules: tuple[Module, ...], order: tuple[tuple[int, ...], ...], count: int, context: Context
) -> None:
    """Report numbers that no registration has or that appear twice, and chains that whole modules cannot keep."""
    from dispatchlab.prover.modules import chains_of

    seen: set[int] = set()
    for module in modules:
        for number in module.registrations:
            if number >= count:
                context.report(_no_such_registration(node, number, count))
                break
            if number in seen:
                context.report(Wrong(node, f"the registration {number} appears twice", "one module makes it"))
            seen.add(number)
        for before, after in (pair for chain in order for pair in pairwise(chain)):
            body = module.registrations
            if before in body and after in body and body.index(before) > body.index(after):
                text = f"{module.name} registers {after} before {before}, and order has {before} before {after}"
                context.report(
                    Wrong(node, text, "a module registers in the order of its list: exchange the two in one of them")
                )
    try:
        chains_of(modules, order)
    except ValueError as circle:
        names = [modules[at].name for at in circle.args]
        context.report(_in_circle(node, ValueError(*names)))


def _no_such_registration(node: Node, number: int, count: int) -> Wrong:
    hint = "the only one is 0" if count == 1 else f"they are 0 to {count - 1}"
    return Wrong(node, f"there is no registration {number}", hint)


def order_text(order: tuple[tuple[int, ...], ...]) -> str:
    """Return the value of `order` in its written form."""
    chains = [f"[{', '.join(map(str, chain))}]" for chain in shortest(order)]
    return chains[0] if len(chains) == 1 else f"[{', '.join(chains)}]"


def module_texts(modules: Iterable[Module]) -> Iterator[tuple[str, list[str]]]:
    """Return each module with its numbers in written form; successive modules are one item."""
    for module in modules:
        starts = [0, *(at for at, (one, other) in enumerate(pairwise(module.registrations), 1) if other != one + 1)]
        runs = [module.registrations[a:b] for a, b in pairwise([*starts, len(module.registrations)])]
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs if run]
        yield module.name, texts


T = TypeVar("T")


class ScenarioError(YamlError):
    """A scenario file or a replay file cannot be used: all its problems as lines, `file:line:column: message`.

    >>> from dispatchlab.scenario import ScenarioError, parse_scenario
    >>> try:
    ...     parse_scenario("claims: A sentence.", file="a.yaml")
    ... except ScenarioError as error:
    ...     print(error)
    a.yaml:1:1: 'claims' is not a field of a scenario; did you mean claim?
    a.yaml:1:1: `registrations` is missing in a scenario; that is: what is registered, in any order
    """


MAX_BYTES = 16 * 2**20
"""Larger files are refused unread; a scenario of 10,000 registrations has one."""


CLAIM = Field("claim", SENTENCE, "What the scenario shows, in a sentence.", required=True)
NAMESPACE_FIELD = Field("namespace", NAMESPACE, "The namespace of names without one; test when left out.")
SEMANTICS_FIELD = Field(
    "semantics",
    one_of("the name of a semantics", SEMANTICS),
    "The model of a dispatcher: a PyTorch version (`torch-2.13`), `strict` (an idealised dispatcher), or `pr35061` (a "
    "proposal of 2020). Default: the newest PyTorch; for a record of packages, the PyTorch of its registry.",
)
OPERATORS = Field(
    "operators",
    list_of(OPERATOR, "a list of operators"),
    "The operators that are observed; by default all that the registrations name.",
)
KEYS = Field("keys", list_of(ROW, "a list of dispatch keys"), "Rows of golden files and `--snapshots`; default: all.")
REGISTRY = Field(
    "registry",
    TEXT,
    "The registry that the registrations were added to: the name of a bundled one, such as torch-2.13, or a file beside"
    " this one. check, explain, dump, diff, coverage and `permute --operator` add the registrations to that registry.",
)
PACKAGES = Field(
    "packages",
    list_of(TEXT, "a list of modules"),
    "The packages whose import makes these registrations, in order; `dispatchlab record --check FILE` imports them "
    "again.",
)
CLASSES = Field(
    "classes",
    list_of(TEXT, "a list of classes"),
    "Custom classes that schemas name besides those of PyTorch, as namespace.Name.",
)
ORDER = Field(
    "order",
    ORDER_CHAINS,
    "Registrations, by number from 0, that keep this order; releases are still free. Use a list of lists for several "
    "chains. Each chain keeps its order.",
)
MODULES = Field(
    "modules",
    MODULE_BODIES,
    "For each module, the numbers of its registrations; `0-3` means 0 to 3. `permute` registers each module as a "
    "whole, in every order that `order` allows, and releases nothing.",
)
EXPECT = Field(
    "expect",
    one_of("an outcome", {str(each): each for each in Expectation}),
    "The expected result. Default: order-independent. `refused`: a registration is refused, and there is no violation.",
)
SNAPSHOTS = Field(
    "snapshots",
    one_of("true or false", {"true": True, "false": False}, schema={"type": "boolean"}),
    "true: the golden file also has what is seen after each registration and release, as `permute --snapshots` shows.",
)
REGISTRATIONS = Field("registrations", REGISTRATION_LIST, "What is registered, in any order.", required=True)

SCENARIO_TABLE = Table(
    "a scenario",
    (
        *(CLAIM, NAMESPACE_FIELD, SEMANTICS_FIELD, REGISTRY, PACKAGES, CLASSES, OPERATORS, KEYS, ORDER),
        *(MODULES, PYTHON, EXPECT, SNAPSHOTS, REGISTRATIONS),
    ),
)


def load_scenario(path: str | os.PathLike[str], *, allow_import: bool = False) -> Scenario:
    """Read a scenario file.

    >>> from dispatchlab import load_scenario
    >>> load_scenario("scenarios/basics/a_second_def.yaml").names
    ('def test::foo', 'def test::foo (2)')

    Args:
        path: the file.
        allow_import: whether `package.module:function` may be imported, which runs the module's code, in a process of
            its own.

    Raises:
        ScenarioError: with every problem of the file.
    """
    return parse_scenario(read_bytes(path, FileKind.SCENARIO), file=os.fspath(path), allow_import=allow_import)


def parse_scenario(data: bytes | str, *, file: str = "<text>", allow_import: bool = False) -> Scenario:
    """Read a scenario from the content of a file.

    >>> from dispatchlab import parse_scenario
    >>> parse_scenario("{claim: A sentence., registrations: [{impl: foo, dispatch: CPU, debug: fn}]}").registrations
    (Impl(parse_name('test::foo'), DispatchKey.CPU, debug='fn'),)

    Args:
        data: the content.
        file: its name in errors and default debug texts.
        allow_import: as for `load_scenario`.

    Raises:
        ScenarioError: with every problem of the content.
    """
    if not allow_import:
        return read_scenario(data, Context(file))
    from dispatchlab.scenario.named_functions import NamedFunctions

    with closing(NamedFunctions()) as named:
        return read_scenario(data, Context(file, find=named.find))


def read_scenario(data: bytes | str, context: Context) -> Scenario:
    """Read a scenario with a full context; `parse_scenario` is the short form.

    Raises:
        ScenarioError: with every problem of the content.
    """
    return read_as(_read, data, context)


def read_as(read: Callable[[Node, Context], T | None], data: bytes | str, context: Context) -> T:
    """Return the result of `read` for the content of a file.

    Args:
        read: takes the root of the tree, reports problems to the context, and raises `Wrong` if it cannot continue.
        data: the content.
        context: the state of reading the file.

    Raises:
        ScenarioError: with every problem of the content.
    """
    try:
        value = read(compose(data, context.file), context)
    except YamlError as error:
        raise ScenarioError(error.problems) from None
    except Wrong as wrong:
        context.report(wrong)
        value = None
    if context.problems or value is None:
        raise ScenarioError(in_order(context.problems))
    return value


def read_bytes(path: str | os.PathLike[str], kind: FileKind) -> bytes:
    """Return the content of a file that should be of this kind.

    Raises:
        ScenarioError: there is no such file (with the nearest names), it cannot be read, or it is of another kind.
    """
    file = os.fspath(path)
    try:
        data = read_file(file, limit=MAX_BYTES, what="scenarios")
    except FileNotFoundError:
        raise ScenarioError((_missing(Path(file), kind),)) from None
    except IsADirectoryError:
        package = os.path.basename(os.path.normpath(file))
        is_package = os.path.isfile(os.path.join(file, "__init__.py"))
        record = f"record it first: dispatchlab record {package} -o {package}.yaml"
        hint = record if is_package else file_in(file, ".yaml", ".yml")
        raise ScenarioError((Problem(file, "expected a file but found a folder", hint),)) from None
    except OSError as error:
        raise ScenarioError((Problem(file, f"the file cannot be read: {error.strerror or error}"),)) from None
    except ReadError as error:
        raise ScenarioError((Problem(file, error.reason),)) from None
    other = instead(data, file, kind)
    if other is not None:
        raise ScenarioError((Problem(file, *other),))
    return data


def _missing(path: Path, kind: FileKind) -> Problem:
    folder = path.parent
    if path.is_symlink():
        return Problem(str(path), f"it is a link to {os.readlink(path)}, which is not there", "")
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return Problem(str(path), "there is no such file", f"the folder {folder} cannot be listed")
    near = nearest(path.name, names)
    record = f"to record a package in it: dispatchlab record PACKAGE -o {path}" if kind is FileKind.SCENARIO else ""
    if record and not path.suffix:
        record = "no package of this name is installed; install one in its checkout with `pip install -e .`"
    hint = f"did you mean {folder / near[0]}?" if near else record
    return Problem(str(path), "there is no such file", hint)


def _read(root: Node, context: Context) -> Scenario | None:
    if isinstance(root, Scalar) and root.is_missing:
        raise Wrong(root, "the file is empty", "write `claim` and `registrations`")
    entry = Entry.read(root, SCENARIO_TABLE, context)
    namespace = entry.get(NAMESPACE_FIELD, "test")
    around = Surroundings(TOP_TABLES, namespace, None, PurePath(context.file).name)
    classes: tuple[str, ...] = entry.get(CLASSES, ())
    context.classes = frozenset(classes)
    nodes = entry.get(REGISTRATIONS, ())
    registrations = [each for each in read_all(nodes, around, context) if each is not None]
    node = entry.node_of(REGISTRATIONS)
    if isinstance(node, Listing) and not nodes and PACKAGES not in entry:
        message = "expected at least one registration but found an empty list"
        context.report(Wrong(node, message, "add at least one entry"))
    if REGISTRATIONS in entry:
        check_numbers(entry.node_of(ORDER), len(nodes), context)
        if MODULES in entry:
            count = len(nodes) + len(entry.get(PYTHON, ()))
            check_modules(entry.node_of(MODULES), entry.get(MODULES, ()), entry.get(ORDER, ()), count, context)
    if MODULES in entry and entry.get(SNAPSHOTS, False):
        message = "`snapshots` are of single registrations and releases, and modules come as a whole"
        context.report(Wrong(entry.node_of(SNAPSHOTS), message, "keep one of `snapshots` and `modules`"))
    if context.problems:
        return None
    operators = tuple(name.within(namespace) for name in entry.get(OPERATORS, ()))
    operators = tuple(dict.fromkeys(operators)) or operators_named_by(registrations)
    return Scenario(
        claim=entry[CLAIM],
        registrations=tuple(registrations),
        operators=operators,
        namespace=namespace,
        semantics=entry.get(SEMANTICS_FIELD, _model_of(entry.get(REGISTRY)) if PACKAGES in entry else None),
        keys=entry.get(KEYS, ()),
        registry=entry.get(REGISTRY),
        packages=entry.get(PACKAGES, ()),
        order=entry.get(ORDER, ()),
        modules=entry.get(MODULES, ()),
        python=entry.get(PYTHON, ()),
        expect=entry.get(EXPECT, Expectation.ORDER_INDEPENDENT),
        snapshots=entry.get(SNAPSHOTS, False),
        file=context.file,
    )


def _model_of(registry: str | None) -> str | None:
    """Return the semantics of the PyTorch that a record was taken on."""
    found = _VERSION.match(registry or "")
    return found[0] if found is not None and found[0] in SEMANTICS else None


_VERSION = re.compile(r"torch-[0-9]+\.[0-9]+")


def json_schema() -> dict[str, object]:
    """Return the schema, draft 2020-12, as a value that `json.dumps` takes.

    >>> from dispatchlab.scenario import json_schema
    >>> json_schema()["required"]
    ['claim', 'registrations']
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dispatchlab scenario",
        **SCENARIO_TABLE.schema,
        "$defs": {
            "key": {"enum": [key.name for key in DispatchKey]},
            "registration": {"oneOf": [{"$ref": f"#/$defs/{table.head}"} for table in TOP_TABLES]},
            "nested": {"oneOf": [{"$ref": f"#/$defs/{table.head}"} for table in NESTED_TABLES]},
            **{table.head: {"title": table.title, **table.schema} for table in TOP_TABLES},
        },
    }
