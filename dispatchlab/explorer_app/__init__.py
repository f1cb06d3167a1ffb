"""The application of `dispatchlab explore`, with textual: nothing else imports it, or textual.

What it shows is in `questions/session/session.py`, which knows nothing of it.

- `app`: the application: its panes, its keys, and what they do to the session.
- `panes`: the widgets: lists that are toggled and dragged, and what stands beside them.
- `screens`: what comes on top: the search, the file name to save under, the help.
- `texts`: what the panes show, as pure functions of moments.
- `call_text`: a typed call as argument specs.
- `open`: the application for what a command line names.
"""
