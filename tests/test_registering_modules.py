"""The modules of a package that register when they are imported, found in its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.questions.check.registering_modules import registering_modules, what_to_name

BODIES = {
    "decorated": "import torch\n@torch.library.custom_op('p::a', mutates_args=())\ndef a(x): ...\n",
    "renamed": "from torch.library import custom_op as op\n@op('p::b', mutates_args=())\ndef b(x): ...\n",
    "library": "from torch import library as t\ntry:\n    lib = t.Library('p', 'FRAGMENT')\nfinally:\n    pass\n",
    "loads": "import torch\ntorch.ops.load_library('p.so')\n",
    "maker": "import torch\ndef make(name):\n    return torch.library.custom_op(name, mutates_args=())\n",
    "alias": "import torch\nif hasattr(torch, 'library'):\n    kernel = torch.library.register_kernel\n",
    "either": (
        "import torch\nif hasattr(torch.library, 'custom_op'):\n    op = torch.library.custom_op\n"
        "else:\n    op = print\n@op('p::e', mutates_args=())\ndef e(x): ...\n"
    ),
    "looked_up": (
        "import torch\ndef register():\n    custom_op = getattr(torch.library, 'custom_op')\n"
        "    return custom_op('p::f', mutates_args=())\nf = register()\n"
    ),
    "deep.ops": (
        "import torch\ndef library(name):\n    return torch.library.Library(name, 'DEF')\n"
        "class Op:\n    @staticmethod\n    def register(library: torch.library.Library | None = None): ...\n"
        "def is_defined(name): ...\n"
    ),
    "deep.__init__": "from .ops import *\n",
    "deep.lib": (
        "from . import library\nimport torch\nOWN = torch.library.Library('r', 'DEF')\nLIB = library('q')\n"
        "def meta(name):\n    OWN.impl(name, 'Meta')\n"
    ),
    "by_class": "from .deep import Op\n@Op.register()\nclass Mine(Op): ...\n",
    "by_lib": "from .deep.lib import LIB\nLIB.define('a() -> ()')\n",
    "by_meta": "from .deep.lib import meta\nmeta('a')\n",
    "asks": "from .deep import is_defined\nis_defined('a')\n",
    "below.by_maker": "from ..maker import make\n@make('p::c')\ndef c(x): ...\n",
    "below.by_alias": "from ..alias import kernel\n@kernel('p::c', 'cpu')\ndef c(x): ...\n",
    "in_class": "import torch\nclass Ops:\n    lib = torch.library.Library('p', 'FRAGMENT')\n",
    "lazy": "import torch\ndef register():\n    torch.library.define('p::d', '(Tensor x) -> Tensor')\n",
    "typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.library import Library\n",
    "script": "import torch\nif __name__ == '__main__':\n    torch.library.Library('p', 'DEF')\n",
    "words": "'''torch.library.custom_op is not called here'''\nprint('load_library')\n",
    "tests.test_p": "import torch\nlib = torch.library.Library('p', 'FRAGMENT')\n",
    "broken": "import torch\ntorch.library.Library('p', 'DEF'\n",
}


def test_what_a_body_calls_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in {"__init__": "", "below.__init__": "", **BODIES}.items():
        file = tmp_path / "planted_package" / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = registering_modules("planted_package")
    names = (
        "below.by_alias",
        "below.by_maker",
        "by_class",
        "by_lib",
        "by_meta",
        "decorated",
        "deep.lib",
        "either",
        "in_class",
        "library",
        "loads",
        "looked_up",
        "renamed",
    )
    assert found == tuple(f"planted_package.{name}" for name in names)
    assert registering_modules("planted_package.below") == found[:2]
    assert registering_modules("there_is_no_such_package") == ()


def test_a_lone_module_is_not_said_to_call_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone.py").write_text(BODIES["tests.test_p"], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert what_to_name("lone") == "the import of lone defines no operator"
