"""HTML for reports to keep, which are one file each, and for fragments in notebooks.

A report needs nothing but itself: no network, no font, no library; it can be read without scripts, which sort, filter
and answer to the mouse. See Note [One place that escapes] in elements.py.

- `backend`: blocks as HTML: a report as a document of its own, or a fragment of one.
- `elements`: elements of HTML. Every text is escaped here, and markup is a type of its own.
- `notebook`: what notebooks show of a value: a fragment with looks of its own, for light and dark pages, without
  scripts.
"""
