"""Rules for registries: what works today and will hurt somebody, found without running an operator.

- finding.py: `Finding` and `LintReport`; rule.py: `Rule`, its page, and `Subject`, which is what rules look at;
- dangling.py, shadowing.py, composites.py, backends.py: the rules, by family; rules.py: all of them, by code;
- run.py: `lint`; baseline.py: findings that a project has accepted.
"""
