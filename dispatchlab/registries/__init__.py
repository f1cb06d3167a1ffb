"""Recorded registries: all that a PyTorch had registered, in one small file that is read without it.

- model: `Registry`, `RecordedOperator`, `RecordedKernel`, `RecordedFallback`, and records from the dumps that a
  dispatcher prints; `Recorded` is what a registry in memory and one in a file have in common;
- file: `open_registry(path)` reads one operator at a time, and `registry_bytes` makes the file;
  `open_bundled("torch-2.13")` gives a bundled registry, `open_named(text)` a bundled one or a file;
- stored: the file of a registry, compressed JSON, read one operator at a time;
- overlay: a few operators laid over another registry;
- builds: which backends a build of PyTorch has kernels for, and which bundled registry answers when none is named;
- replay: a registry as the registrations that make it;
- ownership: which registrations are PyTorch's own, by the line that made them;
- debug_text: the lines and the package behind a debug text;
- find: names, globs, listings, counts;
- backend_coverage: how the operators at one key find their kernels, and what one more registration would change;
- side_by_side: what two registries have, each operator, kernel and entry as the first has it and as the second;
- compare: what came, went and changed between two registries, one change each.
"""
