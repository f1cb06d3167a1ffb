"""Lint rules for registries: they find registrations that work today and may fail later, without running operators.

- run: `lint`, which runs rules on a registry, or on a source of a command;
- rule: `Rule` and its page, `Subject`, the input of rules, `Finding`, its groups and `LintReport`;
- rules: all rules by code, and their selection;
- definition_rules, composite_rules, kernel_rules, order_rules, backend_rules: the rules, by family;
- provenance: the calls that registered an operator;
- checkout: the files of a checkout, found by the paths of debug texts;
- baseline: findings that a project has accepted;
- blocks: findings as blocks, and as JSON; sarif: for forges and editors.
"""
