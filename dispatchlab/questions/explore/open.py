"""The application for what a command line names: a scenario, an operator, a registry, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.sequence import format_sequence, parse_sequence
from dispatchlab.questions.explore.app import ExplorerApp, Setting
from dispatchlab.questions.explore.session import Runner, SessionError
from dispatchlab.questions.explore.session_subject import (
    Catalogue,
    Subject,
    engine_of_session,
    runner_for,
    subject_of_scenario,
)
from dispatchlab.questions.order.run_scenario import RunOptions
from dispatchlab.questions.setup.demo import demo_scenario
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.questions.sources.find_sources import (
    LIVE,
    check_source,
    is_registry_source,
    is_scenario_source,
    recorded_from,
)
from dispatchlab.registries.builds import default_registry
from dispatchlab.scenario.load import load_scenario, parse_scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line names.

    Args:
        what: a scenario, an operator or a registry; None is the demo, or the registry of `source`.
        source: the registry that is searched; the default registry when left out.
        after: the sequence to begin with; everything in the order of the file when left out.
        engine: `lab` or `torch`.
        semantics: those of the lab engine.
        imports: modules that the live engine imports first.
        allow_import: import the functions that a scenario names.
    """

    what: str | None = None
    source: str | None = None
    after: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()
    allow_import: bool = False


def make_app(asked: Asked, resources: ExitStack, *, report: Callable[[str], None] | None = None) -> ExplorerApp:
    """The application, with its engine started.

    Args:
        asked: what the command line names.
        resources: holds the engine as long as the application runs.
        report: is called with what a reader should know before the application opens.

    Raises:
        DispatchLabError: what is named cannot be used.
    """
    what, source = asked.what, asked.source
    if what is not None and is_registry_source(what):
        if source is not None:
            raise SessionError(f"{what} and --from {source} are both registries: leave one of the two out")
        what, source = None, what
    subject, query = None, ""

    @cache
    def catalogue() -> Catalogue:
        name = default_registry().name if source is None else source
        imports: Sequence[str] = asked.imports if name == LIVE else ()
        return Catalogue(recorded_from(name, imports=imports, report=report), name, asked.semantics)

    if what is None and source is None:
        subject = subject_of_scenario(parse_scenario(demo_scenario(), file="demo.yaml"), semantics=asked.semantics)
    elif what is None:
        catalogue()
    elif is_scenario_source(what) or os.path.exists(what):
        check_source(what)
        subject = subject_of_scenario(load_scenario(what, allow_import=asked.allow_import), semantics=asked.semantics)
    else:
        named = catalogue().named(what)
        if len(named) == 1:
            subject = catalogue().subject(named[0])
        else:
            query = what.partition("*")[0]
    if asked.after is not None:
        subject = _begun(subject, asked.after)
    live = asked.engine == "torch"
    imports = asked.imports if live else () if source == LIVE else asked.imports
    if live and report is not None:
        report("starting PyTorch, which takes seconds")
    engine = resources.enter_context(engine_of_session(asked.engine, semantics=asked.semantics, imports=imports))

    def runner(about: Subject) -> Runner:
        return runner_for(about, engine, imports=asked.imports)

    if subject is not None:  # what cannot be run is an error of the command line
        with closing(runner(subject)) as tried:
            tried.at(subject.start)
    return ExplorerApp(
        Setting(
            runner=runner,
            catalogue=catalogue,
            options=RunOptions(engine=asked.engine, semantics=asked.semantics, imports=asked.imports if live else ()),
            engine_title=f"PyTorch, {engine.semantics}" if engine is not None else "",
        ),
        subject,
        query=query,
    )


class AfterNothingError(DispatchLabError):
    """A sequence was given and no registrations that it could number."""

    sequence: str

    template = "--after {sequence} numbers registrations: name a scenario or one operator"


def _begun(subject: Subject | None, after: str) -> Subject:
    if subject is None:
        raise AfterNothingError(after)
    count = len(subject.registrations)
    start = () if after == format_sequence(()) else parse_sequence(after, count=count)
    return replace(subject, start=start)
