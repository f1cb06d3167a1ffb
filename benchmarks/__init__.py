"""Speed and memory, run by asv: `asv run --python=same`, once `asv machine --yes` has been called."""
