"""Read native_functions.yaml, and tags.yaml beside it: all functions and groups, or every problem of the file.

Same rules as torchgen, in one pass over the events of the YAML parser. See Note [Differences from torchgen].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from dispatchlab._gc_pause import collector_paused
from dispatchlab.codegen.read.entry import read_entry
from dispatchlab.codegen.read.fields import FUNC, Fields, entry_of
from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup, group_variants, group_views
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction
from dispatchlab.codegen.read.problems import NativeYamlError, Rule
from dispatchlab.codegen.read.rules import check_functions
from dispatchlab.files import FileKind, OtherFileError, ReadError, content_of, read_file
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.scenario.yaml_fields import Context
from dispatchlab.scenario.yaml_tree import Listing, Problem, Scalar, YamlError, compose, in_order
from dispatchlab.scenario.yaml_tree import Mapping as YamlMapping


@dataclass(frozen=True)
class NativeFunctions:
    """The content of a file of native functions.

    Args:
        functions: the functions of the file in order, then the functions that are generated from them.
        groups: functions in groups if they are variants of one operator, else single.
    """

    functions: tuple[NativeFunction, ...]
    groups: tuple[FunctionGroup | NativeFunction, ...]

    @cached_property
    def structured_groups(self) -> tuple[FunctionGroup, ...]:
        """The groups that have meta and impl."""
        return tuple(group for group in self.groups if isinstance(group, FunctionGroup) and group.structured)

    @cached_property
    def backends(self) -> Mapping[DispatchKey, Mapping[OperatorName, BackendKernel]]:
        """The kernels at each key by operator, the keys in the order of their numbers."""
        found: dict[DispatchKey, dict[OperatorName, BackendKernel]] = {}
        for function in self.functions:
            for kernel in function.dispatch:
                found.setdefault(kernel.key, {})[function.name] = kernel
        return {key: found[key] for key in sorted(found)}

    @cached_property
    def view_groups(self) -> tuple[ViewGroup | NativeFunction, ...]:
        """The functions again, views grouped with their copies."""
        return group_views(self.functions, [])


TAGS: frozenset[str] = frozenset(
    (
        *("inplace_view", "pt2_compliant_tag", "view_copy", "dynamic_output_shape", "data_dependent_output"),
        *("generated", "nondeterministic_seeded", "nondeterministic_bitwise", "needs_exact_strides"),
        *("needs_contiguous_strides", "needs_fixed_stride_order", "flexible_layout", "core", "pointwise"),
        *("maybe_aliasing_or_mutating", "cudagraph_unsafe", "reduction", "out", "inplace"),
        "out_variant",
    )
)
"""The tags of PyTorch 2.13. Source: aten/src/ATen/native/tags.yaml."""

MAX_BYTES = 16 * 2**20
"""Larger files are refused unread; that of PyTorch has 0.6 MiB."""


def load_native_functions(path: str | os.PathLike[str]) -> NativeFunctions:
    """Read a file of native functions, with the tags.yaml beside it if there is one.

    Raises:
        NativeYamlError: with every problem of the file, or of its tags.
        OtherFileError: it is another file of dispatchlab.
    """
    file = Path(path)
    found = content_of(file)
    if found is not None:
        raise OtherFileError(os.fspath(path), found, (FileKind.NATIVE_FUNCTIONS,))
    beside = file.with_name("tags.yaml")
    tags = read_tags(_bytes_of(beside), str(beside)) if beside.is_file() else TAGS
    return read_native_functions(_bytes_of(file), file=os.fspath(path), tags=tags)


def read_native_functions(data: bytes | str, *, file: str = "<text>", tags: frozenset[str] = TAGS) -> NativeFunctions:
    """Return the native functions that a file describes.

    >>> from dispatchlab.codegen import read_native_functions
    >>> (twice,) = read_native_functions("- func: twice(Tensor self) -> Tensor").functions
    >>> str(twice.schema), [str(kernel.key) for kernel in twice.dispatch]
    ('aten::twice(Tensor self) -> Tensor', ['CompositeImplicitAutograd'])

    Args:
        data: the content.
        file: its name in source locations.
        tags: the tags that there are.

    Raises:
        NativeYamlError: with every problem of the content.
    """
    # Half a million new objects make looking for cycles a third of the time, and none is in a cycle.
    with collector_paused():
        try:
            return _read(data, file, tags)
        except NativeYamlError:
            raise
        except YamlError as error:  # so many problems that reading stopped
            raise NativeYamlError(error.problems) from None


def read_tags(data: bytes | str, file: str) -> frozenset[str]:
    """Return the tags that a tags.yaml lists.

    Args:
        data: the content: entries with `tag` and `desc`.
        file: its name in source locations.

    Raises:
        NativeYamlError: with every entry that has no name or no description.
    """
    try:
        root = compose(data, file)
    except YamlError as error:
        raise _not_yaml(error) from None
    problems: list[Problem] = []
    if not isinstance(root, Listing):
        where = SourceLocation(file, root.line, root.column)
        raise NativeYamlError((Problem(where, "found no list of tags", "start with `- tag:`", Rule.NOT_A_LIST),))
    found: set[str] = set()
    for node in root.items:
        pairs = node.pairs if isinstance(node, YamlMapping) else ()
        texts = {key.text: value for key, value in pairs if isinstance(key, Scalar)}
        name, description = texts.get("tag"), texts.get("desc")
        where = SourceLocation(file, node.line, node.column)
        if not isinstance(name, Scalar) or name.is_missing:
            problems.append(Problem(where, "found a tag without a name", "add `tag: name`", Rule.NO_VALUE))
        elif not isinstance(description, Scalar) or not description.text.strip():
            problems.append(Problem(where, f"the tag {name.text} has no description", "add `desc: ...`", Rule.NO_VALUE))
        else:
            found.add(name.text)
    if problems:
        raise NativeYamlError(in_order(problems))
    return frozenset(found)


# Note [Differences from torchgen]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# torchgen compares the text of a schema with what it prints of it, so a second blank between two arguments is an error
# there; here blanks do not count. torchgen lets a key of `dispatch` be given twice, once alone and once in a list with
# commas, and the later kernel wins; here that is an error. A field without a value is None there and mostly means "not
# given"; here it is an error. torchgen does not check that `precomputed` replaces an argument; we do. A structured
# function that names a kernel for Meta passes its reader and fails in its generator; here the reader reports it.


def _read(data: bytes | str, file: str, tags: frozenset[str]) -> NativeFunctions:
    try:
        root = compose(data, file)
    except YamlError as error:
        raise _not_yaml(error) from None
    if not isinstance(root, Listing):
        where = SourceLocation(file, root.line, root.column)
        message = "found no list of native functions"
        raise NativeYamlError((Problem(where, message, "start with `- func:`", Rule.NOT_A_LIST),))
    context = Context(file)
    problems = context.problems
    functions: list[NativeFunction] = []
    entries: dict[OperatorName, Fields] = {}
    for node in root.items:
        fields = entry_of(node, context)
        function = None if fields is None else read_entry(fields, tags)
        if fields is None or function is None:
            continue
        if function.name in entries:
            first = entries[function.name].func.line
            fields.report_field(
                Rule.REPEATED_OPERATOR,
                FUNC,
                f"{function.short_name} was defined before, on line {first}",
                "give it another overload name",
            )
            continue
        entries[function.name] = fields
        functions.append(function)
    check_functions(functions, entries)
    if problems:
        # NB: groups are checked only when their functions are right, or one mistake would be reported many times
        raise NativeYamlError(in_order(problems))
    generated, groups = group_variants(functions, problems)
    if not problems:
        group_views((*functions, *generated), problems)
    if problems:
        raise NativeYamlError(in_order(problems))
    return NativeFunctions((*functions, *generated), groups)


def _bytes_of(path: Path) -> bytes:
    try:
        return read_file(path, limit=MAX_BYTES, what="files of native functions")
    except ReadError as error:
        raise NativeYamlError((Problem(str(path), error.reason, rule=Rule.NOT_YAML),)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise NativeYamlError((Problem(str(path), f"the file cannot be read: {reason}", rule=Rule.NOT_YAML),)) from None


def _not_yaml(error: YamlError) -> NativeYamlError:
    """Return the same problems as problems of a file of native functions."""
    return NativeYamlError(tuple(replace(problem, rule=Rule.NOT_YAML) for problem in error.problems))
