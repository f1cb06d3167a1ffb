"""Explorer: find out whether the order of registrations matters on an engine, and return the shortest counterexample.

- `explore`: the entry point; choose a walk by what the engine can do.
- `protocol`: the methods that the explorer needs from an engine.
- `result`: verdicts, counterexamples, expectations of scenarios, exit codes.
- `checker`: the rules P0 to P4, the observations that they check, and differences as a unified diff.
- `driver`: run a walk to its end, handle every kind of end, and return the result.
- `graph_walk`: visit every state of an engine whose state is a value; a proof.
- `covering_walk`: take every edge of an engine that cannot be forked.
- `random_walk`: sample steps where the state graph is too large.
- `all_orders`: run every order of registration with every order of release.
- `modules`: every order of imports of whole modules, without releases.
- `chains`: which registrations keep an order.
- `partition`: split registrations into independent parts, explore each, and check that they are independent.
- `neighbourhoods`: prove registrations of one operator from small sets of registrations, and check the assumptions.
- `states`: every state that registrations can reach, and the steps between them, for any verdict.
- `lockstep`: drive two engines side by side and find the first step after which they differ.
- `run_sequence`: run a sequence on a sandbox or on states, and compare the results of two sequences.
- `shrink`: make a counterexample short.
- `limits`: the options of a walk, and its bounds; cancellation and progress.
- `prng`: random numbers that never change.
"""
