"""native_functions.yaml as frozen values, or every problem that the file has.

- native_functions: read a file, with its tags; entry: one entry of it, kernel_fields: those of its fields that name
  kernels, fields: what each field may hold;
- native_function: an operator as a value; schema_parts: the roles of its arguments; groups: variants and views;
- rules: what each schema and entry is held to; problems: the names of all rules, and the error.
"""
