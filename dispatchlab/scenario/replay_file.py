"""Replay files: two sequences over a scenario that disagreed, kept so that they can be run again.

A replay names registrations, so it survives edits of the scenario: as long as the registrations that its sequences use
are there, `resolve` finds them, and `staleness` says what else has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from dispatchlab.errors import DispatchLabError, ParseError
from dispatchlab.files.file_kinds import FileKind
from dispatchlab.files.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    Shape,
    Table,
    Wrong,
    at_error,
    expected,
    list_of,
    one_of,
    scalar,
)
from dispatchlab.files.yaml_tree import Node
from dispatchlab.model.sequence import StepSequence, format_sequence, parse_sequence, renumbered
from dispatchlab.scenario.load import SEMANTICS_FIELD, read_as, read_bytes
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import digest_of, scalar_text

NOTHING = format_sequence(())
"""How the empty sequence is written."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Two sequences that should have led to the same and did not.

    Args:
        scenario: the name of the scenario file, without its folder.
        digest: the `digest_of` the scenario when the sequences were found.
        registrations: the names of all its registrations; the sequences' numbers are places in here.
        expected_sequence: the sequence that sets what is expected.
        actual_sequence: the sequence that leads elsewhere.
        engine: the engine that they were run on.
        semantics: the semantics of that engine.
        seed: the seed of the walk that found them, if it had one.
        path: the scenario file, seen from the folder of the replay; empty when it lies beside it.
    """

    scenario: str
    digest: str
    registrations: tuple[str, ...]
    expected_sequence: StepSequence
    actual_sequence: StepSequence
    engine: str
    semantics: str
    seed: int | None = None
    path: str = ""


class OtherScenarioError(DispatchLabError):
    """A replay was to run on a scenario that it was not made for."""

    replay: Replay
    file: str

    template = (
        "the replay was made for {replay.scenario}, and {file} is another scenario: "
        "name {replay.scenario}, or search again with `dispatchlab permute`"
    )


class ScenarioOfReplayError(DispatchLabError):
    """The scenario of a replay was not found."""

    file: str
    scenario: str

    template = (
        "{file} is a replay of {scenario}, which is not where it was: name it with "
        "`dispatchlab permute PATH/{scenario} --replay {file}`"
    )


class StaleReplayError(DispatchLabError):
    """A replay uses registrations that its scenario no longer has.

    Attributes:
        replay: the replay.
        reasons: what has changed, a sentence each.
    """

    replay: Replay
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        first = f"the replay no longer fits {self.replay.scenario}; search again with `dispatchlab permute`"
        return "\n".join((first, *(f"  {reason}" for reason in self.reasons)))


def make_replay(
    scenario: Scenario,
    expected_sequence: StepSequence,
    actual_sequence: StepSequence,
    *,
    engine: str,
    semantics: str,
    seed: int | None = None,
    folder: str | None = None,
) -> Replay:
    """The replay of two sequences over a scenario's registrations.

    The scenario is found again from `folder`, the folder of the file that keeps the replay; only beside it without one.

    >>> from dispatchlab.scenario import load_scenario, make_replay, replay_text
    >>> scenario = load_scenario("scenarios/basics/a_second_def.yaml")
    >>> replay = make_replay(scenario, (0, 1), (1, 0), engine="lab", semantics="strict")
    >>> replay_text(replay).splitlines()[-2]
    'actual_sequence: "+1 +0"'
    """
    return Replay(
        scenario.file_name,
        digest_of(scenario),
        scenario.names,
        expected_sequence,
        actual_sequence,
        engine,
        semantics,
        seed,
        "" if folder is None else _path_from(folder, scenario),
    )


def _path_from(folder: str, scenario: Scenario) -> str:
    """The scenario file seen from a folder; empty when it lies in that folder, or cannot be seen from there."""
    if not os.path.isfile(scenario.file):
        return ""
    try:
        path = os.path.relpath(scenario.file, folder or ".").replace(os.sep, "/")
    except ValueError:  # on another drive of Windows
        return ""
    return "" if path == scenario.file_name else path


def scenario_of(file: str, replay: Replay) -> str:
    """The path of the scenario that a replay was made for.

    Args:
        file: the file of the replay.
        replay: its content.

    Raises:
        ScenarioOfReplayError: it is neither where it was, nor beside the replay, nor here.
    """
    folder = os.path.dirname(file)
    for path in (os.path.normpath(os.path.join(folder, replay.path or replay.scenario)), replay.scenario):
        if os.path.isfile(path):
            return path
    raise ScenarioOfReplayError(file, replay.scenario)


def check_scenario(replay: Replay, scenario: Scenario) -> None:
    """Make sure that a scenario is the one that a replay was made for: by its name, or the same under another name.

    Raises:
        OtherScenarioError: it is another one.
    """
    same = replay.digest == digest_of(scenario) and replay.registrations == scenario.names
    if not same and scenario.file_name not in ("", replay.scenario):
        raise OtherScenarioError(replay, scenario.file)


def staleness(replay: Replay, scenario: Scenario) -> tuple[str, ...]:
    """What has changed in the scenario since the replay was saved, a sentence each; empty when nothing that matters."""
    now = scenario.names
    if (replay.digest, replay.registrations) == (digest_of(scenario), now):
        return ()
    gone = [name for name in replay.registrations if name not in now]
    new = [name for name in now if name not in replay.registrations]
    reasons = [f"gone or renamed: {name}" for name in gone] + [f"new: {name}" for name in new]
    if not reasons and now != replay.registrations:
        reasons.append("the registrations are in another order")
    if not reasons:
        reasons.append(
            "the registrations have the same names, but what one of them says (a schema, a kernel, or only the line "
            "number in a debug text) or what is observed has changed"
        )
    return tuple(reasons)


def resolve(replay: Replay, scenario: Scenario) -> tuple[StepSequence, StepSequence]:
    """The replay's two sequences, expected and actual, in the numbers of the scenario as it is now.

    Raises:
        StaleReplayError: a registration that a sequence uses is gone; the error says which and what is new.
    """
    place = {name: index for index, name in enumerate(scenario.names)}
    used = {max(step, ~step) for step in (*replay.expected_sequence, *replay.actual_sequence)}
    if any(replay.registrations[index] not in place for index in used):
        raise StaleReplayError(replay, staleness(replay, scenario))
    numbers = [place.get(name, -1) for name in replay.registrations]
    return renumbered(replay.expected_sequence, numbers), renumbered(replay.actual_sequence, numbers)


_TOO_LONG = re.compile(r"\d{10}")
_DIGEST = re.compile("[0-9a-f]{32}")


def _version(node: Node, context: Context) -> int:
    if scalar(node, "the version of the format").text != "3":
        raise expected("the version 3", node, "another release of dispatchlab reads other versions")
    return 3


def _digest(node: Node, context: Context) -> str:
    text = scalar(node, "32 hexadecimal digits").text
    if not _DIGEST.fullmatch(text):
        raise expected("32 hexadecimal digits", node)
    return text


def _seed(node: Node, context: Context) -> int:
    text = scalar(node, "a number").text
    if not re.fullmatch("-?[0-9]{1,40}", text):
        raise expected("a number", node)
    return int(text)


def _any_sequence(node: Node, context: Context) -> Node:
    scalar(node, "a sequence such as +0 +1 -0")
    return node


VERSION = Field("replay", Shape("a version", _version, {"const": 3}), "The version of the format.", required=True)
SCENARIO = Field("scenario", TEXT, "The name of the scenario file.", required=True)
DIGEST = Field(
    "digest", Shape("32 hexadecimal digits", _digest, {"type": "string"}), "The digest of the scenario.", required=True
)
ENGINE = Field(
    "engine",
    one_of("the name of an engine", {"lab": "lab", "torch": "torch"}),
    "The engine that the sequences were run on.",
    required=True,
)
SEMANTICS = Field("semantics", TEXT, SEMANTICS_FIELD.doc, required=True)
PATH = Field("path", TEXT, "The scenario file, seen from the folder of the replay.")
SEED = Field("seed", Shape("a number", _seed, {"type": "integer"}), "The seed of the walk that found the sequences.")
REGISTRATIONS = Field(
    "registrations", list_of(TEXT, "a list of names"), "The names of the scenario's registrations.", required=True
)
_SEQUENCE = Shape("a sequence", _any_sequence, {"type": "string"})
EXPECTED = Field("expected_sequence", _SEQUENCE, "The sequence that sets what is expected.", required=True)
ACTUAL = Field("actual_sequence", _SEQUENCE, "The sequence that leads elsewhere.", required=True)

CHECK = Field(
    "check",
    Shape("32 hexadecimal digits", _digest, {"type": "string"}),
    "The digest of all that is said above.",
    required=True,
)

REPLAY_TABLE = Table(
    "a replay", (VERSION, SCENARIO, PATH, DIGEST, ENGINE, SEMANTICS, SEED, REGISTRATIONS, EXPECTED, ACTUAL, CHECK)
)


def replay_text(replay: Replay) -> str:
    """The replay as the text of a file, which `parse_replay` reads."""

    def lines() -> Iterable[str]:
        yield "replay: 3"
        yield f"scenario: {scalar_text(replay.scenario)}"
        if replay.path:
            yield f"path: {scalar_text(replay.path)}"
        yield f"digest: {scalar_text(replay.digest)}"
        yield f"engine: {scalar_text(replay.engine)}"
        yield f"semantics: {scalar_text(replay.semantics)}"
        if replay.seed is not None:
            yield f"seed: {replay.seed}"
        yield "registrations:"
        for number, name in enumerate(replay.registrations):
            yield f"  - {scalar_text(name)}  # {number}"
        yield f"expected_sequence: {scalar_text(format_sequence(replay.expected_sequence))}"
        yield f"actual_sequence: {scalar_text(format_sequence(replay.actual_sequence))}"

    text = "\n".join((*lines(), ""))
    return f"{text}check: {scalar_text(sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:32])}\n"


def load_replay(path: str | os.PathLike[str]) -> Replay:
    """Read a replay file.

    Raises:
        ScenarioError: with every problem of the file.
    """
    return parse_replay(read_bytes(path, FileKind.REPLAY), file=os.fspath(path))


def parse_replay(data: bytes | str, *, file: str = "<text>") -> Replay:
    """Read a replay from the content of a file.

    >>> from dispatchlab.scenario import load_scenario, make_replay, parse_replay, replay_text
    >>> scenario = load_scenario("scenarios/basics/a_second_def.yaml")
    >>> replay = make_replay(scenario, (0, 1), (1, 0), engine="lab", semantics="strict")
    >>> parse_replay(replay_text(replay)) == replay
    True

    Raises:
        ScenarioError: with every problem of the content.
    """
    return read_as(_read, data, Context(file))


def _read(root: Node, context: Context) -> Replay | None:
    entry = Entry.read(root, REPLAY_TABLE, context)
    if not entry.is_right:
        return None
    names = entry[REGISTRATIONS]
    found: dict[str, StepSequence] = {}
    for field in (EXPECTED, ACTUAL):
        try:
            found[field.name] = _sequence(entry[field], len(names))
        except Wrong as wrong:
            context.report(wrong)
    if context.problems:
        return None
    replay = Replay(
        scenario=entry[SCENARIO],
        digest=entry[DIGEST],
        registrations=names,
        expected_sequence=found[EXPECTED.name],
        actual_sequence=found[ACTUAL.name],
        engine=entry[ENGINE],
        semantics=entry[SEMANTICS],
        seed=entry.get(SEED),
        path=entry.get(PATH, ""),
    )
    check = replay_text(replay).splitlines()[-1].removeprefix("check: ").strip('"')
    if entry[CHECK] != check:
        node = entry.node_of(CHECK)
        context.report(expected("the digest of what is said above", node, _CHANGED))
        return None
    return replay


_CHANGED = "the replay was changed after it was saved: search again with `dispatchlab permute`"


def _sequence(node: Node, count: int) -> StepSequence:
    value = scalar(node, "a sequence")
    if value.text == NOTHING:
        return ()
    if long := _TOO_LONG.search(value.text):
        column = value.column_of(long.start())
        raise Wrong(node, f"expected a registration from 0 to {count - 1} but found a larger number", column=column)
    try:
        return parse_sequence(value.text, count=count)
    except ParseError as error:
        raise at_error(value, error) from None
