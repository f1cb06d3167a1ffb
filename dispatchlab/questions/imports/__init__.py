"""Whether import order matters: packages imported in some orders, each in a fresh process, and what differs.

- `import_orders`: runs the orders and compares what each leaves behind.
- `blocks`: the comparison as blocks.
"""
