"""Emit Python modules and scenarios for structured groups.

- generated_group: what is generated for one group, as values;
- python_source: the same as a Python module; scenario_source: its registrations as a scenario;
- generate: all groups of a file, with an index; written to a folder, compared with it, or loaded.
"""
