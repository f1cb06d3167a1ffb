"""A program that fails: what happens in it, what the dispatcher then holds, and whether a fix works."""
