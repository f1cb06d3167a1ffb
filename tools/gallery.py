"""Write docs/gallery.md and its pictures: what dispatchlab found in real software, each with its scenario.

Run it from the root of the checkout: `python tools/gallery.py`. The defects are those of `tools/defects.py`; what
is drawn of each is the counterexample in the golden file of its scenario. A test compares.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools import pictures  # noqa: E402  # of this checkout
from tools.defects import DEFECTS, Defect  # noqa: E402

PAGE, FOLDER = ROOT / "docs" / "gallery.md", ROOT / "docs" / "pictures" / "gallery"


@dataclass(frozen=True, slots=True)
class Shown:
    """The counterexample of a golden file.

    Args:
        expected: the steps that set what is expected, `+1 impl test::foo CPU (fn)`.
        actual: the steps that lead elsewhere; the same where every sequence to this set breaks an invariant.
        why: the engine's reasons; none where it does not know.
        before: what is seen after the expected steps alone.
        after: what is seen after the actual steps alone.
    """

    expected: tuple[str, ...]
    actual: tuple[str, ...]
    why: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


def shown(golden: str) -> Shown:
    """Read the counterexample of a golden file."""
    report = golden.split("\n\n")[0]
    parts = re.split(r"^(expected sequence|actual sequence|why|diff):.*\n", report + "\n", flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = {name: tuple(re.findall(r"^  (.*)$", text, re.MULTILINE)) for name, text in found.items()}
    before, after = _differing(lines["diff"])
    expected = lines["expected sequence"]
    why = tuple(reason for reason in lines["why"] if reason != "the engine does not know")
    return Shown(expected, lines.get("actual sequence", expected), why, before, after)


_SECTIONS = ("slots that calls use", "outcome", "dump", "table", "invariants")


def _differing(diff: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines that are on one side alone, of the section that shows the most."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in diff:
        if line.startswith("--- expected: "):
            lines = sections.setdefault(line.rpartition(", ")[2].removeprefix("--- expected: "), [])
        elif not line.startswith(("+++ ", "@@ ")):
            lines.append(line)
    for name in _SECTIONS:
        before, after = (
            tuple(line[1:] for line in sections.get(name, ()) if line.startswith(sign)) for sign in ("-", "+")
        )
        if before or after:
            return before, after
    raise ValueError("a counterexample without a difference")


def graph(found: Shown) -> str:
    """Both sequences beside each other, each with what is seen after it, as Graphviz takes it."""
    if found.expected == found.actual:
        found = Shown((), found.actual, found.why, ("all invariants hold",), found.after)
    before, after = _facing(found.before, found.after)
    lines = ["  rankdir=LR; ranksep=0.3", '  start [label="nothing\\nregistered", class=mark]']
    for name, title, steps, seen, look in (
        ("a", "expected", found.expected, before, "good"),
        ("b", "actual", found.actual, after, "bad"),
    ):
        at = "start"
        for number, step in enumerate(steps):
            lines.append(f'  {name}{number} [label="{_step(step)}"]')
            lines.append(f"  {at} -> {name}{number}" + (f' [label=" {title}"]' if not number else ""))
            at = f"{name}{number}"
        lines.append(f'  {name} [label="{_seen(seen)}", class={look}]')
        lines.append(f"  {at} -> {name} [style=dashed" + (f', label=" {title}"]' if not steps else "]"))
    return "\n" + "\n".join(lines) + "\n"


_LONG = 36


def _step(text: str) -> str:
    found = re.fullmatch(r"([+-]\d+) (\w+) (.*?)(?: \(([^()]*)\))?", text)
    assert found is not None, text
    number, kind, what, debug = found.groups()
    what = what.removeprefix("test::foo ") if kind == "impl" else what.replace("test::foo(", "foo(")
    return _label((f"{number} {kind}", what, *([debug] if debug else [])), lines=2)


def _facing(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """One difference, as it is on either side: a row that both tables have, or else what comes first."""
    rows = [{line.partition(": ")[0]: line for line in lines if re.match(r"\w+: ", line)} for lines in (before, after)]
    both = [key for key in rows[0] if key in rows[1]]
    keys = [*(key for key in both if key == "AutogradCPU"), *both, *rows[0], *rows[1]]
    if keys and all(re.match(r"[A-Z]", key) for key in keys):
        return rows[0].get(keys[0], f"{keys[0]}: nothing"), rows[1].get(keys[0], f"{keys[0]}: nothing")
    return (before or ("nothing",))[0], (after or ("nothing",))[0]


def _seen(line: str) -> str:
    """A line of a dump, a table or an outcome, without the words that the picture has no room for."""
    line = re.sub(r"registered at \S*/(\S+)", r"\1", line.strip()).removeprefix("test::foo: stale slot: ")
    line = re.sub(r"^name: ", "the operator ", line)
    return _label((line,), lines=6)


def _label(texts: Iterable[str], *, lines: int) -> str:
    short = (part for text in texts for part in _wrapped(text, lines))
    return "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in short)


def _wrapped(text: str, lines: int) -> list[str]:
    return textwrap.wrap(text, _LONG, max_lines=lines, placeholder=" ...", break_long_words=False) or [""]


def sources() -> dict[str, str]:
    """The name of each picture -> its source."""
    defects = {defect.name: pictures.source(defect.name, graph(_shown(defect))) for defect in DEFECTS}
    return defects | {one.rule.lower(): pictures.source(one.rule, one.graph) for one in IN_PACKAGES}


def _shown(defect: Defect) -> Shown:
    return shown((ROOT / "expect" / f"{defect.scenario}.txt").read_text(encoding="utf-8"))


_HEAD = """\
# Gallery: what it found in real software

Written by `python tools/gallery.py`; a test compares. Each picture has two sequences, from left to right: the one that
sets what is expected, and the shortest one that leads elsewhere. The last box of each is what is found then.

## In the dispatcher of PyTorch

{count} defects, found by exploring scenarios in the model of every version and seen on the real ones.
[Defects by version](defects.md) says which versions have which, and has programs that show them on your PyTorch.
"""

_PACKAGES = """
## In packages

[Ten packages](packages.md#ten-packages) were recorded, proved and linted. Every order in which Python can import their
modules registers the same, and none overrides another. What `lint` found:
"""


@dataclass(frozen=True, slots=True)
class InPackage:
    """What lint found in a package.

    Args:
        title: what was found, as a heading.
        package: the package, with its version.
        what: what was found, a sentence.
        rule: the code of the rule.
        graph: a picture of it, as Graphviz takes it.
    """

    title: str
    package: str
    what: str
    rule: str
    graph: str


IN_PACKAGES = (
    InPackage(
        "A kernel in another namespace",
        "optimum.quanto 0.2.7",
        "The kernel of `qbytes_mm` for MPS is registered in the namespace `quanto_py`, and the operator is in "
        "`quanto`. "
        "It never runs.",
        "DL012",
        """
  rankdir=LR
  impl [label="impl quanto_py::qbytes_mm\\nMPS"]; def [label="def quanto::qbytes_mm"]
  dangling [label="an operator without a def\\nnobody calls it", class=bad]
  call [label="a call on MPS\\ndoes not find the kernel", class=bad]
  impl -> dangling; def -> call
""",
    ),
    InPackage(
        "A kernel for the CPU that serves every device",
        "fbgemm_gpu 1.8.0",
        "Two CPU functions are registered without a key beside their defs. That makes them composite kernels.",
        "DL015",
        """
  rankdir=LR
  def [label="a def with a function\\nfor the CPU, and no key"]
  alias [label="CompositeImplicitAutograd", class=mark]
  cpu [label="CPU: it runs", class=good]; cuda [label="CUDA, Meta, ...: it runs there, too", class=bad]
  def -> alias [label="no key means"]; alias -> cpu; alias -> cuda
""",
    ),
    InPackage(
        "Operators that cannot be compiled",
        "fbgemm_gpu 1.8.0",
        "73 operators have no Meta kernel, so that `torch.compile` cannot trace them.",
        "DL006",
        """
  rankdir=LR
  operator [label="def, CPU kernel"]
  call [label="a call on the CPU\\nruns the kernel", class=good]
  trace [label="torch.compile asks for\\nthe Meta kernel: none", class=bad]
  operator -> call; operator -> trace
""",
    ),
    InPackage(
        "Operators that can be traced and not run",
        "torchao 0.18.0, bitsandbytes 0.50.2, torch_harmonics 0.9.3",
        "These operators have a Meta kernel. The kernels that compute are not in this build.",
        "DL011",
        """
  rankdir=LR
  operator [label="def, Meta kernel"]
  trace [label="torch.compile traces it", class=good]
  call [label="a call with data\\nfinds no kernel", class=bad]
  operator -> trace; operator -> call
""",
    ),
)

_VERSIONS = """
## Between two versions of PyTorch

`dispatchlab diff torch-2.12 torch-2.15` finds, before anything is installed, 7 schemas that break callers, 5 composites
that became explicit, and an operator whose calls find no kernel any more. [What an upgrade means](upgrade.md) has the
whole report.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(count=len(DEFECTS))]
    for defect in DEFECTS:
        found = _shown(defect)
        why = "; ".join(found.why)
        alt = why or "an invariant is broken"
        title = defect.name[0].upper() + defect.name[1:].replace("_", " ")
        parts.append(
            f"\n### {title}\n\n{defect.what}\n\n"
            f"![Two sequences, and what is seen after each: {alt}.](pictures/gallery/{defect.name}.svg)\n\n"
            + (f"Why: {why}.\n\n" if why else "")
            + f"[Scenario](../scenarios/{defect.scenario}.yaml) · [versions and program](defects.md#{defect.name}) · "
            f"to fix it: {defect.mend[0].lower()}{defect.mend[1:]}\n"
        )
    packages = (
        f"\n### {one.title}\n\n{one.package}: {one.what}\n\n![{one.what}](pictures/gallery/{one.rule.lower()}.svg)\n\n"
        f"[Scenario](../scenarios/lint/{one.rule.lower()}_found.yaml) · [the rule](lint/{one.rule}.md)\n"
        for one in IN_PACKAGES
    )
    return "".join((*parts, _PACKAGES, *packages, _VERSIONS))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
    pictures.write(FOLDER, sources())
