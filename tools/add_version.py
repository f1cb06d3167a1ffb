"""Install one PyTorch in an environment of its own, measure all that dispatchlab holds of it, and remove it again.

Run it from the root of the checkout: `python tools/add_version.py 2.12.1`. Every step can be run alone, and on an
environment that there is. What is committed is written where it belongs, and depends on nothing but the PyTorch and
this checkout: `git diff` shows what changed. See CONTRIBUTING.md, "How a version is added".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


from dispatchlab.model.profile import (  # noqa: E402  # of this checkout
    Profile,
    bundled_profile,
    bundled_profiles,
    profile_text,
    read_profile,
    version_of,
)
from dispatchlab.registries.file import by_version  # noqa: E402  # likewise

NEEDED = "numpy", "click", "rich", "pyyaml", "typing_extensions", "expecttest", "pytest"
DATA = ROOT / "tests" / "data"
REGISTRIES = ROOT / "dispatchlab" / "registries" / "data"
PROFILES, HISTORIES, FIGURES = ROOT / "dispatchlab" / "model" / "profiles", DATA / "histories", DATA / "versions"
PRINTS = DATA / "printed.json"

SAMPLE = '''\
"""A package that registers operators in most of the ways that there are."""

import torch

library = torch.library.Library("sample", "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x + 1, "CPU")
library.impl("plain", lambda x: x.clone(), "CompositeExplicitAutograd")


@torch.library.custom_op("sample::made", mutates_args=(), device_types="cpu")
def made(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@made.register_fake
def made_fake(x):
    return torch.empty_like(x)


made.register_autograd(lambda ctx, grad: grad)
aten = torch.library.Library("aten", "IMPL")
aten.impl("cumsum", lambda *a, **k: None, "PrivateUse1")
'''
"""What the commands are tried on, beside PyTorch itself."""

INSTALLED = {
    "METADATA": "Metadata-Version: 2.1\nName: dispatchlab\nVersion: 0\n",
    "entry_points.txt": "[pytest11]\ndispatchlab = dispatchlab_pytest\n",
}
"""What an installation has besides the modules, and this checkout has not; `doctor` looks for the plugin of pytest."""

COMMANDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("doctor", (0,)),
    ("record sample -o sample.yaml", (0,)),
    ("record --check sample.yaml", (0,)),
    ("check sample --orders", (0,)),
    ("permute sample.yaml --engine torch --conform", (0, 1)),
    ("dump sample::made --from sample", (0,)),
    ("explain aten::add.Tensor requires_grad --from live", (0,)),
    ("check sample --only lint", (0, 1)),
    ("coverage live --key PrivateUse1", (0,)),
    ("diff REGISTRY sample", (0,)),
)
"""Commands, and the exit codes that are right."""


@dataclass(frozen=True)
class Work:
    """One version that is added.

    Args:
        version: of PyTorch, such as `2.12.1`.
        environment: the folder of its virtual environment.
        out: the folder of what is not committed: the recording, and what the commands print.
        count: how many histories are compared.
    """

    version: str
    environment: Path
    out: Path
    count: int

    @property
    def name(self) -> str:
        """What its model is called."""
        return "torch-" + ".".join(self.version.split(".")[:2])

    @property
    def python(self) -> Path:
        """The Python of the environment."""
        return self.environment / "bin" / "python"

    @property
    def recording(self) -> Path:
        """The file of its registry, which is bundled."""
        return REGISTRIES / f"{self.name}.dlreg"

    @property
    def file(self) -> Path:
        """The file of its figures."""
        return FIGURES / f"{self.name}.json"

    @property
    def figures(self) -> dict[str, Any]:
        """Its figures."""
        return json.loads(self.file.read_text()) if self.file.exists() else {}

    def keep(self, figures: Mapping[str, Any]) -> None:
        """Write figures beside those that there are."""
        self.file.write_text(json.dumps({**self.figures, **figures}, indent=1, sort_keys=True) + "\n")

    def run(self, *arguments: str, folder: Path | None = None, limit_s: float = 3600) -> Done:
        """Run a module of this checkout with that PyTorch."""
        return _run(self.python, *arguments, folder=folder, limit_s=limit_s)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def has_traceback(self) -> bool:
        """Whether it ended with a traceback."""
        return "Traceback (most recent call last)" in self.out + self.err

    def expect(self, *codes: int) -> Done:
        """Stop here unless it ended with one of these exit codes."""
        if self.code not in codes:
            raise SystemExit(f"exit code {self.code}, and {codes} was expected\n{self.out[-2000:]}{self.err[-4000:]}")
        return self


def _run(python: str | Path, *arguments: str, folder: Path | None = None, limit_s: float = 3600) -> Done:
    """Run a module of this checkout with a Python."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *([str(folder)] if folder else [])])}
    done = subprocess.run(
        [str(python), "-m", *arguments],
        cwd=folder or ROOT, env=variables, capture_output=True, text=True, timeout=limit_s, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


# -- the steps; each returns figures


def install(work: Work) -> dict[str, Any]:
    """Make the environment and install exactly this version, unless it is there."""
    installed = "import importlib.metadata as m; print(m.version('torch').partition('+')[0])"
    if work.python.exists():
        found = subprocess.run([str(work.python), "-c", installed], capture_output=True, text=True, check=False)
        if found.stdout.strip() == work.version:
            return {}
    venv.create(work.environment, with_pip=True)
    wanted = f"torch==={work.version}" if "+" in work.version else f"torch=={work.version}"
    pip = [str(work.python), "-m", "pip", "install", "--quiet", "--no-cache-dir", wanted, *NEEDED]
    subprocess.run(pip, check=True)
    return {}


def profile(work: Work) -> dict[str, Any]:
    """Measure the profile, of which its model is made."""
    file = work.out / f"{work.name}.json"
    work.run("dispatchlab", "doctor", "--measure", str(file)).expect(0)
    measured = read_profile(file)
    file.unlink()
    store_profiles({**{name: bundled_profile(name) for name in bundled_profiles()}, work.name: measured})
    counts = {"keys": len(measured.keys), "slots": len(measured.runtime), "fallbacks": len(measured.fallbacks)}
    return {"torch": measured.torch, **counts}


def store_profiles(profiles: Mapping[str, Profile], folder: Path = PROFILES) -> None:
    """Write into a folder what each profile has that the one of the version after has not."""
    after: Profile | None = None
    for name in sorted(profiles, key=lambda name: version_of(name) or (0, 0), reverse=True):
        (folder / f"{name}.json").write_text(profile_text(profiles[name], after=after), encoding="utf-8")
        after = profiles[name]


def registry(work: Work) -> dict[str, Any]:
    """Record everything that is registered, in a process that nothing has disturbed, and bundle it."""
    done = work.run("dispatchlab", "record", "--all", "-o", str(work.recording)).expect(0)
    counts = re.search(r"([\d,]+) operators, ([\d,]+) kernels", done.err)
    assert counts is not None, done.err
    operators, kernels = (int(number.replace(",", "")) for number in counts.groups())
    return {"operators": operators, "kernels": kernels}


def prints(work: Work) -> dict[str, Any]:
    """Keep the digests of what it prints of every operator, to which the bundled registry is held."""
    done = work.run("tests.recorded_tables").expect(0)
    digests = json.loads(PRINTS.read_text(encoding="utf-8")) | {work.name: json.loads(done.out)}
    in_order = {name: digests[name] for name in sorted(digests, key=by_version)}
    PRINTS.write_text(json.dumps(in_order, indent=1) + "\n", encoding="utf-8")
    return {}


def histories(work: Work) -> dict[str, Any]:
    """Record histories, and hold the model to each step of these and of many more."""
    file = HISTORIES / f"{work.name}.json.xz"
    done = work.run("tests.histories", str(file), "--count", str(work.count)).expect(0, 1)
    _show(done.err)
    return {"histories": json.loads(done.out.splitlines()[-1])}


def scenarios(work: Work) -> dict[str, Any]:
    """Explore every scenario that the bindings can make, and hold the model to each step."""
    passes = ("--conform", "--passes", "1", "--format", "json")
    live = work.run("dispatchlab", "permute", "scenarios", "--engine", "torch", *passes).expect(0, 1, 2, 5)
    model = work.run("dispatchlab", "permute", "scenarios", "--semantics", work.name, "--format", "json")
    predicted = {one["scenario"]: one["verdict"] for one in _reports(model.expect(0, 1).out)}
    counts: Counter[str] = Counter()
    for one in _reports(live.out):
        verdict, notes = one["verdict"], one["notes"]
        agrees = any("the engine and its model agree" in note for note in notes)
        if verdict == "engine crashed":
            counts["crashed"] += 1
            _show(f"{one['scenario']}: {verdict}: {notes[-1]}")
        elif not agrees or not _same(verdict, predicted[one["scenario"]]):
            counts["differ"] += 1
            _show(f"{one['scenario']}: {verdict}, and {predicted[one['scenario']]} was predicted; {notes[-1]}")
        else:
            counts["as predicted"] += 1
    counts["not expressible"] = sum("cannot be made on the live PyTorch" in line for line in live.err.splitlines())
    if not counts["as predicted"]:
        raise SystemExit(f"no scenario was explored\n{live.err[-2000:]}")
    return {"scenarios": dict(counts)}


def commands(work: Work) -> dict[str, Any]:
    """Run every live command briefly."""
    folder = work.out / f"{work.name}.commands"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sample.py").write_text(SAMPLE)
    for name, text in INSTALLED.items():
        (folder / "dispatchlab-0.dist-info").mkdir(exist_ok=True)
        (folder / "dispatchlab-0.dist-info" / name).write_text(text)
    ended: dict[str, str] = {}
    for text, right in COMMANDS:
        words = [{"REGISTRY": str(work.recording)}.get(word, word) for word in text.split()]
        done = work.run("dispatchlab", *words, folder=folder, limit_s=600)
        if done.code not in right or done.has_traceback:
            ended[text] = f"exit code {done.code}: {(done.err or done.out).strip()[-500:]}"
            _show(f"{text}: {ended[text]}")
        (folder / f"{'_'.join(text.split()[:3]).replace('/', '_')}.txt").write_text(done.out + done.err)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return {"commands": {"tried": len(COMMANDS), "failed": ended}}


def remove(work: Work) -> dict[str, Any]:
    """Remove the environment."""
    shutil.rmtree(work.environment, ignore_errors=True)
    return {}


STEPS: Mapping[str, Callable[[Work], dict[str, Any]]] = {
    step.__name__: step for step in (*(install, profile, registry, prints, histories, scenarios, commands, remove),)
}


def _same(verdict: str, predicted: str) -> bool:
    """Whether a verdict of walks agrees with that of the state graph, which proves."""
    return verdict == predicted or (verdict == "no violation found" and predicted == "order-independent")


def _reports(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.startswith("{"))


def _show(text: str) -> None:
    if text.strip():
        print(text.rstrip(), file=sys.stderr, flush=True)  # noqa: T201


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("version", help="The version, such as 2.12.1.")
    parser.add_argument("--steps", help=f"Run only these, separated by commas. Default: {','.join(STEPS)}.")
    parser.add_argument("--environment", type=Path, help="The virtual environment. Default: build/torch-X.Y.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "versions", help="Default: build/versions.")
    parser.add_argument("--count", type=int, default=2000, help="Number of histories to compare. Default: 2000.")
    options = parser.parse_args(arguments)
    chosen = options.steps.split(",") if options.steps else [*STEPS]
    for step in chosen:
        if step not in STEPS:
            parser.error(f"unknown step {step}: expected {', '.join(STEPS)}")
    minor = ".".join(options.version.split(".")[:2])
    environment = options.environment or ROOT / "build" / f"torch-{minor}"
    work = Work(options.version, environment.absolute(), options.out.absolute(), options.count)
    work.out.mkdir(parents=True, exist_ok=True)
    for step in chosen:
        _show(f"{options.version}: {step}")
        work.keep(STEPS[step](work))
    figures = work.figures
    wrong = ("histories", "differences"), ("scenarios", "differ"), ("commands", "failed")
    return int(any(figures.get(step, {}).get(what) for step, what in wrong))


if __name__ == "__main__":
    sys.exit(_main())
