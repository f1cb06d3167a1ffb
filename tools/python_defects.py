"""Write docs/python_defects.md: the defects of PyTorch's Python layer, each with a program that shows it.

Run it from the root of the checkout: `python tools/python_defects.py`. A test holds the page to what this writes, runs
each program on the installed PyTorch, and explores each scenario.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.defect_programs import FIXED, HAS, outcomes  # noqa: E402  # of this checkout
from tools.library_rules import by_version, known, version_key  # noqa: E402

PAGE, PROGRAMS = ROOT / "docs" / "python_defects.md", ROOT / "docs" / "defects" / "python"


@dataclass(frozen=True, slots=True)
class PythonDefect:
    """A defect of what PyTorch keeps in Python.

    Args:
        name: what the page calls it; the program is named so.
        what: what happens, and what it does to users.
        mend: what to do about it.
        found_by: which command finds it, or that none does, a sentence.
        scenario: the scenario that shows it, below `scenarios/`; empty where none can.
        rule: the rule of tests/data/library_rules.json that was measured on every version; empty where none was.
        outcome: the outcome of that rule where PyTorch has the defect.
    """

    name: str
    what: str
    mend: str
    found_by: str
    scenario: str = ""
    rule: str = ""
    outcome: str = ""

    @property
    def program(self) -> Path:
        """The program that shows it on the PyTorch that runs."""
        return PROGRAMS / f"{self.name}.py"

    def versions(self) -> dict[str, bool]:
        """The versions that were measured -> whether they have it."""
        ran = outcomes()[self.name]
        found = {one: outcome == HAS for one, outcome in ran.items() if outcome in (HAS, FIXED)}
        rules = known()[self.rule] if self.rule else {}
        found |= {one: text == self.outcome for text, versions in rules.items() for one in versions}
        return {one: found[one] for one in sorted(found, key=version_key)}


_LAST = "the last one runs"

PYTHON_DEFECTS = (
    PythonDefect(
        "second_custom_op",
        "A second `custom_op` of one name is not refused. It destroys the library of the first one, so that two "
        "packages that take one name differ by the order of their imports; whoever holds the first object calls the "
        "second function.",
        "Name the operators of a package with a namespace of its own.",
        "`permute` on a record of both packages, and `imports` with both of them.",
        "torch_library/a_second_custom_op",
        "custom_op_twice",
        _LAST,
    ),
    PythonDefect(
        "second_fake",
        "A second fake implementation, of whichever library, takes the place of the first one and nothing says so.",
        "Register a fake in the package that defines the operator, and in no other.",
        "`permute` on a record of both packages, and `imports` with both of them.",
        "torch_library/two_fakes",
        "fake_twice_from_two_libraries",
        _LAST,
    ),
    PythonDefect(
        "second_kernel",
        "The same for a second kernel by `Library.impl` at one dispatch key, whoever registered the first one.",
        "Register one kernel for each key; a package that replaces another one's on purpose has to import it first.",
        "`permute` and `imports` likewise; `lint` of a record names the kernel that is replaced "
        "([DL002](lint/DL002.md)).",
        "order/the_newest_kernel_wins",
        "kernel_twice_from_two_libraries",
        _LAST,
    ),
    PythonDefect(
        "released_override",
        "A kernel of Python that took the place of another, and whose library is destroyed, still runs for calls "
        "under a `TorchDispatchMode` or with a tensor subclass. Any other call runs the older kernel, and dumps show "
        "that one.",
        "Keep the library of an override for as long as the process lives.",
        "No command: what Python keeps for these calls cannot be read.",
        rule="override_that_is_released_under_a_mode",
        outcome=_LAST,
    ),
    PythonDefect(
        "fallback_under_a_mode",
        "A backend fallback of Python, at a key of higher priority than `Python`, works until a `TorchDispatchMode` "
        "is on. Then PyTorch looks for a kernel of the operator itself, and fails with an internal assert.",
        "Register a kernel for each operator instead, or write the fallback in C++.",
        "No command: the lab runs the fallback.",
    ),
    PythonDefect(
        "second_autocast",
        "A second `register_autocast` of a custom operator is accepted and changes nothing: the type of the first one "
        "is in force. A second fake, formula or rule for vmap takes the place of the first one.",
        "Call `register_autocast` once for each device.",
        "No command: a record does not have the type that a cast casts to.",
        rule="register_autocast_of_a_custom_op_twice",
        outcome="the first one runs",
    ),
    PythonDefect(
        "composite_without_a_def",
        "A kernel at CompositeImplicitAutograd for an operator that nobody defines makes importing Inductor fail, and "
        "with it `torch.compile`: it looks up every operator that has such a kernel.",
        "Register the def before the kernel.",
        "`lint` of a record names the kernel without a def ([DL001](lint/DL001.md)), and not what it does to Inductor.",
        "lint/dl001_found",
    ),
    PythonDefect(
        "lost_fake_rules",
        "`run_decompositions()` of an exported program takes fake-tensor rules out of the registry when it ends, "
        "those too that it has not put there. PyTorch's own rules of composite operators are gone afterwards.",
        "Export in a process of its own.",
        "No command: nothing is registered when it happens.",
    ),
    PythonDefect(
        "late_pointwise",
        "DTensor makes a rule for each pointwise operator that was looked up in `torch.ops` before it is imported. "
        "One that is looked up later has none, and a call with DTensors fails or takes another way.",
        "Look the operator up before importing `torch.distributed.tensor`.",
        "No command: a recording looks up every operator first, so it has all of these rules.",
    ),
    PythonDefect(
        "early_copy",
        "Inductor copies the decompositions of core ATen when it is first imported. A package that replaces one "
        "before that changes what `torch.compile` runs, and one that does so later does not.",
        "Write to `torch._inductor.decomposition.decompositions` as well.",
        "`imports` with the package and a module that imports Inductor, as "
        "`dispatchlab imports my_package torch._inductor.decomposition`.",
    ),
    PythonDefect(
        "stale_overload",
        "A call of an `OpOverload` that is kept while the library of its def is destroyed ends the process: the object "
        "points to an operator that is gone.",
        "Look an operator up in `torch.ops` for each call, or keep its library.",
        "No command.",
        rule="call_of_a_stale_overload",
        outcome="undefined: an internal assert, or the end of the process",
    ),
    PythonDefect(
        "overloads_alike",
        "PyTorch finds what it takes out of the list of a name's overloads by the types and names of arguments and "
        "returns. Where two overloads agree in all of these, the release of the second one does not find its entry. "
        "The entry stays: to ask for the name is an internal assert, and `torch.ops.ns.name` says that there is no "
        "such operator. A later def is listed twice, and its release may end the process.",
        "Tell overloads apart by an argument, or keep their libraries.",
        "No command.",
    ),
    PythonDefect(
        "order_of_overloads",
        "`torch.ops.ns.name(...)` tries the overloads of the name in the order in which they were defined, and the "
        "first that takes the arguments runs. Two packages that add overloads to one name differ by the order of "
        "their imports.",
        "Call `torch.ops.ns.name.overload`, or define the overloads of a name in one package.",
        "No command; `dump ns::name` lists the overloads in their order.",
    ),
    PythonDefect(
        "unchecked_name",
        "PyTorch's own test of all orders, test/test_dispatch.py, checks the invariants of a name without its "
        "namespace. There is no such operator, and the check accepts that, so that it has checked nothing since 2020.",
        "Qualify the name in calls of `torch._C._dispatch_check_invariants`.",
        "No command: `permute --engine torch` asks with the whole name.",
    ),
)

_HEAD = """\
# Defects of PyTorch's Python layer

Written by `python tools/python_defects.py`; a test compares. These are defects of what PyTorch keeps
[in Python](python_layer.md), as the [defects by version](defects.md) are of its dispatcher. Each program says
`defect: ...` and ends with 1 on the PyTorch that you have, or `fixed` and ends with 0; `dispatchlab defects` runs all
of them. The report of each can be filed as an issue of PyTorch, and says on which versions its program was run. Where
the table has a range of versions, it was measured on public wheels of several of them, the first and the last included.

"""


def page() -> str:
    """The whole page."""
    lines = [_HEAD + "| defect | a command that finds it | versions |", "|---|---|---|"]
    lines += [f"| [{one.name}](#{one.name}) | {_command(one)} | {_versions(one)} |" for one in PYTHON_DEFECTS]
    return "\n".join(lines) + "\n" + "".join(map(_section, PYTHON_DEFECTS))


def _command(one: PythonDefect) -> str:
    """The first command of the sentence, or none."""
    return "none" if one.found_by.startswith("No command") else f"`{one.found_by.split('`')[1]}`"


def _versions(one: PythonDefect) -> str:
    versions = one.versions()
    has = [version for version, found in versions.items() if found]
    if not one.rule:
        without = [version for version, found in versions.items() if not found]
        return ", ".join(has) + (f"; not {', '.join(without)}" if without else "")
    first, last = next(iter(versions)), list(versions)[-1]
    assert has[-1] == last, "a defect that was fixed; say so here"
    return f"{first} to {last}" if has[0] == first else f"since {has[0]} (tried: {first} to {last})"


def _section(one: PythonDefect) -> str:
    scenario = f"scenarios/{one.scenario}.yaml"
    shown = f" Scenario: [{scenario}](../{scenario})." if one.scenario else ""
    before = f" By version: {by_version(known()[one.rule])}." if one.rule and not all(one.versions().values()) else ""
    return (
        f"\n## {one.name}\n\n{one.what}\n\nFound by: {one.found_by}{shown}{before} "
        f"[Report](defects/reports/{one.name}.md).\n\nWhat to do: {one.mend}\n\n"
        f"```python\n{one.program.read_text(encoding='utf-8').strip()}\n```\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
