"""Emit Python modules and scenarios for structured groups, and the registrations of all functions.

- generated_group: the generated code for one group, as values;
- python_source: the same as a Python module; python_text: the pieces of text that it is made of;
- generate: modules, scenarios and an index for all groups of a file; written to a folder, compared with it, or loaded;
- registrations: every registration that is generated for each function, structured or not;
- cpp_declarations: the C++ headers that declare the functions, as PyTorch's build generates them.
"""
