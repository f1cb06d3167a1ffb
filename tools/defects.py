"""The known defects of PyTorch's dispatcher, each with a scenario, and which models have it: see docs/defects.md."""

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
