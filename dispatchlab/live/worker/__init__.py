"""The process that has torch, and the engine that drives it from outside.

- `ipc`: messages over two pipes.
- `main`: the worker process.
- `process`: a worker as its parent sees it.
- `engine`: `LiveEngine`, with sandboxes and whole explorations in a worker.
"""
