"""Scenario files: YAML -> frozen values with `file:line:column` in every error, and back.

`load_scenario` and `parse_scenario` read, `scenario_text` writes; `load_replay`, `resolve` and `staleness` are for
counterexamples that were saved; `json_schema` is for editors.

    problems.py        one error with all problems      value.py         what a scenario is
    tree.py            YAML -> nodes with places        load.py          files -> scenarios
    shapes.py          what can stand in a field        write.py         scenarios -> files
    tables.py          which fields a mapping has       replay.py        saved counterexamples
    registrations.py   the kinds of registrations       json_schema.py   the tables, for editors
    kernels.py         kernels, and importing them
"""

from dispatchlab.scenario.json_schema import json_schema
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
