"""How a sandbox spells names, keys and numbers for the bindings, and the library objects that it makes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from dispatchlab.live.step import Library, Open
from dispatchlab.live.torch import bindings
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema, clone_with_name


class Enclosing(NamedTuple):
    """What a library is made with, as the user has it."""

    kind: str
    namespace: str | None
    key: DispatchKey | None = None


class Libraries:
    """The libraries of one sandbox.

    Args:
        prefix: stands before every namespace, so that the sandbox has namespaces of its own.
        mark: the file that libraries name. See Note [One number for each call].
        parse_keys: hand keys over as text, which refuses the 42 that PyTorch cannot parse; else as numbers.
    """

    def __init__(self, prefix: str, mark: str, *, parse_keys: bool = True) -> None:
        self._c = bindings()
        self.prefix, self.mark, self.parse_keys = prefix, mark, parse_keys
        self._kept: list[Library] = []

    def opened(self, enclosing: Enclosing, number: int) -> Open:
        """Make a library each time, and nothing with it."""
        make, mark = self._c._dispatch_library, self.mark
        kind, namespace, key = enclosing.kind, self._namespace(enclosing.namespace), self.key_text(enclosing.key)
        return lambda: make(kind, namespace, key, mark, number)

    def reopened(self, call: Callable[[Any], None], enclosing: Enclosing, number: int) -> Open:
        """Make a call on one library, which is made the first time and used again after each reset."""
        make, mark = self._c._dispatch_library, self.mark
        kind, namespace, key = enclosing.kind, self._namespace(enclosing.namespace), self.key_text(enclosing.key)
        library: Any = None

        def reopen() -> Library:
            nonlocal library
            if library is None:
                library = make(kind, namespace, key, mark, number)
                self._kept.append(library)
            call(library)
            return library  # type: ignore[no-any-return]  # the bindings are untyped

        return reopen

    def reset(self) -> None:
        """Take back whatever was registered on those that are used again."""
        for library in self._kept:
            library.reset()

    def name_of(self, operator: OperatorName) -> OperatorName:
        """The operator that stands for one of the user's."""
        return replace(operator, namespace=self.prefix + operator.namespace)

    def name_text(self, name: OperatorName) -> str:
        """The name of an operator; one without a namespace stays without."""
        return str(self.name_of(name) if name.namespace else name)

    def schema_text(self, schema: FunctionSchema) -> str:
        """A schema, under the name that stands for the user's."""
        return str(clone_with_name(schema, self.name_of(schema.name)) if schema.name.namespace else schema)

    def key_text(self, key: DispatchKey | None) -> str:
        """A key where text is wanted; empty for none."""
        return "" if key is None or key == DispatchKey.Undefined else str(key)

    def key(self, key: DispatchKey | None) -> object:
        """A key where a key is wanted; the text of one that is refused."""
        if key is None:
            undefined: object = self._c.DispatchKey.Undefined
            return undefined
        parsed: object = self._c._parse_dispatch_key(str(key)) if self.parse_keys else self._c.DispatchKey(int(key))
        return str(key) if parsed is None else parsed

    def can_parse(self, key: str) -> bool:
        """Whether PyTorch parses the text of a key."""
        return self._c._parse_dispatch_key(key) is not None

    def debug(self, number: int) -> str:
        """What a call with this number has for a debug text."""
        return f"registered at {self.mark}:{number}"

    def _namespace(self, namespace: str | None) -> str:
        return "_" if namespace is None else self.prefix + namespace
