"""Results as HTML: reports to keep, which are one file each, and fragments for notebooks.

A report needs nothing but itself: no network, no font, no library; it can be read without scripts, which sort, filter
and answer to the mouse. See Note [One place that escapes] in elements.py.

- elements: elements of HTML, whose texts are escaped;
- page: a report as one document; page.css and page.js are its looks and its behaviour;
- parts: what several reports have: tables, lists of facts, verdicts, the dispatch table by kernel;
- permute_report, certify_report, lint_report, upgrade_report, coverage_report, readiness_report: the report of each
  command;
- notebook: what notebooks show of a value.
"""
