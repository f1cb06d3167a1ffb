"""Ten thousand damaged registry files in a process that may have one gigabyte, and the largest that are accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import share

ROOT = Path(__file__).parents[2]

_LIMITED = """
import random, re, resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from tests.registry_cases import *
from dispatchlab.records.file import registry_bytes
"""

_DAMAGED = f"""
data, registry, counts = registry_bytes(part()), part(), [0, 0]
for seed in range({share(5_000)}):
    found = outcome(damaged(data, random.Random(seed)))
    assert isinstance(found, str) or found == registry, seed
    counts[not isinstance(found, str)] += 1
print(*counts)
"""

_MADE_UP = f"""
counts = [0, 0]
for registry in (part(), SMALL):
    data = registry_bytes(registry)
    for seed in range({share(2_500)}):
        found = outcome(made_up(data, random.Random(seed)))
        assert isinstance(found, str) or outcome(registry_bytes(found)) == found, seed
        counts[not isinstance(found, str)] += 1
print(*counts)
"""

_LARGEST = """
from dispatchlab.files.file_kinds import REGISTRY_MEMBER
from dispatchlab.records.archive import MAX_MEMBER
from dispatchlab.records.shared_rows import MAX_ENTRIES, MAX_NAMES, MAX_SOURCE, PER_BLOCK
def file(names, rows, kernels=0, source="", steps=(-1,), **changed):
    facts = {"name": "", "torch": "", "imports": [], "privateuse1": "", "kernels": kernels, "absent": [],
             "fallbacks": [], "python": None} | changed
    blocks = {f"cxx/rows-{at // PER_BLOCK}.jsonl": rows[at : at + PER_BLOCK] for at in range(0, len(rows), PER_BLOCK)}
    columns = {"sources": [0] * len(steps), "lines": list(steps)}
    return joined({REGISTRY_MEMBER: {"format": 4, "registries": [facts]},
                   "cxx/names.json": {"names": names, "sources": [source]}, "cxx/locations-0.json": columns} | blocks)
found = []
for unit in ("[],", "{},", "[[]],", "9e9,", '"ab",'):
    found.append(outcome(joined({REGISTRY_MEMBER: ("[" + unit * (MAX_MEMBER // len(unit) - 2) + "0]").encode()})))
names = sorted(f"a::{n:x}" for n in range(MAX_NAMES))
many = outcome(file(names, [[[[0, None, None, []]], [[0]], [0]]] * len(names)))
found.append(many if isinstance(many, str) else len(many))
del many
names = [f"a::{n:03}" for n in range(2 * PER_BLOCK)]
each = MAX_ENTRIES // 8
entries = [[0, None, None, []], *([n, "CPU", None, "BOXED"] for n in range(each))]
row, short = [entries, [[*range(each + 1)]], [0]], [entries[:1], [[0]], [0]]
rows = [row if n % PER_BLOCK < 4 else short for n in range(len(names))]
wide = outcome(file(names, rows, kernels=8 * each, source="s" * MAX_SOURCE, steps=[1] * each))
found.append(wide if isinstance(wide, str) else wide.kernel_count)
del wide
found.append(outcome(file(["a::b"], [[[[0] * 8, *[[]] * 2_000_000], [[0]], [0]]])))
for each in found:
    print(each)
most = re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())  # ru_maxrss counts who started this one
print(int(most[1]) < 1 << 20)
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
    assert refused + equal == share(5_000)
    assert refused > share(4_900)
    refused, read = map(int, _run(_MADE_UP)[0].split())
    assert refused + read == 2 * share(2_500)
    assert share(500) < read < share(4_500)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_the_largest_files_that_pass_the_bounds_need_less_than_a_gigabyte() -> None:
    *refused, many, wide, cut, within = _run(_LARGEST)
    assert refused == ["the registry: it is damaged: dispatchlab-registry.json is not a table; get a new copy"] * 5
    assert (many, wide, within) == ("100000", "400000", "True")
    assert cut == "the registry: it is damaged: the record of 'a::b' is wrong in its def; get a new copy"
