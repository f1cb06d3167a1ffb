"""Problems of native_functions.yaml: every rule by its name, and all problems of a file in one error."""

from __future__ import annotations

from enum import auto

from dispatchlab._short_repr import WordEnum
from dispatchlab.scenario.yaml_tree import YamlError


class Rule(WordEnum):
    """Each rule that a file can break, with its name."""

    # the shape of the file
    NOT_YAML = auto()
    NOT_A_LIST = auto()
    NOT_A_MAPPING = auto()
    MISSING_FIELD = auto()
    REPEATED_FIELD = auto()
    UNKNOWN_FIELD = auto()
    WRONG_VALUE = auto()
    NO_VALUE = auto()
    UNKNOWN_WORD = auto()
    # a schema on its own
    UNREADABLE_SCHEMA = auto()
    UNKNOWN_TYPE = auto()
    OUT_SUFFIX = auto()
    DUNDER_NAME = auto()
    FUNCTIONAL_NAME = auto()
    FUNCTIONAL_OVERLOAD = auto()
    RESERVED_ARGUMENT = auto()
    ALIAS_SETS = auto()
    ARGUMENT_AFTER_OUT = auto()
    WRITTEN_BEFORE_SELF = auto()
    OUT_RETURN_DIFFERS = auto()
    WRITTEN_ARGUMENT_RETURNED = auto()
    MIXED_RETURNS = auto()
    UNMATCHED_RETURN = auto()
    OUT_LIST_RETURNS = auto()
    OUT_COUNT = auto()
    OUT_AND_INPLACE = auto()
    INPLACE_SELF = auto()
    INPLACE_RETURN = auto()
    INPLACE_LIST_RETURN = auto()
    OPTIONS_VARIANT = auto()
    OPTIONS_TWICE = auto()
    # fields that contradict the schema or each other
    OUT_METHOD = auto()
    MODULE_METHOD = auto()
    CONST_REF_OUT = auto()
    NO_DEFAULT_TO_OMIT = auto()
    UNKNOWN_TAG = auto()
    SEEDED_TAG = auto()
    INPLACE_VIEW_TAG = auto()
    FOREACH_DEVICE_CHECK = auto()
    NAMESPACE_IN_NAME = auto()
    UNREADABLE_NAME = auto()
    STRUCTURED_VARIANT = auto()
    STRUCTURED_DEVICE_GUARD = auto()
    STRUCTURED_OPTIONS = auto()
    DELEGATE_VARIANT = auto()
    INHERITS_UNSTRUCTURED = auto()
    PRECOMPUTED_UNSTRUCTURED = auto()
    PRECOMPUTED_FORM = auto()
    PRECOMPUTED_UPPERCASE = auto()
    PRECOMPUTED_ARGUMENT = auto()
    UFUNC_UNSTRUCTURED = auto()
    UFUNC_FORM = auto()
    UFUNC_ELEMENT_TYPE = auto()
    # the dispatch table
    UNKNOWN_KEY = auto()
    UNSUPPORTED_KEY = auto()
    REPEATED_KEY = auto()
    KERNEL_NAME = auto()
    MANUAL_DISPATCH = auto()
    NEEDLESS_DISPATCH = auto()
    LONE_COMPOSITE = auto()
    FACTORY_WITHOUT_DISPATCH = auto()
    TWO_COMPOSITES = auto()
    DELEGATE_DISPATCH = auto()
    UFUNC_DISPATCH = auto()
    STRUCTURED_META = auto()
    STRUCTURED_COMPOSITE = auto()
    # one function and the others
    REPEATED_OPERATOR = auto()
    NO_DELEGATE = auto()
    DELEGATE_UNSTRUCTURED = auto()
    INPLACE_VIEW_NAME = auto()
    INPLACE_VIEW_ALONE = auto()
    # groups
    REPEATED_VARIANT = auto()
    STRUCTURED_ALONE = auto()
    DELEGATE_ALONE = auto()
    NO_FUNCTIONAL = auto()
    OUT_ALONE = auto()
    NO_OUT_VARIANT = auto()
    GROUP_NAMESPACE = auto()
    PARTLY_STRUCTURED = auto()
    OTHER_DELEGATE = auto()
    MUTABLE_NAME = auto()
    AUTOGEN_MISSING = auto()
    AUTOGEN_DIFFERS = auto()
    # views
    REPEATED_VIEW = auto()
    VIEW_COPY_MISSING = auto()
    VIEW_COPY_NAME = auto()
    VIEW_COPY_TAG = auto()
    VIEW_COMPOSITE = auto()


class NativeYamlError(YamlError):
    """A native_functions.yaml cannot be used: all its problems as lines, `file:line:column: message`.

    The `rule` of each is a `Rule`.

    >>> from dispatchlab.codegen import NativeYamlError, read_native_functions
    >>> try:
    ...     read_native_functions("[{func: f(Tensor self) -> Tensor, dispatches: {}}]", file="a.yaml")
    ... except NativeYamlError as error:
    ...     print(error)
    a.yaml:1:35: 'dispatches' is not a field of a native function; did you mean dispatch?
    """
