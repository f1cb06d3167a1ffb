"""The hook of mkdocs: pages that are made while the site is built, links that leave docs/, and pictures.

mkdocs.yml names this file. The pages that are made: the API reference, one page for each topic of `scenarios/`, the
list of lint rules, the pages of causes, the notebooks with what their cells show,
CONTRIBUTING.md and CHANGELOG.md. A link from docs/ to another file of the checkout leads to its page on the site, or
else to the file on GitHub; a file that does not exist is an error.
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import json
import logging
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from textwrap import shorten
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dispatchlab.questions.check.selection import GROUPS  # noqa: E402
from dispatchlab.questions.lint.rules import RULES  # noqa: E402  # of this checkout
from dispatchlab.questions.why.cause import Cause, causes  # noqa: E402
from dispatchlab.scenario.load import load_scenario  # noqa: E402

_LOG = logging.getLogger("mkdocs.hooks.site_pages")
SOURCE = "https://github.com/dispatchlab/dispatchlab"
SITE = "https://dispatchlab.github.io/dispatchlab/"
"""Where the site is published. Links to it, which a reader on GitHub can follow, become links inside of the site."""
_ORIGINS = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "scenarios/index.md": "scenarios/README.md",
}
"""A page that is made -> the file of the checkout whose text it has, which its links are relative to."""


# -- the API reference


def public_packages() -> dict[str, list[str]]:
    """Each package that lists its public names in `__all__` -> these names."""
    paths = sorted((ROOT / "dispatchlab").rglob("__init__.py"))
    packages = [".".join(path.parent.relative_to(ROOT).parts) for path in paths if "__all__ = " in path.read_text()]
    return {package: list(import_module(package).__all__) for package in packages}


def _docstring(package: str) -> str:
    text = (ROOT / Path(*package.split(".")) / "__init__.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or ""


def groups_of_names(docstring: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The public names by the item of the docstring's list that names them first; at the end those of no item."""
    left, groups = set(names), {}
    for item in re.findall(r"^- (.*(?:\n  .*)*)", docstring, re.MULTILINE):
        title = item.partition(":")[0]
        named = [name for name in dict.fromkeys(re.findall(r"`(\w+)`", item)) if name in left]
        if named:
            groups[title] = named
            left -= set(named)
    if left:
        groups["other names"] = [name for name in names if name in left]
    return groups


_TITLES = {
    "check": "Check the order",
    "register": "Register",
    "ask about packages and registries": "Ask about packages and registries",
    "registrations as values": "Registrations as values",
    "call": "Call operators",
    "look up": "Look up",
    "errors": "Errors",
}


def _reference() -> Iterator[tuple[str, str]]:
    packages = public_packages()
    lines = ["# API reference\n", _first_paragraph(_docstring("dispatchlab")), ""]
    for title, names in groups_of_names(_docstring("dispatchlab"), packages["dispatchlab"]).items():
        page = f"{re.sub(r'[^a-z]+', '_', title)}.md"
        heading = _TITLES.get(title, title[0].upper() + title[1:])
        yield f"reference/{page}", _names_page(heading, "from dispatchlab import ...", "dispatchlab", names)
        shown = ", ".join(f"[`{name}`][dispatchlab.{name}]" for name in names)
        lines.append(f"- [{heading}]({page}): {shown}")
    lines += ["\nPackages with public names of their own:\n"]
    for package, names in packages.items():
        if package != "dispatchlab":
            page = f"{package.replace('.', '_')}.md"
            first = _first_paragraph(_docstring(package))
            yield f"reference/{page}", _names_page(f"{package}", first, package, names)
            lines.append(f"- [`{package}`]({page}): {first.partition(': ')[2] or first}")
    yield "reference/index.md", "\n".join(lines) + "\n"


def _names_page(title: str, intro: str, package: str, names: Iterable[str]) -> str:
    intro = f"`{intro}`" if intro.startswith("from ") else intro
    return f"# {title}\n\n{intro}\n\n" + "\n".join(f"::: {package}.{name}\n" for name in names)


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


# -- scenarios


def topics() -> list[str]:
    """The folders of scenarios, in the order in which they are to be read."""
    return re.findall(r"^\| \[(\w+)\]\(\w+/\) \|", _read("scenarios/README.md"), re.MULTILINE)


_TOPICS = {"pr35061": "PR 35061", "lint": "Lint rules", "several": "Several operators", "table": "The dispatch table"}
"""Titles of topics that are more than their names."""


def _scenarios() -> Iterator[tuple[str, str]]:
    yield "scenarios/index.md", _read("scenarios/README.md")
    about = dict(re.findall(r"^\| \[(\w+)\]\(\w+/\) \| (.*) \|$", _read("scenarios/README.md"), re.MULTILINE))
    for topic in topics():
        parts = [f"# {_TOPICS.get(topic, topic.replace('_', ' ').capitalize())}\n\n{about[topic]}\n"]
        parts += [_scenario(path) for path in sorted((ROOT / "scenarios" / topic).glob("*.yaml"))]
        yield f"scenarios/{topic}.md", "\n".join(parts)


def _scenario(path: Path) -> str:
    scenario = load_scenario(str(path))
    name = path.relative_to(ROOT).as_posix()
    golden = (ROOT / "expect" / path.relative_to(ROOT / "scenarios")).with_suffix(".txt").read_text(encoding="utf-8")
    found = re.search(r"^verdict: (.*)$", golden, re.MULTILINE)
    verdict = found[1] if found is not None else "refused"
    return (
        f"## {path.stem}\n\n{scenario.claim}\n\n"
        f'```yaml title="{name}"\n{path.read_text(encoding="utf-8").strip()}\n```\n\n'
        f'??? example "What `dispatchlab permute` finds: {verdict}"\n\n'
        + _indented(f"```text\n{golden.strip()}\n```\n")
        + f"\n[The file on GitHub]({SOURCE}/blob/main/{name})\n"
    )


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


# -- notebooks


def notebooks() -> list[Path]:
    """The notebooks of the examples, the first proof first."""
    return sorted((ROOT / "examples").glob("*.ipynb"), key=lambda path: (path.stem != "first_proof", path.stem))


def _notebook(path: Path) -> str:
    """The page of a notebook, whose cells are run for it."""
    names: dict[str, Any] = {}
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```\n\n{_shown(text, names)}")
    file = path.relative_to(ROOT).as_posix()
    return "\n\n".join(parts) + f"\n\n[The notebook on GitHub]({SOURCE}/blob/main/{file})\n"


def _shown(code: str, names: dict[str, Any]) -> str:
    """What a cell prints, and what its last line shows."""
    tree, value, printed = ast.parse(code), None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "notebook", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    text = printed.getvalue()
    if value is None or hasattr(value, "_repr_html_"):
        table = "" if value is None else value._repr_html_()
    else:
        table, text = "", f"{text}{value!r}\n"
    style, end, rest = table.partition("</style>")  # on one line, which Markdown leaves alone
    table = style.replace("\n", " ") + end + rest.replace("\n", "&#10;")
    return (f"```text\n{text}```\n\n" if text else "") + (
        f'<div class="dl-shown" tabindex="0">{table}</div>' if table else ""
    )


# -- lint rules


def _lint() -> Iterator[tuple[str, str]]:
    rows = [f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.level} | {rule.what} |" for rule in RULES]
    yield (
        "lint/index.md",
        "# Lint rules\n\n"
        "`dispatchlab check --only lint` reads the registrations of a registry, PyTorch or a scenario, and\n"
        "reports what is probably a mistake. The page of a rule says why it matters, how to fix it, and what it\n"
        "cannot know.\n\n"
        "| code | name | level | what it finds |\n|---|---|---|---|\n" + "\n".join(rows) + "\n",
    )


# -- causes of failures


def _causes() -> Iterator[tuple[str, str]]:
    """The page of each cause, with messages and their fixed words, by which the search finds it."""
    rows, raised = [], json.loads(_read("tools/cause_messages.json"))
    for cause in causes_with_pages():
        title = f"{cause.title[0].upper()}{cause.title[1:]}"
        message = shorten(raised.get(cause.code, "").replace("|", "\\|").replace("`", "'"), 160, placeholder=" ...")
        rows.append((cause.code, f"| {message and f'`{message}`'} | [{cause.code}: {title}]({cause.code}.md) |"))
        expressions = (*cause.pattern, *(each for row in cause.rows for each in row.pattern))
        said = [raised.get(cause.code, ""), *(text for each in expressions for text in fixed_words(each))]
        messages = "".join(f"{text}\n" for text in dict.fromkeys(filter(None, said)))
        head = (
            f"Python or PyTorch says, for example:\n\n```text\n{messages}```\n\n## Fails\n"
            if messages
            else "## Fails\n"
        )
        yield f"causes/{cause.code}.md", cause.page.replace("## Fails\n", head, 1)
    yield (
        "causes/index.md",
        "# Causes of failures\n\n"
        "`dispatchlab why` names one of these causes. `dispatchlab rule WHY306` prints a page in the terminal.\n"
        "To find a cause by a message, paste the message into the search.\n\n"
        + "\n".join(
            f"## {title}\n\n| Python or PyTorch says, for example | cause |\n|---|---|\n"
            + "".join(f"{row}\n" for code, row in rows if code.startswith(start))
            for start, title in GROUPS.items()
        ),
    )


def causes_with_pages() -> list[Cause]:
    """The causes that have a page, by number."""
    return sorted((cause for cause in causes() if cause.file.is_file()), key=lambda cause: cause.code)


_LEAST_WORDS = 2


def fixed_words(expression: str) -> list[str]:
    """The texts that an expression matches, with `...` for what varies; without those of a single word."""
    texts = (" ".join(re.sub(r"(\.\.\.\s*)+", "... ", text).split()) for text in _texts(_parser.parse(expression)))
    return [text for text in texts if len(re.findall(r"[A-Za-z_]{3,}", text)) >= _LEAST_WORDS]


def _texts(parsed: Iterable[Any]) -> list[str]:
    texts = [""]
    for kind, value in parsed:
        texts = [text + end for text in texts for end in _ends(str(kind), value)][:20]
    return texts


def _ends(kind: str, value: Any) -> list[str]:
    match kind:
        case "LITERAL":
            return [chr(value)]
        case "SUBPATTERN":
            return _texts(value[3])
        case "BRANCH":
            return [text for option in value[1] for text in _texts(option)]
        case "MAX_REPEAT" | "MIN_REPEAT":
            return _texts(value[2]) if value[1] == 1 else ["..."]
        case "IN" if all(str(one) == "LITERAL" for one, _ in value):
            return [chr(value[0][1])]
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return [""]
        case _:
            return ["..."]


# -- the hook


def _made_pages() -> dict[str, str]:
    return {
        **dict(_reference()),
        **dict(_scenarios()),
        **dict(_lint()),
        **dict(_causes()),
        **{f"notebooks/{path.stem}.md": _notebook(path) for path in notebooks()},
        "contributing.md": _read("CONTRIBUTING.md"),
        "changelog.md": _read("CHANGELOG.md"),
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made into the navigation."""
    reference = [page for page in dict(_reference()) if page != "reference/index.md"]
    made = {
        "scenarios/": ["scenarios/index.md", *(f"scenarios/{topic}.md" for topic in topics())],
        "lint/": ["lint/index.md", *(f"lint/{rule.code}.md" for rule in RULES)],
        "causes/": ["causes/index.md", *(f"causes/{cause.code}.md" for cause in causes_with_pages())],
        "reference/": ["reference/index.md", *reference],
        "notebooks/": [f"notebooks/{path.stem}.md" for path in notebooks()],
    }
    config.nav = _with_made(config.nav, made)
    return config


def _with_made(nav: Any, made: dict[str, list[str]]) -> Any:
    match nav:
        case dict():
            return {key: _with_made(value, made) for key, value in nav.items()}
        case list():
            return [_with_made(value, made) for value in nav]
        case _:
            return made.get(nav, nav)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, text in _made_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme leaves without a name for those who hear the page."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^ *(```+|~~~+)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, and draw pictures inside of the page."""
    here = page.file.src_uri
    lines, fence = [], ""
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if found is not None and (not fence or line.strip() == fence):
            fence = "" if fence else found[1]
        elif not fence and not line.startswith('<div class="dl-shown"'):
            line = _LINK.sub(lambda match: _relinked(match, here), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _relinked(match: re.Match[str], here: str) -> str:
    mark, label, target = match.groups()
    if target.startswith(SITE):
        page = (target.removeprefix(SITE) or "index.html").replace(".html", ".md", 1)
        return f"{mark}[{label}]({posixpath.relpath(page, posixpath.dirname(here) or '.')})"
    path, _, anchor = target.partition("#")
    if not path or "://" in target or target.startswith(("/", "mailto:")):
        return match[0]
    origin = _ORIGINS.get(here, f"docs/{here}")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    dark = file.removesuffix(".svg") + "-dark.svg"
    if mark and file.startswith("docs/pictures/terminal/") and (ROOT / dark).exists():
        folder = posixpath.dirname(path)
        shown = ((file, "light"), (dark, "dark"))
        return "".join(f"![{label}]({folder}/{posixpath.basename(name)}#only-{scheme})" for name, scheme in shown)
    if mark and file.startswith("docs/pictures/") and _is_drawing(ROOT / file):
        return _drawing(ROOT / file, label)
    to = _page_of(file)
    if to is None:
        if file.startswith("docs/") and origin.startswith("docs/") and not file.startswith("docs/defects/"):
            return match[0]
        if not (ROOT / file).exists():
            _LOG.warning("%s links to %s, which does not exist", origin, file)
        kind = "tree" if (ROOT / file).is_dir() else "blob"
        return f"{mark}[{label}]({SOURCE}/{kind}/main/{file})"
    page, _, own_anchor = to.partition("#")
    anchor = anchor or own_anchor
    relative = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{mark}[{label}]({relative}{'#' + anchor if anchor else ''})"


def _page_of(file: str) -> str | None:
    """The page of the site that shows a file of the checkout, with its anchor."""
    for page, origin in _ORIGINS.items():
        if origin == file:
            return page
    parts = file.split("/")
    match parts:
        case ["scenarios"]:
            return "scenarios/index.md"
        case ["scenarios", topic] if topic in topics():
            return f"scenarios/{topic}.md"
        case ["scenarios", topic, name] if name.endswith(".yaml") and (ROOT / file).exists():
            return f"scenarios/{topic}.md#{name.removesuffix('.yaml')}"
        case ["docs", "lint"]:
            return "lint/index.md"
        case ["docs"]:
            return "index.md"
        case ["docs", "design"]:
            return "design/index.md"
        case ["docs", *rest] if (ROOT / file).is_file() and not file.startswith("docs/defects/"):
            return "/".join(rest)
        case _:
            return None


_INLINE = "<!-- drawn in the page -->"


def _is_drawing(path: Path) -> bool:
    """Whether a picture takes its colours from the page, so that it has to be a part of it."""
    return path.suffix == ".svg" and _INLINE in path.read_text(encoding="utf-8")


def _drawing(path: Path, label: str) -> str:
    svg = path.read_text(encoding="utf-8").partition(_INLINE)[2]
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
    return '<div class="dl-drawing">' + re.sub(r"\s*\n\s*", " ", svg.strip()) + "</div>"


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
