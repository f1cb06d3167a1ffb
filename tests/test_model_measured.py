"""What is measured of a PyTorch of which nothing is bundled: once, kept whole, and refused when it was changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab.engine.semantics import SEMANTICS, semantics_named
from dispatchlab.errors import DispatchLabError
from dispatchlab.model import measured
from dispatchlab.model.measured import (
    CACHE,
    NO_MEASURE,
    measured_facts,
    measured_profile,
    model_for,
    not_measured,
    without_notes,
)
from dispatchlab.model.profile import bundled_profile, profile_text
from dispatchlab.processes import own_command
from dispatchlab.records import builds
from dispatchlab.records.file import bundled_names, open_bundled, registry_bytes
from dispatchlab.records.model import registry_of
from dispatchlab.scenario.load import parse_scenario
from dispatchlab.scenario.scenario import SEMANTICS as WORDS
from dispatchlab.scenario.write import scenario_text

UNKNOWN, PRINTED_BY = "torch-2.99", own_command.printed_by
PROFILE = replace(bundled_profile("torch-2.13"), torch="2.99.0+cu199")
TEXT = profile_text(PROFILE).encode()
RELU = "aten::relu"
REGISTRY = registry_bytes(
    registry_of(PROFILE.torch, [one] if (one := open_bundled("torch-2.13").operator(RELU)) else [])
)


class Measures:
    """Stands in for the processes that measure; counts them."""

    def __init__(self) -> None:
        self.count, self.answer = 0, (TEXT, "")

    def __call__(self, command: tuple[str, ...], variables: dict[str, str], limit_s: float) -> tuple[bytes, str]:
        assert (variables, limit_s) == ({NO_MEASURE: "1"}, 600.0)
        self.count += 1
        return self.answer if command == ("profile",) else (REGISTRY, "")


@pytest.fixture
def measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Measures]:
    """A PyTorch 2.99 is installed, and measured by this."""
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "version.py").write_text("__version__ = '2.99.0+cu199'\n")
    (folder / "lib" / "libtorch_cpu.so").write_bytes(b"one build")
    counted = Measures()
    monkeypatch.setattr(measured, "installed_torch", lambda: "2.99.0+cu199")
    monkeypatch.setattr(measured, "installed_torch_folder", lambda: str(folder))
    monkeypatch.setattr(own_command, "printed_by", counted)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(NO_MEASURE)
    forget()
    yield counted
    forget()


def forget() -> None:
    """As a new process."""
    measured._kept.cache_clear()
    measured._profile_in.cache_clear()
    semantics_named.__globals__["_made"].cache_clear()


def kept(folder: Path) -> list[str]:
    """The files of profiles in the cache."""
    return sorted(path.name for path in (folder / "cache").iterdir() if path.suffix == ".json")


def test_an_unknown_torch_is_measured_once(
    measures: Measures, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert model_for("2.99.1") == UNKNOWN
    assert semantics_named("torch").name == UNKNOWN
    assert UNKNOWN in SEMANTICS
    assert UNKNOWN not in [*SEMANTICS]
    assert measured_profile(UNKNOWN) == PROFILE
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"measuring the profile of PyTorch 2.99.0+cu199, once; it is kept in {tmp_path / 'cache'}",
        "model: measured on this PyTorch, 2.99.0+cu199",
    ]
    forget()
    assert measured_profile(UNKNOWN) == PROFILE
    assert measures.count == len(kept(tmp_path)) == 1
    assert [line.partition(",")[0] for line in measured_facts(UNKNOWN)] == [
        "profile: measured on this PyTorch just now",
        "registry: not measured; it is when it is first needed",
    ]
    assert not measured_facts("torch-2.13")
    assert (model_for("2.98.0"), measured_profile("torch-2.98")) == ("torch-2.15", None)


def test_a_changed_file_is_refused_and_another_build_is_measured_too(measures: Measures, tmp_path: Path) -> None:
    assert measured_profile(UNKNOWN) == PROFILE
    (name,) = kept(tmp_path)
    path = tmp_path / "cache" / name
    for content in (TEXT.replace(b"true", b"false", 1), TEXT[:-1], b""):
        path.write_bytes(content)
        forget()
        assert measured_profile(UNKNOWN) == PROFILE
        assert kept(tmp_path) == [name]
        assert path.read_bytes() == TEXT
    assert measures.count == 4
    (tmp_path / "torch" / "lib" / "libtorch_cpu.so").write_bytes(b"another build")
    forget()
    assert measured_profile(UNKNOWN) == PROFILE
    assert (measures.count, len(kept(tmp_path))) == (5, 2)


def test_where_nothing_may_be_or_can_be_measured_the_nearest_answers(
    measures: Measures, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NO_MEASURE, "1")
    assert model_for("2.99.0") == "torch-2.15"
    assert not_measured(UNKNOWN) == "it was not measured: --no-measure was given"
    monkeypatch.delenv(NO_MEASURE)
    forget()
    measures.answer = b"", "its slots cannot be read"
    assert model_for("2.99.0") == "torch-2.15"
    assert capsys.readouterr().err.splitlines()[-1] == (
        "the profile of PyTorch 2.99.0+cu199 was not measured: its slots cannot be read; that of the nearest answers"
    )
    assert measures.count == 1


def test_a_cache_that_cannot_be_written_is_replaced(
    measures: Measures, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE, str(tmp_path / "file" / "cache"))
    assert measured_profile(UNKNOWN) == PROFILE
    other = Path(os.environ[CACHE])  # of this process, and of those that it starts
    assert [path.suffix for path in other.iterdir() if path.suffix != ".lock"] == [".json"]


def test_the_registry_of_an_unknown_torch_answers_by_its_name(
    measures: Measures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "installed_torch", lambda: PROFILE.torch)
    assert builds.bundled_for(PROFILE.torch) == builds.nearest_bundled(PROFILE.torch) == UNKNOWN
    found = open_bundled(UNKNOWN)
    assert (found.torch, [str(one.name) for one in found]) == (PROFILE.torch, [RELU])
    assert found is open_bundled(UNKNOWN)
    assert builds.default_registry().reason == f"{UNKNOWN} answers, the registry of the installed PyTorch {found.torch}"
    assert UNKNOWN not in bundled_names()
    record = f"claim: What it registers.\nregistry: {UNKNOWN}\npackages: [shop]\nregistrations: [{{def: a() -> ()}}]\n"
    for text in (record, f"{record}semantics: {UNKNOWN}\n"):
        scenario = parse_scenario(text, file="record.yaml")
        assert scenario.semantics == UNKNOWN
        assert UNKNOWN in WORDS  # by which a record says what it was taken on
        assert f"semantics: {UNKNOWN}\n" in scenario_text(scenario)
    with pytest.raises(DispatchLabError, match="expected the name of a semantics"):
        parse_scenario(f"{record}semantics: torch-2.98\n", file="record.yaml")
    assert measures.count == 2


def test_a_quiet_command_writes_no_notes_and_a_later_one_does(
    measures: Measures, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_notes():
        assert model_for("2.99.0") == UNKNOWN
    assert (measures.count, capsys.readouterr().err) == (1, "")
    forget()
    assert model_for("2.99.0") == UNKNOWN
    assert "measured on this PyTorch, 2.99.0+cu199" in capsys.readouterr().err


def ends(work: Callable[[], object]) -> bool:
    """Whether a copy of this process gets to the end of some work; not where it is killed or interrupted."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_what_a_process_printed_that_was_killed_while_it_measured_is_not_kept(
    measures: Measures, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half = f"import os; os.write(1, {TEXT[:1000]!r}); os.kill(os.getpid(), {int(signal.SIGKILL)})"
    monkeypatch.setattr(own_command, "_BOOT", half)
    monkeypatch.setattr(own_command, "printed_by", PRINTED_BY)
    assert measured_profile(UNKNOWN) is None
    assert (kept(tmp_path), not_measured(UNKNOWN)) == ([], "it was not measured: exit code -9")
    monkeypatch.setattr(own_command, "printed_by", measures)
    forget()
    assert measured_profile(UNKNOWN) == PROFILE
