"""`dispatchlab explain`: which kernel a call would run, and why, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dispatchlab.commands.options import (
    OPERATOR,
    ROW,
    engine_option,
    format_option,
    from_option,
    semantics_option,
    versions_after,
    with_package,
)
from dispatchlab.commands.output import Format, note, show_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from dispatchlab.questions.explain.explain_operator import ExplainedOperator


class _WithVersions(click.Command):
    """A command whose `--across` takes the versions that follow it, and means all of them when none does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        if "--across" in args:
            at = args.index("--across")
            versions = versions_after(args)
            args[at : at + 1 + len(versions)] = [f"--across={version}" for version in versions or [_ALL]]
        return super().parse_args(ctx, args)


_ALL = "all"


@click.command(cls=_WithVersions)
@click.argument("operator", metavar="OP", type=OPERATOR)
@click.argument("arguments", metavar="[ARG...]", nargs=-1)
@click.option(
    "--exclude", metavar="KEY", multiple=True, type=ROW, help="Exclude KEY, as a guard does; may be repeated."
)
@click.option(
    "--include", metavar="KEY", multiple=True, type=ROW, help="Include KEY, as a guard does; may be repeated."
)
@click.option("--inference-mode", is_flag=True, help="Explain the call in inference mode.")
@from_option
@click.option(
    "--across",
    metavar="[VERSION...]",
    multiple=True,
    help="Explain the call on these bundled versions of PyTorch, such as 2.12 2.15, and show what changed and since "
    "when; on all of them when none is named.",
)
@engine_option("Engine whose dispatcher to explain.")
@semantics_option
@format_option()
def explain(
    *,
    operator: str,
    arguments: tuple[str, ...],
    source: str | None,
    across: tuple[str, ...],
    format: Format | None,
    **options: Any,
) -> None:
    """Show which kernel a call of OP runs and why, without running it.

    Shows the key sets, which keys are masked and whose fallthrough masks them, the keys that remain, the kernel, and
    the candidates that lost, with the reasons. Then shows the same for each redispatch, down to a backend kernel. With
    --across, shows what changed from one version to the next; a kernel is named by its file.

    ARG is a SPEC, by position or as NAME=SPEC; a tensor that is not described is on the CPU. SPEC is a device (cpu,
    cuda, meta, ...), a layout (sparse, csr, mkldnn, nested, ...), and any of quantized, requires_grad, conj, neg, zero,
    inference, python (a subclass that intercepts calls). It is `none` for no tensor, and 'list:cpu, cuda' for a list.
    The key of a backend (PrivateUse1, SparseCUDA) means a tensor of that backend, any other key (Functionalize) is
    added to the tensor's. For a factory, describe the result with device=, layout= and dtype=.

    ARG may also be what Python writes for a number, a bool, a list or a text (1, 2.5, True, '[1, 2]', '"mean"'). A name
    without overload goes to the first overload that takes the arguments, as in torch.ops.

    \b
    Examples:
      dispatchlab explain aten::add.Tensor "cuda requires_grad" cuda
      dispatchlab explain aten::add cpu 1 alpha=2
      dispatchlab explain aten::randn device=cuda
      dispatchlab explain aten::cat "list:cpu, meta" --exclude Autograd
      dispatchlab explain test::foo cpu --from scenario.yaml --semantics torch-2.13
      dispatchlab explain aten::bmm cuda cuda --across 2.12 2.15
      dispatchlab explain my::op cpu --from my_package
    """
    from dispatchlab.questions.dump.operator_text import refused_step_text
    from dispatchlab.questions.explain.blocks import explanation_notes, explanation_view
    from dispatchlab.questions.explain.explain_operator import explain_operator

    imports: tuple[str, ...] = ()
    if source is not None:
        source, imports = with_package(source)

    def explained_on(name: str, source: str | None, report: Callable[[str], None] | None = None) -> ExplainedOperator:
        return explain_operator(name, arguments, source=source, imports=imports, report=report, **options)

    if across:
        from dispatchlab.questions.explain.across import across_view, call_across

        if source is not None:
            raise click.UsageError(
                "--from names one source, and --across takes the bundled ones: leave one of them out"
            )
        found = call_across(operator, () if _ALL in across else across, explained_on)
        if found.note:
            note(found.note)
        show_view(format, across_view(found))
        return
    explained = explained_on(operator, source, note)
    for refused in explained.inspection.refused:
        note(refused_step_text(*refused))
    for text in explanation_notes(explained):
        note(text)
    show_view(format, explanation_view(explained))
