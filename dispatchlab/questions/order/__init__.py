"""Whether the order matters: explore a scenario on an engine; its counterexample, its report and its golden file.

- `always`: a predicate in Python that must hold in every state.
- `blocks`: the report on a scenario as blocks: the verdict, its scope, the differences and their cause.
- `conformance`: conformance: compare the live engine with its model, step by step.
- `counterexamples`: explain counterexamples by a model, reduce them, and save them to a file.
- `golden`: the golden file of a scenario: its findings, and its operators after all registrations.
- `outcomes`: the outcomes of scenarios as `permute` shows them: one by one, and all of them as a page.
- `reasons`: the reason of a verdict: which registrations meet, what decides, and the change that removes it.
- `report`: the report on one scenario: the exploration, the result, and whether the scenario expects the result.
- `report_text`: the words of a report: steps, counts, and the line about several scenarios.
- `run_scenario`: run one scenario, or several one after another, and make reports.
- `snapshots`: each state that registrations and releases lead to, with the changes of the step.
- `snapshots_blocks`: snapshots as blocks: plain text for golden files, lines for a terminal, sections of a page.
- `stand_ins`: stand-ins for registrations that PyTorch cannot make: boxed kernels for C++ kernels, PyTorch's classes
  for classes of packages.
"""
