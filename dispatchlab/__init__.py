"""dispatchlab: the laboratory for operator dispatchers."""

__version__ = "0.1.0"
