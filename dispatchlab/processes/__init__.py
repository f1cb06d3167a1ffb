"""Processes of our own: they end with the process that started them, in time, and within memory.

- `parent`: a worker process ends when its parent has ended, however that ended.
- `executor`: where tasks run, in the shape of `concurrent.futures.Executor`.
- `pool`: an executor whose tasks run in processes of this machine.
- `cluster`: an executor whose tasks run on the workers of a Dask cluster.
- `cluster_task`: what runs on a worker of a cluster.
- `plain_data`: plain data as bytes, which run nothing when they are read.
- `task_process`: a process that runs one task at a time, so that a crash is blamed on its task.
- `own_command`: what a command of this dispatchlab prints, in a process of its own.
- `deadline`: a deadline that interrupts whatever is running.
- `machine`: how many processes are of use, how much memory this one uses, and how much it may use.
"""
