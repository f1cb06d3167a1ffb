"""What the rows of causes may name: `{op}` in a text, `op` in a condition."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from dispatchlab.model.failure import Failure, OperatorFacts, operator_name
from dispatchlab.questions.why import wording

_HANDLERS: Final = ("__torch_function__", "__torch_dispatch__")
_LEAVING: Final = {
    "Mkldnn": ".to_dense()",
    "SparseCsr": ".to_dense()",
    "Sparse": ".to_dense()",
    "Quantized": ".dequantize()",
    "NestedTensor": ".to_padded_tensor(0.0)",
}
"""Layouts of tensors, with the call that leaves each."""


class Words(dict[str, Any]):
    """What is known of a failure by name: groups of expressions, what a function saw, and the facts below.

    The fields of `Failure` and of `OperatorFacts`, for the operator, are facts, too.
    """

    def __init__(self, failure: Failure, known: Words | None = None) -> None:
        super().__init__(known or {})
        self.failure = failure
        self.groups: tuple[str, ...] = known.groups if known is not None else ()

    def match(self, patterns: Sequence[str]) -> bool:
        """Add the groups of the first pattern that a message matches; return False where one must and none does."""
        found = next(filter(None, map(self.failure.search, patterns)), None)
        if found is not None:
            self.groups = tuple((group or "").strip() for group in (found[0], *found.groups()))
            self |= {name: (group or "").strip() for name, group in found.groupdict().items()}
        return found is not None or not patterns

    def __missing__(self, name: str) -> object:
        if name in vars(Words):
            return getattr(self, name)
        if hasattr(Failure, name):
            return getattr(self.failure, name)
        if hasattr(OperatorFacts, name):
            return getattr(self.operator, name)
        raise KeyError(name)

    @property
    def operator(self) -> OperatorFacts:
        """Return what the registry holds of the operator; a name alone where it holds nothing."""
        name = self["op"]
        return (self.failure.registry.operator(name) if "::" in name else None) or OperatorFacts(name)

    @property
    def op(self) -> str:
        """Return the operator: of the groups `ns` and `local` or `name`, of the event, or of the first group."""
        name = self.get("name") or self.get("subject") or next(filter(None, self.groups[1:]), "")
        if "local" in self:
            name = f"{self['ns']}::{self['local'].removesuffix('.default')}"
        return operator_name(name) or name

    @property
    def base(self) -> str:
        """Return the operator without its namespace."""
        return str(self["op"]).partition("::")[2]

    @property
    def dotted(self) -> str:
        """Return the operator as it stands behind `torch.ops.`."""
        return str(self["op"]).replace("::", ".")

    @property
    def key(self) -> str:
        """Return the key of the group `backend`."""
        return wording.key_of(self["backend"], self.failure.device)

    @property
    def layout(self) -> str:
        """Return the layout that the key is for; empty for a dense one."""
        return next((name for name in _LEAVING if self["key"].startswith(name)), "")

    @property
    def leaving(self) -> str:
        """Return the call that leaves the layout."""
        return _LEAVING[self.layout]

    @property
    def dense_key(self) -> str:
        """Return the key without the layout, where the operator has a kernel for it."""
        key = self["key"].removeprefix(self.layout)
        return key if key in self.operator.kernels else ""

    @property
    def shown_key(self) -> str:
        """Return the key, with the name that a package gave it."""
        key, device = self["key"], self.failure.device
        return f"{key} ({device})" if key == "PrivateUse1" and device else key

    @property
    def device_type(self) -> str:
        """Return the name of the key's device."""
        key = self["key"]
        return self.failure.device or "privateuseone" if key == "PrivateUse1" else key.lower()

    @property
    def covers(self) -> bool:
        """Return whether the operator has a kernel for autograd on the key."""
        return bool({"Autograd", f"Autograd{self['key']}"} & set(self.operator.kernels))

    @property
    def is_device(self) -> bool:
        """Return whether the group `module` is the name of the PrivateUse1 backend."""
        return bool(self.failure.device) and self["module"] == self.failure.device

    @property
    def backend_name(self) -> str:
        """Return the name of the backend that lacks a part."""
        return self.get("part") or self.get("module") or self.failure.device or "privateuseone"

    @property
    def registered_op(self) -> str:
        """Return ` of NS::NAME` for the operator that the user's line registers."""
        texts = [self.failure.call, self.line, *(frame.text for frame in self.failure.frames[::-1])]
        found = next((hit for text in texts if (hit := re.search(r"""["'](\w+::[\w.]+)["']""", text))), None)
        return f" of {found[1]}" if found is not None else ""

    @property
    def with_namespace(self) -> str:
        """Return the name `short` with a namespace."""
        short = self["short"]
        return short.replace(".", "::") if "." in short else f"mylib::{short}"

    @property
    def composite_at(self) -> str:
        """Return ` at FILE:LINE` of the operator's CompositeImplicitAutograd kernel."""
        events = self.failure.registrations(self["op"])
        at = next((e.at for e in events if e.detail == "CompositeImplicitAutograd" and e.at), None)
        return f" at {at}" if at else ""

    @property
    def twice_op(self) -> str:
        """Return the operator that has a kernel, from the groups `ns` and `local`."""
        return f"{self['ns']}::{self['local'].removesuffix('.default')}"

    @property
    def twice_lines(self) -> tuple[str, ...]:
        """Return the registrations of that operator for the key that is registered twice."""
        key = {"register_fake": "Meta", "duplicate": ""}.get(self["twice"], self["twice"])
        lines = wording.registered_lines(self.failure, self.twice_op)
        return tuple(line for line in lines if not key or line.endswith(f"at {key}"))

    @property
    def twice_at(self) -> str:
        """Return where the first of them is."""
        return next((f" at {line.partition(': ')[0]}" for line in self.twice_lines), " by PyTorch")

    @property
    def needed(self) -> str:
        """Return the arguments of the group `declaration` that a call must give."""
        return wording.needed_arguments(self["declaration"])

    @property
    def made_twice(self) -> tuple[str, ...]:
        """Return the lines that made the custom operator with different schemas."""
        made = [e for e in self.failure.of("custom_op") if e.subject == self["op"]]
        several = len({event.detail for event in made}) > 1
        return tuple(f"{event.at}: custom_op {event.subject}{event.detail}" for event in made if several)

    @property
    def unaliased(self) -> str:
        """Return the schema of the groups `inputs` and `result` without aliases."""
        return re.sub(r"Tensor\(\w+\)", "Tensor", f"{self.base}{self['inputs']} -> {self['result']}")

    @property
    def gradients(self) -> str:
        """Return what a backward returns: a gradient for each tensor, None for what is no tensor."""
        return wording.gradients_of(self.operator.schema)

    @property
    def register_autograd(self) -> str:
        """Return the call that gives the operator its formula."""
        call = f'torch.library.register_autograd("{self.operator.packet}", backward, setup_context=setup_context)'
        return f"{call}  # backward(ctx, grad) returns {self.gradients}" if self.operator.schema else call

    @property
    def said(self) -> str:
        """Return the line of the message in which the pattern was found."""
        first = self.groups[0].splitlines()[0]
        return next(line for line in self.failure.text.splitlines() if first in line).partition(": ")[2][:200]

    @property
    def at(self) -> str:
        """Return ` at FILE:LINE: CODE` of the failing line."""
        place = self.failure.at
        return f" at {place}: `{place.text}`" if place else ""

    @property
    def near(self) -> str:
        """Return the failing line in brackets; nothing where its text is not known."""
        place = self.failure.at
        return f" ({place}: `{place.text}`)" if place and place.text else ""

    @property
    def place(self) -> str:
        """Return FILE:LINE of the failing line."""
        return str(self.failure.at or "")

    @property
    def line(self) -> str:
        """Return the text of the failing line."""
        return self.failure.at.text if self.failure.at else ""

    @property
    def lines(self) -> str:
        """Return the texts of the failing lines."""
        return " ".join(frame.text for frame in self.failure.frames)

    @property
    def expression(self) -> str:
        """Return the expression that failed, or the whole line where that is not known."""
        return self.failure.call or self.line

    @property
    def call(self) -> str:
        """Return the expression that failed."""
        return self.failure.call or "the call"

    @property
    def own(self) -> str:
        """Return the object whose method or index failed."""
        found = re.match(r"([\w.\[\]]+?)(?:\.\w+(?:\(|$)|\[)", self.failure.call)
        return found[1] if found else "x"

    @property
    def called(self) -> str:
        """Return the operator of the program that the failing lines name."""
        defined = dict.fromkeys(event.subject for event in self.failure.of("custom_op", "define"))
        return next((n for n in defined if re.search(rf"\b{n.partition('::')[2]}\b", self.lines)), "an operator")

    @property
    def warned(self) -> str:
        """Return the warnings before the failure."""
        return " ".join(event.detail for event in self.failure.of("warning"))

    @property
    def vmap(self) -> bool:
        """Return whether vmap is on the stack."""
        return wording.under_vmap(self.failure)

    @property
    def dtensor(self) -> bool:
        """Return whether DTensor is on the stack."""
        return wording.under_dtensor(self.failure)

    @property
    def in_handler(self) -> bool:
        """Return whether the failing line is in a handler of an override."""
        return bool(self.failure.frames) and self.failure.frames[-1].function in _HANDLERS

    @property
    def extension(self) -> bool:
        """Return whether Dynamo met a function of a module that is not Python's own."""
        found = self.failure.search(r"trace the builtin `(\w+)\.")
        return found is not None and found[1] not in sys.stdlib_module_names

    @property
    def fake_op(self) -> str:
        """Return the operator in whose fake kernel the failing line is."""
        facts = wording.failing_fake(self.failure)
        return facts.name if facts else ""

    @property
    def fake_at(self) -> str:
        """Return ` at FILE:LINE` of the operator's fake kernel."""
        return f" at {wording.short_site(self.operator.fake)}" if self.operator.fake else ""

    @property
    def fake_parameters(self) -> str:
        """Return the parameters of a fake kernel."""
        return wording.signature_of(self.operator.schema) or "*args"

    @property
    def data_sized(self) -> bool:
        """Return whether the size of the operator's result depends on data, as a run of its kernel showed."""
        return "get_ctx()" in self.failure.fake_body(self["op"])

    @property
    def fake_call(self) -> str:
        """Return the call that gives a fake kernel: from a run of the kernel, else as the schema lets guess."""
        facts, body, note = self.operator, self.failure.fake_body(self["op"]), ""
        if not body and not facts.fake and facts.schema.endswith("-> ()"):
            body = "None"
        elif not body and not facts.fake and facts.schema.endswith("-> Tensor") and self.tensors:
            body = f"torch.empty_like({wording.tensors_of(facts.schema)[0]})"
            note = "  # give the shape and dtype of your result"
        head = f'torch.library.register_fake("{facts.packet}", lambda {self.fake_parameters}: '
        return f"{head}{body}){note}" if body else ""

    @property
    def version(self) -> str:
        """Return the version of PyTorch."""
        return self.failure.registry.version

    @property
    def local_schema(self) -> str:
        """Return the schema without the namespace."""
        return self.operator.schema.partition("::")[2] or "name(...) -> ..."

    @property
    def parameters(self) -> str:
        """Return the names of the schema's arguments."""
        return wording.parameters_of(self.operator.schema) if self.operator.schema else "..."

    @property
    def signature(self) -> str:
        """Return the parameters of a Python function that takes what the schema has, with the defaults."""
        return wording.signature_of(self.operator.schema)

    @property
    def tensors(self) -> str:
        """Return the names of the tensor arguments."""
        return wording.listed(wording.tensors_of(self.operator.schema))

    @property
    def written(self) -> str:
        """Return the names of the arguments that the schema writes."""
        return wording.listed(name for kind, name in wording.arguments_of(self.operator.schema) if "!" in kind)

    @property
    def defined(self) -> str:
        """Return `, defined at FILE:LINE`."""
        return wording.line_of_definition(self.operator, self.failure)

    @property
    def kernels_at(self) -> str:
        """Return the keys of the operator's kernels with their lines."""
        return wording.kernels_of(self.operator, self.failure)

    @property
    def kernels_held(self) -> str:
        """Return the kernels that do the work; of PyTorch's own operators those for a backend and composite ones."""
        name = self.operator.name
        if not name.startswith("aten::"):
            return f"kernels of {name}: {self.kernels_at or 'none'}"
        works = re.compile(r"(?!Auto).*(?:CPU|CUDA|MPS|XPU|HPU|PrivateUse1|Meta)$|Composite")
        return (
            f"kernels of {name}: {wording.listed(filter(works.match, self.operator.kernels)) or 'none for a backend'}"
        )

    @property
    def all_keys(self) -> str:
        """Return the keys of the operator's kernels."""
        return wording.listed(self.operator.kernels)

    @property
    def work_keys(self) -> str:
        """Return the keys of the operator's kernels that do the work."""
        return wording.listed(key for key in self.operator.backends if key != "Meta")

    @property
    def registered(self) -> tuple[str, ...]:
        """Return a line for each registration of the operator."""
        return wording.registered_lines(self.failure, self["op"])

    @property
    def made(self) -> tuple[str, ...]:
        """Return the lines that made the custom operator, with its schemas."""
        events = [e for e in self.failure.of("custom_op") if e.subject == self["op"] and e.at]
        return tuple(f"{event.at}: {event.subject}{event.detail}" for event in events[-2:])

    @property
    def made_at(self) -> str:
        """Return where the custom operator was made."""
        return " and ".join(line.partition(": ")[0] for line in self.made)
