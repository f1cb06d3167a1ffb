"""The JSON Schema of scenario files, for editors; made from the tables that the checker uses.

Editors complete and explain the fields with it. What it cannot say (that a schema parses, that a number is in range) is
checked when the file is loaded.
"""

from __future__ import annotations

from dispatchlab.model.keys import DispatchKey
from dispatchlab.scenario.load import SCENARIO_TABLE
from dispatchlab.scenario.registrations import NESTED_TABLES, TOP_TABLES
from dispatchlab.scenario.tables import Table


def json_schema() -> dict[str, object]:
    """The schema, draft 2020-12, as a value that `json.dumps` takes."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dispatchlab scenario",
        **_object(SCENARIO_TABLE),
        "$defs": {
            "key": {"enum": [key.name for key in DispatchKey]},
            "registration": {"oneOf": [{"$ref": f"#/$defs/{table.head}"} for table in TOP_TABLES]},
            "nested": {"oneOf": [{"$ref": f"#/$defs/{table.head}"} for table in NESTED_TABLES]},
            **{table.head: {"title": table.title, **_object(table)} for table in TOP_TABLES},
        },
    }


def _object(table: Table) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {field.name: {"description": field.doc, **field.shape.schema} for field in table.fields},
        "required": [field.name for field in table.fields if field.required],
        "additionalProperties": False,
    }
