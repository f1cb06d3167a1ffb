"""Trials: run each operator of a package in a dozen ways, in copies of a process that has imported the package."""
