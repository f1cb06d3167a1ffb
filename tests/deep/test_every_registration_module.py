"""Modules of all that is generated for every native function of PyTorch: they register, and come down again."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from dispatchlab import Dispatcher
from dispatchlab.cli import main
from dispatchlab.codegen.emit.layer_formulas import generated_formulas
from dispatchlab.codegen.emit.registration_scenarios import by_base_name, registration_scenario_text
from dispatchlab.codegen.emit.registration_source import registration_files
from dispatchlab.codegen.emit.registrations import registrations_of
from dispatchlab.codegen.read.derivatives import derivatives_beside, load_derivatives
from dispatchlab.codegen.read.native_functions import load_native_functions
from dispatchlab.scenario.load import parse_scenario
from tests.effort import share, some

packaged: Any = pytest.importorskip("torchgen.packaged", reason="torchgen comes with PyTorch: dispatchlab[torch]")
FILE = f"{next(iter(packaged.__path__))}/ATen/native/native_functions.yaml"


def test_every_function_of_pytorch_is_registered_by_its_module_and_taken_down_again() -> None:
    natives = load_native_functions(FILE)
    path = derivatives_beside(FILE)
    assert path is not None
    derivatives = load_derivatives(path, natives)
    registrations = registrations_of(natives, derivatives)
    files = registration_files(
        registrations, "native_functions.yaml", generated_formulas(natives, derivatives).generated
    )
    dispatcher = Dispatcher()
    with ExitStack() as held:
        for name, text in files.items():
            if name.endswith(".py"):
                module = ModuleType(name)
                exec(compile(text, name, "exec"), module.__dict__)
                held.enter_context(module.register(dispatcher, object()))
        assert {str(each) for each in dispatcher.operators()} == {str(each.function.name) for each in registrations}
        kernels = 0
        for each in registrations:
            dump = dispatcher.dump(each.function.name)
            for kernel in each.kernels:
                assert f"{kernel.name} ({kernel.file}, native_functions.yaml:" in dump
                kernels += 1
        assert kernels > 15_000
    assert not dispatcher.operators()
    scenarios = [text for name, text in files.items() if name.endswith(".yaml")]
    assert len(scenarios) * 2 == len(files)
    assert all(parse_scenario(text).registrations for text in scenarios[::25])


def test_the_registrations_of_a_name_can_be_loaded_in_any_order(tmp_path: Path) -> None:
    natives = load_native_functions(FILE)
    path = derivatives_beside(FILE)
    assert path is not None
    registrations = registrations_of(natives, load_derivatives(path, natives))
    files = []
    for name, functions in some([*by_base_name(registrations).items()][7::60]):
        file = tmp_path / f"{name}.yaml"
        file.write_text(registration_scenario_text(name, functions, "n.yaml"), encoding="utf-8")
        files.append(str(file))
    result = CliRunner().invoke(main, ["permute", *files, "--format", "json"])
    verdicts = [json.loads(line)["verdict"] for line in result.stdout.splitlines()]
    assert verdicts == ["order-independent"] * len(files)
    assert len(files) > share(20)
