"""What commands take as a source: scenarios, registries, the running PyTorch, by the texts that name them.

- `engines`: choose an engine by name; the live one is imported on first use.
- `find_sources`: find scenarios, registries and operators: files, folders, bundled names, and globs.
- `recorded_packages`: record what packages register, in a worker process.
- `replay_on_lab`: replay a recorded registry on the lab engine.
"""
