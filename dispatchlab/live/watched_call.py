"""What is known of a call that registered something: where it was made, of which function, and what reached PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatchlab.model.registration import Def, Fallback, Impl, LayerFunction


@dataclass(frozen=True, slots=True)
class Site:
    """Where a registration was made.

    Args:
        file: the file.
        line: the line, from 1.
        module: the name of the module.
        via: the place in a function that was called there, as `file:line`; empty for none.
        by_torch: PyTorch registered for itself.
    """

    file: str
    line: int
    module: str
    via: str = ""
    by_torch: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Call:
    """A call that registered something.

    Args:
        site: where.
        namespace: the namespace of its library.
        function: which function of `torch.library`; None for the bindings.
        operator: the name that it is about, without namespace; empty for a fallback and a claim.
        on: device types, or the class of a torch dispatch rule.
        made: what reached the dispatcher, in order; names are as they were given.
        parts: later calls on what `custom_op` gave.
        claims: the library that was made claims its namespace.
        released: it was taken back.
    """

    site: Site
    namespace: str
    function: LayerFunction | None = None
    operator: str = ""
    on: tuple[str, ...] = ()
    made: list[Def | Impl | Fallback] = field(default_factory=list)
    parts: list[Call] = field(default_factory=list)
    claims: bool = False
    released: bool = False
