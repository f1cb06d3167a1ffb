"""Sources of commands: scenarios, registries and the running PyTorch, by their names.

- `engines`: choose an engine by name; the live one is imported on first use.
- `find_sources`: find scenarios, registries and operators: files, folders, bundled names, and globs; record packages.
- `replay_on_lab`: replay a recorded registry on the lab engine.
"""
