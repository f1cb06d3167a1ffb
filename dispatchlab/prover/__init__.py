"""Explorer: find out whether the order of registrations matters on an engine, and show the shortest counterexample.

- `explore`: the entry point; choose a walk by what the engine can do.
- `protocol`: what the explorer asks of an engine.
- `result`: verdicts, counterexamples, what a scenario expects, exit codes.
- `checker`: the rules P0 to P4, the observations that they are held against, and what differs, as a unified diff.
- `driver`: run a walk to its end, whatever the end is, and conclude.
- `graph_walk`: visit every state of an engine whose state is a value; a proof.
- `covering_walk`: take every edge of an engine that cannot be forked.
- `random_walk`: sample steps where the state graph is too large.
- `all_orders`: run every order of registration with every order of release.
- `modules`: every order in which modules can be imported, each as a whole, with nothing released.
- `chains`: which registrations keep an order.
- `partition`: split registrations into independent parts, explore each, and check that they are independent.
- `neighbourhoods`: prove what meets at one operator from small sets of registrations, and check the ground for it.
- `states`: every state that registrations can reach, and the steps between them, whatever the verdict is.
- `lockstep`: drive two engines side by side and find the first step after which they differ.
- `run_sequence`: run a sequence on a sandbox or on states, and compare what two lead to.
- `shrink`: make a counterexample short.
- `limits`: which walk to take, how much of it, and its bounds; cancellation and progress.
- `prng`: random numbers that never change.
"""
