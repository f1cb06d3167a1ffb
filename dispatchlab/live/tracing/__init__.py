"""Calls of the running PyTorch, traced: every hop, as it is taken.

- `probe_code`: machine code that records a hop and goes on to its kernel, made of `probe.c`.
- `loaded_libraries`: the shared libraries of this process.
- `slot_probes`: probes in the slots of the dispatch tables.
- `registration_watch`: who registers meanwhile, so that new slots get their probes.
- `recorder`: `HopRecorder`, what was recorded, read.
- `mode_recorder`: `ModeRecorder`, the calls that a `TorchDispatchMode` sees, where there can be no probes.
"""
