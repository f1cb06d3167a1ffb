"""Search small scenarios for order-dependence that one version of PyTorch has and its neighbour does not.

Run it from the root of the checkout: `python tools/search_defects.py` writes docs/defects/changes.md, which
`tools/defects.py` puts at the end of its page. A scenario is one to four registrations of one operator, at different
keys, and backend fallbacks; it is explored in the model of each version that knows its keys. Those that have a smaller
one in them which is order-dependent itself are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, groupby, pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.engine.lab_engine import LabEngine  # noqa: E402  # of this checkout
from dispatchlab.engine.semantics import SEMANTICS  # noqa: E402
from dispatchlab.model.keys import DispatchKey  # noqa: E402
from dispatchlab.model.names import OperatorName  # noqa: E402
from dispatchlab.model.profile import Profile, bundled_profile, bundled_profiles  # noqa: E402
from dispatchlab.model.registration import Def, Fallback, Impl, Registration  # noqa: E402
from dispatchlab.model.schema_parser import parse_schema  # noqa: E402
from dispatchlab.prover.graph_walk import explore_graph  # noqa: E402
from dispatchlab.prover.result import Verdict  # noqa: E402

CHANGES = ROOT / "docs" / "defects" / "changes.md"
FOO = OperatorName("test", "foo")
_DEF = Def(parse_schema("test::foo(Tensor x) -> Tensor"), debug="def_foo")

_ALIASES = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"),
    *("CompositeImplicitAutogradNestedTensor", "Autograd", "FuncTorchBatchedDecomposition"),
)
_NEAR = (
    *("CPU", "MAIA", "FPGA", "QuantizedCPU", "SparseCPU", "NestedTensorCPU", "Dense", "AutogradCPU", "AutogradOther"),
    *("AutogradNestedTensor", "Functionalize", "FuncTorchBatched"),
)
_FAR = (
    *("CUDA", "HIP", "XLA", "Lazy", "MTIA", "PrivateUse1", "Meta", "Vulkan", "MkldnnCPU", "CustomRNGKeyId"),
    *("QuantizedMAIA", "SparseHIP", "SparseXLA", "SparseCsrCPU", "SparseCsrXLA", "NestedTensorXLA", "AutogradHIP"),
    *("AutogradMAIA", "AutogradXLA", "AutogradPrivateUse1", "AutogradMeta", "Quantized", "Sparse", "SparseCsr"),
    *("NestedTensor", "AutogradFunctionality", "BackendSelect", "Python", "Fake", "Named", "ADInplaceOrView"),
    *("Tracer", "AutocastCPU", "Batched", "PreDispatch", "PythonDispatcher"),
)
_FALLBACKS = ("CPU", "Named", "Functionalize", "NestedTensorCPU", "AutogradNestedTensor", "AutogradPrivateUse1")


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """A registration of a small scenario: a kernel, or a backend fallback, at a key."""

    key: str
    is_fallback: bool = False

    def __str__(self) -> str:
        return f"fallback {self.key}" if self.is_fallback else self.key


Combination = tuple[Item, ...]


def every_combination() -> Iterator[Combination]:
    """All that is tried, small ones first: one and two of all items, three of those nearby, four of a few."""
    fallbacks = tuple(Item(key, is_fallback=True) for key in _FALLBACKS)
    aliases, near, far = (tuple(map(Item, keys)) for keys in (_ALIASES, _NEAR, _FAR))
    yield from combinations((*aliases, *near, *far, *fallbacks), 1)
    yield from combinations((*aliases, *near, *far, *fallbacks), 2)
    yield from combinations((*aliases, *near, *fallbacks[-2:]), 3)
    yield from combinations((*aliases, *near[:5], fallbacks[-1]), 4)


def minimal(model: str, tried: Sequence[Combination]) -> dict[Combination, bool]:
    """The combinations whose keys a model knows -> whether they are order-dependent, but for those with such a part."""
    known = {key.name for key in SEMANTICS[model].keys}
    found: dict[Combination, bool] = {}
    dependent: set[frozenset[Item]] = set()
    for each in tried:
        if not all(item.key in known for item in each):
            continue
        parts = (frozenset(part) for size in range(1, len(each)) for part in combinations(each, size))
        if any(part in dependent for part in parts):
            continue
        found[each] = is_order_dependent(model, each)
        if found[each]:
            dependent.add(frozenset(each))
    return found


def is_order_dependent(model: str, combination: Combination) -> bool:
    """Whether the order of these registrations and of their releases matters in a model."""
    registrations: list[Registration] = [_registration(item) for item in combination]
    if any(item.is_fallback for item in combination):
        registrations.append(_DEF)  # without an operator nobody sees a fallback
    verdict = explore_graph(LabEngine(model).space(registrations, [FOO]), len(registrations)).verdict
    assert verdict in (Verdict.ORDER_DEPENDENT, Verdict.ORDER_INDEPENDENT)
    return verdict is Verdict.ORDER_DEPENDENT


@cache
def _registration(item: Item) -> Registration:
    key = DispatchKey[item.key]
    return Fallback(key, debug=str(item)) if item.is_fallback else Impl(FOO, key, debug=str(item))


def behaviour(profile: Profile) -> object:
    """What of a profile decides verdicts: models that agree on it need to be searched once."""
    left_out = {"torch", "keys", "runtime", "fallbacks", "wording", "not_probed"}
    shown = [_frozen(getattr(profile, each.name)) for each in fields(profile) if each.name not in left_out]
    kinds = {key: found.kind for key, found in profile.fallbacks.items()}
    return (*shown, _frozen(kinds), frozenset(profile.keys), frozenset(profile.runtime))


def _frozen(value: object) -> object:
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(one)) for key, one in value.items())
    return frozenset(value) if isinstance(value, tuple) and value and value[0] != "kernel" else value


@dataclass(frozen=True, slots=True)
class Change:
    """What one version has and its neighbour does not.

    Args:
        before: the model of the older version.
        after: that of the newer one.
        came: combinations that are order-dependent in the newer one only.
        went: those that are in the older one only.
        new_keys: those that are in the newer one, with keys that the older one lacks.
    """

    before: str
    after: str
    came: tuple[Combination, ...]
    went: tuple[Combination, ...]
    new_keys: tuple[Combination, ...]


def changes(
    tried: Sequence[Combination], models: Sequence[str]
) -> tuple[dict[str, dict[Combination, bool]], list[Change]]:
    """What was found in each model, and what changed from each to the next."""
    by_behaviour: dict[object, dict[Combination, bool]] = {}
    found: dict[str, dict[Combination, bool]] = {}
    for model in models:
        same = behaviour(bundled_profile(model))
        if same not in by_behaviour:
            by_behaviour[same] = minimal(model, tried)
        found[model] = by_behaviour[same]
    return found, [_change(found, before, after) for before, after in pairwise(models)]


def _change(found: Mapping[str, Mapping[Combination, bool]], before: str, after: str) -> Change:
    old, new = found[before], found[after]
    known_before, known_after = ({key.name for key in SEMANTICS[model].keys} for model in (before, after))

    def only(mine: Mapping[Combination, bool], other: str, theirs: set[str]) -> tuple[Combination, ...]:
        return tuple(
            each
            for each, dependent in mine.items()
            if dependent and all(item.key in theirs for item in each) and not is_order_dependent(other, each)
        )

    with_new = [each for each, dependent in new.items() if dependent and any(i.key not in known_before for i in each)]
    return Change(before, after, only(new, before, known_before), only(old, after, known_after), tuple(with_new))


def text(found: Mapping[str, Mapping[Combination, bool]], changed: Sequence[Change], count: int) -> str:
    """The page."""
    lines = [
        "## What a search over small scenarios finds\n",
        f"Written by `python tools/search_defects.py`. {count:,} combinations of one to four registrations of one "
        "operator (kernels at different keys, alias keys and functionality keys among them, and backend fallbacks) "
        "were explored in the model of every version that knows their keys, each in all orders and with all releases. "
        "Those that contain a smaller one which is order-dependent itself are not counted.\n",
        "| version | explored | order-dependent | against the version before |",
        "|---|---|---|---|",
    ]
    about = {change.after: change for change in changed}
    for model, each in found.items():
        change = about.get(model)
        parts: list[str] = []
        if change is not None:
            parts += [f"{len(change.came)} came"] * bool(change.came) + [f"{len(change.went)} went"] * bool(change.went)
            parts += [f"{len(change.new_keys)} with keys that are new"] * bool(change.new_keys)
        what = "" if change is None else ", ".join(parts) or "the same"
        lines.append(f"| {model.removeprefix('torch-')} | {len(each):,} | {sum(each.values()):,} | {what} |")
    lines.append("")
    for change in changed:
        for title, some in (
            ("order-dependent since", change.came),
            ("no longer order-dependent in", change.went),
            ("order-dependent, with keys that are new in", change.new_keys),
        ):
            if some:
                shown = "; ".join(" + ".join(map(str, each)) for each in some[:_SHOWN])
                more = f"; and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
                lines.append(f"- {title} {change.after.removeprefix('torch-')}: {shown}{more}.")
    dependent = sorted({each for one in found.values() for each, is_dependent in one.items() if is_dependent})
    lines += ["", "| order-dependent | slots that can be stale | in |", "|---|---|---|"]
    for combination in dependent:
        models = [model for model in found if found[model].get(combination)]
        for slots, those in groupby(models, key=lambda model: stale_slots(model, combination)):
            versions = [model.removeprefix("torch-") for model in those]
            span = versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
            shown = ", ".join(slots) if len(slots) <= _SHOWN else f"{len(slots)}: {', '.join(slots[:_SHOWN])}, ..."
            lines.append(f"| {' + '.join(map(str, combination))} | {shown or 'none'} | {span} |")
    return "\n".join(lines) + "\n"


_SHOWN = 4


@cache
def stale_slots(model: str, combination: Combination) -> tuple[str, ...]:
    """The slots that hold something else than they should after some sequence of these registrations and releases."""
    registrations = [_registration(item) for item in combination]
    space = LabEngine(model).space([*registrations, _DEF], [FOO])
    start, _ = space.register(space.empty(), len(registrations))
    seen, found = {(start, 0)}, dict[str, None]()
    left = [(start, 0)]
    while left:
        state, active = left.pop()
        found.update((key, None) for each in space.violations(state) for key in each.keys)
        for index in range(len(registrations)):
            bit = 1 << index
            after = space.release(state, index) if active & bit else space.register(state, index)[0]
            if (after, active ^ bit) not in seen:
                seen.add((after, active ^ bit))
                left.append((after, active ^ bit))
    return tuple(found)


if __name__ == "__main__":
    combined = list(every_combination())
    by_model, found_changes = changes(combined, bundled_profiles())
    CHANGES.write_text(text(by_model, found_changes, len(combined)), encoding="utf-8", newline="\n")
