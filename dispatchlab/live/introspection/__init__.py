"""What the running PyTorch shows: dumps, tables, slots in memory, and its whole registry."""
