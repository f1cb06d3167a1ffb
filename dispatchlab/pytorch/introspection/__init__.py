"""What the running PyTorch shows: dumps, tables, slots in memory, and its whole registry.

- `package_paths`: paths in debug texts, made independent of the machine.
- `queries`: single operators: schema, dump, table, and PyTorch's own check.
- `registry_reader`: the whole registry, recorded.
- `python_registries`: what Python registers beside the dispatch tables, with the lines that did.
- `python_tables`: what changed in the tables of these registries.
- `python_journal`: every write into one of them while it is on, with who made it.
- `module_uses`: lines of a module that ask for another module, or use a registry in another way than by registering.
- `python_sites`: where the Python code that a registry keeps comes from.
- `function_content`: what a function is apart from where it lies: its code, and the values that it reaches.
- `shared_state`: what changed in modules that are loaded, and in what they reach.
- `site_log`: who registers while it is on, and what is PyTorch's own in this process.
- `registry_watch`: what others than PyTorch register and remove from a moment on.
- `slot_memory`: the kernel object in each slot, read where calls read it.
- `builtin_fallbacks`: the kernels that every operator has.
- `kernel_identity`: which registered kernel sits in which slot, and its name as the user wrote it.
- `library_probes`: which rules of `torch.library` hold, by a small program for each;
- `profile_probe`: what makes its dispatcher differ from that of other versions, measured.
- `programs_in_copies`: runs programs in copies of this process, and says what each raised.
- `stand_in_device`: runs a program on a device that stands in for one at PrivateUse1, and notes its calls.
"""
