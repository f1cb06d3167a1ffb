"""Files that a user names: read within bounds, written as a whole or not at all, recognised by how they begin.

- `atomic_write`: write files as a whole or not at all: one file, or several in a folder.
- `baseline`: what a project accepts for now, a row of JSON each.
- `bounded_read`: read files: every input goes through here, with a limit on its size and on the wait for a pipe.
- `file_kinds`: the kinds of files that dispatchlab reads and writes, each recognised by how its content begins.
- `source_location`: where something was written: a file, a line and a column.
- `yaml_fields`: field readers for YAML: a table of fields checks a mapping and makes its JSON Schema.
- `yaml_tree`: YAML text as a tree of values that know their source location; the problems of a file in one error.
"""
