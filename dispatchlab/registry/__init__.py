"""Recorded registries: all that a PyTorch had registered, in one small file that is read without it.

- model: `Registry`, `RecordedOperator`, `RecordedKernel`, `RecordedFallback`, and records from the dumps that a
  dispatcher prints; `Recorded` is what a registry in memory and one in a file have in common;
- file: `open_registry(path)` reads one operator at a time, `load_registry(path)` all, `save_registry` writes;
  `open_bundled()` gives the registry of PyTorch 2.13, `open_named(text)` a bundled one or a file; that of the build for
  CUDA is bundled, too;
- file_format: the layout of a file, its bounds, and what can be wrong with it;
- overlay: a few operators laid over another registry;
- builds: which backends a build of PyTorch has kernels for, and which bundled registry answers for a backend;
- replay: a registry as the registrations that make it;
- ownership: which registrations are PyTorch's own, by the line that made them;
- find: names, globs, listings, counts;
- coverage: how the operators at one key find their kernels, and what one more registration would change;
- compare: what came, went and changed between two registries.
"""
