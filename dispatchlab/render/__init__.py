"""Reports, operators and registries as plain text, as JSON, as pictures, and for a terminal with rich.

Plain text is the contract; rich is imported when a terminal is drawn on.

- text, operator_text: reports and operators as plain text, which golden files hold;
- rich_report, rich_operator, rich_explain, rich_trace: reports, operators, explanations and recorded calls for a
  terminal; page: lines in which no word is broken; styles: the colours of all views; rich_view: the console;
- source_locations: source locations, short and as links; key_names: many dispatch keys in few words;
- json_view: reports and operators as JSON; as_json: how any value becomes JSON, and its version;
- explain, trace, trace_summary: explanations, recorded calls and what ran in them, as text and as JSON;
- chrome_trace: recorded calls for Perfetto;
- golden: the golden file of a scenario; demo, doctor, init: what these commands show;
- certify, coverage, lint, readiness: what these commands show, in every form; sarif: findings of lint for forges and
  editors;
- generated_registrations: what is generated for native functions, as text and as JSON;
- walk: the frames of a call, as text and as JSON; rich_walk: for a terminal;
- registry, across_versions, import_orders, record: listings and comparisons; upgrade: what an upgrade means, in every
  form;
- html: reports to keep and what notebooks show, a package with a map of its own;
- python_layer, python_layer_json: what Python registers, as text and for a terminal, and as JSON;
- state_graph: the state graph as DOT and as SVG, a package with a map of its own;
- progress: how far explorations are, while they run;
- formatting: numbers and a user's texts, short and free of control characters.
"""
