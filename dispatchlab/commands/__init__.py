"""The commands, a module each with its options, its help and a few lines: parse, call, print, exit.

`cli` imports a module when its command is asked for; each imports what it calls when it runs.

- `certify`: certificates for every operator of a registry.
- `check`: all questions about a package.
- `codegen`: generated structured kernels, and the call stack of one call.
- `coverage`: what a backend can run.
- `defects`: the known defects that the installed PyTorch has.
- `demo`: a defect of order on a small example.
- `diff`: what differs between two registries.
- `doctor`: what works with the installed PyTorch.
- `dump`: operators with their tables, listings and counts.
- `explain`: which kernel a call would run.
- `explore`: the application in a terminal.
- `imports`: what depends on the order of imports.
- `init`: the first files for the checkout of a package.
- `lint`: rules, with a baseline.
- `permute`: explorations of scenarios.
- `profile`: the dispatcher of the installed PyTorch, measured.
- `record`: what packages register, as a scenario or a registry file.
- `schema`: the JSON Schema of scenario files.
- `trace`: the calls of a program.
- `options`: options that several commands share, and the values that a shell completes.
- `output`: where results, notes and files go; formats, colour and progress.
- `overview`: the commands with a line each, and the help of the whole command line, which needs no other module.
"""
