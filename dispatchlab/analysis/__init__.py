"""The room for the proof: what needs both an engine and a walk. Commands and the pytest plugin show what it finds."""
