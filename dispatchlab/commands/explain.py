"""`dispatchlab explain`: which kernel a call would run, and why, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dispatchlab.commands.options import (
    OPERATOR,
    ROW,
    SOURCE,
    engine_option,
    import_option,
    refuse,
    semantics_option,
    versions_after,
    view_format_option,
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
    "--arg",
    "args",
    metavar="SPEC",
    multiple=True,
    help="Describe an argument, in the order of the schema or as NAME=SPEC; may be repeated. Default: a "
    "tensor that is not described is on the CPU.",
)
@click.option(
    "--exclude", metavar="KEY", multiple=True, type=ROW, help="Exclude KEY, as a guard does; may be repeated."
)
@click.option(
    "--include", metavar="KEY", multiple=True, type=ROW, help="Include KEY, as a guard does; may be repeated."
)
@click.option("--inference-mode", is_flag=True, help="Explain the call in inference mode.")
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=SOURCE,
    help="Read a scenario, a recorded registry, a bundled one by its name, `live`, or a package. Default: the bundled "
    "registry of the installed PyTorch, or else the newest; for CUDA tensors, one that has CUDA's kernels.",
)
@click.option(
    "--across",
    metavar="[VERSION...]",
    multiple=True,
    help="Explain the call on these bundled versions of PyTorch, such as 2.12 2.15, and show what changed and since "
    "when; on all of them when none is named.",
)
@engine_option("Engine whose dispatcher to explain.")
@semantics_option
@import_option()
@view_format_option()
@click.pass_context
def explain(
    context: click.Context,
    /,
    *,
    operator: str,
    arguments: tuple[str, ...],
    args: tuple[str, ...],
    across: tuple[str, ...],
    format: Format | None,
    **options: Any,
) -> None:
    """Show which kernel a call of OP runs and why, without running it.

    Shows the key sets, which keys are masked and whose fallthrough masks them, the keys that remain, the kernel, and
    the candidates that lost, with the reasons. Then shows the same for each redispatch, down to a backend kernel.

    With --across, shows each part of the call on several versions, what changed from one to the next, and since which
    version; a kernel is named by its file.

    With ARG..., the arguments of a call, a name without overload tries its overloads as torch.ops does. Shows which
    were tried and why each did not take the call, and explains the one that did. ARG is a SPEC, which stands for a
    tensor of two elements, or what Python writes for a number, a bool, a list or a text (1, 2.5, True, '[1, 2]',
    '"mean"'), by position or as NAME=ARG.

    SPEC is a device (cpu, cuda, meta, ...), a layout (sparse, csr, mkldnn, nested, ...), and any of quantized,
    requires_grad, conj, neg, zero, inference, python (a subclass that intercepts calls). It is `none` for no tensor,
    and 'list:cpu, cuda' for a list. The key of a backend (PrivateUse1, SparseCUDA) means a tensor of that backend, any
    other key (Functionalize) is added to the tensor's. A backend that a package renames is known by its name with
    --engine torch. For a factory, describe the result with device=, layout= and dtype=.

    \b
    Examples:
      dispatchlab explain aten::add.Tensor --arg "cuda requires_grad" --arg cuda
      dispatchlab explain aten::add cpu 1 alpha=2
      dispatchlab explain aten::randn --arg device=cuda
      dispatchlab explain aten::cat --arg "list:cpu, meta" --exclude Autograd
      dispatchlab explain test::foo --arg cpu --from scenario.yaml --semantics torch-2.13
      dispatchlab explain aten::bmm cuda cuda --across 2.12 2.15
      dispatchlab explain my::op --arg cpu --package my_package
    """
    from dispatchlab.questions.dump.operator_text import refused_step_text
    from dispatchlab.questions.explain.blocks import explanation_notes, explanation_view
    from dispatchlab.questions.explain.explain_operator import explain_operator

    def explained_on(name: str, source: str | None, report: Callable[[str], None] | None = None) -> ExplainedOperator:
        return explain_operator(
            name,
            (*arguments, *args),
            call=bool(arguments),
            report=report,
            **options | {"source": source},
        )

    if across:
        from dispatchlab.questions.explain.across import across_view, call_across

        refuse(context, ("source", "engine", "semantics", "imports"), "is for one version: leave --across out, or it")
        found = call_across(operator, () if _ALL in across else across, explained_on)
        if found.note:
            note(found.note)
        show_view(format, across_view(found))
        return
    explained = explained_on(operator, options["source"], note)
    for refused in explained.inspection.refused:
        note(refused_step_text(*refused))
    for text in explanation_notes(explained):
        note(text)
    show_view(format, explanation_view(explained))
