"""Rules for registries: what works today and will hurt somebody, found without running an operator.

- run: `lint`, which runs rules on a registry;
- rule: `Rule` and its page, `Subject`, which is what rules look at, `Finding` and `LintReport`;
- dangling, shadowing, composites, backends: the rules, by family; rules: all of them, by code;
- baseline: findings that a project has accepted.
"""
