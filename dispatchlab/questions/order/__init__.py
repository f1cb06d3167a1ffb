"""Whether order matters: a scenario explored on an engine, with its counterexample, its report and its golden file.

- `always`: a predicate in Python that must hold in every state.
- `blocks`: the report on a scenario as blocks: on a terminal the verdict, what it stands for, what differs and why.
- `conformance`: conformance: hold the live engine to its model step by step.
- `counterexamples`: counterexamples after they were found: explained by a model, cut down, kept in a file.
- `golden`: the golden file of a scenario: what was found about it, and its operators with all in force.
- `outcomes`: the outcomes of scenarios as `permute` shows them: each by itself as it comes, and all of them as a page.
- `reasons`: the reason of a verdict: which registrations meet, what decides, and the change that removes it.
- `report`: the report on one scenario: what was explored, what was found, and whether that is what the scenario
  expects.
- `report_text`: the words of a report: steps, counts, and the line about several scenarios.
- `run_scenario`: run a scenario, with all that its report shows, or several, one after the other.
- `snapshots`: each state that registrations and releases lead to, once, with what the step changed.
- `snapshots_blocks`: these as blocks: plain text for golden files, lines for a terminal, sections of a page.
- `stand_ins`: stand-ins for what PyTorch cannot register: boxed kernels for those of C++, its own classes for those of
  packages.
"""
