"""An interactive sequence of steps, and the changes of each step, for `explore` and notebooks.

- `session`: an interactive session: a history of steps on an engine, the observation after each, and possible next
  steps.
- `session_subject`: the subject of a session: the registrations of a scenario, or of one operator of a registry.
"""
