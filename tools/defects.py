"""Write docs/defects.md: which versions of PyTorch have which defect, by running a scenario of each on every model.

Run it from the root of the checkout: `python tools/defects.py`. A test holds the page to what this writes, and the
programs beside the page to the running PyTorch.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dispatchlab.engine.lab_engine import LabEngine  # noqa: E402  # of this checkout
from dispatchlab.model.profile import bundled_profiles  # noqa: E402
from dispatchlab.prover.explore import explore  # noqa: E402
from dispatchlab.prover.result import Verdict  # noqa: E402
from dispatchlab.scenario.load import load_scenario  # noqa: E402

PAGE, PROGRAMS, SCENARIOS = ROOT / "docs" / "defects.md", ROOT / "docs" / "defects", ROOT / "scenarios"
CHANGES = ROOT / "docs" / "defects" / "changes.md"


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of PyTorch's dispatcher.

    Args:
        name: what the page calls it; the program is named so.
        scenario: the scenario that shows it, below `scenarios/`.
        what: what happens, and what it does to users.
        mend: what to do about it.
    """

    name: str
    scenario: str
    what: str
    mend: str

    @property
    def program(self) -> Path:
        """The program that shows it on the PyTorch that runs."""
        return PROGRAMS / f"{self.name}.py"


_OWN_SLOT = "Register the kernel of the backend first, or give {} a kernel of its own."

DEFECTS = (
    Defect(
        "stale_slots",
        "defects/stale_slots_torch",
        "A CompositeExplicitAutograd kernel that comes after a CompositeImplicitAutograd one, or goes before it, "
        "leaves the autograd and NestedTensor slots as they were. A call with gradients runs another kernel than the "
        "table shows.",
        "Use one composite key for an operator, or register CompositeImplicitAutograd last and release nothing.",
    ),
    Defect(
        "stale_nested",
        "defects/stale_nested_torch",
        "A kernel at NestedTensorCPU, or at that of another backend, does not refresh AutogradNestedTensor, which "
        "keeps the composite kernel.",
        _OWN_SLOT.format("AutogradNestedTensor"),
    ),
    Defect(
        "stale_quantized",
        "defects/stale_quantized_torch",
        "A kernel at QuantizedCPU refreshes AutogradCPU and not AutogradOther, which it makes ambiguous. Calls there "
        "run the composite kernel where the table says that they raise.",
        _OWN_SLOT.format("AutogradOther"),
    ),
    Defect(
        "stale_sparse",
        "defects/stale_sparse_torch",
        "The same for kernels at SparseCUDA, SparseCsrCPU and their kind.",
        _OWN_SLOT.format("AutogradOther"),
    ),
    Defect(
        "stale_dense",
        "table/a_functionality_key_has_no_row_torch",
        "A kernel at a functionality key such as Dense counts as one of every backend when a table is computed, and "
        "refreshes none of their autograd slots.",
        "Name the backend, such as CPU, and not the functionality.",
    ),
    Defect(
        "stale_batched",
        "defects/stale_batched_before_2_10",
        "A kernel at FuncTorchBatchedDecomposition refreshes no slot. The table shows it at FuncTorchBatched, and "
        "`vmap` goes on with the fallback until something else refreshes that slot.",
        "Register the kernel at FuncTorchBatched.",
    ),
    Defect(
        "lost_fallback",
        "defects/lost_fallback_torch",
        "PyTorch ships a backend fallback at AutogradPrivateUse1 and lets a backend replace it. When the backend "
        "releases its own, the key is left empty: PyTorch's does not come back, for any operator.",
        "Keep the library of such a fallback for as long as the process lives.",
    ),
    Defect(
        "replaced_fallback",
        "defects/replaced_fallback_torch",
        "A second fallback at AutogradPrivateUse1 silently replaces the first, and the release of either empties the "
        "key, whichever fallback is there. Every other key refuses a second one.",
        "Import one such backend in a process.",
    ),
    Defect(
        "ghost_operators",
        "defects/ghost_operators_torch",
        "A def that is refused for its 65 arguments leaves an operator without a schema, which nobody can release.",
        "Look for it with `torch._C._dispatch_find_dangling_impls()`.",
    ),
    Defect(
        "half_a_def",
        "defects/half_a_def_torch",
        "A def with a kernel in one call is registered although its kernel is refused.",
        "Make two calls of it, a def and an impl.",
    ),
    Defect(
        "half_a_fallback",
        "defects/half_a_fallback_torch",
        "A fallback at an alias key is refused when one of its keys has one already, and stays registered for those "
        "that came before it.",
        "Register a fallback for one key at a time.",
    ),
    Defect(
        "refused_signature",
        "signatures/a_refused_kernel_poisons_torch",
        "A C++ kernel that is refused for its schema leaves its type behind, and the kernel that fits is refused then.",
        "Release everything of the operator before the second try.",
    ),
    Defect(
        "hidden_signature",
        "signatures/the_hidden_signature_torch",
        "The type of a C++ kernel is held against others as long as the operator lives, though the kernel is gone.",
        "Release everything of the operator before a kernel of another type.",
    ),
)


def has(defect: Defect, model: str) -> bool:
    """Whether the order of the scenario's registrations matters in a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that override others
        scenario = load_scenario(str(SCENARIOS / f"{defect.scenario}.yaml"))
        found = explore(LabEngine(model), scenario.registrations, scenario.operators, order=scenario.order)
    assert found.verdict in (Verdict.ORDER_DEPENDENT, Verdict.ORDER_INDEPENDENT), (defect.name, model, found.notes)
    return found.verdict is Verdict.ORDER_DEPENDENT


def table() -> dict[str, dict[str, bool]]:
    """The name of each defect -> the models, oldest first -> whether they have it."""
    return {defect.name: {model: has(defect, model) for model in bundled_profiles()} for defect in DEFECTS}


_HEAD = """\
# Defects of PyTorch's dispatcher, by version

Written by `python tools/defects.py`; a test compares. Every row was found by exploring a scenario in the model of each
version: `x` where the order of registrations and releases decides what is there in the end, and no mark where every
order is proved to agree. The models are measured on the public wheels and held to recorded histories of them. The
strict engine (`--semantics strict`) has none of these defects.

Each program shows its defect on the PyTorch that you have: it says `defect: ...` and ends with 1, or `fixed` and ends
with 0. `dispatchlab defects` runs all of them. To see what happens in detail, run
`dispatchlab permute SCENARIO --semantics torch-2.9`, or with `--engine torch`. The report of each can be filed as an
issue of PyTorch: what is expected, the cause in its source, a patch, a test, and where the program was run.
"""


def page(versions: dict[str, dict[str, bool]]) -> str:
    """The whole page.

    Args:
        versions: as `table` gives it.
    """
    models = bundled_profiles()
    lines = [_HEAD, f"| defect | {' | '.join(name.removeprefix('torch-') for name in models)} |"]
    lines.append("|---" * (len(models) + 1) + "|")
    for defect in DEFECTS:
        marks = " | ".join("x" if versions[defect.name][model] else " " for model in models)
        lines.append(f"| [{defect.name}](#{defect.name}) | {marks} |")
    lines.append("")
    for defect in DEFECTS:
        lines += _section(defect, versions[defect.name])
    return "\n".join(lines) + CHANGES.read_text(encoding="utf-8")


def _section(defect: Defect, versions: dict[str, bool]) -> list[str]:
    scenario = f"scenarios/{defect.scenario}.yaml"
    program = f"```python\n{defect.program.read_text(encoding='utf-8').strip()}\n```"
    return [
        f"## {defect.name}\n",
        f"{defect.what}\n",
        f"{_span(versions)} Scenario: [{scenario}](../{scenario}). [Report](defects/reports/{defect.name}.md). "
        f"What to do: {defect.mend}\n",
        f"{program}\n",
    ]


def _span(versions: dict[str, bool]) -> str:
    """The versions that have it, in words."""
    names = [name.removeprefix("torch-") for name in versions]
    at = [number for number, found in enumerate(versions.values()) if found]
    assert at, "a defect that no version has"
    if len(at) == len(names):
        return f"PyTorch {names[0]} to {names[-1]} have it, all that are modelled."
    assert at == list(range(at[0], at[-1] + 1)), "a defect that came back; say so here"
    since = f"since PyTorch {names[at[0]]}" if at[0] else ""
    fixed = f"fixed in PyTorch {names[at[-1] + 1]}" if at[-1] + 1 < len(names) else ""
    return f"It is {' and '.join(part for part in (since and f'there {since}', fixed) if part)}."


if __name__ == "__main__":
    PAGE.write_text(page(table()), encoding="utf-8", newline="\n")
