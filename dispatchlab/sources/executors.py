"""Choose where tasks run: processes of this machine, or the workers of a cluster."""

from __future__ import annotations

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
    from dispatchlab.sources.installation import installation

    return ClusterExecutor(cluster, installation)
