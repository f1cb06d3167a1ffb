"""The causes: texts and patterns by number in FAMILY.toml, see `row`; conditions that need code in FAMILY.py."""
