"""native_functions.yaml as frozen values, or every problem that the file has.

- native_functions: read a file, with its tags; entry: one entry of it, kernel_fields: those of its fields that name
  kernels, fields: the allowed content of each field;
- native_function: an operator as a value; schema_parts: the roles of its arguments; groups: variants and views;
- rules: the rules for each schema and entry; problems: the names of all rules, and the error.
"""
