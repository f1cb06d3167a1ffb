"""Lint rules for registries: they find what works today and fails later, without running an operator.

- run: `lint`, which runs rules on a registry, or on a source as a command names it;
- rule: `Rule` and its page, `Subject`, which is what rules look at, `Finding` and `LintReport`;
- rules: the rules, by family, and all of them by code;
- baseline: findings that a project has accepted.
"""
