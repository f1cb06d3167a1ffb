"""Ten thousand damaged registry files in a process that may have one gigabyte, and the largest that are accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_LIMITED = """
import random, resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from tests.registry_cases import *
from dispatchlab.registry.file import registry_bytes
"""

_DAMAGED = """
data, registry, counts = registry_bytes(part()), part(), [0, 0]
for seed in range(5_000):
    found = outcome(damaged(data, random.Random(seed)))
    assert isinstance(found, str) or found == registry, seed
    counts[not isinstance(found, str)] += 1
print(*counts)
"""

_MADE_UP = """
counts = [0, 0]
for registry in (part(), SMALL):
    data = registry_bytes(registry)
    for seed in range(2_500):
        found = outcome(made_up(data, random.Random(seed)))
        assert isinstance(found, str) or outcome(registry_bytes(found)) == found, seed
        counts[not isinstance(found, str)] += 1
print(*counts)
"""

_LARGEST = """
from dispatchlab.registry.file_format import MAX_DIRECTORY, MAX_BLOCK, MAX_KERNELS, MAX_OPERATORS, MAX_SOURCE
def fields(**changed):
    return {"torch": "", "imports": [], "operators": [], "kernels": 0, "per_block": 64, "sources": [""], "inferred": [],
            "tags": [], "fallbacks": [], "blocks": []} | changed
found = []
for unit in ("[],", "{},", "[[]],", "9e9,", '"ab",'):
    found.append(outcome(with_directory(("[" + unit * (MAX_DIRECTORY // len(unit) - 2) + "0]").encode())))
names = sorted(f"a::{n:x}" for n in range(MAX_OPERATORS))
rows = [[None, 0, -1, -1, [], []]] * len(names)
blocks = [rows[at : at + 64] for at in range(0, len(rows), 64)]
many = outcome(put_together(fields(operators=names, blocks=[[0, 0, 0]] * len(blocks)), blocks))
found.append(many if isinstance(many, str) else len(many))
del many, rows, blocks
names = [f"a::{n:x}" for n in range(9)]
kernels = [[49, 0, n, -1, 1] for n in range(MAX_KERNELS // 9)]
rows = [[None, 0, -1, -1, [], kernels]] * 9
size = dict(per_block=1, sources=["s" * MAX_SOURCE], blocks=[[0, 0, 0]] * 9, kernels=9 * len(kernels))
wide = outcome(put_together(fields(operators=names, **size), [[row] for row in rows]))
found.append(wide if isinstance(wide, str) else wide.kernel_count)
for each in found:
    print(each)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 < 1024)
"""


def _run(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED + script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_ten_thousand_damaged_files_are_refused_or_equal() -> None:
    refused, equal = map(int, _run(_DAMAGED)[0].split())
    assert refused + equal == 5_000
    assert refused > 4_900
    refused, read = map(int, _run(_MADE_UP)[0].split())
    assert refused + read == 5_000
    assert 500 < read < 4_500


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_the_largest_files_that_pass_the_bounds_need_less_than_a_gigabyte() -> None:
    *refused, many, wide, within = _run(_LARGEST)
    assert refused == ["the registry: it is damaged: its directory is not a table; get a new copy"] * 5
    assert (many, wide, within) == ("100000", "399996", "True")
