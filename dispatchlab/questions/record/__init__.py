"""Whether packages still register what was recorded of them.

- `blocks`: the check of a record as blocks: what packages register now, beside what they did.
- `check_record`: check a record: do packages still register what was recorded of them, and if not, what differs?
"""
