"""What importing packages registers: watched, recorded as a scenario, and compared after several orders of imports.

- `module_blocks`: what module bodies register, as modules that come as a whole.
- `module_watch`: what each module body registers and imports, in program order.
- `record_package`: packages as a scenario.
- `package_facts`: what every question about packages is asked of, read in one process that imports them once.
- `order_runs`: orders of imports, each in a fresh process, and what is there afterwards.
"""
