"""Which tags there are: those of a tags.yaml, or of PyTorch 2.13 where there is none beside the file."""

from __future__ import annotations

from dispatchlab.codegen.problems import NativeYamlError, Rule, YamlProblem, in_order
from dispatchlab.model.registration import Place
from dispatchlab.scenario.problems import ScenarioError
from dispatchlab.scenario.tree import Listing, Mapping, Scalar, compose

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


def read_tags(data: bytes | str, file: str) -> frozenset[str]:
    """The tags that a tags.yaml lists.

    Args:
        data: the content: entries with `tag` and `desc`.
        file: what places in errors call it.

    Raises:
        NativeYamlError: with every entry that has no name or no description.
    """
    try:
        root = compose(data, file)
    except ScenarioError as error:
        raise not_yaml(error) from None
    problems: list[YamlProblem] = []
    if not isinstance(root, Listing):
        where = Place(file, root.line, root.column)
        raise NativeYamlError((YamlProblem(Rule.NOT_A_LIST, where, "found no list of tags", "start with `- tag:`"),))
    found: set[str] = set()
    for node in root.items:
        pairs = node.pairs if isinstance(node, Mapping) else ()
        texts = {key.text: value for key, value in pairs if isinstance(key, Scalar)}
        name, description = texts.get("tag"), texts.get("desc")
        where = Place(file, node.line, node.column)
        if not isinstance(name, Scalar) or name.is_missing:
            problems.append(YamlProblem(Rule.NO_VALUE, where, "found a tag without a name", "add `tag: name`"))
        elif not isinstance(description, Scalar) or not description.text.strip():
            problems.append(
                YamlProblem(Rule.NO_VALUE, where, f"the tag {name.text} has no description", "add `desc: ...`")
            )
        else:
            found.add(name.text)
    if problems:
        raise NativeYamlError(in_order(problems))
    return frozenset(found)


def not_yaml(error: ScenarioError) -> NativeYamlError:
    """The same problems, as those of a file of native functions."""
    return NativeYamlError(
        tuple(YamlProblem(Rule.NOT_YAML, each.where, each.message, each.hint) for each in error.problems)
    )
