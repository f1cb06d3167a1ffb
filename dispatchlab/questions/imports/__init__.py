"""Whether import order matters: packages imported in every order, each order in a process of its own.

- `blocks`: comparisons of import orders as blocks and as JSON.
- `import_groups`: groups of packages that share something, from the footprint of each; between groups no order needs to
  be tried.
- `import_orders`: import orders: import packages in every order, each order in a process of its own, and compare what
  is registered.
"""
