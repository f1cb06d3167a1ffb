"""Files whose names and texts a terminal, JSON, Python, XML or a shell would obey, and command lines that show them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.registries.model import RecordedOperator, registry_of
from tests.registry_cases import FALLBACKS, FOO, T_T, kernel, save_registry

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r\x7f\x00[red]{}%s'\"\\</title>--><script>$(touch RUN)`touch RUN`"
"""A debug text: a title for the terminal, colours by C1, text from right to left, ends of literals, code of shells."""
NAME = "\x1b]0;owned\x07\x9b31m\u202eé'\"$(touch RUN)"
"""The same, as far as the name of a file can be."""

_LINK = r"\x1b\]8;(?:id=[0-9.-]*)?;(?:(?:https|file)://[\w!#$%&'()*+,./:;=?@~-]*)?\x1b\\"
_DRAWN = re.compile(rf"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\r|{_LINK}", re.ASCII)
"""What drawings on a terminal consist of: colours, the cursor's visibility, lines that are drawn anew, links."""


def raw_characters(text: str) -> set[str]:
    """The characters in an output that a terminal would obey, but for those of drawings."""
    return {character for character in _DRAWN.sub("", text) if character != "\n" and not character.isprintable()}


def write_hostile_files(folder: Path) -> dict[str, str]:
    """Write a scenario, registries, files of native functions and a program; their paths by kind."""
    evil = json.dumps(EVIL)
    texts = {
        "scenario": (
            f"{NAME}.yaml",
            f"claim: {evil}\nregistrations:\n"
            f"  - def: foo(Tensor x) -> Tensor\n    debug: {evil}\n"
            f"  - impl: foo\n    dispatch: CPU\n    debug: {evil}\n"
            f"  - impl: foo\n    dispatch: CPU\n    debug: {json.dumps('other ' + EVIL)}\n",
        ),
        "broken": (f"broken {NAME}.yaml", f"claim: {evil}\nregistrations:\n  - {evil}: {evil}\n"),
        "native": (
            f"native {NAME}.yaml",
            "- func: foo(Tensor self) -> Tensor\n  structured_delegate: foo.out\n"
            "- func: foo.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)\n  structured: True\n"
            "  dispatch:\n    CPU: foo_out\n",
        ),
        "broken native": (f"broken native {NAME}.yaml", f"- func: {evil}\n- {evil}: x\n"),
        "program": (
            f"{NAME}.py",
            "import sys\nfrom dispatchlab import Lab, Library, operator, tensor\nlab = Lab()\n"
            "with Library('test', 'FRAGMENT', dispatcher=lab.dispatcher) as library:\n"
            "    library.define('foo(Tensor x) -> Tensor')\n"
            f"    library.impl('foo', lambda x: x, 'CPU', debug={EVIL!r})\n"
            "    operator(lab.dispatcher, 'test::foo')(tensor([1.0]))\n",
        ),
    }
    found = {}
    for kind, (name, text) in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        found[kind] = str(folder / name)
    foo = replace(FOO, debug=EVIL, kernels=(kernel(K.CPU, f"{EVIL} /a/{EVIL}.cpp:1", T_T), kernel(K.Meta, EVIL)))
    gone = RecordedOperator(OperatorName("else", "gone"), kernels=(kernel(K.CUDA, EVIL),))
    for kind, operators in {
        "registry": (foo, gone),
        "other": (replace(foo, debug="", kernels=foo.kernels[:1]),),
    }.items():
        found[kind] = str(folder / f"{kind} {NAME}.dlreg")
        save_registry(registry_of("2.13.0", operators, FALLBACKS, (EVIL,)), found[kind])
    return found


def words_of(command: str, hostile: Mapping[str, str]) -> list[str]:
    """The words of a command line with the paths in their places, which have blanks of their own."""
    return [word.replace("|", " ").format(**hostile) for word in command.replace("n native}", "n|native}").split(" ")]
