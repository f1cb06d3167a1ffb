"""What the running PyTorch shows: dumps, tables, slots in memory, and its whole registry.

- `package_paths`: paths in debug texts, made independent of the machine.
- `queries`: single operators: schema, dump, table, and PyTorch's own check.
- `registry_reader`: the whole registry, recorded.
- `python_registries`: what Python registers beside the dispatch tables, with the lines that did.
- `module_variables`: the public variables of modules, by type, length and plain value.
- `python_sites`: where the Python code that a registry keeps comes from.
- `site_log`: who registers while it is on, and what is PyTorch's own in this process.
- `slot_memory`: the kernel object in each slot, read where calls read it.
- `builtin_fallbacks`: the kernels that every operator has.
- `kernel_identity`: which registered kernel sits in which slot, and its name as the user wrote it.
- `profile_probe`: what makes its dispatcher differ from that of other versions, measured.
- `process_copies`: runs functions and programs in copies of this process.
- `stand_in_device`: runs a program on a device that stands in for one at PrivateUse1, and notes its calls.
"""
