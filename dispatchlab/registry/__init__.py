"""Recorded registries: all that a PyTorch had registered, in one small file that is read without it.

- model.py: `Registry`, `RecordedOperator`, `RecordedKernel`, `RecordedFallback`, and `Recorded`, which a registry in
  memory and one in a file have in common;
- bundled.py: `open_bundled()` gives the registry of PyTorch 2.13, `open_named(text)` a bundled one or a file;
- file.py: `open_registry(path)` reads one operator at a time, `load_registry(path)` all; write.py: `save_registry`;
- dump_text.py: records from the dumps that a dispatcher prints, and back;
- replay.py: a registry as the registrations that make it; find.py: names, globs, listings, counts;
- compare.py: what came, went and changed between two registries.
"""
