"""Follow a call without running it: the key set of each hop, its kernel, and the kernels that lost.

The first hop is exact, because calls compute it in this way. A kernel decides what it redispatches to: the later hops
follow `kernel_rules`, and end at a kernel with unknown code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dispatchlab.call.dispatch_table import masks
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, masks_of
from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS
from dispatchlab.errors import DispatchLabError, ErrorKind
from dispatchlab.model.dump_format import Provenance, parse_entry
from dispatchlab.model.key_set import FUNCTIONALITY_BITS, DispatchKeySet
from dispatchlab.model.keys import PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey
from dispatchlab.model.operator_view import NO_KERNEL, OperatorView, TableRow
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import keys_of, slots_of, slots_of_key
from dispatchlab.questions.explain.argument_specs import Described
from dispatchlab.questions.explain.kernel_rules import AUTOGRAD, BUILTIN, Does, is_builtin_fallback, rule_of
from dispatchlab.questions.explain.result import EMPTY, CallExplanation, Chosen, Hop, LeftOut, ThreadKeys


class NotCallableError(DispatchLabError):
    """An operator that has no schema cannot be called."""

    operator: str

    def __str__(self) -> str:
        if self.operator.startswith("higher_order::"):
            return (
                f"{self.operator} is a higher-order operator, which has no schema and no dispatch table: "
                f"`dispatchlab dump {self.operator}` shows the rule for each key and mode"
            )
        return f"{self.operator} has kernels and no def, so it cannot be called: define it with a schema first"


def thread_keys(
    include: tuple[DispatchKey, ...] = (), exclude: tuple[DispatchKey, ...] = (), *, inference: bool = False
) -> ThreadKeys:
    """Return the key sets of a thread, in inference mode or not, with guards for keys; alias keys are expanded."""
    included, left_out = DEFAULT_INCLUDED, _expanded(exclude)
    if inference:
        included, left_out = included - DispatchKeySet.of(DispatchKey.ADInplaceOrView), left_out | AUTOGRAD_KEYS
    return ThreadKeys(included, DEFAULT_EXCLUDED, _expanded(include), left_out)


def _expanded(keys: tuple[DispatchKey, ...]) -> DispatchKeySet:
    return DispatchKeySet.of(*(row for key in keys for row in (keys_of(slots_of_key(key)) if key.is_alias else (key,))))


def schema_of(view: OperatorView) -> FunctionSchema:
    """Return the schema of an operator.

    Raises:
        NotCallableError: the operator has no schema.
        ParseError: the schema cannot be read.
    """
    if view.schema is None:
        raise NotCallableError(view.name)
    return parse_printed(view.schema)


def explain(
    view: OperatorView, described: Described, thread: ThreadKeys, handed: DispatchKeySet | None = None
) -> CallExplanation:
    """Follow a call from its arguments to the kernel that ends it.

    Args:
        view: the operator, with its table.
        described: its arguments.
        thread: the keys that the thread includes and excludes.
        handed: the key set of a redispatch to follow in place of the call.

    Raises:
        NotCallableError: the operator has no schema.
    """
    schema = schema_of(view)
    table = _Table.of(view)
    current = _Caller(described, thread)
    first = None if handed is None else _hop(table, "redispatch", "", handed, (), start=handed)
    hops = [first or _first_hop(table, current)]
    while True:
        current = current.under(guard_of(hops[-1], view, schema))
        after = _after(hops[-1], current, view, schema)
        if after.caller is not None:
            current = after.caller
            hops.append(replace(_first_hop(table, current), why=after.why))
        elif after.keys is not None:
            hops.append(_hop(table, "redispatch", after.why, after.keys, (), start=after.keys))
        else:
            break
    end = after.why
    if hops[-1].refusal is ErrorKind.MISSING_KERNEL:
        keys = dict.fromkeys(row.key for row in view.kernels if row.active and "fallthrough" not in row.flags)
        there = f"kernels for {', '.join(keys)}" if keys else "no kernels at all"
        end += f", as {view.name} has no kernel for {hops[-1].key}; it has {there}"
    if hops[-1].refusal is not None and hops[-1].kernel is None and view.violations:
        end += f", reported as a broken invariant, since those are checked first: {view.violations[0]}"
    return CallExplanation(
        view.name, str(schema), described.arguments, described.keys, thread, tuple(hops), end, known=after.known
    )


def guard_of(hop: Hop, view: OperatorView, schema: FunctionSchema) -> DispatchKeySet:
    """Return the keys that the kernel of a hop excludes from the calls inside of it, as far as rules tell."""
    if hop.kernel is None:
        return EMPTY
    rule = rule_of(hop.key, hop.kernel, view.by_rule, view.name)
    if rule.where == BUILTIN or rule.does not in (Does.RECORDS, Does.REDISPATCHES):
        return EMPTY
    views = any(each.alias is not None for each in (*schema.arguments, *schema.returns))
    if hop.key == DispatchKey.ADInplaceOrView or ("/VariableType" in hop.kernel.debug and not views):
        return AUTOGRAD_KEYS.add(DispatchKey.ADInplaceOrView)
    return AUTOGRAD_KEYS if hop.key.functionality in AUTOGRAD else EMPTY


def has_kernel(view: OperatorView, key: DispatchKey) -> bool:
    """Return whether a call finds a kernel at a key."""
    return key in _Table.of(view).held


# -- the table that calls use


@dataclass(frozen=True, slots=True)
class _Table:
    """The content of each slot, and the keys that calls skip."""

    held: Mapping[DispatchKey, Chosen]
    skipped: frozenset[DispatchKey]

    @classmethod
    def of(cls, view: OperatorView) -> _Table:
        held = {DispatchKey[row.key]: chosen for row in view.table if (chosen := _chosen(row)) is not None}
        fallthroughs = {key for key, chosen in held.items() if chosen.fallthrough}
        return cls(held, frozenset(fallthroughs.union(DispatchKey[key] for key in view.skipped)))


def _chosen(row: TableRow) -> Chosen | None:
    if row.stale is None:
        return None if row.reason is None else Chosen(row.debug, row.reason, row.source, row.fallthrough, row.beaten)
    if row.stale == NO_KERNEL:
        return None
    held = parse_entry(row.stale)
    return Chosen(held.debug, held.provenance, "", held.fallthrough, row.beaten, row.text or NO_KERNEL)


# -- the hops


def _first_hop(table: _Table, caller: _Caller) -> Hop:
    """Return the hop of a new call."""
    arguments, thread = caller.described.keys, caller.thread
    everything = arguments | thread.included
    applied = masks_of(thread.included, thread.excluded)
    base = DispatchKeySet((arguments.bits | applied.included) & applied.kept)
    keys = DispatchKeySet(masks(slots_of(table.skipped)).applied(base.bits))
    left_out = [*_fallthroughs(table, base, keys)]
    for key in _gone(everything, base):
        by_guard = thread.local_excluded.bits & DispatchKeySet.of(key.functionality).bits
        left_out.append(LeftOut(key, "excluded by a guard" if by_guard else "excluded by every thread"))
    left_out.sort(key=lambda left: -left.key.slot)
    why = "the keys of the arguments, plus the keys that the thread includes, minus the keys that it excludes"
    return _hop(table, "call", why, keys, tuple(left_out), start=everything)


def _fallthroughs(table: _Table, base: DispatchKeySet, keys: DispatchKeySet) -> Iterator[LeftOut]:
    backend = base.highest_backend()
    for key in _gone(base, keys):
        # Which fallthrough counts is up to the highest backend of the call alone.
        if key.functionality in PER_BACKEND_FUNCTIONALITIES and key.backend != (backend or 0):
            continue
        chosen = table.held.get(key)
        if chosen is None or not chosen.fallthrough:
            yield LeftOut(key, "fallthrough", reason=Provenance.FALLBACK)
        else:
            yield LeftOut(key, "fallthrough", chosen.debug, chosen.reason)


def _gone(before: DispatchKeySet, after: DispatchKeySet) -> list[DispatchKey]:
    return [key for key in before if not after.bits & DispatchKeySet.of(key.functionality).bits]


def _hop(
    table: _Table, kind: str, why: str, keys: DispatchKeySet, left_out: tuple[LeftOut, ...], *, start: DispatchKeySet
) -> Hop:
    kernel = table.held.get(RUNTIME_KEYS[keys.slot()])
    refusal = None
    if kernel is None:
        nothing = keys.highest() == DispatchKey.Undefined
        refusal = ErrorKind.NO_TENSOR_ARGUMENTS if nothing else ErrorKind.MISSING_KERNEL
    elif kernel.reason is Provenance.AMBIGUOUS:
        refusal = ErrorKind.AMBIGUOUS_AUTOGRADOTHER
    elif kernel.fallthrough:
        refusal = ErrorKind.FALLTHROUGH_EXECUTED
    elif keys.highest() == DispatchKey.Meta and is_builtin_fallback(DispatchKey.Meta, kernel):
        refusal = ErrorKind.MISSING_KERNEL  # all that the builtin fallback does is to raise this
    return Hop(kind, why, start, left_out, keys, keys.highest(), kernel, refusal)


# -- who calls


@dataclass(frozen=True, slots=True)
class _Caller:
    """The thread and arguments that a call depends on.

    Args:
        described: the arguments.
        thread: the keys that the thread includes and excludes.
    """

    described: Described
    thread: ThreadKeys

    def under(self, guard: DispatchKeySet) -> _Caller:
        """Return the same call with further keys excluded."""
        excluded = self.thread.local_excluded | guard
        return replace(self, thread=replace(self.thread, local_excluded=excluded))

    def has_tensors(self) -> bool:
        """Return whether an argument is a tensor, or a list of tensors that may be empty."""
        return any(
            "Tensor[" in argument.type or ("Tensor" in argument.type and argument.keys)
            for argument in self.described.arguments
        )


# -- what comes after a kernel


@dataclass(frozen=True, slots=True)
class _Next:
    """What comes after a kernel: a redispatch, a new call of the operator, or the end.

    Args:
        why: its reason.
        keys: the key set of a redispatch.
        caller: who makes a new call.
        known: whether it is certain: an unknown kernel may redispatch.
    """

    why: str
    keys: DispatchKeySet | None = None
    caller: _Caller | None = None
    known: bool = True


def _after(hop: Hop, caller: _Caller, view: OperatorView, schema: FunctionSchema) -> _Next:
    """Return the next key set, the new call, or the reason for the end. See Note [The hop after a kernel]."""
    kernel, key = hop.kernel, hop.key
    if hop.refusal is ErrorKind.NO_TENSOR_ARGUMENTS and any(each.keys for each in caller.described.arguments):
        return _Next(f"the call fails: {hop.refusal}, as each key of the arguments falls through")
    if hop.refusal is not None or kernel is None:
        return _Next(f"the call fails: {hop.refusal}")
    if kernel.reason in (Provenance.MATH, Provenance.NESTED):
        return _Next(
            "a composite kernel: it calls other operators, and each of these calls is dispatched from the start"
        )
    rule = rule_of(key, kernel, view.by_rule, view.name)
    if key.functionality <= DispatchKey.NestedTensor:
        if kernel.reason is Provenance.FALLBACK:
            return _Next(f"the {kernel.reason} of {key}: it serves every operator that has no kernel there")
        if kernel.reason in (Provenance.DEFAULT_BACKEND, Provenance.CATCH_ALL):
            return _Next("a kernel for all backends: its own calls of operators are dispatched from the start")
        return _Next("a backend kernel: it does the work and redispatches no further")
    if rule.does is Does.SLICES and not caller.has_tensors():
        return _called_without(key, caller, _CALLS_ANEW)
    if rule.outside:
        return _Next(f"the builtin fallback of {key} {rule.outside}")
    below = _below(key, hop.keys)
    match rule.does:
        case Does.WORKS:
            return _Next(f"the kernel of {view.name} for {key} does the work, and redispatches no further")
        case Does.ASKS_SUBCLASS:
            return _after_python(key, below, caller)
        case Does.FUNCTIONALIZES:
            if any(result.alias is not None for result in schema.returns):
                refused = "the builtin fallback of Functionalize refuses an operator whose results alias its arguments"
                return _Next(refused)
            return _called_without(key, caller, _CALLS_ANEW)
        case Does.CASTS:
            why = "the kernel casts what has to be cast, and calls the operator anew, without {key}"
            return _called_without(key, caller, why)
        case Does.RECORDS:
            records = "records the call in the autograd graph"
            if not caller.described.requires_grad:
                records = "has nothing to record, as no argument requires grad"
            elif rule.where == BUILTIN:
                return _Next("no autograd formula, so backward warns; the call continues below autograd", below)
            return _Next(f"the autograd kernel {records}, and redispatches with the keys below autograd", below)
        case Does.SELECTS_BACKEND if {"dtype", "layout", "device"} <= {each.name for each in schema.arguments}:
            return _selected(caller)
        case Does.REDISPATCHES | Does.SELECTS_BACKEND:
            return _Next(f"the kernel redispatches with the keys below {key.functionality}", below)
    if not (hop.keys & DispatchKeySet.full_after(key)).bits & FUNCTIONALITY_BITS:
        return _Next(f"nothing is left below {key}: its kernel does the work, and cannot redispatch")
    return _Next(
        "what comes next is not known: dispatchlab has no rule for what this kernel calls; "
        f"{below.highest()} is next only if it redispatches below {key}",
        known=False,
    )


_CALLS_ANEW = "the builtin fallback calls the operator anew, without {key}"


def _called_without(key: DispatchKey, caller: _Caller, why: str) -> _Next:
    """Return a new call with a guard that also excludes this key."""
    return _Next(why.format(key=key), caller=caller.under(DispatchKeySet.of(key)))


def _after_python(key: DispatchKey, below: DispatchKeySet, caller: _Caller) -> _Next:
    """Return the hops after the builtin fallback of Python, which calls the subclass of an argument."""
    if not caller.has_tensors():
        return _Next("the builtin fallback of Python fails where no argument is a tensor and no mode is active")
    if any(argument.keys.has(key) for argument in caller.described.arguments):
        return _Next("the subclass decides: its __torch_dispatch__ is called with the operator", known=False)
    return _Next(
        "no argument and no mode has a __torch_dispatch__, so the builtin fallback redispatches below Python", below
    )


def _below(key: DispatchKey, keys: DispatchKeySet) -> DispatchKeySet:
    """Return the keys of a kernel's redispatch: an autograd kernel removes all autograd keys."""
    return keys & DispatchKeySet.full_after(DispatchKey.AutogradOther if key.functionality in AUTOGRAD else key)


def _selected(caller: _Caller) -> _Next:
    options, thread = caller.described.options, caller.thread
    keys = DispatchKeySet.of(options.backend)
    why = f"BackendSelect chooses {options.backend} for {options.given}"
    tensors = [argument for argument in caller.described.arguments if "Tensor" in argument.type]
    if not tensors:
        return _Next(f"{why}, and redispatches with that key alone", keys)
    for tensor in tensors:
        keys |= tensor.keys
    below = _below(DispatchKey.BackendSelect, (keys | thread.included) - thread.excluded)
    return _Next(f"{why}, adds the keys of the tensors, and redispatches below itself", below)
