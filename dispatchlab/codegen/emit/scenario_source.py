"""The registrations of one structured group as a scenario, which `dispatchlab permute` proves or refutes."""

from __future__ import annotations

from dispatchlab.codegen.emit.generated_group import GeneratedGroup, GeneratedKey, Wrapper
from dispatchlab.codegen.emit.python_source import annotated_types, debug_text, def_debug_text, mark
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, BlockKind, Def, Impl, Kernel, KernelForm
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text


def scenario_of(generated: GeneratedGroup, file: str) -> Scenario:
    """What the module of the group registers, library by library.

    Args:
        generated: what is generated.
        file: what the source file is called in the text.
    """
    group = generated.group
    namespace = group.out.name.namespace
    defs = tuple(
        Def(_bare(each.schema), tags=each.tags, debug=def_debug_text(generated, each, file)) for each in group.functions
    )
    blocks = [Block(namespace, BlockKind.FRAGMENT, defs)]
    blocks += [_block(generated, key, file) for key in generated.keys if key.wrappers]
    return Scenario(
        claim=f"The {len(blocks)} libraries that are generated for {group.functional.name} can be loaded in any order.",
        registrations=tuple(blocks),
        operators=tuple(each.name for each in group.functions),
        namespace=namespace,
    )


def group_scenario_text(generated: GeneratedGroup, file: str) -> str:
    """The same as the text of a file."""
    return f"{mark(file)}\n{scenario_text(scenario_of(generated, file))}"


def _block(generated: GeneratedGroup, key: GeneratedKey, file: str) -> Block:
    impls = tuple(_impl(generated, wrapper, file) for wrapper in key.wrappers)
    return Block(generated.group.out.name.namespace, BlockKind.IMPL, impls, key=key.key)


def _impl(generated: GeneratedGroup, wrapper: Wrapper, file: str) -> Impl:
    inferred = inferred_schema(wrapper)
    symint = is_symint_schema(inferred)
    kernel = Kernel(KernelForm.UNBOXED, inferred=inferred, signature=cpp_signature(inferred), symint=symint)
    return Impl(wrapper.function.name.without_namespace, None, kernel, debug_text(generated, wrapper, file))


def inferred_schema(wrapper: Wrapper) -> FunctionSchema:
    """The schema that the annotations of the wrapper give."""
    arguments, returns = annotated_types(wrapper.function)
    return FunctionSchema(
        OperatorName("", ""),
        tuple(Argument(f"_{at}", type_) for at, type_ in enumerate(arguments)),
        tuple(Argument(f"_{at}", type_) for at, type_ in enumerate(returns)),
    )


def _bare(schema: FunctionSchema) -> FunctionSchema:
    return FunctionSchema(schema.name.without_namespace, schema.arguments, schema.returns)
