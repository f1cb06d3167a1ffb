"""The golden file of a scenario: what was found about it, and its operators with all in force."""

from __future__ import annotations

import warnings

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.explore import explore
from dispatchlab.prover.modules import explore_modules
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.run_sequence import on_sandboxes
from dispatchlab.questions.order.report import Report, report_of
from dispatchlab.questions.order.report_text import golden_text
from dispatchlab.questions.order.snapshots import snapshots_of
from dispatchlab.questions.order.snapshots_blocks import snapshot_lines
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.views.blocks import Line
from dispatchlab.views.text import text_of


def golden(scenario: Scenario) -> tuple[Report, str]:
    """Explore a scenario on the lab engine: the report, and what its golden file holds."""
    engine = LabEngine(scenario.semantics or "strict")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden: scenarios are about that
        about = scenario.registrations, scenario.operators
        if scenario.modules:
            found = explore_modules(engine, *about, scenario.modules, order=scenario.order)
        else:
            found = explore(engine, *about, order=scenario.order)
        report, operators = report_of(scenario, engine, found), _all_in_force(engine, scenario)
    text = golden_text(report, operators, keys=[str(key) for key in scenario.keys])
    if scenario.snapshots:
        text = f"{text.rstrip()}\n{text_of((Line(), *snapshot_lines(snapshots_of(engine, scenario))))}"
    return report, text


def _all_in_force(engine: Engine, scenario: Scenario) -> list[Snapshot]:
    """The operators with all in force that is accepted in the file's order."""
    with on_sandboxes(engine, scenario.registrations, scenario.operators)() as session:
        for index in range(len(scenario.registrations)):
            session.register(index)
        return list(session.look()[0])
