"""Random scenarios of calls of `torch.library` on a few operators, among plain defs and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    TAKE_OVERRIDE,
    Block,
    BlockKind,
    Def,
    Fallback,
    Impl,
    Kernel,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
)
from dispatchlab.model.schema_parser import parse_schema

FOO, BAR = OperatorName("", "foo"), OperatorName("", "bar")
OPERATORS = tuple(each.within("test") for each in (FOO, BAR))
SCHEMAS = ("(Tensor x) -> Tensor",) * 6 + (
    "(Tensor(a) x) -> Tensor(a)",
    "(Tensor(a!) x) -> ()",
    "(Tensor x, *, Tensor y) -> Tensor",
    "(int n) -> Tensor",
)
DEVICES = {"cpu": K.CPU, "cuda": K.CUDA, "meta": K.Meta}
_F = TorchLibraryFunction


def content(
    function: TorchLibraryFunction, on: Sequence[str], schema: str, parts: Sequence[TorchLibraryCall] = ()
) -> tuple[K, ...]:
    """The keys at which a call registers kernels when nothing is in its way."""
    match function:
        case _F.CUSTOM_OP:
            writes = [K.ADInplaceOrView] * (2 if "!" in schema else 1 if "(a)" in schema else 0)
            made = [K.Meta, K.Autograd, *writes]
            done: set[object] = set()
            kernels = TorchLibraryCall(_F.REGISTER_KERNEL, FOO, tuple(on))
            for part in (kernels, *parts):
                for one in part.on or (None,):
                    if (
                        part.function not in (_F.REGISTER_FAKE, _F.REGISTER_AUTOGRAD)
                        and (part.function, one) not in done
                    ):
                        done.add((part.function, one))
                        made += content(part.function, () if one is None else (one,), schema)
            return tuple(made)
        case _F.REGISTER_KERNEL:
            return tuple(DEVICES[each] for each in on) if on else (K.CompositeExplicitAutograd,)
        case _F.REGISTER_FAKE:
            return (K.Meta,)
        case _F.REGISTER_AUTOGRAD:
            return (K.Autograd,)
        case _F.REGISTER_VMAP:
            return (K.FuncTorchBatched,)
        case _F.REGISTER_AUTOCAST:
            return (K.AutocastCPU if on[0] == "cpu" else K.AutocastCUDA,)
        case _:
            return ()


def block(
    function: TorchLibraryFunction,
    operator: OperatorName,
    debug: str,
    *,
    on: Sequence[str] = (),
    schema: str = SCHEMAS[0],
    key: K | None = None,
    parts: Sequence[TorchLibraryCall] = (),
) -> Block:
    """A call, with what it registers when nothing is in its way."""
    inside: list[Def | Impl | Fallback] = []
    if function in (_F.DEFINE, _F.CUSTOM_OP):
        tags = frozenset({"pt2_compliant_tag"} if function is _F.CUSTOM_OP else ())
        inside.append(Def(parse_schema(f"{operator}{schema}"), tags=tags))
    if function is _F.IMPL:
        inside.append(Impl(operator, key, Kernel()))
    inside += [Impl(operator, each, Kernel()) for each in content(function, on, schema, parts)]
    call = TorchLibraryCall(function, operator, tuple(on), tuple(parts))
    return Block("test", BlockKind.FRAGMENT, tuple(inside), None, debug, call)


def _definition(random: Random, operator: OperatorName, debug: str) -> Registration:
    schema, draw = random.choice(SCHEMAS), random.random()
    if draw < 0.3:
        return Def(parse_schema(f"{operator.within('test')}{schema}"), debug=debug)
    if draw < 0.5:
        return block(_F.DEFINE, operator, debug, schema=schema)
    return _custom_op(random, operator, debug, schema)


def _one(
    random: Random, debug: str, functions: Sequence[TorchLibraryFunction], keys: Sequence[K | None]
) -> Registration:
    operator = random.choice([FOO] * 5 + [BAR])
    draw = random.random()
    if draw < 0.25:
        return _definition(random, operator, debug)
    if draw < 0.37:
        return Impl(operator.within("test"), random.choice(keys), Kernel(), debug)
    if draw < 0.47:
        return block(_F.IMPL, operator, debug, key=random.choice(keys))
    function = random.choice(functions)
    return block(function, operator, debug, on=_on(random, function))


_KEYS = K.CompositeImplicitAutograd, None, K.Meta, K.CPU, K.Autograd, K.AutocastCPU
_REGISTER = tuple(each for each in _F if each not in (_F.DEFINE, _F.IMPL, _F.CUSTOM_OP))


def _on(random: Random, function: TorchLibraryFunction) -> tuple[str, ...]:
    match function:
        case _F.REGISTER_KERNEL:
            return random.choice([("cpu",), ("cuda",), ("cpu", "cuda"), ("meta",), ()])
        case _F.REGISTER_AUTOCAST:
            return (random.choice(["cpu", "cpu", "cuda"]),)
        case _F.REGISTER_TORCH_DISPATCH:
            return (random.choice(["here:Mode", "there:Mode"]),)
        case _:
            return ()


def _custom_op(random: Random, operator: OperatorName, debug: str, schema: str) -> Block:
    functions = [random.choice(_REGISTER) for _ in range(random.choice([0, 0, 1, 2, 3]))]
    parts = [TorchLibraryCall(each, operator, _on(random, each)) for each in functions]
    on = random.choice([(), ("cpu",), ("cpu", "meta")])
    return block(_F.CUSTOM_OP, operator, debug, on=on, schema=schema, parts=parts)


def scenario(random: Random, count: int) -> list[Registration]:
    """So many registrations, each with a debug text of its own, with a definition or two among them."""
    first = [_definition(random, FOO, "r0")] if random.random() < 0.85 else []
    functions, keys = random.sample(_REGISTER, random.randint(1, 4)), random.sample(_KEYS, random.randint(1, 3))
    return [*first, *(_one(random, f"r{at}", functions, keys) for at in range(len(first), count))]


def kernels(random: Random, count: int) -> list[Block]:
    """So many kernels and fakes of one operator, which meet at a few keys."""
    keys = random.sample(_KEYS, 2)
    return [
        block(random.choice([_F.IMPL, _F.IMPL, _F.REGISTER_FAKE]), FOO, f"k{at}", key=random.choice(keys))
        for at in range(count)
    ]


def with_override(registration: Registration, random: Random) -> Registration:
    """The registration, with `allow_override` where its call takes it."""
    call = registration.made_by if isinstance(registration, Block) else None
    if call is None or call.function not in TAKE_OVERRIDE:
        return registration
    assert isinstance(registration, Block)
    # Until 2.12 a fake that may override stays in Python when it is refused, which the lab does not model.
    may_override = random.choice([False, False, True, None] if call.function is _F.IMPL else [False, None])
    return replace(registration, made_by=replace(call, allow_override=may_override))


def history(random: Random, count: int) -> list[int]:
    """Registrations to register or, where they are in force, to release; most begin with the first one."""
    steps = [random.randrange(count) for _ in range(random.randint(3, 16))]
    return [0, *steps] if random.random() < 0.7 else steps
