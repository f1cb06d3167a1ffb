"""Emit Python modules and scenarios for structured groups.

- generated_group: what is generated for one group, as values;
- python_source: the same as a Python module;
- generate: modules, scenarios and an index for all groups of a file; written to a folder, compared with it, or loaded.
"""
