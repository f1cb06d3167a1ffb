"""What each step changes: a sequence that is changed step by step, for `explore` and notebooks.

- `session`: an interactive session: a history of steps on an engine, what is seen after each, and which steps are
  possible next.
- `session_subject`: what an interactive session is about: the registrations of a scenario, or those of one operator of
  a registry.
"""
