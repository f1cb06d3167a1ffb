"""`dispatchlab doctor` where the engine is a stand-in: states, commands, exit codes, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

import dispatchlab
from dispatchlab import __version__
from dispatchlab.cli import main
from dispatchlab.commands.overview import COMMANDS
from dispatchlab.live.bridge.running_keys import RunningKeys
from dispatchlab.live.bridge.torch import TorchMissingError
from dispatchlab.live.introspection import queries, registry_reader
from dispatchlab.model.keys import DispatchKey
from dispatchlab.prover.protocol import EngineCrashed
from dispatchlab.questions.setup import doctor, live_probes
from dispatchlab.questions.setup.doctor import (
    FEATURES,
    Diagnosis,
    TorchFound,
    Tried,
    diagnose,
    doctor_view,
)
from dispatchlab.questions.setup.environment import facts
from dispatchlab.questions.setup.live_probes import ProbeFailed
from dispatchlab.registries.file import newest_bundled, open_named
from dispatchlab.registries.model import registry_of
from tests.command_line import run


class StandIn:
    """An engine whose probes do what a table says: raise, or see something."""

    def __init__(self, outcomes: Mapping[str, Exception], version: str = "2.13.0") -> None:
        self.outcomes = outcomes
        self.worker = SimpleNamespace(version=version, pid=0)
        self.semantics = "torch-2.13"

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Diagnosis]:
    """Diagnose with these outcomes; every other feature works."""

    def with_outcomes(**outcomes: Exception) -> Diagnosis:
        def tried(engine: StandIn, probe: str) -> str:
            if probe in engine.outcomes:
                raise engine.outcomes[probe]
            return f"{probe} was seen"

        monkeypatch.setattr("dispatchlab.live.worker.engine.LiveEngine", lambda: StandIn(outcomes))
        monkeypatch.setattr(doctor, "_run", tried)
        return diagnose()

    return with_outcomes


def states(found: Diagnosis) -> dict[str, str]:
    """The state of each feature by its name."""
    assert found.torch is not None
    return {one.feature.name: one.state for one in found.torch.tried}


def test_all_is_well_when_every_feature_works(found: Callable[..., Diagnosis]) -> None:
    well = found()
    assert set(states(well).values()) == {"works"}
    assert len(states(well)) == len(FEATURES) == 5
    assert well.exit_code == 0
    assert "PyTorch 2.13.0: all 5 features work\n" in doctor_view(well).text()


def test_the_commands_of_a_feature_that_fails_do_not_work(found: Callable[..., Diagnosis]) -> None:
    ill = found(registry=ProbeFailed("3 of 4 schemas cannot be read"))
    assert states(ill)["read the registry"] == "does not work"
    assert ill.exit_code == 1
    assert doctor_view(ill).text().startswith("PyTorch 2.13.0: 4 of 5 work\n")
    assert "\n  read the registry is for: dump --from live, explain --from live, " in doctor_view(ill).text()
    assert "read the registry     does not work: 3 of 4 schemas cannot be read\n" in doctor_view(ill).text()


def test_a_limit_is_no_failure_and_a_crash_is_one(found: Callable[..., Diagnosis]) -> None:
    limited = found(slots=ProbeFailed("no layout"))
    assert states(limited)["read slots"] == "limited"
    assert limited.exit_code == 0
    assert "\n  read slots is for: permute --engine torch\n" in doctor_view(limited).text()
    crashed = found(record=EngineCrashed("the process ended with signal SIGSEGV"))
    assert crashed.exit_code == 1
    assert "\n  record a package is for: check, record, init\n" in doctor_view(crashed).text()
    assert "does not work: the process ended with signal SIGSEGV" in doctor_view(crashed).text()


def test_an_error_with_a_traceback_is_shown_as_its_last_line(found: Callable[..., Diagnosis]) -> None:
    from dispatchlab.live.worker.ipc import WorkerError

    ill = found(explore=WorkerError("Traceback (most recent call last):\n  File x\nKeyError: 'Named'\n"))
    assert ill.torch is not None
    assert [one.why for one in ill.torch.tried if one.state == "does not work"] == ["KeyError: 'Named'"]


def test_the_folder_of_the_package_is_named() -> None:
    value = next(fact.value for fact in facts() if fact.name == "dispatchlab")
    assert value == f"{__version__} in {Path(dispatchlab.__file__).parent}"


def test_without_torch_all_is_well_and_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise TorchMissingError

    monkeypatch.setattr("dispatchlab.live.worker.engine.LiveEngine", missing)
    result = run("doctor")
    assert result.exit_code == 0
    assert result.stdout.startswith("PyTorch is not installed: commands about it need pip install")
    parsed = json.loads(run("doctor", "--format", "json").stdout)
    assert (parsed["ok"], parsed["torch"]) == (True, None)
    assert {"dispatchlab", "Python", "pytest"} <= {fact["name"] for fact in parsed["facts"]}


def test_a_torch_that_cannot_be_imported_is_shown_with_the_reason() -> None:
    found = Diagnosis((), TorchFound("2.13.0", "torch-2.13", "libcudart.so: cannot open shared object file"))
    assert found.exit_code == 1
    assert "2.13.0 is installed and cannot be imported: libcudart.so: cannot" in doctor_view(found).text()
    assert json.loads(doctor_view(found).json())["torch"]["error"].startswith("libcudart.so")


def test_a_version_without_a_bundled_registry_is_said() -> None:
    works = tuple(Tried(feature, "works", "seen") for feature in FEATURES.values())
    other = doctor_view(Diagnosis((), TorchFound("2.99.0", "torch-2.99", tried=works))).text()
    same = doctor_view(Diagnosis((), TorchFound("2.13.1", "torch-2.13", tried=works))).text()
    assert f"  no registry of it is bundled: what does not name `live` answers for {newest_bundled()}" in other
    assert "no registry" not in same


def test_every_command_of_a_feature_exists_and_every_probe_is_a_function() -> None:
    context = main.make_context("dispatchlab", ["doctor"], resilient_parsing=True)
    for probe, feature in FEATURES.items():
        assert probe == "explore" or callable(getattr(live_probes, probe))
        for text in feature.commands:
            name, *rest = text.split()
            command = main.get_command(context, name)
            assert name in COMMANDS
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= known


# -- dispatch keys of another PyTorch


def _running(names: list[str]) -> RunningKeys:
    numbers = {name: number for number, name in enumerate(names)}
    return RunningKeys(numbers, tuple(names), numbers, frozenset(names), ())


def _known() -> list[str]:
    return [str(key) for key in DispatchKey]


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        (_known(), ()),
        ([*_known(), "Later"], ("Later",)),
        ([*_known()[:17], "Newer", *_known()[17:], "Later"], ("Newer", "Later")),
        ([name for name in _known() if "MAIA" not in name], ()),
    ],
)
def test_unknown_keys_are_named(monkeypatch: pytest.MonkeyPatch, names: list[str], unknown: tuple[str, ...]) -> None:
    monkeypatch.setattr(queries, "running_keys", lambda: _running(names))
    assert queries.unknown_keys() == unknown


def test_schemas_of_classes_that_the_newest_pytorch_lacks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "prepacked::conv2d_clamp_run"
    found = open_named("torch-2.7").operator(name)
    assert found is not None
    assert "xnnpack.Conv2dOpContext" in str(found.schema)
    monkeypatch.setattr(registry_reader, "record_registry", lambda: registry_of("2.7.1", [found], [], ()))
    assert live_probes.registry().startswith("1 operators, ")
