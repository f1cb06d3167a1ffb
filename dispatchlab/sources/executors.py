"""Choose where tasks run: processes of this machine, or the workers of a cluster."""

from __future__ import annotations

import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from dispatchlab._version import __version__
from dispatchlab.model.measured import installed_torch
from dispatchlab.processes.executor import TaskExecutor
from dispatchlab.processes.pool import ProcessExecutor


def executor_for(jobs: int, cluster: str | None = None) -> TaskExecutor:
    """Where tasks run.

    Args:
        jobs: how many processes of this machine.
        cluster: the address of a scheduler, whose workers run them instead.

    Raises:
        ClusterError: there is no such cluster, or its workers cannot be used.
    """
    if cluster is None:
        return ProcessExecutor(jobs)
    from dispatchlab.processes.cluster import ClusterExecutor

    return ClusterExecutor(cluster, installation)


_BUILT = "_built_version.py"  # its content is the version, which is compared by itself


@cache
def installation() -> dict[str, str]:
    """What all machines of a cluster must have alike, for their results to be alike: versions by name, and a digest.

    The digest is of the files of dispatchlab, its profiles and recorded registries among them.

    >>> from dispatchlab.sources.executors import installation
    >>> list(installation())
    ['dispatchlab', 'Python', 'PyTorch', 'files of dispatchlab']
    """
    return {
        "dispatchlab": __version__,
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "PyTorch": installed_torch() or "",
        "files of dispatchlab": _digest(Path(__file__).parents[1]),
    }


def _digest(root: Path) -> str:
    found = sha256()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and path.suffix != ".pyc" and path.name != _BUILT:
            found.update(f"{name} {path.stat().st_size}\n".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:12]
