"""HTML for reports, each one file, and for fragments in notebooks.

A report needs no other file: no network, no font, no library. It can be read without scripts; scripts sort, filter
and react to the mouse. See Note [One place that escapes] in elements.py.

- `backend`: blocks as HTML: a report as a whole document, or a fragment.
- `elements`: elements of HTML. This module escapes every text, and markup has its own type.
- `notebook`: the output of values in notebooks: a fragment with its own styles, for light and dark pages, without
  scripts.
"""
