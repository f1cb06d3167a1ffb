"""Lint rules for registries: they find what works today and fails later, without running an operator.

- run: `lint`, which runs rules on a registry, or on a source as a command names it;
- rule: `Rule` and its page, `Subject`, which is what rules look at, `Finding`, its groups and `LintReport`;
- rules: all rules by code, and the choice among them;
- definition_rules, composite_rules, kernel_rules, order_rules, backend_rules: the rules, by family;
- provenance: the calls that registered an operator;
- checkout: the files of a checkout, found by the paths of debug texts;
- baseline: findings that a project has accepted;
- blocks: findings as blocks, and as JSON; sarif: for forges and editors.
"""
