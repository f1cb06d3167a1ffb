"""Scenario files: YAML -> frozen values with `file:line:column` in every error, and back.

`load_scenario` and `parse_scenario` read, `scenario_text` writes; `json_schema` is for editors.

- scenario: a scenario as a value: registrations, observed operators, and a claim about their order
- registrations: a table of fields for each kind of registration, and the allowed values of the fields
- named_functions: look up the functions that kernels name, in a separate process
- explored: what is explored of a scenario, what Python registers included
- load: files -> scenarios, with the order and the modules that they name, and the JSON Schema for editors
- folders: which files below a folder are scenarios
- write: scenarios -> files

- yaml_fields: readers of fields: a table of fields checks a mapping and makes its JSON Schema
- yaml_tree: YAML text as a tree of values that know where they are written
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dispatchlab._lazy import lazy_names

if TYPE_CHECKING:
    from dispatchlab.scenario.load import ScenarioError, json_schema, load_scenario, parse_scenario
    from dispatchlab.scenario.scenario import Scenario, registration_names
    from dispatchlab.scenario.write import UnwritableError, scenario_text
    from dispatchlab.scenario.yaml_tree import Problem

_NAMES = {
    ".load": "json_schema load_scenario parse_scenario ScenarioError",
    ".yaml_tree": "Problem",
    ".scenario": "Scenario registration_names",
    ".write": "UnwritableError scenario_text",
}

__all__ = [
    "Problem",
    "Scenario",
    "ScenarioError",
    "UnwritableError",
    "json_schema",
    "load_scenario",
    "parse_scenario",
    "registration_names",
    "scenario_text",
]

__getattr__ = lazy_names(__name__, _NAMES)
