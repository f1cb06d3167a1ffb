"""`torch` as the name of a semantics, and the facts of one version that hold, or are said not to, for the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.semantics import SEMANTICS, semantics_named
from dispatchlab.model.installed_torch import installed_torch, model_for, other_keys_of_calls, resolved_semantics
from dispatchlab.model.keys import BACKENDS
from dispatchlab.model.profile import COMPOSITE, bundled_profile, bundled_profiles
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, FORGOTTEN_BACKENDS, keys_of
from dispatchlab.questions.sources.replay_on_lab import for_registry
from tests.command_line import run

NEWEST = bundled_profiles()[-1]


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, version_py: str | None) -> None:
    """Put a package `torch` with this version.py, or nothing, in place of whatever is installed."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    if version_py is not None:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text("raise SystemExit('nobody imports me')")
        (folder / "torch" / "version.py").write_text(version_py)
    monkeypatch.setattr(sys, "path", [str(folder), *(sys.path if version_py is not None else ())])


@pytest.mark.parametrize(
    ("version_py", "version", "model"),
    [
        ("__version__ = '2.9.1+cu128'\ngit_version = 'x'", "2.9.1+cu128", "torch-2.9"),
        ('__version__: str = "2.4.0"', "2.4.0", "torch-2.4"),
        ("__version__ = '2.99.0.dev20261101'", "2.99.0.dev20261101", NEWEST),
        ("__version__ = '2.3.1'", "2.3.1", "torch-2.4"),
        ("from .elsewhere import __version__", None, NEWEST),
        (None, None, NEWEST),
    ],
)
def test_torch_means_the_model_of_the_installed_pytorch_or_the_newest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version_py: str | None, version: str | None, model: str
) -> None:
    pretend(monkeypatch, tmp_path, version_py)
    assert installed_torch() == version
    assert resolved_semantics("torch") == model
    assert semantics_named("torch") is SEMANTICS[model]
    assert Dispatcher("torch").semantics.name == model
    assert for_registry("torch").name == model
    assert "torch" not in sys.modules


def test_a_scenario_file_cannot_name_torch_for_its_claim_would_change_with_what_is_installed(tmp_path: Path) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text("claim: One def.\nsemantics: torch\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n")
    refused = run("permute", str(scenario))
    assert refused.exit_code == 2
    assert "semantics" in refused.output


@pytest.mark.parametrize(
    ("text", "model"),
    [("2.11.0+cpu", "torch-2.11"), ("torch-2.6 (a.yaml)", "torch-2.6"), ("strict (a.yaml)", NEWEST), (None, NEWEST)],
)
def test_a_record_is_judged_by_the_model_of_its_pytorch(text: str | None, model: str) -> None:
    assert model_for(text) == model


@pytest.mark.parametrize("name", bundled_profiles())
def test_what_the_rules_know_of_autograd_keys_holds_for_every_model(name: str) -> None:
    profile = bundled_profile(name)
    forgotten = {
        backend
        for backend in BACKENDS
        if f"Autograd{backend}" in profile.runtime
        and f"Autograd{backend}" not in profile.takes_composite.get(backend, ())
    }
    assert forgotten == {*FORGOTTEN_BACKENDS}
    for autograd, bits in BACKENDS_OF_AUTOGRAD.items():
        for backend_key in map(str, keys_of(bits)):
            if backend_key in profile.keys and str(autograd) in profile.aliases[COMPOSITE]:
                taken = str(autograd) in profile.takes_composite.get(backend_key, ())
                assert taken or backend_key in profile.ambiguous.get(str(autograd), ())


def test_where_key_sets_of_calls_are_not_those_of_a_version_it_is_known() -> None:
    models = bundled_profiles()
    assert [name for name in models if not other_keys_of_calls(name)] == [*models[models.index("torch-2.13") :]]
    assert other_keys_of_calls("torch-2.12") == ("Python", "Named")
    assert {"MAIA", "AutogradMAIA", "Named", "Python"} <= {*other_keys_of_calls("torch-2.6")}
