"""What a run of an operator on inputs shows, and whether a Python function takes the calls that PyTorch makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, Signature

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.schema import Argument, FunctionSchema

GENERATED = "generated from the schema"
"""Where inputs are from that were made without any given."""


class InputsError(DispatchLabError):
    """What is to give the inputs of operators gives none."""

    reference: str
    why: str

    template = (
        "--inputs {reference}: {why}; expected a file of captured inputs, or module:name of a dictionary, or of a "
        "function that returns one: operator -> a function that makes the arguments of a call"
    )


class Outcome(WordEnum):
    """What a run shows of the thing that was tried."""

    WORKS = "works"
    FAILS = "fails"
    NOT_NEEDED = "not needed"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of one operator shows.

    Args:
        outcome: what.
        how: what was run, or what it raised.
    """

    outcome: Outcome
    how: str


# Note [Defaults are left out]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# When PyTorch hands a call on to a Python function, it leaves out the arguments that equal their default: those at the
# end, and those that are given by name. It does so too where the caller wrote them. So a function that has a parameter
# without a default where the schema has one raises TypeError for the most ordinary calls.


@dataclass(frozen=True, slots=True)
class FunctionParameter:
    """One parameter of a Python function.

    Args:
        name: its name.
        kind: the name of its kind, as `inspect` has it.
        has_default: whether calls can leave it out.
    """

    name: str
    kind: str
    has_default: bool


def refuses_defaults(parameters: tuple[FunctionParameter, ...], schema: FunctionSchema) -> str:
    """What Python says of a call that leaves out all that has a default; empty when the function takes it."""
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    while positional and positional[-1].default is not None:
        positional.pop()
    named = [argument for argument in schema.arguments if argument.kwarg_only and argument.default is None]
    return _refusal(parameters, positional, named)


def refuses_all(parameters: tuple[FunctionParameter, ...], schema: FunctionSchema) -> str:
    """What Python says of a call that leaves out nothing; empty when the function takes it."""
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    return _refusal(parameters, positional, [argument for argument in schema.arguments if argument.kwarg_only])


def _refusal(parameters: tuple[FunctionParameter, ...], positional: list[Argument], named: list[Argument]) -> str:
    made = [
        Parameter(one.name, getattr(Parameter, one.kind), default=None if one.has_default else Parameter.empty)
        for one in parameters
    ]
    try:
        # NB: `__validate_parameters__` would refuse some that functions of C have, whose kinds are in another order
        Signature(made, __validate_parameters__=False).bind(
            *(None for _ in positional), **{one.name: None for one in named}
        )
    except TypeError as error:
        return str(error)
    return ""
