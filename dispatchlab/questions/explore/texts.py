"""The texts of the panes, as pure functions of moments, without widgets.

Texts of a user go through `plain`, which spells out control characters; a `Text` interprets no markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.registration import Def, Registration, inner_of, shown_text
from dispatchlab.model.sequence import Step, format_sequence
from dispatchlab.model.short_names import plain_name
from dispatchlab.prover.result import Counterexample, Verdict
from dispatchlab.questions.dump.operator_text import operator_text
from dispatchlab.questions.dump.table_groups import KernelGroup, group_by_kernel
from dispatchlab.questions.explain.blocks import explanation_text
from dispatchlab.questions.explain.explain_operator import unanswered
from dispatchlab.questions.explain.result import CallExplanation
from dispatchlab.questions.explore.session import Around, Moment, Neighbour, RowChange
from dispatchlab.questions.explore.session_subject import Subject
from dispatchlab.questions.order.reasons import FLAWS
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import sequence_names
from dispatchlab.views.console import plain
from dispatchlab.views.formatting import counted, key_names, readable
from dispatchlab.views.source_locations import fallback_of_file
from dispatchlab.views.styles import ACTUAL, BAD, EXPECTED, GOOD, QUIET, REASON_STYLES, TITLE, VERDICT_STYLES, WARNING

ON, OFF, REFUSED = "●", "○", "✗"
CHANGED = "▸"
NOT_EQUAL = "≠"

_CHANGED_STYLE = "bold yellow"
_SHOWN = 6


def without_colors(text: Text) -> Text:
    """Return the text with only bold and dim, because grey in place of colours would be unreadable."""
    spans = [span._replace(style=_style(span.style).without_color) for span in text.spans]
    return Text(text.plain, style=_style(text.style).without_color, spans=spans)


def _style(style: str | Style) -> Style:
    return Style.parse(style) if isinstance(style, str) else style


def hanging(text: Text) -> Group:
    """Return a text whose long lines continue with the same indentation."""
    lines: list[RenderableType] = []
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        body = line[indent:] if indent < len(line) else line
        body.overflow = "ellipsis"  # a word is shown whole, or cut where the pane ends
        lines.append(Padding(body, (0, 0, 0, indent)) if body is not line and indent else body)
    return Group(*lines)


_PATH = re.compile(r"[^ ]*/([^ /]+:[0-9]+)(?= |$)")


def short_source(debug: str) -> str:
    """Return a debug text without `registered at`, and source locations in it without their folders."""
    return _PATH.sub(r"\1", debug.removeprefix("registered at "))


def registration_label(registration: Registration, *, one_operator: bool) -> str:
    """Return a registration in few words, without the name of its operator if all are of one operator."""
    what = plain_name(registration, several=not one_operator)
    debug = short_source(shown_text(registration))
    return f"{what}  {debug}" if debug else what


def registration_texts(subject: Subject, moment: Moment, changed: Collection[int] = ()) -> list[Text]:
    """Return a line for each registration: whether it is active, its number and its text."""
    one_operator = len(subject.operators) == 1
    last_refused = {step for step, _ in moment.refused if step >= 0} - moment.active
    width = len(str(len(subject.registrations) - 1))
    lines = []
    for index, registration in enumerate(subject.registrations):
        active = index in moment.active
        sign, style = (ON, GOOD) if active else (REFUSED, ACTUAL) if index in last_refused else (OFF, QUIET)
        label = registration_label(registration, one_operator=one_operator)
        what, gap, debug = label.partition("  ")
        line = Text.assemble((f"{sign} ", style), (f"{index:>{width}} ", TITLE if active else ""))
        line.append_text(plain(what, _CHANGED_STYLE if index in changed else "")).append(gap)
        lines.append(line.append_text(plain(debug, QUIET)))
    return lines


def step_text(subject: Subject, step: Step) -> str:
    """Return a step with its registration: `+2 CPU fn_cpu`."""
    label = registration_label(subject.registrations[max(step, ~step)], one_operator=len(subject.operators) == 1)
    return f"{format_sequence((step,))} {label}"


def sequence_texts(subject: Subject, moment: Moment) -> list[Text]:
    """Return a line for each step of the sequence."""
    lines = []
    for step, refusal in zip(moment.sequence, moment.refusals, strict=False):
        what, gap, debug = step_text(subject, step).partition("  ")
        style = ACTUAL if refusal is not None else QUIET if step < 0 else ""
        line = Text().append_text(plain(what, style))
        if refusal is not None:
            line.append(f"  {REFUSED} {refusal.kind}", ACTUAL)
        lines.append(line.append(gap).append_text(plain(debug, QUIET)))
    return lines


# -- the table


def table_text(operator: OperatorName, view: OperatorView, changes: Sequence[RowChange], action: str) -> Text:
    """Return the changes of the last action, and the table grouped by kernel with the changed keys marked."""
    lines = [_head(operator, view)]
    if action:
        lines += [Text(), *_change_lines(changes, action)]
    lines += [Text(), *_table_lines(view, {change.key for change in changes})]
    return Text("\n").join(lines)


def _head(operator: OperatorName, view: OperatorView) -> Text:
    if view.schema is not None:
        return Text().append_text(plain(view.schema, TITLE))
    missing = "  no def" if view.kernels else "  nothing is registered"
    return Text().append_text(plain(str(operator), TITLE)).append(missing, WARNING)


def _change_lines(changes: Sequence[RowChange], action: str) -> Iterator[Text]:
    title = Text.assemble((f"{action} ", _CHANGED_STYLE))
    if not changes:
        yield title.append("changed no row of the table", QUIET)
        return
    yield title.append(f"changed {len(changes)} row{'' if len(changes) == 1 else 's'}")
    for before, after, keys in _grouped(changes):
        yield Text().append(f"{CHANGED} ", _CHANGED_STYLE).append_text(_keys(keys))
        yield Text().append("  - ", ACTUAL).append_text(plain(before, QUIET))
        yield Text().append("  + ", EXPECTED).append_text(plain(after))


def _entry(text: str | None) -> str:
    """Return a row of a table, short; fallbacks of one file share a row."""
    return "(nothing)" if text is None else fallback_of_file(short_source(text))


def _grouped(changes: Sequence[RowChange]) -> list[tuple[str, str, list[str]]]:
    """Changes with the same text, with their keys."""
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        groups.setdefault((_entry(change.before), _entry(change.after)), []).append(change.key)
    return [(before, after, keys) for (before, after), keys in groups.items()]


def _keys(keys: Sequence[str], style: str = "") -> Text:
    return Text(", ".join(key_names(keys)), style)


def _table_lines(view: OperatorView, changed: Collection[str]) -> Iterator[Text]:
    table = group_by_kernel(view)
    stale: dict[tuple[str, str], list[str]] = {}
    for slot in table.stale:
        stale.setdefault((_entry(slot.actual), _entry(slot.expected or None)), []).extend(slot.keys)
    for (actual, expected), keys in stale.items():
        yield Text.assemble((f"{counted(len(keys), 'stale slot')}: ", BAD), plain(f"calls run {actual}", ACTUAL))
        yield Text("  the registrations give ").append_text(plain(expected))
        yield _marked_keys(keys, changed)
    if stale:
        yield Text()
    if table.ambiguous:
        yield Text("AMBIGUOUS ", BAD).append_text(_keys(table.ambiguous, ACTUAL))
    for kernel in table.kernels:
        yield from _kernel_lines(kernel, changed)
    if table.fallbacks:
        yield Text()
        yield Text().append("backend fallbacks", QUIET)
        keys = [key for one in table.fallbacks for key in one.keys]
        yield _marked_keys(keys, changed)


def _kernel_lines(kernel: KernelGroup, changed: Collection[str]) -> Iterator[Text]:
    own = kernel.keys == (kernel.key,)  # then its title says where it runs
    title = Text()
    if own and kernel.key in changed:
        title.append(f"{CHANGED} ", _CHANGED_STYLE)
    title.append(kernel.key, f"bold {REASON_STYLES[kernel.served[0].reason]}" if kernel.served else TITLE)
    title.append("  ").append_text(plain(short_source(kernel.debug), QUIET))
    if kernel.fallthrough:
        title.append("  calls fall through", WARNING)
    yield title
    if kernel.is_overridden:
        yield Text().append("  overridden by a newer kernel", WARNING)
    elif not (kernel.served or kernel.stale):
        yield Text().append("  runs for no key", WARNING)
    if kernel.stale:
        yield Text("  still run by calls of ", WARNING).append_text(_keys(kernel.stale))
    for served in () if own else kernel.served:
        yield _marked_keys(served.keys, changed).append(f"  [{served.reason}]", REASON_STYLES[served.reason])


def _marked_keys(keys: Sequence[str], changed: Collection[str]) -> Text:
    """Return keys, with the changed ones first and marked."""
    new, old = ([key for key in keys if (key in changed) is which] for which in (True, False))
    line = Text("  ")
    if new:
        line.append(f"{CHANGED} ", _CHANGED_STYLE).append_text(_keys(new, _CHANGED_STYLE))
    if new and old:
        line.append(", ")
    return line.append_text(_keys(old))


def explanation_lines(found: CallExplanation, subject: Subject) -> Text:
    """Return the kernel of each hop, then the explanation as `explain --format text` prints it, with short paths.

    If the registry has no kernels for the backend of the call, a sentence about this comes first.
    """
    text = Text()
    lacks = unanswered(found, source=subject.origin or subject.title, build=subject.build, imports=subject.imports)
    if lacks:
        text.append_text(plain(lacks, WARNING)).append("\n\n")
    for number, hop in enumerate(found.hops, 1):
        text.append(f"{number}. {hop.key}  ", TITLE)
        if hop.kernel is None:
            text.append("no kernel", ACTUAL)
        else:
            text.append_text(plain(short_source(hop.kernel.debug)))
            text.append(f"  [{hop.kernel.reason}]", REASON_STYLES[hop.kernel.reason])
        text.append("\n")
    text.append_text(plain(found.end, GOOD if found.hops and found.hops[-1].refusal is None else ACTUAL)).append("\n\n")
    return text.append_text(plain("\n".join(map(short_source, explanation_text(found).splitlines()))))


def no_def_text(subject: Subject, operator: OperatorName) -> str:
    """Return that a call of an operator without a def raises, and which registrations define the operator."""
    all_defs = ({inner.operator for inner in inner_of(one) if isinstance(inner, Def)} for one in subject.registrations)
    numbers = " or ".join(str(at) for at, defs in enumerate(all_defs) if operator in defs)
    return f"{operator} has no def, so a call raises" + (f"; registration {numbers} defines it" if numbers else "")


def dump_text(moment: Moment, operator: OperatorName) -> Text:
    """Return the dump and the computed table, to the character as `dump --format text` prints them."""
    snapshot = moment.seen(operator).snapshot
    if not snapshot.exists:
        return plain(f"nothing is registered for {operator}", QUIET)
    return plain(operator_text(snapshot))


# -- the state graph around here


def around_head(around: Around, subject: Subject) -> Text:
    """Return the position of the sequence in the state graph."""
    active = " ".join(map(str, around.active)) or "nothing"
    text = Text.assemble(("here ", QUIET), (f"{{{active}}}", TITLE))
    if around.states is not None and around.states > 1:
        text.append(f"\n{NOT_EQUAL} one of {around.states} states of this set:", BAD)
        text.append(" the order in which it was registered matters. Another:\n")
        text.append("\n".join(format_sequence(other) for other in around.others[:_SHOWN]))
    elif around.states == 1:
        text.append("\nthe only state of this set: no order leads elsewhere", GOOD)
    if not around.neighbours:
        text.append("\na release failed: nothing can follow", ACTUAL)
    if (concerning := len(around.neighbours)) < len(subject.registrations):
        text.append(f"\n{concerning} of {len(subject.registrations)} registrations concern this operator", QUIET)
    return text


def neighbour_text(neighbour: Neighbour, subject: Subject) -> Text:
    """Return a neighbouring state: the step to it, and its changes."""
    line = Text().append("─▸ ", QUIET).append(format_sequence((neighbour.step,)), TITLE)
    what = step_text(subject, neighbour.step).partition(" ")[2].partition("  ")[0]
    if neighbour.refusal is not None:
        line.append(f"  {REFUSED} {neighbour.refusal.kind}", ACTUAL)
        return line.append("  ").append_text(plain(what))
    line.append(f"  {neighbour.changed} row{'' if neighbour.changed == 1 else 's'}  ", QUIET)
    return line.append_text(plain(what))


# -- the check of every order


def verdict_text(report: Report, subject: Subject) -> Text:
    """Return the verdict, its scope, and both sequences of a counterexample with the reason."""
    found = report.exploration
    text = Text().append(str(found.verdict), f"bold {VERDICT_STYLES[found.verdict]}")
    text.append(f"  {found.states:,} states, {found.edges:,} steps tried", QUIET)
    for note in found.notes:
        text.append("\n").append_text(plain(note, QUIET))
    if found.conflicts:
        text.append(f"\n{len(found.conflicts)} sets of registrations exclude one another", WARNING)
    if found.verdict is Verdict.ORDER_INDEPENDENT:
        orders = f"{readable(found.orders)} order{'' if found.orders == 1 else 's'}"
        text.append(f"\nevery order leads to the same tables: {orders}")
    if found.counterexample is not None:
        text.append("\n\n").append_text(_counterexample(found.counterexample, report, subject))
    return text


def _counterexample(counterexample: Counterexample, report: Report, subject: Subject) -> Text:
    flaw = counterexample.flaw
    text = Text().append(f"{flaw}: ", BAD).append(FLAWS[flaw])
    sequences = counterexample.expected_sequence, counterexample.actual_sequence
    for head, style, sequence in zip(sequence_names(counterexample), (EXPECTED, ACTUAL), sequences, strict=True):
        text.append(f"\n\n{head}", TITLE)
        for step in sequence:
            text.append("\n  ").append_text(plain(step_text(subject, step), style))
    if report.reason is not None:
        text.append("\n\ncause: ", TITLE).append_text(plain(report.reason.cause))
        text.append("\n\nfix: ", TITLE).append_text(plain(report.reason.fix))
    return text
