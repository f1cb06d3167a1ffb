"""Scenario files: YAML -> frozen values with `file:line:column` in every error, and back.

`load_scenario` and `parse_scenario` read, `scenario_text` writes; `load_replay`, `resolve` and `staleness` are for
counterexamples that were saved; `json_schema` is for editors.

    problems.py        one error with all problems      value.py         what a scenario is
    tree.py            YAML -> nodes with places        load.py          files -> scenarios
    shapes.py          what can stand in a field        write.py         scenarios -> files
    tables.py          which fields a mapping has       replay.py        saved counterexamples
    registrations.py   the kinds of registrations       editor_schema.py   the tables, for editors
    kernels.py         kernels, and importing them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab._lazy import lazy_names

if TYPE_CHECKING:
    from dispatchlab.scenario.editor_schema import json_schema
    from dispatchlab.scenario.load import load_scenario, parse_scenario
    from dispatchlab.scenario.problems import Problem, ScenarioError
    from dispatchlab.scenario.replay import (
        Replay,
        StaleReplayError,
        load_replay,
        make_replay,
        parse_replay,
        replay_text,
        resolve,
        staleness,
    )
    from dispatchlab.scenario.value import Scenario, registration_names
    from dispatchlab.scenario.write import UnwritableError, scenario_text

_HOME = {
    "json_schema": "editor_schema",
    "load_scenario": "load",
    "parse_scenario": "load",
    "Problem": "problems",
    "ScenarioError": "problems",
    "Replay": "replay",
    "StaleReplayError": "replay",
    "load_replay": "replay",
    "make_replay": "replay",
    "parse_replay": "replay",
    "replay_text": "replay",
    "resolve": "replay",
    "staleness": "replay",
    "Scenario": "value",
    "registration_names": "value",
    "UnwritableError": "write",
    "scenario_text": "write",
}

__all__ = [
    "Problem",
    "Replay",
    "Scenario",
    "ScenarioError",
    "StaleReplayError",
    "UnwritableError",
    "json_schema",
    "load_replay",
    "load_scenario",
    "make_replay",
    "parse_replay",
    "parse_scenario",
    "registration_names",
    "replay_text",
    "resolve",
    "scenario_text",
    "staleness",
]

__getattr__ = lazy_names(__name__, _HOME)
