"""Errors of refused registrations: each says what was found, what was expected and what to do, and has the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_difference import as_compared

if TYPE_CHECKING:
    from dispatchlab.engine.kernel import RegisteredKernel
    from dispatchlab.engine.operator_entry import Definition, HeldSignature, Stored

MAX_ARGUMENTS = 64


def key_text(key: DispatchKey | None) -> str:
    """Return a key for people, `(no key)` when there is none."""
    return str(key) if key is not None else "(no key)"


def _by(debug: str) -> str:
    return f" ({debug})" if debug else ""


def duplicate_def(operator: OperatorName, stored: Stored, new: Definition) -> RegistrationError:
    """Return the refusal of a second live def."""
    message = (
        f"{operator} is defined already, as {stored.schema}{_by(stored.debug)}, and a second def"
        f"{'' if stored.schema == new.schema else f' {new.schema}'}{_by(new.debug)} is refused, equal or not: "
        "release the first, or give this one an overload name"
    )
    return _second_def(ErrorKind.DUPLICATE_DEF, message, operator, stored, new)


def schema_conflict(operator: OperatorName, stored: Stored, new: Definition) -> RegistrationError:
    """Return the refusal of a second def with another schema, if equal defs are merged."""
    message = (
        f"{operator} is defined already, as {stored.schema}{_by(stored.debug)}; a second def must have an equal schema "
        f"and {new.schema}{_by(new.debug)} is another"
    )
    return _second_def(ErrorKind.SCHEMA_CONFLICT, message, operator, stored, new)


def _second_def(
    kind: ErrorKind, message: str, operator: OperatorName, stored: Stored, new: Definition
) -> RegistrationError:
    of_new = {"operator": str(operator), "schema": str(new.schema), "debug": new.debug}
    return RegistrationError(kind, message, {**of_new, "other_schema": str(stored.schema), "other_debug": stored.debug})


def alias_kind_conflict(operator: OperatorName, stored: Stored, new: Definition) -> RegistrationError:
    """Return the refusal of two defs whose alias kinds do not merge."""
    first = f"with the alias kind {stored.alias}" if stored.alias else "without an alias kind"
    second = f"a second def cannot set {new.alias or 'none'}{_by(new.debug)}"
    message = f"{operator} is defined {first}{_by(stored.debug)}, so {second}"
    of_new = {"operator": str(operator), "alias_kind": str(new.alias or "default"), "debug": new.debug}
    of_stored = {"other_alias_kind": str(stored.alias or "default"), "other_debug": stored.debug}
    return RegistrationError(ErrorKind.ALIAS_KIND_CONFLICT, message, of_new | of_stored)


def schema_mismatch(
    operator: OperatorName,
    schema: FunctionSchema,
    schema_debug: str,
    inferred: FunctionSchema,
    kernel: RegisteredKernel,
    reason: str,
    *,
    others: int = 0,
) -> RegistrationError:
    """Return the refusal of a kernel that does not fit the schema; one of the two was registered last."""
    compared = str(as_compared(schema, symint_kernel=kernel.kernel.symint))
    which = f", one of {others + 1} such kernels," if others else ""
    message = (
        f"the kernel{_by(kernel.debug)} at {key_text(kernel.key)}{which} does not fit the schema of {operator}"
        f"{_by(schema_debug)}: {reason} The def says {compared}, the kernel's type gives {inferred}: change one"
    )
    of_def = {"operator": str(operator), "def_schema": compared, "def_debug": schema_debug}
    of_kernel = {"inferred_schema": str(inferred), "inferred_debug": kernel.debug, "reason": reason}
    return RegistrationError(ErrorKind.SCHEMA_MISMATCH, message, of_def | of_kernel)


def signature_mismatch(operator: OperatorName, held: HeldSignature, new: RegisteredKernel) -> RegistrationError:
    """Return the refusal of a kernel whose C++ signature differs from another kernel's."""
    message = (
        f"the kernels of {operator} must agree in their C++ signature, and {new.kernel.signature}{_by(new.debug)} at "
        f"{key_text(new.key)} is not {held.signature}{_by(held.debug)} at {held.key} (const and references matter)"
    )
    of_new = {"signature": str(new.kernel.signature), "debug": new.debug, "key": key_text(new.key)}
    of_held = {"other_signature": held.signature, "other_debug": held.debug, "other_key": held.key}
    return RegistrationError(ErrorKind.SIGNATURE_MISMATCH, message, {"operator": str(operator)} | of_new | of_held)


def too_many_arguments(operator: OperatorName, count: int) -> RegistrationError:
    """Return the refusal of a schema with more arguments than a dispatch bitset has bits."""
    return RegistrationError(
        ErrorKind.TOO_MANY_ARGUMENTS,
        f"{operator} has {count} arguments, and the dispatcher accepts at most {MAX_ARGUMENTS}: "
        "pass some of them as lists",
        {"operator": str(operator), "count": str(count)},
    )


def duplicate_fallback(key: DispatchKey, existing: RegisteredKernel, new: RegisteredKernel) -> RegistrationError:
    """Return the refusal of a second fallback at one key."""
    return RegistrationError(
        ErrorKind.DUPLICATE_FALLBACK,
        f"{key} has a backend fallback already{_by(existing.debug)} and a second{_by(new.debug)} is refused: "
        "a key has one fallback for all operators; release the first",
        {"key": str(key), "debug": new.debug, "other_debug": existing.debug},
    )


def duplicate_library(namespace: str, existing: str, new: str) -> RegistrationError:
    """Return the refusal of a second DEF library of one namespace."""
    return RegistrationError(
        ErrorKind.DUPLICATE_LIBRARY,
        f"the namespace {namespace} is claimed already{_by(existing)}, so a second DEF library{_by(new)} is refused: "
        "extend it with a FRAGMENT library",
        {"namespace": namespace, "debug": new, "other_debug": existing},
    )


def duplicate_kernel(place: str, existing: str, new: str) -> RegistrationError:
    """Return the refusal of a second kernel if `torch.library` accepts only one."""
    return RegistrationError(
        ErrorKind.DUPLICATE_KERNEL,
        f"torch.library has a kernel of {place} already{_by(existing)}, and a second is refused{_by(new)}: "
        "release the first",
        {"operator": place, "debug": new, "other_debug": existing},
    )


def unknown_key(key: DispatchKey, semantics: str) -> RegistrationError:
    """Return the refusal of a key that exists, but not for registrations on this dispatcher."""
    return RegistrationError(
        ErrorKind.UNKNOWN_KEY,
        f"{semantics} cannot name the dispatch key {key} in a registration",
        {"key": str(key)},
    )


def unparsed_key(key: DispatchKey, semantics: str) -> RegistrationError:
    """Return the refusal of a key that a dispatcher has, but its Python interface cannot name."""
    return RegistrationError(
        ErrorKind.UNKNOWN_KEY,
        f"{semantics} has {key} and does not parse its name, so torch.library cannot name it: "
        "register an Impl or a Fallback, as C++ does",
        {"key": str(key)},
    )


def refuse(kind: ErrorKind, message: str, **facts: str) -> RegistrationError:
    """Return a refusal with a message from the caller."""
    return RegistrationError(kind, message, facts)
