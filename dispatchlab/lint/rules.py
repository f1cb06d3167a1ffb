"""The lint rules, DL001 to DL009, and the choice among them by code or name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dispatchlab.analysis.certificate import Cause, OrderReason, overrides_of
from dispatchlab.errors import DispatchLabError, ParseError, did_you_mean, nearest
from dispatchlab.lint.rule import Found, Rule, Subject, example, kernel_at, owner
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, keys_of
from dispatchlab.registry.coverage import Way
from dispatchlab.registry.model import RecordedOperator
from dispatchlab.registry.replay import schema_of

_BACKENDS = tuple(DispatchKey[name] for name in BACKENDS if name != "Meta")


def _alone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        mine = [key for key in _BACKENDS if operator.active_at(key) is not None]
        if not mine or not _maps_tensors(operator):
            continue
        key = mine[0]
        autograd = DispatchKey[f"Autograd{key}"]
        formula = subject.slot(operator, autograd).way not in (Way.FALLBACK, Way.MISSING)
        meta = subject.slot(operator, DispatchKey.Meta).way not in (Way.FALLBACK, Way.MISSING)
        if formula and meta:
            continue
        lacks, trouble = [], []
        if not formula:
            lacks.append(f"no autograd formula at {autograd}")
            trouble.append("gradients stop at it")
        if not meta:
            lacks.append("no Meta kernel")
            trouble.append("it cannot be traced or compiled")
        yield Found(
            str(operator.name),
            key,
            f"it has a kernel for {key} from {kernel_at(operator, key)} and {' and '.join(lacks)}: "
            f"{' and '.join(trouble)}",
            tuple(kernel.debug for kernel in operator.kernels if kernel.key is key),
        )


def _maps_tensors(operator: RecordedOperator) -> bool:
    """Whether it takes a tensor and returns one: else it has no gradient and no shape."""
    if operator.schema is None or operator.active_at(DispatchKey.CompositeImplicitAutograd) is not None:
        return False
    try:
        schema = schema_of(operator.schema)
    except ParseError:
        return False
    sides = (schema.arguments, schema.returns)
    return all(any("Tensor" in str(one.type) for one in side) for side in sides)


ALONE = Rule(
    code="DL006",
    name="backend-alone",
    what="An operator has a backend kernel and neither an autograd formula nor a Meta kernel, or only one of them.",
    why=(
        "Without an autograd kernel the fallback of the autograd key lets the call through and records nothing: "
        "gradients stop, with a warning at the first backward at best. Without a Meta kernel torch.compile, "
        "torch.export and every other tracer fail at the operator, since they do not know the shape of its result."
    ),
    mend=(
        "Register them with torch.library.register_autograd and torch.library.register_fake. An operator that is not "
        "differentiable says so with a kernel at Autograd that raises or falls through."
    ),
    bad=example(("CPU", "my_package/cpu.py:3")),
    good=example(
        ("CPU", "my_package/cpu.py:3"), ("Autograd", "my_package/autograd.py:5"), ("Meta", "my_package/meta.py:7")
    ),
    check=_alone,
)


COMPOSITE = DispatchKey.CompositeImplicitAutograd
_FORGOTTEN = ("HIP", "VE", "MTIA")


def _with_composite(operators: Iterable[RecordedOperator]) -> Iterator[tuple[RecordedOperator, frozenset[DispatchKey]]]:
    for operator in operators:
        keys = frozenset(kernel.key for kernel in operator.kernels)
        if COMPOSITE in keys:
            yield operator, keys


def _ambiguous(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    other = DispatchKey.AutogradOther
    backends = frozenset(keys_of(BACKENDS_OF_AUTOGRAD[other]))
    functionalities = {DispatchKey.Quantized, DispatchKey.Sparse, DispatchKey.SparseCsr}
    for operator, keys in _with_composite(operators):
        if subject.slot(operator, other).way is not Way.AMBIGUOUS:
            continue
        mine = sorted(keys & (backends | functionalities))
        yield Found(
            str(operator.name),
            other,
            f"it has a composite kernel from {kernel_at(operator, COMPOSITE)} and one for {mine[0]} from "
            f"{kernel_at(operator, mine[0])}, whose gradients share AutogradOther: a call that needs it raises",
            tuple(kernel.debug for kernel in operator.kernels if kernel.key in (*mine, COMPOSITE)),
        )


AMBIGUOUS = Rule(
    code="DL003",
    name="ambiguous-autogradother",
    what="AutogradOther is ambiguous between the composite kernel and that of a backend.",
    why=(
        "Backends without an autograd key of their own (FPGA, Vulkan, Metal, MkldnnCPU, and the Quantized, Sparse and "
        "SparseCsr ones by their tensors' keys) share AutogradOther. With a composite kernel besides, both could be "
        "meant there, and PyTorch raises, but only when somebody calls the operator with such a tensor."
    ),
    mend=(
        "Register the composite kernel as CompositeExplicitAutograd if it is not differentiable by its parts, or give "
        "AutogradOther a kernel of its own."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("FPGA", "my_package/fpga.py:5")),
    good=example(("CompositeExplicitAutograd", "my_package/composite.py:3"), ("FPGA", "my_package/fpga.py:5")),
    check=_ambiguous,
)


def _disabled(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for autograd, bits in BACKENDS_OF_AUTOGRAD.items():
            mine = [key for key in keys_of(bits) if key in keys]
            if autograd in (DispatchKey.AutogradOther, DispatchKey.AutogradMeta) or not mine:
                continue
            filled = subject.slot(operator, autograd)
            if filled.way not in (Way.FALLBACK, Way.MISSING):
                continue
            left = "the backend fallback" if filled.way is Way.FALLBACK else "nothing"
            yield Found(
                str(operator.name),
                mine[0],
                f"the kernel from {kernel_at(operator, mine[0])} silently disables the composite one from "
                f"{kernel_at(operator, COMPOSITE)}, which made it differentiable: {autograd} is left with {left}",
                tuple(kernel.debug for kernel in operator.kernels if kernel.key in (*mine, COMPOSITE)),
            )


DISABLED = Rule(
    code="DL004",
    name="disabled-composite",
    what="A backend kernel disables the decomposition of an operator, and nothing replaces it for gradients.",
    why=(
        "A composite kernel is differentiable because its parts are. A kernel for one backend takes both the slot of "
        "the backend and that of its autograd key away from it; without an autograd formula the gradients of that "
        "backend are silently gone, or a warning reports it at the first backward."
    ),
    mend=(
        "Register an autograd kernel for the operator (at Autograd, or with torch.library.register_autograd), or drop "
        "the backend kernel and let the decomposition run."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("PrivateUse1", "my_backend/scale.py:5")),
    good=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("PrivateUse1", "my_backend/scale.py:5"),
        ("AutogradPrivateUse1", "my_backend/scale.py:9"),
    ),
    check=_disabled,
)


def _meta(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for key in (DispatchKey.Meta, DispatchKey.Fake):
            if key in keys:
                yield Found(
                    str(operator.name),
                    key,
                    f"the {key} kernel from {kernel_at(operator, key)} hides the composite one from "
                    f"{kernel_at(operator, COMPOSITE)} from tracing, which would have worked through its parts",
                    tuple(kernel.debug for kernel in operator.kernels if kernel.key in (key, COMPOSITE)),
                )


META = Rule(
    code="DL005",
    name="meta-on-composite",
    what="A composite operator has a Meta or fake kernel.",
    why=(
        "A composite kernel runs on meta and fake tensors as it is, because its parts do. A Meta kernel takes it away "
        "there: tracing and compiling see an opaque operator where eager mode sees its parts, and AutogradMeta loses "
        "its formula. torch.library refuses the pair in one order of registration and accepts it in the other."
    ),
    mend="Remove the Meta kernel (or register_fake), or register the composite kernel as CompositeExplicitAutograd.",
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("Meta", "my_package/meta.py:5")),
    good=example(("CompositeExplicitAutograd", "my_package/composite.py:3"), ("Meta", "my_package/meta.py:5")),
    check=_meta,
)


def _not_suppressed(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for backend in _FORGOTTEN:
            key = DispatchKey[backend]
            autograd = DispatchKey[f"Autograd{backend}"]
            if key not in keys or subject.slot(operator, autograd).source is not COMPOSITE:
                continue
            assert backend in BACKENDS
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {kernel_at(operator, key)} does not suppress the composite one from "
                f"{kernel_at(operator, COMPOSITE)} at {autograd}, as that of any other backend would: calls with "
                "gradients decompose and never reach it",
                tuple(kernel.debug for kernel in operator.kernels if kernel.key in (key, COMPOSITE)),
            )


NOT_SUPPRESSED = Rule(
    code="DL008",
    name="composite-not-suppressed",
    what="A HIP, VE or MTIA kernel leaves the composite kernel in the autograd slot of its backend.",
    why=(
        "A backend kernel takes the composite one away from the autograd slot of its backend, so that calls with "
        "gradients reach it. PyTorch's table of which backend belongs to which autograd key has no entry for HIP, VE "
        "and MTIA: there the composite kernel stays and the backend kernel only runs without gradients."
    ),
    mend=(
        "Register a kernel at AutogradMTIA (AutogradHIP, AutogradVE) as well, one that goes on to the backend, or make "
        "the composite kernel CompositeExplicitAutograd."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("MTIA", "my_package/mtia.py:5")),
    good=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("MTIA", "my_package/mtia.py:5"),
        ("AutogradMTIA", "my_package/mtia.py:9"),
    ),
    check=_not_suppressed,
)


_NEAR = 2


def _dangling(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    names: tuple[str, ...] | None = None
    for operator in operators:
        if not operator.is_dangling or not operator.kernels:
            continue
        if names is None:
            names = tuple(str(one.name) for one in subject.recorded if not one.is_dangling)
        near = near_misses(operator, names)
        kernels = operator.kernels
        hint = f"did you mean {' or '.join(near)}?" if near else "is the package that defines it imported?"
        where = ", ".join(f"{kernel.key} from {owner(kernel.debug)}" for kernel in kernels[:_NEAR])
        more = f" and {len(kernels) - _NEAR} more" if len(kernels) > _NEAR else ""
        yield Found(
            str(operator.name),
            None,
            f"it has kernels ({where}{more}) and no def, so nobody can call it; {hint}",
            tuple(kernel.debug for kernel in kernels),
        )


def near_misses(operator: RecordedOperator, names: Sequence[str]) -> tuple[str, ...]:
    """The defined operators that a dangling one was probably meant to be, best first."""
    name = operator.name
    same_name = [one for one in names if one.partition("::")[2].partition(".")[0] == name.name]
    by_namespace = {one.partition("::")[0]: one for one in reversed(same_name)}
    close = [by_namespace[space] for space in nearest(name.namespace, by_namespace, count=_NEAR)]
    close += [one for space, one in by_namespace.items() if _related(space, name.namespace)]
    inside = [one for one in names if one.startswith(f"{name.namespace}::")]
    return tuple(dict.fromkeys([*close, *nearest(str(name), inside, count=_NEAR)]))[:_NEAR]


def _related(one: str, other: str) -> bool:
    """Whether one namespace is the other with something behind it: `quanto_py` and `quanto`."""
    return min(len(one), len(other)) > 2 and (one.startswith(other) or other.startswith(one))


DANGLING = Rule(
    code="DL001",
    name="dangling-impl",
    what="An operator has kernels and no def.",
    why=(
        "A kernel can be registered before its def, because the package that defines the operator may be imported "
        "later. When it never is, or when the name is misspelt, nothing complains: the kernel waits forever, and "
        "calls go to whatever the right operator has instead."
    ),
    mend=(
        "Compare the name with the near misses of the message, namespace and overload included. If the def is in "
        "another package, import it where the kernel is registered."
    ),
    bad=example(("CPU", "my_package/cpu.py:7"), operator="scales"),
    good=example(("CPU", "my_package/cpu.py:7")),
    check=_dangling,
)


def _gone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.earlier is not None
    for before in subject.earlier:
        if before.is_dangling:
            continue
        now = subject.recorded.operator(before.name)
        if now is not None and not now.is_dangling:
            continue
        left = f"{len(now.kernels)} of its kernels are left and dangle" if now is not None else "nothing of it is left"
        if now is not None and len(now.kernels) == 1:
            left = "one of its kernels is left and dangles"
        yield Found(
            str(before.name),
            None,
            f"its def from {owner(before.debug)} was there and is gone; {left}. Keep the Library that made it for as "
            "long as the operator is used, in a variable of the module",
            (before.debug,),
        )


GONE = Rule(
    code="DL007",
    name="def-not-kept",
    what="A def was there and is gone, because nobody kept the `Library` that made it.",
    why=(
        "A `torch.library.Library` takes its registrations back when it is garbage. One that is a local variable of a "
        "function goes when the function returns; one in a reference cycle goes at some later moment, whenever the "
        "collector runs, and takes the operator along under whoever calls it then."
    ),
    mend=(
        "Keep the library in a variable of the module, or in an object that lives as long as the operator is used. A "
        "record does not say who keeps a library: this rule compares two moments. Of a live process these are before "
        "and after a run of the garbage collector; of a record or a scenario it needs --against, the registry as it "
        "should be."
    ),
    bad=example(
        ("CPU", "my_package/cpu.py:7"),
        defined=False,
        head="# linted with --against a registry that has the def of scale",
    ),
    good=example(("CPU", "my_package/cpu.py:7")),
    check=_gone,
    needs="it compares two moments, and a record is one: name the other with --against",
    can_run=lambda subject: subject.earlier is not None,
)


_KEYS_SHOWN = 4


def _shadows(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        for key, kernels in overrides_of(operator):
            winner, *losers = kernels
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {owner(winner.debug)} overrides "
                f"{' and of '.join(owner(k.debug) for k in losers)}, because it came later",
                tuple(kernel.debug for kernel in kernels),
            )


SHADOWS = Rule(
    code="DL002",
    name="shadowed-kernel",
    what="Two kernels of one operator are registered at one key; the newest is the one that runs.",
    why=(
        "Which one is newest is decided by the order of imports, which nobody writes down. The other kernel is dead "
        "code that looks alive, and comes back when the package of the newer one is not imported."
    ),
    mend=(
        "If the override is meant, register it where it is certain to come later (after importing the package that it "
        "replaces) and pass allow_override=True to say so. Else choose another key, or remove one of the two."
    ),
    bad=example(("CPU", "first_package/cpu.py:7"), ("CPU", "second_package/cpu.py:9")),
    good=example(("CPU", "first_package/cpu.py:7"), ("CUDA", "second_package/cpu.py:9")),
    check=_shadows,
)


def _order(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    assert subject.order_of is not None
    chosen = list(operators)
    by_name = {str(operator.name): operator for operator in chosen}
    for name, reasons in subject.order_of(chosen).items():
        for reason in reasons:
            if reason.cause is Cause.STALE and name in by_name:
                yield _stale(name, reason)


def _stale(name: str, reason: OrderReason) -> Found:
    keys = ", ".join(map(str, reason.keys[:_KEYS_SHOWN]))
    more = f" and {len(reason.keys) - _KEYS_SHOWN} more" if len(reason.keys) > _KEYS_SHOWN else ""
    slots = f"{keys}{more}"
    kernels = [one for one in reason.registrations if one.key is not None]
    them = " and ".join(f"{one.key} from {owner(one.debug)}" for one in kernels)
    when = "" if reason.in_force else ", at least while not everything is imported"
    return Found(
        name,
        reason.keys[0],
        f"what calls use at {slots} depends on which of {them} came first{when}; no dump shows it",
        tuple(one.debug for one in kernels),
    )


ORDER = Rule(
    code="DL009",
    name="order-matters",
    what="What calls use depends on the order of registrations, although every dump is the same.",
    why=(
        "PyTorch 2.13 refreshes too few slots when some kernels come or go: CompositeExplicitAutograd after "
        "CompositeImplicitAutograd leaves 34 slots stale, Quantized, Sparse and NestedTensor kernels leave "
        "AutogradOther or AutogradNestedTensor stale. Calls then run another kernel than `_dispatch_dump_table` "
        "prints, and results differ between two orders of import."
    ),
    mend=(
        "Register the composite kernel last, or give the slot a kernel of its own (an AutogradOther or "
        "AutogradNestedTensor kernel), or do not combine the two kernels. `dispatchlab permute` on a scenario with "
        "these registrations shows the two orders."
    ),
    bad=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("CompositeExplicitAutograd", "my_package/explicit.py:5"),
        head="semantics: torch-2.13",
    ),
    good=example(
        ("CPU", "my_package/cpu.py:3"),
        ("CompositeExplicitAutograd", "my_package/explicit.py:5"),
        head="semantics: torch-2.13",
    ),
    check=_order,
    needs="it needs an engine that tries other orders",
    can_run=lambda subject: subject.order_of is not None,
)


RULES: tuple[Rule, ...] = tuple(
    sorted(
        (DANGLING, SHADOWS, AMBIGUOUS, DISABLED, META, ALONE, GONE, NOT_SUPPRESSED, ORDER), key=lambda rule: rule.code
    )
)
"""Every rule, by code."""


class UnknownRuleError(DispatchLabError):
    """No rule has this code or name."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        codes = [rule.code for rule in RULES]
        hint = did_you_mean(self.text, [*codes, *(rule.name for rule in RULES)])
        return f"there is no rule {self.text!r}: expected {codes[0]} to {codes[-1]}, or a name{hint}"


def rule_named(text: str) -> Rule:
    """The rule with a code or a name, whatever its case.

    Raises:
        UnknownRuleError: there is none.
    """
    for rule in RULES:
        if text.casefold() in (rule.code.casefold(), rule.name):
            return rule
    raise UnknownRuleError(text)


def selected(select: Sequence[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules that are meant: those of `select`, or all, without those of `ignore`.

    Args:
        select: codes or names, or several with commas between them.
        ignore: likewise.

    Raises:
        UnknownRuleError: one of them is none.
    """
    wanted = {rule_named(text).code for text in _split(select)} or {rule.code for rule in RULES}
    unwanted = {rule_named(text).code for text in _split(ignore)}
    return tuple(rule for rule in RULES if rule.code in wanted - unwanted)


def _split(texts: Iterable[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]
