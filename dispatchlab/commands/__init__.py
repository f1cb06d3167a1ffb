"""The commands, a module each with its options, its help and a few lines: parse, call, print, exit.

`cli` imports a module when its command is asked for; each imports what it calls when it runs.

- `check`: all questions about a package; lint of scenarios and registries.
- `codegen`: generated structured kernels, and the call stack of one call.
- `coverage`: what a backend can run.
- `demo`: a defect of order on a small example.
- `diff`: what differs between two registries.
- `doctor`: what works with the installed PyTorch, its defects, and its dispatcher measured.
- `dump`: operators with their tables, listings and counts.
- `explain`: which kernel a call would run.
- `explore`: the application in a terminal.
- `init`: the first files for the checkout of a package.
- `permute`: explorations of scenarios, and certificates for every operator of a registry.
- `record`: what packages register, as a scenario or a registry file.
- `rule`: the page of a rule or a cause.
- `schema`: the JSON Schema of scenario files.
- `trace`: the calls of a program.
- `help`: help in two lengths.
- `options`: options that several commands share, and the values that a shell completes.
- `output`: where results, notes and files go; formats, colour and progress.
- `overview`: the commands with a line each, and the help of the whole command line, which needs no other module.
"""
