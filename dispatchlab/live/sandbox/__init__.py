"""Sandboxes in the running PyTorch: fresh namespaces, what they show, and the engine that hands them out."""
