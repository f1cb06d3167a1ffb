"""The process that has torch, and the engine that drives it from outside."""
