"""Compare how fast commits walk a state graph: edges a second of CPU time, in turns on this machine.

    python tools/edges_per_second.py HEAD~1 HEAD

Each commit is unpacked to a folder of its own and walks the graph of one operator with 16 registrations, 1,048,576
edges, in a process of its own. `.` is the working tree. Noise comes to all of them, since they take turns.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WALK = """
import inspect, resource, time
from benchmarks.workloads import FOO, sixteen
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
registrations = sixteen()[:COUNT]
started = time.process_time()
found = explore(LabEngine(), registrations, [FOO], WalkOptions(walk="graph"))
took = time.process_time() - started
assert (found.verdict, found.edges) == ("order-independent", COUNT << COUNT), found
print(found.edges / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def unpacked(revision: str, under: Path) -> Path:
    """The folder with a commit's files."""
    if revision == ".":
        return ROOT
    folder = under / revision.replace("/", "_")
    data = subprocess.run(["git", "archive", revision, "dispatchlab", "benchmarks"], cwd=ROOT, check=True, stdout=-1)
    with tarfile.open(fileobj=io.BytesIO(data.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def measured(folder: Path, count: int) -> tuple[float, float]:
    """Edges a second, and the memory of the process in MB."""
    code = WALK.replace("COUNT", str(count))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, check=True, stdout=-1, text=True)
    edges, memory = done.stdout.split()
    return float(edges), float(memory)


def main() -> None:
    """Print a line for each commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revisions", nargs="*", default=["HEAD", "."], metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--registrations", type=int, default=16)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = [unpacked(revision, Path(temporary)) for revision in asked.revisions]
        rounds = [[measured(folder, asked.registrations) for folder in folders] for _ in range(asked.rounds)]
    first = max(edges for edges, _ in (row[0] for row in rounds))
    for at, revision in enumerate(asked.revisions):
        best, memory = max(row[at] for row in rounds)
        shown = ", ".join(f"{row[at][0]:,.0f}" for row in rounds)
        print(f"{revision:<20} {best:>9,.0f} edges/s  {best / first:.2f}  {memory:.0f} MB  ({shown})")  # noqa: T201


if __name__ == "__main__":
    main()
