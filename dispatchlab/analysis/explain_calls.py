"""Explain a call of an operator of any source, and find out whether the source can answer for its backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatchlab.analysis.engines import EngineName
from dispatchlab.analysis.inspect_operators import Inspection, inspect_operator
from dispatchlab.analysis.sources import LIVE, named_key
from dispatchlab.call.explain import (
    ArgumentSpec,
    CallExplanation,
    Described,
    describe_arguments,
    explain,
    schema_of,
    thread_keys,
)
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.profile import version_of
from dispatchlab.registry.builds import backend_named, default_registry, has_kernels_for, no_answer

if TYPE_CHECKING:
    from dispatchlab.call.explain_mode import ModeExplanation
    from dispatchlab.model.python_layer import Compiler, Decompositions, Mode


class NoPythonRecordError(DispatchLabError):
    """A call is to be explained under a mode, and the source does not say what Python registers."""

    def __init__(self, source: str, missing: str) -> None:
        super().__init__(source, missing)
        self.source = source
        self.missing = missing

    def __str__(self) -> str:
        return f"{self.source} {self.missing}, so nothing can be said of a mode: record it anew, or use --from live"


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """A call, explained, and where the operator was looked at.

    Args:
        inspection: the operator and its source.
        explanation: what the source shows.
        no_answer: a sentence, when the source has no kernels for the backend of the call, so that what it shows is no
            answer; else empty.
        under: what runs under the mode that was asked for; None when none was.
    """

    inspection: Inspection
    explanation: CallExplanation
    no_answer: str = ""
    under: ModeExplanation | None = None


def explain_operator(
    operator: str,
    arguments: Sequence[ArgumentSpec],
    *,
    source: str | None = None,
    engine: EngineName = "lab",
    semantics: str | None = None,
    imports: tuple[str, ...] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    mode: Mode | None = None,
    compiler: Compiler = "inductor",
    decompositions: Decompositions = "none",
    report: Callable[[str], None] | None = None,
) -> ExplainedOperator:
    """Explain a call.

    Args:
        operator: a name, or a name without overload when that is unique.
        arguments: as `describe_arguments` reads them.
        source: a scenario, a registry or `live`; when left out the bundled registry that has the kernels of the call.
        engine: see `inspect_operator`.
        semantics: see `inspect_operator`.
        imports: modules that the live PyTorch imports first.
        include: the names of keys that a guard includes.
        exclude: the names of keys that a guard excludes.
        mode: the mode of Python that the call is made under; the hops up to it take the place of those without it.
        compiler: the backend of torch.compile, for the mode `compile`.
        decompositions: the table of decompositions, for the mode `make_fx`.
        report: see `inspect_operator`.

    Raises:
        DispatchLabError: there is no such operator, or the source, an argument or a key cannot be used.
    """
    chosen = source is None and engine == "lab"
    if chosen:
        source, reason = default_registry()
    if mode is not None and (source == LIVE or engine == "torch"):
        needed = _imports(mode, compiler, decompositions)
        imports = (*imports, *(module for module in needed if module not in imports))
    python = mode is not None
    found = inspect_operator(
        operator, source=source, engine=engine, semantics=semantics, imports=imports, python=python, report=report
    )
    described = _described(found, arguments)
    if chosen:
        answers, reason = default_registry(_keys(described))
        if answers != source:
            found = inspect_operator(operator, source=answers, semantics=semantics, python=python, report=report)
            described = _described(found, arguments)
        if report is not None:
            report(f"note: {reason}")
    keys = [tuple(named_key(text, found.privateuse1) for text in texts) for texts in (include, exclude)]
    under = None if mode is None else _under(mode, found, described, keys, compiler, decompositions)
    explanation = explain(found.only_view, described, thread_keys(*keys)) if under is None else under.call
    lacks = unanswered(explanation, source=found.source, build=found.build, imports=found.imports)
    if lacks:
        explanation = replace(explanation, end=f"in {found.source}: {explanation.end}")
    return ExplainedOperator(found, explanation, lacks, under)


def _imports(mode: Mode, compiler: Compiler, decompositions: Decompositions) -> tuple[str, ...]:
    """The modules that a mode imports before it runs anything, which fill its registries."""
    if mode == "dtensor":
        return ("torch.distributed.tensor",)
    if mode == "compile" and compiler == "inductor":
        return ("torch._inductor.decomposition", "torch._inductor.lowering")
    if mode == "make_fx" and decompositions == "inductor":
        return ("torch._inductor.decomposition",)
    if mode in ("compile", "export"):
        return ("torch._functorch.aot_autograd",)
    return ()


def _under(
    mode: Mode,
    found: Inspection,
    described: Described,
    keys: Sequence[tuple[DispatchKey, ...]],
    compiler: Compiler,
    decompositions: Decompositions,
) -> ModeExplanation:
    from dispatchlab.call.explain_mode import (  # costs start-up, and few questions need it
        RULES_OF,
        explain_under,
        registries_of,
    )

    layer, needed = found.python, registries_of(mode, compiler, decompositions)
    if layer is None and needed:
        raise NoPythonRecordError(found.source, "has no record of what Python registers")
    missing = [] if layer is None else [name for name in needed if name in layer.missing]
    if missing:
        raise NoPythonRecordError(found.source, f"lacks what Python keeps in {', '.join(missing)}")
    view = found.only_view
    return explain_under(
        mode,
        view,
        described,
        () if layer is None else layer.of(view.name),
        include=keys[0],
        exclude=keys[1],
        compiler=compiler,
        decompositions=decompositions,
        version=(version_of(layer.torch) if layer else None) or RULES_OF,
    )


def _described(found: Inspection, arguments: Sequence[ArgumentSpec]) -> Described:
    return describe_arguments(schema_of(found.only_view), arguments, privateuse1=found.privateuse1)


def _keys(described: Described) -> list[DispatchKey]:
    return [described.options.backend, *(key for argument in described.arguments for key in argument.keys)]


def unanswered(explanation: CallExplanation, *, source: str, build: str, imports: Sequence[str]) -> str:
    """Why what a source shows of a call is no answer: it has no kernels for the backend; empty where it has.

    Args:
        explanation: what it shows.
        source: what it is called.
        build: the version of the PyTorch that was recorded or runs; empty for none.
        imports: the packages that it had imported.
    """
    for hop in explanation.hops:
        backend = backend_named(hop.key)
        if backend is None or has_kernels_for(build, imports, backend):
            continue
        # A kernel for the backend itself, or for autograd, runs wherever it is registered; any other gives way to one.
        if hop.kernel is None or hop.kernel.reason not in _STAYS:
            return no_answer(source, build, backend)
    return ""


_STAYS = (Provenance.KERNEL, Provenance.AUTOGRAD, Provenance.FALLBACK)
