"""native_functions.yaml as frozen values, or every problem that the file has."""
