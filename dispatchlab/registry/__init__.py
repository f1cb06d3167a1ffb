"""Recorded registries: all that a PyTorch had registered, in one small file that is read without it.

- model: `Registry`, `RecordedOperator`, `RecordedKernel`, `RecordedFallback`, and records from the dumps that a
  dispatcher prints; `Recorded` is what a registry in memory and one in a file have in common;
- file: `open_registry(path)` reads one operator at a time, `load_registry(path)` all, `save_registry` writes;
  `open_bundled("torch-2.13")` gives a bundled registry, `open_named(text)` a bundled one or a file;
- file_format: the layout of a file, its bounds, and what can be wrong with it;
- packed: files of packed parts, read with every size and value looked at;
- bundle: the registries of many versions in one file, in which what they share is there once;
- locations: source locations that move alike from version to version;
- python_parts: what Python had registered, in a file of its own or as a part of a recording;
- operator_rows: what the bundle and that file are made of, a row for each operator;
- overlay: a few operators laid over another registry;
- builds: which backends a build of PyTorch has kernels for, and which bundled registry answers when none is named;
- replay: a registry as the registrations that make it;
- ownership: which registrations are PyTorch's own, by the line that made them;
- find: names, globs, listings, counts;
- coverage: how the operators at one key find their kernels, and what one more registration would change;
- upgrade: what it means that one registry follows another;
- python_compare: which entries of Python came, went and changed between two layers, per registry;
- compare: what came, went and changed between two registries, one change each.
"""
