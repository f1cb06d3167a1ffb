"""Open the application for the subject of a command line: a scenario, an operator of a registry, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from dispatchlab.errors import RequestError
from dispatchlab.model.sequence import format_sequence, parse_sequence
from dispatchlab.questions.explore.app import ExplorerApp
from dispatchlab.questions.explore.session_subject import subject_of_operator, subject_of_scenario
from dispatchlab.questions.setup.demo import demo_scenario
from dispatchlab.questions.sources.find_sources import (
    check_source,
    is_registry_source,
    is_scenario_source,
    recorded_from,
)
from dispatchlab.registries.builds import default_registry
from dispatchlab.scenario.load import load_scenario, parse_scenario


def make_app(
    what: str | None = None,
    *,
    source: str | None = None,
    imports: tuple[str, ...] = (),
    after: str | None = None,
    semantics: str | None = None,
    allow_import: bool = False,
    report: Callable[[str], None] | None = None,
) -> ExplorerApp:
    """Make the application.

    Args:
        what: a scenario or an operator; None for the demo.
        source: the registry with the operator; default: the default registry.
        imports: modules to import first, only for `live`.
        after: the first sequence; default: all registrations in the order of the file.
        semantics: the semantics of the lab engine.
        allow_import: import the functions that a scenario names.
        report: a function that gets sentences for the reader before the application opens.

    Raises:
        DispatchLabError: the subject cannot be used.
    """
    registry = source if what is None else what if is_registry_source(what) else None
    if registry is not None:
        example = f"`dispatchlab explore aten::relu --from {registry}`"
        raise RequestError(f"{registry} is a registry: name one of its operators, as in {example}")
    if what is None:
        subject = subject_of_scenario(parse_scenario(demo_scenario(), file="demo.yaml"), semantics=semantics)
    elif is_scenario_source(what) or os.path.exists(what):
        check_source(what)
        subject = subject_of_scenario(load_scenario(what, allow_import=allow_import), semantics=semantics)
    else:
        name = source or default_registry().name
        recorded = recorded_from(name, imports=imports, report=report)
        subject = subject_of_operator(recorded, what, source=name, semantics=semantics)
    if after is not None:
        count = len(subject.registrations)
        start = () if after == format_sequence(()) else parse_sequence(after, count=count)
        subject = replace(subject, start=start)
    return ExplorerApp(subject, semantics=semantics)
