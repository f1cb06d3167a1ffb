"""Whether packages still register what their record contains.

- `blocks`: the check of a record as blocks: the present registrations beside the recorded ones.
- `check_record`: compare a record with the present registrations of its packages.
"""
