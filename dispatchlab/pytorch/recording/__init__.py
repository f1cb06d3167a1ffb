"""What importing packages registers: watched, recorded as a scenario, and looked at after one order of imports.

- `watch`: each call that registers, and its call site.
- `module_watch`: what each module body registers and imports, in program order.
- `wrapped_functions`: functions of other modules that are wrapped for as long as a watch lasts.
- `python_watch`: what is registered in Python beside the dispatch tables, and its call site.
- `replaced_functions`: functions of PyTorch that a package put others in the place of.
- `read_watch`: what packages ask meanwhile; `dispatcher_reads`: which answers another module writes.
- `record_package`: packages as a scenario.
- `package_facts`: what every question about packages is asked of, read in one process that imports them once.
- `end_state`: what imports leave behind, in texts of a `state_kind`; `process_settings`: how the process is set.
- `order_runs`: other orders of imports, in processes that are forked;
  `order_check`: what is not the same after them; `outside_writes`: files that they change, programs they start.
- `import_run`: orders of imports, and what differs between them.
"""
