"""What is fuzzed: for each kind of input, how a case is made and what reads it; only documented errors may come out."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click
from click.testing import CliRunner

from dispatchlab.cli import COMMANDS, main
from dispatchlab.codegen.emit.backend_files import backend_files
from dispatchlab.codegen.emit.generate import generated_files
from dispatchlab.codegen.read.backend_file import read_backend_file
from dispatchlab.codegen.read.native_functions import NativeFunctions, read_native_functions
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.errors import DispatchLabError, ErrorKind
from dispatchlab.files.file_kinds import JOURNAL_MAGIC
from dispatchlab.files.journal import Journal
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.profile import bundled_profile, profile_text
from dispatchlab.model.schema_parser import parse_schema_or_name
from dispatchlab.model.snapshot import Refusal
from dispatchlab.processes.plain_data import plain_bytes
from dispatchlab.prover.walk_log import WalkRecord
from dispatchlab.questions.check.configuration import settings_of
from dispatchlab.questions.coverage.program_trace import read_trace
from dispatchlab.questions.lint.baseline import load_baseline
from dispatchlab.questions.readiness.known_failures import load_known_failures
from dispatchlab.records.file import registry_bytes
from dispatchlab.records.stored import registry_in
from dispatchlab.scenario.load import load_scenario, parse_scenario
from dispatchlab.scenario.replay_file import parse_replay
from tests import bundle_cases
from tests.fuzz.mutate import TOKENS, mutated_bytes, mutated_text
from tests.registry_cases import SMALL, damaged, made_up

ROOT = Path(__file__).parents[2]
DOCUMENTED = frozenset((0, 1, 2, 3, 4))
"""The exit codes that a command may end with here; nothing is interrupted, crashes or imports a package."""

_SHARE_OF_COMMANDS = 0.05  # how many of the files that can be read are given to a command, too
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Finding(Exception):
    """A case ended as nothing may end."""


Target = Callable[[random.Random], str]


def schemas(rng: random.Random) -> str:
    """A schema is parsed as a library block parses it, and as the print of a dispatcher."""
    text = mutated_text(rng.choice(_schema_texts()), rng)
    outcome = _outcome(lambda: str(parse_schema_or_name(text, typevars=rng.random() < 0.5)))
    _outcome(lambda: str(parse_printed(text)))
    return outcome


def scenarios(rng: random.Random) -> str:
    """A scenario is read; a few that can be read are explored, or looked into."""
    data = mutated_bytes(rng.choice(_scenario_files()), rng)
    outcome = _outcome(lambda: parse_scenario(data, file="a.yaml"))
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        arguments = rng.choice(
            (
                *(("permute", "--max-states", "200", "a.yaml"),) * 6,
                ("permute", "--walk", "sample", "--samples", "5", "--format", "json", "a.yaml"),
                ("lint", "a.yaml"),
                ("lint", "a.yaml", "--format", "sarif"),
                ("dump", "test::foo", "--from", "a.yaml"),
                ("explain", "test::foo", "--from", "a.yaml"),
                ("coverage", "CPU", "--from", "a.yaml"),
                ("diff", "a.yaml", "a.yaml"),
                ("certify", "a.yaml", "--jobs", "1"),
            )
        )
        return _command_on({"a.yaml": data}, *arguments)
    return outcome


def registries(rng: random.Random) -> str:
    """A registry is read as a whole; a few that can be read are looked into."""
    data = damaged(_small(), rng) if rng.random() < 0.1 else made_up(_small(), rng)
    outcome = _outcome(lambda: registry_in(data).load())
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        arguments = rng.choice(
            (
                ("lint", "a.dlreg"),
                ("dump", "test::foo", "--from", "a.dlreg"),
                ("dump", "--from", "a.dlreg"),
                ("coverage", "CUDA", "--from", "a.dlreg"),
                ("diff", "a.dlreg", "a.dlreg"),
                ("certify", "a.dlreg", "--jobs", "1"),
                ("explain", "test::foo", "--from", "a.dlreg"),
            )
        )
        return _command_on({"a.dlreg": data}, *arguments)
    return outcome


def bundles(rng: random.Random) -> str:
    """Every registry of a bundle is read as a whole."""
    data = damaged(_bundle(), rng) if rng.random() < 0.1 else made_up(_bundle(), rng)
    return "refused" if isinstance(bundle_cases.outcome(data), str) else "read"


def replays(rng: random.Random) -> str:
    """A replay with changes is what it was or is refused; one that says other things from the start is run."""
    from dispatchlab.scenario.replay_file import replay_text

    replay = rng.choice(_replays())
    if rng.random() < 0.8:
        data = mutated_bytes(replay.text, rng)
        outcome = _outcome(lambda: parse_replay(data, file="a.replay"))
        if outcome == "read" and parse_replay(data) != parse_replay(replay.text):
            raise Finding("another replay was read")
        return outcome
    of = parse_replay(replay.text)
    some = list(of.expected_sequence)
    rng.shuffle(some)
    steps = tuple(some[: rng.randrange(len(some) + 1)])
    other = dataclasses.replace(of, actual_sequence=steps, engine="lab", digest=rng.choice((of.digest, "0" * 32)))
    names = [mutated_text(name, rng) if rng.random() < 0.02 else name for name in of.registrations]
    if rng.random() < 0.3:
        rng.shuffle(names)
    text = replay_text(dataclasses.replace(other, registrations=tuple(names)))
    files = {"a.replay": text.encode("utf-8", "surrogatepass"), replay.scenario_name: replay.scenario}
    return _command_on(files, "permute", *rng.choice(((), (replay.scenario_name,))), "--replay", "a.replay")


def checkpoints(rng: random.Random) -> str:
    """A checkpoint with changes has records of the one that it was, from the first on, or is refused."""
    whole, values, run = _checkpoint()
    if rng.random() < 0.5:
        data = damaged(whole, rng)
        known = values
    else:
        data, known = _with_a_forged_record(whole, rng), ()
    with _folder() as folder:
        (folder / "run.ck").write_bytes(data)

        def read() -> None:
            with Journal("run.ck", run) as journal:
                found = journal.records("walk 0", WalkRecord)
                if known and found != list(known[: len(found)]):
                    raise Finding("another record was read")

        return _outcome(read)


_NODES: Sequence[object] = (
    *(
        None,
        True,
        0,
        1,
        -1,
        2,
        5,
        9,
        30,
        2**40,
        2**80,
        0.5,
        "",
        "a",
        "tuple",
        "frozenset",
        "dict",
        "int",
        "bytes",
        [],
        {},
    ),
    *(["tuple"], ["tuple", 0, 1], ["list", 0], ["dict", 0, 0], ["int", "-0x1"], ["bytes", "AA=="], ["os:system", 0]),
    *("dispatchlab.model.snapshot:Refusal", "dispatchlab.errors:ErrorKind", "dispatchlab.files.journal:Journal"),
)


def profiles(rng: random.Random) -> str:
    """A profile is loaded; a few that can be read are what a scenario is explored with."""
    data = mutated_bytes(profile_text(bundled_profile("torch-2.13")).encode(), rng)
    with _folder() as folder:
        (folder / "p.json").write_bytes(data)
        outcome = _outcome(lambda: semantics_named("p.json"))
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        return _command_on(
            {"p.json": data, "a.yaml": _scenario_files()[0]}, "permute", "a.yaml", "--semantics", "p.json"
        )
    return outcome


def known_failures(rng: random.Random) -> str:
    """A baseline of readiness is loaded."""
    data = mutated_bytes(_KNOWN, rng)
    with _folder() as folder:
        (folder / "b.json").write_bytes(data)
        return _outcome(lambda: load_known_failures("b.json"))


def captured_inputs(rng: random.Random) -> str:
    """A file of captured inputs is read as a whole; of one with a change nothing else is read."""
    from dispatchlab.pytorch.introspection.readiness_captures import CapturedCalls, captures_bytes, read_captures

    calls: object = json.loads(_CALLS)
    whole = captures_bytes(CapturedCalls(json.loads(_CALLS), [b"ab"], {}))
    changed = rng.random() < 0.5
    if not changed:
        with suppress(ValueError, RecursionError):
            calls = json.loads(mutated_text(_CALLS, rng))
            whole = captures_bytes(CapturedCalls(calls, [b"ab"], {})) if isinstance(calls, dict) else whole
    data = damaged(whole, rng) if changed else whole
    with _folder() as folder:
        (folder / "i.safetensors").write_bytes(data)
        outcome = _outcome(lambda: read_captures("i.safetensors"))
    if changed and data != whole and outcome == "read":
        raise Finding("other calls were read")
    return outcome


def settings(rng: random.Random) -> str:
    """What a project says about its check is read, and a few times what comes before it."""
    data = mutated_bytes(rng.choice(_SETTINGS), rng)
    if rng.random() < _SHARE_OF_COMMANDS:
        return _command_on({"pyproject.toml": data}, "init")
    with _folder() as folder:
        (folder / rng.choice(("pyproject.toml", "dispatchlab.toml"))).write_bytes(data)
        return _outcome(lambda: settings_of(folder))


_CALLS = """{"a::b": [{"tensors": [], "positional": {"list": [1, "a", {"float": "0x1p0"},
{"complex": ["0x0p0", "0x1p0"]}, {"list": [null, true]}]}, "named": [["x", 1]]}], "a::c": []}"""
_SETTINGS = (
    b'[tool.dispatchlab]\npackages = ["json", "csv"]\nfail = ["order"]\nbaseline = "b.json"\nrecord = ["a.yaml"]\n',
    b'packages = ["json"]\nfail = []\n',
    b'[project]\nname = "json"\n[tool.pytest.ini_options]\ndispatchlab_scenarios = ["scenarios"]\n',
)
_TRACE = b"""{"device": "npu", "has_fallback": true, "tags": [], "programs": [{"program": "a.py", "error": "",
"unserved": "", "operators": [["test::foo", 2], ["aten::add.out", 3]]}], "kernels": [{"operator": "test::foo",
"served_by": "missing", "parts": ["aten::add.out"]}, {"operator": "fallback X", "served_by": "own", "parts": []}]}"""
_BACKEND = b"""backend: PrivateUse1
cpp_namespace: npu
class_name: Kernels
use_out_as_primary: false
device_guard: true
supported: [relu, index_copy_]
symint: []
autograd: [add.Tensor]
"""
_KNOWN = b"""{"version": 1, "failures": [{"operator": "a::b", "column": "fake", "reason": "x"}]}\n"""


@cache
def _checkpoint() -> tuple[bytes, tuple[WalkRecord, ...], Mapping[str, str]]:
    """The bytes of a checkpoint of a walk, its records, and what run it is of."""
    refusal = Refusal(ErrorKind.DUPLICATE_DEF, (("operator", "test::foo"),), "twice")
    first = WalkRecord(b"\0" * 16, b"\1" * 16, (1,), ((3, 1, refusal),), (), 2, 2, 5, 9, None, frozenset({"test::foo"}))
    records = (first, *(first._replace(head=head, refused_steps=tuple(range(head))) for head in (5, 9)))
    run = {"the command": "permute", "a.yaml": "0" * 64}
    with _folder() as folder:
        with Journal("run.ck", run) as journal:
            for record in records:
                assert journal.add("walk 0", record)
        return (folder / "run.ck").read_bytes(), records, run


def _with_a_forged_record(whole: bytes, rng: random.Random) -> bytes:
    """The checkpoint with one more record, which has the right digest and nodes that were changed."""
    last, at = b"", len(JOURNAL_MAGIC)
    while at < len(whole):
        size = int.from_bytes(whole[at : at + 4], "little")
        last, at = whole[at + 4 : at + 36], at + 36 + size
    nodes = json.loads(zlib.decompress(plain_bytes(("walk 0", rng.choice(_checkpoint()[1])))))
    for _ in range(rng.choice((1, 1, 2, 5))):
        node = rng.choice([nodes, *(node for node in nodes if isinstance(node, list))])
        if node:
            node[rng.randrange(len(node))] = deepcopy(rng.choice(_NODES))
    data = zlib.compress(json.dumps(nodes).encode())
    return whole + len(data).to_bytes(4, "little") + sha256(last + data).digest() + data


def baselines(rng: random.Random) -> str:
    """A baseline is loaded from a file; a few that can be read are compared with what lint finds."""
    data = mutated_bytes(rng.choice(_baseline_texts()), rng)
    with _folder() as folder:
        (folder / "b.json").write_bytes(data)
        outcome = _outcome(lambda: load_baseline("b.json"))
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        arguments = ("--write-baseline", "c.json") if rng.random() < 0.3 else ()
        return _command_on(
            {"b.json": data, "small.dlreg": _small()}, "lint", "small.dlreg", "--baseline", "b.json", *arguments
        )
    return outcome


def traces(rng: random.Random) -> str:
    """The recorded calls of programs are read; a few that can be read are asked of a backend."""
    data = mutated_bytes(_TRACE, rng)
    with _folder() as folder:
        (folder / "t.json").write_bytes(data)
        outcome = _outcome(lambda: read_trace("t.json"))
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        shown = rng.choice(("text", "json", "markdown"))
        asked = ("--key", "PrivateUse1", "--trace", "t.json", "--fallback", "--format", shown)
        return _command_on({"t.json": data, "small.dlreg": _small()}, "coverage", "small.dlreg", *asked)
    return outcome


def backends(rng: random.Random) -> str:
    """The file of a backend is read; of what can be read the code is made."""
    data, natives = mutated_bytes(_BACKEND, rng), _natives()
    return _outcome(lambda: backend_files(read_backend_file(data, natives, file="b.yaml"), natives, file="b.yaml"))


def native_functions(rng: random.Random) -> str:
    """A file of native functions is read; what can be read is generated from, and compiled."""
    data = mutated_bytes(rng.choice(_native_files()), rng)
    outcome = _outcome(lambda: read_native_functions(data, file="n.yaml"))
    if outcome == "read" and rng.random() < 0.1:
        return _outcome(lambda: _generated(data))
    if outcome == "read" and rng.random() < _SHARE_OF_COMMANDS:
        return _command_on({"n.yaml": data}, "codegen", "n.yaml", "-o", "generated")
    return outcome


def command_lines(rng: random.Random) -> str:
    """A command is run with arguments that make sense, and arguments that do not, in a folder of its own."""
    name = rng.choice(_commands())
    command = _command(name)
    arguments: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            arguments += [_value(rng) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        elif (
            isinstance(parameter, click.Option)
            and not _FORBIDDEN & {*parameter.opts}
            and rng.random() < 2 / len(command.params)
        ):
            arguments.append(rng.choice(parameter.opts))
            if {"--jobs", "-j"} & {*parameter.opts}:
                arguments.append(rng.choice(("1", "1", "0", "-1", "nan", "", "1.5", "9" * 5_000)))
            elif not parameter.is_flag:
                choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
                known = [str(each) for each in choices if str(each) not in ("live", "torch")]
                arguments.append(rng.choice(known) if known and rng.random() < 0.7 else _value(rng))
    if rng.random() < 0.2:
        rng.shuffle(arguments)
    if name == "certify" or (name == "lint" and rng.random() < 0.99):  # of the whole PyTorch they take seconds
        arguments.insert(0, "small.dlreg")
    if name == "certify":
        arguments = ["--jobs", "1", *arguments]
    if rng.random() < 0.02:
        name, arguments = rng.choice((*_WORDS, "--no-color", "--version")), [name, *arguments]
    with _folder() as folder:
        _fill(folder)
        return _invoke(name, *arguments)


TARGETS: dict[str, tuple[Target, int]] = {
    "schemas": (schemas, 1_000_000),
    "scenarios": (scenarios, 100_000),
    "registries": (registries, 100_000),
    "bundles": (bundles, 100_000),
    "replays": (replays, 20_000),
    "checkpoints": (checkpoints, 100_000),
    "profiles": (profiles, 20_000),
    "known_failures": (known_failures, 20_000),
    "captured_inputs": (captured_inputs, 100_000),
    "settings": (settings, 20_000),
    "baselines": (baselines, 20_000),
    "traces": (traces, 20_000),
    "backends": (backends, 20_000),
    "native_functions": (native_functions, 20_000),
    "command_lines": (command_lines, 20_000),
}
"""Each kind of input with the number of cases that a release is tested with."""


def _outcome(read: Callable[[], object]) -> str:
    try:
        read()
    except DispatchLabError as error:
        if len(str(error)) > 100_000:
            raise Finding(f"an error of {len(str(error)):,} characters") from None
        return "refused"
    return "read"


def _invoke(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments), prog_name="dispatchlab")
    if result.exit_code not in DOCUMENTED:
        raise Finding(f"exit {result.exit_code} of {arguments!r:.500}: {result.stderr[-500:]}")
    if "Traceback (most recent call last)" in result.output:
        raise Finding(f"a traceback of {arguments!r:.500}")
    if raw := _CONTROLS.search(result.output):
        around = result.output[max(raw.start() - 40, 0) : raw.end()]
        raise Finding(f"a control character of {arguments!r:.500}: {around!r}")
    return f"exit {result.exit_code}"


def _command_on(files: Mapping[str, bytes], *arguments: str) -> str:
    with _folder() as folder:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return _invoke(*arguments)


def _generated(data: bytes) -> None:
    """Generate from a file, and hold that what is generated is Python and a scenario."""
    for path, text in generated_files(read_native_functions(data, file="n.yaml"), file="n.yaml").items():
        if path.endswith(".py"):
            compile(text, path, "exec")
        elif path.endswith(".yaml"):
            parse_scenario(text.encode(), file=path)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory where there is one, as the current folder."""
    before = Path.cwd()
    shared = "/dev/shm"
    with TemporaryDirectory(prefix="fuzz-", dir=shared if os.access(shared, os.W_OK) else None) as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


# -- what is mutated


@cache
def _schema_texts() -> Sequence[str]:
    lines = (ROOT / "tests/data/torch-2.13-schemas.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def _scenario_files() -> Sequence[bytes]:
    paths = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "tests/data/scenarios_bad").glob("*.yaml")]
    contents = (path.read_bytes() for path in sorted(paths))
    return [content for content in contents if _is_text(content)]


@cache
def _small() -> bytes:
    return registry_bytes(SMALL)


@cache
def _bundle() -> bytes:
    return bundle_cases.three_bytes()


class _Replay(NamedTuple):
    """A replay with the scenario that it is of."""

    text: bytes
    scenario_name: str
    scenario: bytes


@cache
def _replays() -> Sequence[_Replay]:
    from dispatchlab.scenario.replay_file import make_replay, replay_text

    found: list[_Replay] = []
    for path in sorted((ROOT / "scenarios").rglob("*.yaml"))[::20]:
        try:
            scenario = load_scenario(path)
        except DispatchLabError:
            continue
        order = tuple(range(len(scenario.registrations)))
        replay = make_replay(scenario, order, order[::-1], engine="lab", semantics="torch-2.13", seed=7)
        found.append(_Replay(replay_text(replay).encode(), path.name, path.read_bytes()))
    return found


@cache
def _baseline_texts() -> Sequence[bytes]:
    row = '{"code": "DL101", "operator": "test::foo", "key": "CPU", "files": ["a.py", "b.cpp"]}'
    return [f'{{"version": 2, "findings": [{", ".join([row] * count)}]}}\n'.encode() for count in (0, 1, 3)]


@cache
def _natives() -> NativeFunctions:
    return read_native_functions((ROOT / _NATIVE_FILES[0]).read_bytes(), file="n.yaml")


@cache
def _native_files() -> Sequence[bytes]:
    """Files with something wrong, and as often the groups of files that can be read."""
    bad = sorted((ROOT / "tests/data/codegen/bad").rglob("*.yaml"))
    contents = [content for content in (path.read_bytes() for path in bad) if _is_text(content)]
    groups = [group for path in _NATIVE_FILES for group in _groups((ROOT / path).read_text(encoding="utf-8"))]
    return [*contents, *(groups[at % len(groups)] for at in range(len(contents)))]


_NATIVE_FILES = ("tests/data/codegen/operators.yaml", "dispatchlab/codegen/kernels/operators.yaml")


def _groups(text: str) -> Sequence[bytes]:
    """For each group of native functions, a file that can be read: the functions of one name, one after another."""
    entries = re.split(r"\n(?=- func: )", text)[1:]
    groups = itertools.groupby(entries, lambda entry: re.split("[.(]", entry.removeprefix("- func: "))[0].rstrip("_"))
    return ["\n".join(group).encode() for _, group in groups]


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- command lines


# These import a package or start processes. No command line has a NUL, so none is made with one.
_LEFT_OUT = frozenset(("record", "imports", "doctor", "profile", "trace", "init"))
_FORBIDDEN = frozenset(("--import", "--imports", "--allow-import", "--conform", "--browser"))  # which serves for good


@cache
def _commands() -> Sequence[str]:
    return sorted(set(COMMANDS) - _LEFT_OUT)


@cache
def _command(name: str) -> click.Command:
    with main.make_context("dispatchlab", ["--no-color", name], resilient_parsing=True) as context:
        command = main.get_command(context, name)
    assert command is not None
    return command


_FILES = ("a.yaml", "b.yaml", "small.dlreg", "replay.yaml", "baseline.json", "n.yaml", "empty", "folder", "missing")
_WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "7",
        "3.5",
        "nan",
        "inf",
        "9" * 5_000,
        "a" * 5_000,
        "\0",
        "\n",
        "é",
        "[",
        "[a-",
    ),
    *("test::foo", "test::*", "aten::add.Tensor", "add", "CPU", "CUDA", "AutogradCPU", "nope", "2020", "torch-2.13"),
    *(
        "(Tensor x) -> Tensor",
        "foo(Tensor x) -> Tensor",
        "((((" * 800,
        "+0 +1",
        "+0 -0",
        "--help",
        "bash",
        "text",
        "json",
    ),
)


def _value(rng: random.Random) -> str:
    value = rng.choice((*_FILES, *_FILES, *_WORDS, rng.choice(_WORDS) + rng.choice(TOKENS)))
    # A file is written nowhere else than in the folder of the case, and no folder outside of it is searched.
    return (
        "x" if {"/", "\0"} & {*value} or ".." in value or value.startswith("~") or value in ("live", "torch") else value
    )


def _fill(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(_scenario_files()[0])
    (folder / "b.yaml").write_bytes(_scenario_files()[1])
    (folder / "small.dlreg").write_bytes(_small())
    (folder / "replay.yaml").write_bytes(_replays()[0].text)
    (folder / _replays()[0].scenario_name).write_bytes(_replays()[0].scenario)
    (folder / "baseline.json").write_bytes(_baseline_texts()[1])
    (folder / "n.yaml").write_bytes(_native_files()[0])
    (folder / "empty").touch()
    (folder / "folder").mkdir()
