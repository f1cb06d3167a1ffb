"""What is the same for the options of every command: global options, and values that no option takes.

`--no-color`, `--no-pager`, `--no-measure` and `--version` are accepted before the command and after it. No option takes
an empty text, which a shell makes of a variable that is not set, and no number is infinite or no number at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import isfinite
from typing import Any, TypeAlias

import click

from dispatchlab.commands.help import print_version, short_help_option
from dispatchlab.commands.options import LIVE, SOURCE, given, packages_named, reach_checkout, refuse
from dispatchlab.commands.output import NO_PAGER, forbid_measuring

_Callback: TypeAlias = Callable[[click.Context, click.Parameter, Any], Any]


def as_every_command(command: click.Command) -> click.Command:
    """The command with what every command has; harmless for one that has it."""
    if any(param.name == "no_color" for param in command.params):
        return command
    for param in command.params:
        if param.type is not click.UNPROCESSED:
            param.callback = _checked(param.callback)
    if {"imports", "packages"} & {param.name for param in command.params}:
        command.callback = _with_packages(command.callback)
    short_help_option(command)
    for name, callback, what in (
        ("--no-color", _without_color, "Print without colours."),
        ("--no-pager", _without_pager, "Print long output without a pager."),
        ("--no-measure", _without_measuring, "Measure nothing of an unknown PyTorch."),
        ("--version", print_version, "Show the version and exit."),
    ):
        hidden = {
            "is_flag": True,
            "expose_value": False,
            "hidden": True,
            "is_eager": name in ("--version", "--no-measure"),
        }
        command.params.append(click.Option([name], callback=callback, help=what, **hidden))
    return command


def _without_color(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked:
        context.obj = False


def _without_pager(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked:
        context.meta[NO_PAGER] = True


def _without_measuring(context: click.Context, param: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked:
        forbid_measuring()


_MOST = 1_000_000_000
"""The largest number with a fraction that an option takes; clocks and timers overflow at ten times as many seconds."""


def _checked(callback: _Callback | None) -> _Callback:
    """The callback of a parameter, after its value was checked."""

    def check(context: click.Context, param: click.Parameter, value: Any) -> Any:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str) and not one.strip():
                raise click.BadParameter("expected a value but found an empty text: leave it out", context, param)
            if isinstance(one, float) and not isfinite(one):
                raise click.BadParameter(f"expected a number but found {one}", context, param)
            if isinstance(one, float) and one > _MOST:
                raise click.BadParameter(f"expected {_MOST:,} at most but found {one:g}", context, param)
        return value if callback is None else callback(context, param, value)

    return check


def _with_packages(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """The callback of a command that imports packages: those that stand in place of a source are among them.

    They are found in the checkout, too. Where a source may be left out, it is `live`, but for `explore`, which has an
    engine of its own for what packages register. A time limit for imports is
    refused where there are none.
    """
    assert callback is not None

    @wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        context = click.get_current_context()
        if "imports" in options:
            named = (name for names in packages_named(context).values() for name in names)
            options["imports"] = tuple(dict.fromkeys((*options["imports"], *named)))
            if options["imports"] and "engine" not in given(context) and context.command.name != "explore":
                live = {param.name: LIVE for param in context.command.params if param.type is SOURCE}
                options |= {name: live[name] for name in ("source", "registry") if name in live and not options[name]}
        if options.get("imports") or options.get("packages") or options.get("checked"):
            reach_checkout(context)
        elif "imports" in options:
            reason = "limits the time of imports: name a package, or leave it out"
            refuse(context, ("import_timeout",), reason)
        return callback(*arguments, **options)

    return run
