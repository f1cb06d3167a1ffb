"""The common parts of all views: lines, colours and progress for a terminal, JSON, HTML.

Plain text is the contract; rich is imported when a terminal is drawn on. The views of a question lie in its room in
`questions`.

- `as_json`: JSON for programs: values become objects field by field, here and nowhere else.
- `blocks`: the parts of a result, as values that every format shows.
- `console`: the console that every view for a terminal is drawn on.
- `formatting`: format numbers and durations for output.
- `markdown`: blocks as Markdown, as GitHub shows it in pull requests: a heading for each part, and its text.
- `progress`: progress of explorations while they run: bars on a terminal, a line a second elsewhere.
- `source_locations`: source locations as people read them: without the folder of a build, short enough for a line, and
  as a link.
- `styles`: the colours of every view: one for each kind of reason, verdict and role, by names that follow the theme in
  use.
- `terminal`: blocks for a terminal: lines break only between words, source locations are links, moods are colours.
- `text`: blocks as plain text, without wrapped lines.
- `view`: a result with all formats that it can be shown in: JSON of its value, everything else of blocks.
- `html`: HTML for reports, each one file, and for fragments in notebooks.
"""
