"""What several reports have: tables, facts, verdicts, differences, and an operator by its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from dispatchlab.analysis.table_groups import GroupedTable, KernelGroup, group_by_kernel
from dispatchlab.escape import printable
from dispatchlab.model.operator_view import NO_KERNEL, OUTRANKED, OperatorView
from dispatchlab.render.html.elements import Child, Html, breakable, element, joined
from dispatchlab.render.key_names import key_names
from dispatchlab.render.source_locations import located

Mood: TypeAlias = Literal["good", "bad", "warn", ""]
"""What a result is for its reader; a colour, which is never all that says it."""


class Cell(NamedTuple):
    """A cell of a table.

    Args:
        content: what it shows.
        kind: `name` for what is not to be broken, `code` for a text of a program, `number`, `prose` for sentences;
            empty for a few words.
        sort: what a sort goes by, where that is not what is shown.
    """

    content: Child
    kind: Literal["name", "code", "number", "prose", ""] = ""
    sort: str | int | None = None


Row: TypeAlias = "Sequence[Child | Cell]"


def data_table(caption: str, heads: Sequence[str], rows: Iterable[Row], *, bad: Iterable[int] = ()) -> Html:
    """A table that scripts sort and filter; a sentence where it would have no rows.

    Args:
        caption: what its rows are.
        heads: the titles of the columns; the first column names the row.
        rows: the cells of each row.
        bad: the numbers of the rows that are marked.
    """
    marked = frozenset(bad)
    body = [_row(row, bad=at in marked) for at, row in enumerate(rows)]
    if not body:
        return element("p", f"{caption}: none.", class_="quiet")
    return element(
        "div",
        element(
            "table",
            element("caption", f"{caption} ({len(body):,})"),
            element("thead", element("tr", (element("th", head, scope="col") for head in heads))),
            element("tbody", body),
            class_="data",
        ),
        class_="table",
        role="region",
        tabindex=0,
        aria_label=caption,
    )


def _row(row: Row, *, bad: bool) -> Html:
    first, *others = (_fitting(cell if isinstance(cell, Cell) else _cell(cell)) for cell in row)
    return joined(
        (
            "\n",
            element(
                "tr",
                element("th", first.content, scope="row", class_=first.kind or None, data_value=first.sort),
                (element("td", each.content, class_=each.kind or None, data_value=each.sort) for each in others),
                class_="marked" if bad else None,
            ),
        )
    )


def _cell(content: Child) -> Cell:
    return Cell(content, "number", content) if isinstance(content, int) else Cell(content)


_LONG = 44  # characters


def _fitting(cell: Cell) -> Cell:
    """A cell with room for its text: a long name may be broken, and sentences get a wide column."""
    if not isinstance(cell.content, str) or isinstance(cell.content, Html) or len(cell.content) <= _LONG:
        return cell
    kinds: dict[str, Literal["code", "prose"]] = {"name": "code", "": "prose"}
    kind = kinds.get(cell.kind, cell.kind)
    return Cell(breakable(cell.content), kind, cell.sort)


def lines(texts: Iterable[str]) -> list[Html]:
    """Texts in a cell, a line each."""
    return [element("div", breakable(text)) for text in texts]


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Titled facts, side by side."""
    return element(
        "dl", (element("div", element("dt", title), element("dd", value)) for title, value in pairs), class_="facts"
    )


def summary_list(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Titled sentences, one below the other."""
    return element(
        "dl", (element("div", element("dt", title), element("dd", value)) for title, value in pairs), class_="summary"
    )


def verdict(text: str, mood: Mood) -> Html:
    """A result in a frame."""
    return element("span", text, class_=f"verdict {mood}".rstrip())


def paragraphs(texts: Iterable[Child], *, kind: str | None = None) -> Html:
    """A paragraph each."""
    return joined(element("p", text, class_=kind) for text in texts)


def folded(title: Child, *body: Child, is_open: bool = False, anchor: str | None = None) -> Html:
    """A part that is opened by a click; a link to its anchor opens it, too."""
    return element("details", element("summary", title), element("div", body, class_="inside", id=anchor), open=is_open)


_DIFF_KINDS = {"-": "removed", "+": "added", "@": "place"}


def difference(diff: str) -> Html:
    """A unified diff, which leads from what is expected to what is there."""
    return element("pre", _diff_lines(diff), tabindex=0, aria_label="Difference, expected to actual")


def _diff_lines(diff: str) -> Iterator[Child]:
    for line in diff.splitlines():
        kind = "place" if line.startswith(("---", "+++")) else _DIFF_KINDS.get(line[:1])
        yield element("span", line, class_=kind) if kind else line
        yield "\n"


# -- an operator


def operator_table(view: OperatorView) -> Html:
    """The kernels of an operator with the keys that run them, what lost, what is stale, and the builtin fallbacks."""
    if not view.kernels and not view.table and view.schema is None:
        return element("p", f"Nothing is registered for {view.name}.")
    grouped = group_by_kernel(view)
    parts: list[Child] = [element("p", element("code", view.schema or f"{view.name}, without a def"))]
    if grouped.stale:
        stale = [
            (keys_text(one.keys), Cell(held(one.expected), "code"), Cell(held(one.actual), "code"))
            for one in grouped.stale
        ]
        parts.append(
            data_table(
                f"Stale slots of {view.name}", ("keys", "should hold", "calls use"), stale, bad=range(len(stale))
            )
        )
    if grouped.kernels:
        parts.append(_kernels(f"Kernels of {view.name}", grouped.kernels))
    if grouped.ambiguous:
        parts.append(element("p", f"Ambiguous, so that a call raises: {keys_text(grouped.ambiguous)}.", class_="bad"))
    parts.append(_fallbacks(view, grouped))
    if view.violations:
        parts.append(paragraphs((f"Invariant broken: {each}" for each in view.violations), kind="bad"))
    return joined(parts)


def _fallbacks(view: OperatorView, grouped: GroupedTable) -> Html | None:
    serving = [one for one in grouped.fallbacks if one.served or one.lost]
    if not serving:
        return None
    keys = sum(len(one.keys) for one in serving)
    title = f"backend fallbacks of {view.name}: {len(serving)}, which serve {keys} keys"
    return folded(title, _kernels(f"Backend fallbacks of {view.name}", serving))


def _kernels(caption: str, kernels: Sequence[KernelGroup]) -> Html:
    """A row for each kernel; a table that a dispatcher printed does not say what lost."""
    heads = ("kernel", "registered at", "runs for", "lost")
    columns = len(heads) if any(one.lost for one in kernels) else len(heads) - 1
    return data_table(caption, heads[:columns], (_kernel(one)[:columns] for one in kernels))


def _kernel(one: KernelGroup) -> Row:
    served = [
        element(
            "div",
            keys_text(each.keys) if one.registered is None else f"{keys_text(each.keys)} [{each.reason}]",
            ", calls fall through" if one.fallthrough else None,
        )
        for each in one.served
    ]
    lost = [
        element("div", f"{keys_text(each.keys)} to the {each.winner}{'' if each.why == OUTRANKED else f': {each.why}'}")
        for each in one.lost
    ]
    nothing = "overridden" if one.is_overridden else "no key"
    name = f"{'fallthrough ' if one.fallthrough else ''}{short_debug(one.debug) or '(no debug text)'}"
    return (Cell(name, "code"), Cell(one.key, "name"), served or element("span", nothing, class_="quiet"), lost)


def keys_text(keys: Sequence[str]) -> str:
    """Keys in few phrases."""
    return ", ".join(key_names(keys))


def held(row: str) -> str:
    """What a slot holds, as a row of a table says it."""
    return short_debug(row) or NO_KERNEL


def short_debug(debug: str) -> str:
    """A debug text, or a sentence with one, without `registered at` and the folders of a build."""
    return " ".join(piece.text for piece in located(printable(debug.replace(_AT, "", 1))))


_AT = "registered at "
