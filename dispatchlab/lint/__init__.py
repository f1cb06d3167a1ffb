"""Lint rules for registries: they find what works today and fails later, without running an operator.

- run: `lint`, which runs rules on a registry; lint_source: on a source as a command names it;
- rule: `Rule` and its page, `Subject`, which is what rules look at, `Finding` and `LintReport`;
- dangling, shadowing, composites, backends: the rules, by family; rules: all of them, by code;
- baseline: findings that a project has accepted.
"""
