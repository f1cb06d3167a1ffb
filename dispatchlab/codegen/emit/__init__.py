"""Python source, scenarios and an index for structured groups."""
