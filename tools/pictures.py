"""Draw the pictures of the concepts: `python tools/pictures.py` writes docs/pictures/concepts/*.svg with Graphviz.

Each picture is a graph in the language of Graphviz, below. Its colours are classes, so that it follows the light or
dark scheme of the page that it stands in. A test compares the sources with those that the files were drawn from.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "concepts"

_STYLE = """\
.dl{--dl-ink:#1d2230;--dl-soft:#5d6475;--dl-line:#7a8194;--dl-box:#eef1f8;
--dl-good:#d3efd9;--dl-bad:#fbd9d2;--dl-mark:#fdf0c0}
@media (prefers-color-scheme:dark){.dl{--dl-ink:#e6e9f2;--dl-soft:#a9b0c2;--dl-line:#8890a6;--dl-box:#2b3042;
--dl-good:#1f4a2e;--dl-bad:#5f2a22;--dl-mark:#4f4419}}
.dl text{fill:var(--dl-ink)}
.dl .node path,.dl .node polygon,.dl .node ellipse{fill:var(--dl-box);stroke:var(--dl-line)}
.dl .edge path{stroke:var(--dl-line)}
.dl .edge polygon{fill:var(--dl-line);stroke:var(--dl-line)}
.dl .edge text,.dl .soft text{fill:var(--dl-soft)}
.dl .cluster path,.dl .cluster polygon{fill:none;stroke:var(--dl-line);stroke-dasharray:4 3}
.dl .good path,.dl .good polygon,.dl .good ellipse{fill:var(--dl-good)}
.dl .bad path,.dl .bad polygon,.dl .bad ellipse{fill:var(--dl-bad)}
.dl .mark path,.dl .mark polygon,.dl .mark ellipse{fill:var(--dl-mark)}
.dl .bare path,.dl .bare polygon{fill:none;stroke:none}
.dl .edge.good path{fill:none;stroke:#2f9e54;stroke-width:2}
.dl .edge.good polygon{fill:#2f9e54;stroke:#2f9e54}
.dl .edge.bad path{fill:none;stroke:#d9503a;stroke-width:2}
.dl .edge.bad polygon{fill:#d9503a;stroke:#d9503a}
"""

_HEAD = """\
  graph [bgcolor="transparent", fontname="Helvetica", fontsize=13, nodesep=0.3, ranksep=0.45, pad=0.1]
  node [fontname="Helvetica", fontsize=13, shape=box, style="rounded,filled", margin="0.14,0.08", height=0.3]
  edge [fontname="Helvetica", fontsize=12, arrowsize=0.7]
"""

PICTURES = {
    "orders": """
  rankdir=LR
  start [label="the same\\nthree registrations", class=mark]
  a1 [label="def demo::scale"]; a2 [label="kernel_a\\nreturns 2 * x"]; a3 [label="kernel_b\\nreturns 3 * x"]
  b1 [label="def demo::scale"]; b2 [label="kernel_b\\nreturns 3 * x"]; b3 [label="kernel_a\\nreturns 2 * x"]
  a4 [label="scale(1.0) = 2.0", class=bad]; b4 [label="scale(1.0) = 3.0", class=bad]
  same [label="every dump and table:\\nequal to the character", class=good]
  start -> a1 [label="one order"]; a1 -> a2 -> a3 -> a4
  start -> b1 [label="another order"]; b1 -> b2 -> b3 -> b4
  a3 -> same [style=dashed]; b3 -> same [style=dashed]
""",
    "call": """
  rankdir=TB; ranksep=0.35
  call [label="mul(x, y)\\nx needs gradients", class=mark]
  set [label="{AutogradCPU, ADInplaceOrView, CPU}\\nof the arguments, this thread\\nand the operator"]
  autograd [label="slot AutogradCPU\\nthe autograd kernel"]
  inplace [label="slot ADInplaceOrView\\na fallthrough: skipped", class=soft]
  cpu [label="slot CPU\\nthe kernel that computes", class=good]
  call -> set [label="key set"]
  set -> autograd [label="highest key"]
  autograd -> inplace [label="redispatches", style=dashed]
  inplace -> cpu [style=dashed]
""",
    "table": """
  rankdir=LR; nodesep=0.18
  subgraph cluster_registered { label="registered"
    cpu [label="CPU: fn_cpu"]; math [label="CompositeImplicitAutograd: fn_math"] }
  subgraph cluster_table { label="dispatch table: one slot for each key"
    s1 [label="CPU  =  fn_cpu", class=good]; s2 [label="CUDA  =  fn_math", class=good]
    s3 [label="AutogradCUDA  =  fn_math", class=good]
    s4 [label="AutogradCPU  =  nothing, or the fallback there", class=soft] }
  cpu -> s1 [label="a kernel of the key itself"]
  math -> s2 [label="an alias key fills every\\nslot that nobody took"]
  math -> s3
  cpu -> s4 [label="takes the composite\\nfrom its autograd key", style=dashed]
""",
    "states": """
  rankdir=TB; nodesep=1.0; ranksep=0.6
  n0 [label="nothing"]
  { rank=same; n1 [label="def"]; n2 [label="CPU kernel"] }
  n12 [label="def, CPU kernel", class=good]
  edge [dir=both]
  n0 -> n1 [label=" +0 / -0"]; n1 -> n12 [label=" +1 / -1"]
  n0 -> n2 [label=" +1 / -1"]; n2 -> n12 [label=" +0 / -0"]
""",
    "violation": """
  rankdir=TB; nodesep=0.6; ranksep=0.5
  n0 [label="def"]
  n1 [label="def, kernel_a"]; n2 [label="def, kernel_b"]
  x [label="def, kernel_a, kernel_b\\ncalls run kernel_a", class=bad]
  y [label="def, kernel_b, kernel_a\\ncalls run kernel_b", class=bad]
  n0 -> n1 [label=" +1"]; n1 -> x [label=" +2", class=bad]
  n0 -> n2 [label=" +2"]; n2 -> y [label=" +1", class=bad]
  { rank=same; x; y }
  x -> y [label="the same active set,\\ndifferent states", dir=none, style=dotted, constraint=false]
""",
    "stale": """
  rankdir=LR
  event [label="a kernel is registered", class=mark]
  kernels [label="kernels of the operator\\nfn_math, fn_default"]
  shown [label="the printed table says\\nAutogradCPU = the fallback", class=good]
  slot [label="the slot in memory holds\\nAutogradCPU = fn_math", class=bad]
  call [label="a call runs fn_math", class=bad]
  event -> kernels [label="is kept"]
  event -> slot [label="refreshes some slots,\\nnot this one", style=dashed]
  kernels -> shown [label="computed anew\\nwhen it is printed"]
  slot -> call
""",
    "parts": """
  rankdir=TB
  all [label="12 registrations\\n4096 active sets", class=mark]
  p1 [label="5 of foo\\n32 sets"]; p2 [label="4 of bar\\n16 sets"]; p3 [label="3 of baz\\n8 sets"]
  done [label="56 sets stand for all 4096", class=good]
  all -> p1; all -> p2 [label=" share no part of the state"]; all -> p3
  p1 -> done; p2 -> done; p3 -> done
""",
    "engines": """
  rankdir=TB; ranksep=0.35
  file [label="scenario\\na YAML file", class=mark]; package [label="your package", class=mark]
  package -> file [label="record"]
  walk [label="the explorer\\nwalks every state"]
  file -> walk [label="permute"]
  lab [label="the lab engine\\nevery state is a value"]; live [label="the installed PyTorch\\nin a process of its own"]
  walk -> lab; walk -> live [label="--engine torch"]
  proof [label="order-independent,\\nor the shortest counterexample", class=good]
  seen [label="no violation found,\\nor a counterexample", class=good]
  lab -> proof; live -> seen
""",
}
"""The name of each picture -> its graph, without what all of them have in front."""


def source(name: str, graph: str) -> str:
    """A graph as Graphviz takes it, with what all pictures have in front."""
    return f"digraph {name} {{\n{_HEAD}{graph}}}\n"


def mark(source: str) -> str:
    """What a file says about the source that it was drawn from."""
    return hashlib.sha256((source + _STYLE).encode()).hexdigest()[:16]


def drawn(source: str) -> str:
    """A picture as a file: a comment, and an SVG that a page can hold."""
    dot = shutil.which("dot")
    if dot is None:
        sys.exit("Graphviz is not installed: there is no `dot`")
    made = subprocess.run([dot, "-Tsvg"], input=source, capture_output=True, text=True, check=True).stdout
    found = re.search(r'<svg width="(\d+)pt" height="(\d+)pt"\s*viewBox="([^"]*)".*?>(.*)</svg>', made, re.DOTALL)
    assert found is not None, made[:500]
    width, height = int(found[1]), int(found[2])
    body = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?", "", found[4], flags=re.DOTALL)
    body = re.sub(r' id="\w+"', "", body).strip()
    return (
        f"<!-- written by tools/pictures.py from {mark(source)} -->\n<!-- drawn in the page -->\n"
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dl" width="{width}" height="{height}" viewBox="{found[3]}">\n'
        f"<style>\n{_STYLE}</style>\n{body}\n</svg>\n"
    )


def write(folder: Path, sources: Mapping[str, str]) -> None:
    """Draw pictures into a folder.

    Args:
        folder: the folder.
        sources: the name of each picture -> its source.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        (folder / f"{name}.svg").write_text(drawn(text), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(FOLDER, {name: source(name, graph) for name, graph in PICTURES.items()})
