"""The command line: every command in one group, and errors as exit codes. What commands do is in `commands`.

Their options are in `cli_operators`, `cli_programs` and `cli_registry`; here are those about the command line itself.
"""

from __future__ import annotations

from typing import Any

import click

from dispatchlab import __version__
from dispatchlab.cli_operators import OPERATOR_COMMANDS
from dispatchlab.cli_programs import PROGRAM_COMMANDS
from dispatchlab.cli_registry import REGISTRY_COMMANDS


class _Errors(click.Group):
    """Tells what went wrong without a traceback, with an exit code that says what kind of thing it was."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            from dispatchlab.commands.output import OutputClosed, OutputFailed, note
            from dispatchlab.errors import DispatchLabError

            if isinstance(error, OutputClosed):
                ctx.exit(141)
            if not isinstance(error, DispatchLabError):
                raise
            from dispatchlab.explore.protocol import EngineCrashed

            note(str(error))
            ctx.exit(74 if isinstance(error, OutputFailed) else 5 if isinstance(error, EngineCrashed) else 2)


@click.group(
    cls=_Errors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 as expected, 1 not as expected, 2 bad input, 3 incomplete, 4 nondeterministic, 5 crashed.",
)
@click.version_option(__version__, prog_name="dispatchlab")
@click.option("--no-color", is_flag=True, help="Print without colours, as the environment variable NO_COLOR does.")
@click.pass_context
def main(ctx: click.Context, *, no_color: bool) -> None:
    """Prove that the order of registrations does not matter, or see the shortest order that proves it does.

    \b
    Examples:
      dispatchlab permute scenarios/
      dispatchlab dump test::foo --from scenario.yaml
    """
    from dispatchlab.commands.output import tolerate_encodings

    tolerate_encodings()
    ctx.obj = not no_color


@main.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, with which editors complete and check them.

    \b
    Examples:
      dispatchlab schema > scenario.schema.json
    """
    from dispatchlab.commands.schema import print_schema

    print_schema()


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete commands, options, operators, keys and scenario files.

    \b
    Examples:
      eval "$(dispatchlab completion bash)"
      dispatchlab completion fish > ~/.config/fish/completions/dispatchlab.fish
    """
    from dispatchlab.commands.completion import script
    from dispatchlab.commands.output import out

    out(script(main, shell))


for _command in (*OPERATOR_COMMANDS, *PROGRAM_COMMANDS, *REGISTRY_COMMANDS):
    main.add_command(_command)


if __name__ == "__main__":
    main()
