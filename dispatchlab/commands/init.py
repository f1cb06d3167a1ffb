"""`dispatchlab init`: the first files for the checkout of a package."""

from __future__ import annotations

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import reach_checkout
from dispatchlab.commands.output import exit_with, note, out


@click.command(cls=Command)
@click.argument("module", metavar="[MODULE]", required=False)
@click.option(
    "--ci",
    type=click.Choice(["github", "sarif", "none"]),
    help="Write a workflow for GitHub, which shows findings as annotations (github) or uploads them (sarif, needs a "
    "permission). Default: github if the checkout has a .github folder, else none.",
)
def init(*, module: str | None, ci: str | None) -> None:
    """Set up dispatchlab in the checkout that contains the current folder.

    Imports MODULE in a new process and records its registrations as a first scenario, with a golden file, in the folder
    of your scenarios, or else in tests/dispatch-scenarios (dispatch-scenarios without a folder tests). Adds the options
    to pytest's configuration, and writes a CI workflow. Keeps existing files. Default: the MODULE with the name of the
    project. Without PyTorch, or if the package registers nothing, the first scenario is an example.

    Exit codes: 0; 1 if the order of the registrations matters. Then the test of the scenario also fails, until
    its file contains `expect: order-dependent`.

    \b
    Examples:
      dispatchlab init
      dispatchlab init my_package.ops --ci github
    """
    from pathlib import Path

    from dispatchlab.questions.order.golden import golden
    from dispatchlab.questions.setup import first_files
    from dispatchlab.questions.setup.checkout import find_checkout
    from dispatchlab.questions.setup.first_files import plan_text

    reach_checkout()
    checkout = find_checkout(Path.cwd())
    planned = first_files.plan(
        checkout,
        module,
        record=first_files.record_module,
        golden=golden,
        ci=ci or ("github" if (checkout.root / ".github").is_dir() else "none"),
    )
    planned.write()
    out(plan_text(planned))
    for text in planned.notes:
        note(f"note: {text}")
    if ci is None and not (checkout.root / ".github").is_dir():
        note("note: no CI workflow, since there is no .github folder: dispatchlab init --ci github writes one")
    exit_with(0 if planned.dependent is None else 1)
