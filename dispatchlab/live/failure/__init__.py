"""A program that fails: its events, the content of the dispatcher at the failure, and whether a fix works."""
