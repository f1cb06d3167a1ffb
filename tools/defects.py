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


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of PyTorch's dispatcher.

    Args:
        name: the name of the defect on the page, and of its program.
        scenario: the scenario that shows the defect, below `scenarios/`.
    """

    name: str
    scenario: str

    @property
    def program(self) -> Path:
        """The program that shows the defect on the installed PyTorch."""
        return PROGRAMS / f"{self.name}.py"


DEFECTS = (
    Defect("stale_slots", "defects/stale_slots_torch"),
    Defect("stale_nested", "defects/stale_nested_torch"),
    Defect("stale_quantized", "defects/stale_quantized_torch"),
    Defect("stale_sparse", "defects/stale_sparse_torch"),
    Defect("stale_dense", "table/a_functionality_key_has_no_row_torch"),
    Defect("stale_batched", "defects/stale_batched_before_2_10"),
    Defect("lost_fallback", "defects/lost_fallback_torch"),
    Defect("replaced_fallback", "defects/replaced_fallback_torch"),
    Defect("ghost_operators", "defects/ghost_operators_torch"),
    Defect("half_a_def", "defects/half_a_def_torch"),
    Defect("half_a_fallback", "defects/half_a_fallback_torch"),
    Defect("refused_signature", "signatures/a_refused_kernel_poisons_torch"),
    Defect("hidden_signature", "signatures/the_hidden_signature_torch"),
)


def has(defect: Defect, model: str) -> bool:
    """Return whether the order of the scenario's registrations matters in a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that override others
        scenario = load_scenario(str(SCENARIOS / f"{defect.scenario}.yaml"))
        found = explore(LabEngine(model), scenario.registrations, scenario.operators, order=scenario.order)
    assert found.verdict in (Verdict.ORDER_DEPENDENT, Verdict.ORDER_INDEPENDENT), (defect.name, model, found.notes)
    return found.verdict is Verdict.ORDER_DEPENDENT


def table() -> dict[str, dict[str, bool]]:
    """Return for each defect's name whether each model has the defect, the oldest model first."""
    return {defect.name: {model: has(defect, model) for model in bundled_profiles()} for defect in DEFECTS}
