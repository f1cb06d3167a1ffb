"""Whether import order matters: packages imported in every order, each order in a process of its own.

- `blocks`: comparisons of import orders as blocks and as JSON.
- `import_orders`: import orders: import packages in every order, each order in a process of its own, and compare what
  each leaves behind.
"""
