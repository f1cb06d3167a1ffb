"""`dispatchlab explain`: which kernel a call would run, and why, without running it."""

from __future__ import annotations

from shlex import join
from typing import Any

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import (
    LIVE,
    OPERATOR,
    ROW,
    after_option,
    engine_option,
    format_option,
    from_option,
    named_subject,
    semantics_option,
)
from dispatchlab.commands.output import Format, exit_with, note, show_view

IN_MODE = ("cpu", "cuda", "meta", "requires_grad", "grad")
"""The words that describe a tensor of a call under a mode, which is made on this machine."""

MODES = ("fake", "make_fx", "aot", "compile", "export", "functionalize", "vmap", "grad", "autocast", "dtensor")
"""The modes that a call can be made under."""


@click.command(cls=Command)
@click.argument("operator", metavar="OP", type=OPERATOR)
@click.argument("arguments", metavar="[ARG...]", nargs=-1)
@click.option(
    "--exclude", metavar="KEY", multiple=True, type=ROW, help="Exclude KEY, as a guard does; may be repeated."
)
@click.option(
    "--include", metavar="KEY", multiple=True, type=ROW, help="Include KEY, as a guard does; may be repeated."
)
@click.option(
    "--mode",
    metavar="MODE",
    type=click.Choice(MODES),
    help=f"Make the call on the installed PyTorch under MODE, and show the result: {', '.join(MODES)}.",
)
@click.option("--inference-mode", is_flag=True, help="Explain the call in inference mode.")
@from_option
@after_option
@engine_option("Engine whose dispatcher to explain.")
@semantics_option
@format_option()
def explain(
    *,
    operator: str,
    arguments: tuple[str, ...],
    source: str | None,
    format: Format | None,
    mode: str | None,
    **options: Any,
) -> None:
    """Show which kernel a call of OP runs and why, without running the kernel. With --mode, makes the call.

    Shows the key sets, the keys that are left out, the keys that remain, the kernel, and the kernels that lost,
    each with the reason. Then shows the same for each redispatch, down to a backend kernel.

    ARG describes an argument: SPEC by position, or NAME=SPEC. Tensor arguments without an ARG are on the CPU. SPEC is a
    device (cpu, cuda, meta, ...), a layout (sparse, csr, mkldnn, nested, ...), and any of quantized, requires_grad or
    grad, conj, neg, zero, inference, python (a subclass that intercepts calls). Separate these words by spaces or +:
    cpu+grad, "cuda sparse". For autocast, vmap and fake, see --mode. `none` means no tensor, and
    'list:cpu, cuda' a list of tensors. The key of a backend (PrivateUse1, SparseCUDA) means a tensor of that
    backend; any other key (Functionalize) is added to the keys of the tensor. For a factory, describe the result
    with device=, layout= and dtype=.

    ARG may also be a number, a bool, a list or a string in Python syntax (1, 2.5, True, '[1, 2]', '"mean"').
    For a name without overload, explains the first overload that accepts the arguments, as in torch.ops.

    \b
    Examples:
      dispatchlab explain aten::add.Tensor cpu+grad cpu
      dispatchlab explain aten::add cpu 1 alpha=2
      dispatchlab explain aten::randn device=cuda
      dispatchlab explain aten::cat "list:cpu, meta" --exclude Autograd
      dispatchlab explain test::foo cpu --from scenario.yaml --after '+0 +2'
      dispatchlab explain my::op cpu --from my_package
      dispatchlab explain my::op --mode compile --from my_package
    """
    if "::" not in operator and (name := next((text for text in arguments if "::" in text and text[0].isalpha()), "")):
        right = join([name, operator, *(text for text in arguments if text != name)])
        raise click.UsageError(f"OP comes first, and then its arguments: dispatchlab explain {right}")
    if mode is not None:
        _check_for_mode(arguments, options)
    source, imports = named_subject(source, [operator])
    if mode is not None:
        if source not in (None, LIVE):
            raise click.UsageError(
                f"--mode makes the call on the installed PyTorch, and {source} is no package that can be imported "
                "into it: leave out --from, or install the package"
            )
        from dispatchlab.questions.why.under_mode import call_under_mode, mode_view

        call = call_under_mode(operator, mode, arguments, imports)
        show_view(format, mode_view(call))
        exit_with(0 if call.answer is None else 1)
    from dispatchlab.questions.dump.operator_text import refused_step_text
    from dispatchlab.questions.explain.blocks import explanation_notes, explanation_view
    from dispatchlab.questions.explain.explain_operator import explain_operator

    explained = explain_operator(operator, arguments, source=source, imports=imports, report=note, **options)
    for refused in explained.inspection.refused:
        note(refused_step_text(*refused))
    for text in explanation_notes(explained):
        note(text)
    show_view(format, explanation_view(explained))


def _check_for_mode(arguments: tuple[str, ...], options: dict[str, Any]) -> None:
    """Refuse what a call under a mode would ignore."""
    for name in ("include", "exclude", "inference_mode", "semantics", "after"):
        if options[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} cannot be combined with --mode: leave one of them out")
    for text in arguments:
        if (
            text[:1].isalpha()
            and text not in ("True", "False", "None")
            and {*text.replace("+", " ").split()} - {*IN_MODE}
        ):
            words = ", ".join(IN_MODE)
            raise click.UsageError(
                f"--mode makes the call on this machine, so it cannot use the argument {text!r}: expected a value, or "
                f"some of {words}"
            )
