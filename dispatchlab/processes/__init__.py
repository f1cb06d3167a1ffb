"""Processes of our own, and what this machine gives.

- `executor`: choose where tasks run: processes of this machine, or the workers of a Dask cluster.
- `parent`: what a process does to those that it started.
- `machine`: how many processes are of use, how much memory this one uses, and how much it may use.
"""
