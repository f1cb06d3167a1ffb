"""Random histories that the bindings of one PyTorch can make: at every key, of every kind, with what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.profile import Profile, version_of
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    Registration,
)
from dispatchlab.model.schema_parser import parse_inferred, parse_schema
from tests.histories.history import History

Inside: TypeAlias = Def | Impl | Fallback
"""What a library holds."""

OPERATORS = OperatorName("test", "foo"), OperatorName("test", "foo", "out"), OperatorName("test", "bar")

BOXED = Kernel(KernelForm.BOXED)
FALLTHROUGH = Kernel(KernelForm.FALLTHROUGH)
TYPED = Kernel(KernelForm.UNBOXED, parse_inferred("(Tensor _0) -> Tensor _0"), "at::Tensor (at::Tensor const&)")

_SCHEMAS = (
    *("(Tensor x) -> Tensor", "(Tensor x) -> Tensor", "(Tensor x) -> Tensor", "(Tensor self) -> Tensor"),
    *("(Tensor x, Tensor y) -> Tensor", "(Tensor(a!) x) -> Tensor(a!)", "(int x, *, str? y=None) -> (int, float[])"),
)
_MANY = f"({', '.join(f'int a{number}' for number in range(65))}) -> ()"
_ALIAS_KINDS = (*(None, None), AliasKind.CONSERVATIVE, AliasKind.FROM_SCHEMA, AliasKind.PURE_FUNCTION)
_RELATED = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "Autograd"),
    *("CompositeImplicitAutogradNestedTensor", "FuncTorchBatchedDecomposition", "CPU", "CUDA", "AutogradCPU"),
    *("AutogradOther", "QuantizedCPU", "SparseCUDA", "NestedTensorCPU", "Meta", "PrivateUse1", "Functionalize"),
)


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the bindings of a PyTorch can make without ending the process.

    Args:
        parsed: the keys that they parse.
        others: keys that there are and that they do not parse.
        fallbacks: where PyTorch ships a fallback.
        replaceable: where another one replaces it.
        boxed_fallbacks: they register fallbacks that are no fallthroughs.
        wildcard: they refuse what they cannot do with libraries of the namespace `_`, and do not end the process.
    """

    parsed: tuple[DispatchKey, ...]
    others: tuple[DispatchKey, ...]
    fallbacks: frozenset[DispatchKey]
    replaceable: tuple[DispatchKey, ...]
    boxed_fallbacks: bool
    wildcard: bool


def bindings_of(profile: Profile) -> Bindings:
    """The bindings of the PyTorch that a profile was measured on."""
    known = [DispatchKey[name] for name in profile.keys if name in DispatchKey.__members__ and name != "Undefined"]
    version = version_of(profile.torch) or (2, 13)
    return Bindings(
        tuple(key for key in known if key.name in profile.parsed),
        tuple(key for key in known if key.name not in profile.parsed),
        frozenset(key for key in known if key.name in profile.fallbacks),
        tuple(key for key in known if key.name in profile.replaceable_fallbacks),
        version >= (2, 5),
        version >= (2, 6),
    )


def generated(bindings: Bindings, seed: int) -> Iterator[History]:
    """Histories without end, the same ones for the same seed."""
    draw = _Draw(bindings, Random(seed))
    while True:
        yield draw.history()


class _Draw:
    """Draws registrations; keys are dealt from a deck of all that are parsed, so that each has its turn."""

    def __init__(self, bindings: Bindings, random: Random) -> None:
        self._bindings, self._random = bindings, random
        self._deck: list[DispatchKey] = []
        self._related = [DispatchKey[name] for name in _RELATED if DispatchKey[name] in bindings.parsed]
        self._number = 0

    def history(self) -> History:
        random = self._random
        self._number = 0
        registrations = (self._def(), *(self._registration() for _ in range(random.randint(4, 9))))
        steps: list[int] = []
        active: set[int] = set()
        for _ in range(random.randint(len(registrations), 2 * len(registrations))):
            number = random.randrange(len(registrations))
            steps.append(~number if number in active else number)
            active ^= {number}
        return History(registrations, tuple(steps))

    def _registration(self) -> Registration:
        match self._random.randrange(20):
            case 0 | 1 | 2:
                return self._def()
            case 3 | 4:  # each takes a moment for every operator of PyTorch
                return self._fallback()
            case 5 | 6 | 7:
                return self._block()
            case 8:
                return Claim("test", self._debug())
            case _:
                return self._impl()

    def _debug(self) -> str:
        self._number += 1
        return self._random.choice(("", *([f"fn_{self._number}"] * 9)))

    def _operator(self) -> OperatorName:
        return self._random.choice((*OPERATORS, OPERATORS[0], OPERATORS[0]))

    def _key(self) -> DispatchKey:
        if self._random.random() < 0.5:
            return self._random.choice(self._related)
        if self._bindings.others and self._random.random() < 0.03:
            return self._random.choice(self._bindings.others)
        if not self._deck:
            self._deck = self._random.sample(self._bindings.parsed, len(self._bindings.parsed))
        return self._deck.pop()

    def _def(self) -> Def:
        random, operator, debug = self._random, self._operator(), self._debug()
        match random.randrange(10):
            case 0:
                key = random.choice((None, self._key()))
                return Def(operator, AliasKind.CONSERVATIVE, key=key, kernel=TYPED, debug=debug)
            case 1:
                tags = frozenset(random.sample(("core", "pointwise", "view_copy"), 2))
                schema = parse_schema(f"{operator}{random.choice(_SCHEMAS)}")
                return Def(schema, AliasKind.FROM_SCHEMA, tags=tags, debug=debug)
            case 2:
                schema, kernel = parse_schema(f"{operator}{random.choice(_SCHEMAS)}"), random.choice((BOXED, TYPED))
                return Def(schema, AliasKind.FROM_SCHEMA, key=self._key(), kernel=kernel, debug=debug)
            case _:
                text = _MANY if random.random() < 0.03 else random.choice(_SCHEMAS)
                return Def(parse_schema(f"{operator}{text}"), random.choice(_ALIAS_KINDS), debug=debug)

    def _impl(self) -> Impl:
        random = self._random
        kernel = random.choice((BOXED, BOXED, BOXED, TYPED, TYPED, FALLTHROUGH))
        key = None if random.random() < 0.05 else self._key()
        return Impl(self._operator(), key, kernel, self._debug())

    def _fallback(self) -> Fallback:
        random, taken = self._random, self._bindings.fallbacks
        replaceable = self._bindings.replaceable
        key = random.choice(replaceable) if replaceable and random.random() < 0.1 else self._key()
        while key in taken and key not in replaceable and random.random() < 0.9:  # a second one is refused there
            key = self._key()
        kernel = random.choice((BOXED, FALLTHROUGH)) if self._bindings.boxed_fallbacks else FALLTHROUGH
        return Fallback(key, kernel, self._debug())

    def _block(self) -> Block:
        random, debug = self._random, self._debug()
        count = random.randrange(4)
        match random.randrange(5):
            case 0 | 1 as number:
                kind = (BlockKind.DEF, BlockKind.FRAGMENT)[number]
                inner = tuple(random.choice((self._def, self._impl, self._impl))() for _ in range(count))
                return Block("test", kind, self._odd(inner, self._fallback), None, debug)
            case 2 if self._bindings.wildcard:
                kind = random.choice((BlockKind.IMPL, BlockKind.IMPL, BlockKind.DEF, BlockKind.FRAGMENT))
                count = count if kind is BlockKind.IMPL else 0
                return Block(
                    None, kind, tuple(random.choice((self._fallback, self._impl))() for _ in range(count)), None, debug
                )
            case _:
                key = random.choice((None, self._key(), self._key()))
                return Block(
                    "test", BlockKind.IMPL, self._odd(tuple(self._impl() for _ in range(count)), self._def), key, debug
                )

    def _odd(self, inner: tuple[Inside, ...], refused: Callable[[], Inside]) -> tuple[Inside, ...]:
        """What stands in a library; now and then with one more that it refuses, or for another namespace."""
        match self._random.randrange(12):
            case 0:
                return (*inner, refused())
            case 1:
                return (*inner, Impl(OperatorName("other", "foo"), self._key(), BOXED, self._debug()))
            case _:
                return inner
