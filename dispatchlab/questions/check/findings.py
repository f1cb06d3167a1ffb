"""The results of all questions as findings, and the description of their kinds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from textwrap import shorten

from dispatchlab.model.registration import describe, shown_text
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.imports.import_orders import ImportComparison
from dispatchlab.questions.lint.rule import Finding, Kind, Level
from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.questions.record.check_record import RecordCheck
from dispatchlab.questions.upgrade.package_changes import OtherKernel, PackageUpgrade
from dispatchlab.questions.why.cause import causes
from dispatchlab.registries.debug_text import owner
from dispatchlab.scenario.scenario import Scenario, operators_named_by
from dispatchlab.views.formatting import first_of


@cache
def kinds() -> Mapping[str, Kind]:
    """Return the kinds of findings that are not lint rules, by code: the questions, and the causes of failures."""
    entries = tomllib.loads((files(__package__) / "kinds.toml").read_text(encoding="utf-8"))
    found = {code: Kind(code=code, level=Level(entry.pop("level")), **entry) for code, entry in entries.items()}
    for cause in causes():
        name = re.sub(r"[^a-z0-9]+", "-", cause.title.lower().replace("'s", "s")).strip("-")
        name = re.sub(r"^(a|an|the)-", "", name)
        what = f"A trial of an operator failed: {cause.title}."
        found[cause.code] = Kind(
            cause.code, name, Level.WARNING, what, "A call of a user fails in the same way.",
            f"See the finding. It would be wrong to advise {cause.wrong or 'nothing else'}.",
            "Whether the inputs are those that the operator is meant for, where they were generated.",
        )  # fmt: skip
    return found


def name_of(code: str) -> str:
    """Return the code and the name of a kind of findings, `DLnnn NAME`; only the code if there is no name."""
    if code.startswith("DL"):
        return f"{code} {rule_named(code).name}"
    return f"{code} {kinds()[code].name}" if code.startswith("WHY") else code


# -- order


def import_findings(imports: ImportComparison) -> Iterator[Finding]:
    """Return the findings that depend on the order of imports; one for what two lines do to one operator."""
    found = dict[tuple[object, ...], Finding]()
    for one in imports.differences:
        operator = next((word for word in one.what.split() if "::" in word), "")
        owners = tuple(f"registered at {site}" for site in one.sites)
        finding = Finding(str(Question.ORDER), operator, None, one.cause, owners, Level.ERROR, fix=one.fix)
        found.setdefault((operator, owners, one.fix) if operator and owners else (one.what,), finding)
    yield from found.values()


# -- upgrade


def upgrade_findings(found: PackageUpgrade, scenario: Scenario, *, to: str) -> Iterator[Finding]:
    """Return the changes in the newest PyTorch; empty if they do not affect the package."""
    by_text = {describe(one): one for one in scenario.registrations}
    debugs: dict[str, str] = {}
    for one in scenario.registrations:
        for name in operators_named_by((one,)):
            debugs.setdefault(str(name), shown_text(one))

    def finding(operator: str, message: str, level: Level, cause: str, fix: str = "", debug: str = "") -> Finding:
        owners = tuple(filter(None, (debug or debugs.get(operator, ""),)))
        return Finding(str(Question.UPGRADE), operator, None, message, owners, level, cause, fix)

    for each in found.refused:
        registration = by_text.get(each.registration)
        operator = "" if registration is None else next(map(str, operators_named_by((registration,))), "")
        debug = "" if registration is None else shown_text(registration)
        if each.before is None:
            yield finding(
                operator,
                f"{to} refuses {each.registration}: {each.after}",
                Level.ERROR,
                "refused",
                "register what both accept, or choose by torch.__version__",
                debug,
            )
        elif each.before != each.after:
            now = f"accepts it: {each.registration}" if each.after is None else f"says something else: {each.after}"
            yield finding(
                operator, f"refused here ({each.before}), and {to} {now}", Level.INFORMATION, "accepted", "", debug
            )
    for operator in found.dangling:
        yield finding(
            operator,
            f"{to} no longer defines it, so its kernels never run",
            Level.ERROR,
            "dangling",
            "register the kernels for the operator that takes its place, or define it",
        )
    for operator, change in found.schemas:
        level = Level.INFORMATION if change.is_compatible else Level.ERROR
        why = change.backward or "; ".join(change.changes) or "callers of the old schema can use the new one"
        fix = "" if change.is_compatible else f"give the kernel the schema of {to}: {change.after}"
        yield finding(operator, f"its schema is another one in {to}, {change.after}: {why}", level, "schema", fix)
    for other in found.kernels:
        yield finding(other.operator, _other(other, to), Level.WARNING, f"kernel {other.keys}")


def _other(change: OtherKernel, to: str) -> str:
    sides = [
        f"{'its kernel' if held.is_packages else 'a kernel of PyTorch'} at {owner(held.debug)}"
        if held.debug
        else "nothing"
        for held in (change.before, change.after)
    ]
    return f"calls at {first_of(change.keys, 3)} run {sides[0]}; with {to} they run {sides[1]}"


# -- drift


def drift_findings(found: RecordCheck) -> Iterator[Finding]:
    """Return the registrations that differ from a record."""
    again = f"dispatchlab record {' '.join(found.packages)} -o {found.file}"
    for change in found.changes:
        owners = (change.debug,) if change.debug else ()
        values = " -> ".join(shorten(value, 163, placeholder="...") for value in (change.before, change.after) if value)
        alike = f"{found.file} {change.kind} {change.registration}: {values}".replace(change.operator or " ", "")
        message = f"{change.registration} {change.kind} since {found.file} was recorded{values and f': {values}'}"
        yield Finding(
            str(Question.DRIFT),
            change.operator or "",
            None,
            message,
            owners,
            Level.WARNING,
            alike,
            f"if this is right, record it again: {again}; then, if a test holds the record: EXPECTTEST_ACCEPT=1 pytest",
        )
