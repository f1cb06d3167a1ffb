"""Recorded registries: all registrations of a PyTorch, in one small file that can be read without PyTorch.

- model: `Registry`, `RecordedOperator`, `RecordedKernel`, `RecordedFallback`, and records from the dumps that a
  dispatcher prints; `Recorded` is the common interface of a registry in memory and one in a file;
- file: `open_registry(path)` reads one operator at a time, and `registry_bytes` makes the file;
  `open_bundled("torch-2.13")` returns a bundled registry, `open_named(text)` a bundled one or a file;
- stored: the file of a registry, compressed JSON, read one operator at a time;
- overlay: a few operators laid over another registry;
- builds: the backends for which a build of PyTorch has kernels, and the default bundled registry;
- replay: a registry as the registrations that make it;
- ownership: which registrations are PyTorch's own, by the line that made them;
- debug_text: the lines and the package behind a debug text;
- find: names, globs, listings, counts;
- backend_coverage: how the operators at one key find their kernels;
- side_by_side: the operators, kernels and entries of two registries, in pairs;
- compare: the new, lost and changed registrations between two registries.
"""
