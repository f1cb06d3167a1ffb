"""The causes: texts and patterns by number in FAMILY.toml, see `row`; what only code can see in FAMILY.py."""
