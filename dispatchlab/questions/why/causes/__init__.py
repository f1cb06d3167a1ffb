"""The causes, a module for each family. See questions/why/cause.py."""
