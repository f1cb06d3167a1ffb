"""Write docs/pictures/terminal: what commands show on a terminal of 100 columns, in the theme of whoever looks.

Run it from the root of the checkout: `python tools/terminal_pictures.py [FOLDER [COLUMNS]]`. A test compares the texts
in the pictures with what the commands show now.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FOLDER = ROOT / "docs" / "pictures" / "terminal"
COLUMNS = 100

PICTURES = {
    "dump": "dump aten::add.Tensor --from torch-2.13-cpu",
    "dump_key": "dump aten::add.Tensor --from torch-2.13-cpu --key Meta",
    "dump_stale": "dump test::foo --from scenarios/defects/stale_slots_torch.yaml",
    "dump_across": "dump aten::bmm --across --key CUDA",
    "permute_violation": "permute scenarios/defects/stale_nested_torch.yaml",
    "permute_proof": "permute scenarios/basics/five_registrations.yaml",
    "explain": "explain aten::add.Tensor --arg 'cuda requires_grad' --arg cuda --from torch-2.13-cuda",
    "coverage": "coverage torch-2.13-cpu --key PrivateUse1 --what-if 'impl aten::mm PrivateUse1'",
    "coverage_list": "coverage torch-2.13-cpu --key Meta --operator 'aten::_fused*' --list fallback",
    "check": "check",
    "lint": "lint scenarios/lint/dl004_found.yaml",
    "certify": "certify scenarios/defects/stale_slots_torch.yaml --semantics torch-2.13",
    "diff": "diff torch-2.12 torch-2.13 --operator 'aten::_convolution*'",
}
"""The command line of each picture, after `dispatchlab`."""

FOLDERS = {"check": ROOT / "examples" / "spinner"}
"""Where those run that do not run in the root of the checkout."""

NEED_PYTORCH = ("check",)
"""Those that show what the installed PyTorch does, which is that of the pictures."""

_LIGHT = {
    "background": (246, 248, 250),
    "foreground": (31, 35, 40),
    "palette": (
        *((36, 41, 47), (207, 34, 46), (17, 99, 41), (122, 82, 0)),
        *((9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129)),
    ),
}
_DARK = {
    "background": (13, 17, 23),
    "foreground": (230, 237, 243),
    "palette": (
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ),
}
_TIME = re.compile(r", [0-9.]+ (?:ms|s|min)\b(?= *(?:\x1b|│|$))", re.MULTILINE)
_FONT = re.compile(r"\s*@font-face \{\{.*?\}\}\n", re.DOTALL)


def shown(line: str, columns: int = COLUMNS, folder: Path = ROOT) -> str:
    """What a command line shows, with its colours and without the time that it took."""
    import shlex
    from contextlib import chdir

    from click.testing import CliRunner

    from dispatchlab.cli import main

    variables = {"FORCE_COLOR": "1", "NO_COLOR": None, "COLUMNS": str(columns), "TERM": "xterm"}
    with chdir(folder):
        result = CliRunner().invoke(main, shlex.split(line), env=variables)
    if not result.stdout.strip():
        raise SystemExit(f"{line}: {result.output}")
    return _TIME.sub(lambda time: " " * len(time[0]), result.stdout)


def picture(line: str, text: str, columns: int = COLUMNS, *, dark: bool | None = None) -> str:
    """An SVG of a terminal, which loads no font.

    Args:
        line: the command line.
        text: what it shows.
        columns: how wide the terminal is.
        dark: the theme; that of whoever looks at the picture when left out.
    """
    if dark is not None:
        return _drawn(line, text, _DARK if dark else _LIGHT, columns)
    light, night = (_drawn(line, text, theme, columns).split("</style>") for theme in (_LIGHT, _DARK))
    rules = "".join(f"        {rule}\n" for rule in re.findall(r"\.terminal-r[0-9]+ \{.*?\}", night[0]))
    colours = [re.findall(r'<rect fill="(#[0-9a-f]{6})"', body) for _, body in (light, night)]
    assert len(colours[0]) == 1, "the background alone has a colour of its own"
    assert light[1].replace(colours[0][0], colours[1][0]) == night[1], "the themes draw the same"
    rules += f"        .terminal-back {{ fill: {colours[1][0]} }}\n"
    body = light[1].replace("<rect fill=", '<rect class="terminal-back" fill=', 1)
    return f"{light[0]}    @media (prefers-color-scheme: dark) {{\n{rules}    }}\n    </style>{body}"


def _drawn(line: str, text: str, theme: dict[str, tuple[object, ...]], columns: int) -> str:
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, color_system="standard", force_terminal=True)
        console.print(Text.assemble(("$ ", "dim"), (f"dispatchlab {line}", "bold")), soft_wrap=True)
        console.print()
        console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True, highlight=False)
        console.print()  # the last row would lose what is below its letters
    palette = list(theme["palette"])
    colours = TerminalTheme(theme["background"], theme["foreground"], palette, palette)  # type: ignore[arg-type]
    svg = console.export_svg(
        title="", theme=colours, code_format=_FONT.sub("\n", CONSOLE_SVG_FORMAT), unique_id="terminal"
    )
    return "".join(f"{row.rstrip()}\n" for row in svg.splitlines())


def text_of(svg: str) -> list[str]:
    """The lines that a picture shows, its command first, without blanks, which fonts draw."""
    from html import unescape

    rows: dict[float, list[str]] = {}
    for y, words in re.findall(r'<text class="terminal-(?:r\d+|title)"[^>]* y="([0-9.]+)"[^>]*>(.*?)</text>', svg):
        rows.setdefault(float(y), []).append(unescape(words))
    return ["".join("".join(rows[y]).split()) for y in sorted(rows)]


def main() -> None:
    """Write all pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    columns = int(sys.argv[2]) if len(sys.argv) > 2 else COLUMNS
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    for name, line in PICTURES.items():
        text = shown(line, columns, FOLDERS.get(name, ROOT))
        (folder / f"{name}.svg").write_text(picture(line, text, columns), encoding="utf-8")


if __name__ == "__main__":
    main()
