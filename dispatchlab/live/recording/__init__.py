"""What importing packages registers: watched, recorded as a scenario, and looked at after one order of imports.

- `watch`: each call that registers, and its call site.
- `record_package`: packages as a scenario.
- `import_run`: one order of imports in a fresh process.
"""
