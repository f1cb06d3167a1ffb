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
    from dispatchlab.scenario.load import json_schema, load_scenario, parse_scenario
    from dispatchlab.scenario.replay_file import (
        Replay,
        StaleReplayError,
        load_replay,
        make_replay,
        parse_replay,
        replay_text,
        resolve,
        staleness,
    )
    from dispatchlab.scenario.scenario import Scenario, registration_names
    from dispatchlab.scenario.write import UnwritableError, scenario_text
    from dispatchlab.yaml_tree import Problem, ScenarioError

_HOME = {
    "json_schema": ".load",
    "load_scenario": ".load",
    "parse_scenario": ".load",
    "Problem": "..yaml_tree",
    "ScenarioError": "..yaml_tree",
    "Replay": ".replay_file",
    "StaleReplayError": ".replay_file",
    "load_replay": ".replay_file",
    "make_replay": ".replay_file",
    "parse_replay": ".replay_file",
    "replay_text": ".replay_file",
    "resolve": ".replay_file",
    "staleness": ".replay_file",
    "Scenario": ".scenario",
    "registration_names": ".scenario",
    "UnwritableError": ".write",
    "scenario_text": ".write",
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
