"""The facts that rows of causes may use: `{op}` in a text, `op` in a condition."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from inspect import getblock
from linecache import getlines
from pathlib import Path
from typing import Any, Final

from dispatchlab.errors import nearest as close_names
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.failure.definition_search import package_of
from dispatchlab.live.tracing import CallRecorder
from dispatchlab.model.failure import EventKind, Failure, OperatorFacts, first_line, operator_name
from dispatchlab.model.keys import PARSED_BY_TORCH
from dispatchlab.questions.why.wording import (
    arguments_of,
    gradients_of,
    inputs_of,
    listed,
    needed_arguments,
    short_site,
    signature_of,
)

OF_SCHEMA: Final[Mapping[str, Callable[[str], str]]] = {
    "gradients": gradients_of,
    "parameters": lambda schema: ", ".join(name for _, name in arguments_of(schema)) or "...",
    "signature": lambda schema: signature_of(schema) if schema else "*args",
    "tensors": lambda schema: listed(name for kind, name in arguments_of(schema) if kind.startswith("Tensor")),
    "written": lambda schema: listed(name for kind, name in arguments_of(schema) if "!" in kind),
}
"""Facts that are functions of the operator's schema."""

OF_FAILURE: Final[Mapping[str, Callable[[Failure], str]]] = {
    "asserted": lambda failure: " ".join([failure.at.text if failure.at else "", failure.text]),
    "at": lambda failure: f" at {failure.at}{failure.at.text and f': `{failure.at.text}`'}" if failure.at else "",
    "calling": lambda failure: next((event.subject for event in failure.of("calling")), ""),
    "call": lambda failure: failure.call or "the call",
    "expression": lambda failure: failure.call or (failure.at.text if failure.at else ""),
    "first_raised": lambda failure: "".join(raised.line for raised in failure.chain[-1:]),
    "function": lambda failure: failure.at.function if failure.at else "",
    "line": lambda failure: failure.at.text if failure.at else "",
    "lines": lambda failure: " ".join(frame.text for frame in failure.frames),
    "near": lambda failure: f" ({failure.at}: `{failure.at.text}`)" if failure.at and failure.at.text else "",
    "place": lambda failure: str(failure.at or ""),
    "program": lambda failure: "".join(
        getlines(next((at.file for at in (failure.at, *(e.at for e in failure.events)) if at), ""))
    ),
    "raised": lambda failure: "".join(raised.line for raised in failure.chain[:1]),
    "raised_in": lambda failure: failure.stack[-1] if failure.stack else "",
    "version": lambda failure: failure.registry.version,
}
"""Facts of the failure: the failing line (`at` and `near` with its code), the `expression` that failed, and
`raised` that ended the program."""

_OPERAND: Final = re.compile(r"(?:[-+*/@%&|^<>]|\*\*|//|<<|>>)=?")


def _group(text: str | None) -> str:
    """Return a group without the end of `got RuntimeError('...')`, a message inside of a message."""
    return re.sub(r"^([^(]*?)\.?'\)$", r"\1", (text or "").strip())


class Words(dict[str, Any]):
    """The facts of a failure by name: groups of patterns, results of functions, and the facts below.

    The fields of `Failure` and of `OperatorFacts`, for the operator, are facts, too.
    """

    def __init__(self, failure: Failure, known: Words | None = None) -> None:
        super().__init__(known or {})
        self.failure = failure
        self.groups: tuple[str, ...] = known.groups if known is not None else ()

    def match(self, patterns: Sequence[str]) -> bool:
        """Add the groups of the first pattern that a message matches; return False if no message matches."""
        found = next(filter(None, map(self.failure.search, patterns)), None)
        if found is not None:
            self.groups = tuple(map(_group, (found[0], *found.groups())))
            self |= {name: _group(group) for name, group in found.groupdict().items()}
        return found is not None or not patterns

    def __missing__(self, name: str) -> object:
        if name in vars(Words):
            return getattr(self, name)
        if name in OF_WORDS:
            return OF_WORDS[name](self)
        if name in OF_FAILURE:
            return OF_FAILURE[name](self.failure)
        if hasattr(Failure, name):
            return getattr(self.failure, name)
        if hasattr(OperatorFacts, name):
            return getattr(self.operator, name)
        if name in OF_SCHEMA:
            return OF_SCHEMA[name](self.operator.schema)
        return ""  # a group of an expression that was not tried, or did not match

    @property
    def operator(self) -> OperatorFacts:
        """The operator in the registry; only its name if the registry does not have it."""
        name = self["op"]
        return (self.failure.registry.operator(name) if "::" in name else None) or OperatorFacts(name)

    @property
    def op(self) -> str:
        """The operator: from the groups `ns` and `local` or `name`, from the event, or from the first group."""
        name = self.get("name") or self.get("subject") or next(filter(None, self.groups[1:]), "")
        if "local" in self:
            name = f"{self['ns']}::{self['local'].removesuffix('.default')}"
        return operator_name(name) or name

    @property
    def key(self) -> str:
        """The key of the group `backend`; PyTorch prints the name that a package gave the backend."""
        key, device = self.get("backend", ""), self.renamed
        return f"{key.removesuffix(device)}PrivateUse1" if device and key.endswith(device) else str(key)

    @property
    def renamed(self) -> str:
        """The name that a package gave PrivateUse1; a pasted text has it in place of a key, in small letters."""
        backend = str(self.get("backend", ""))
        return self.failure.device or (backend if backend.islower() else "")

    @property
    def shown_key(self) -> str:
        """The key, with the name that a package gave it."""
        key, device = self["key"], self.renamed
        return f"{key} ({device})" if key == "PrivateUse1" and device else key

    @property
    def registered_op(self) -> str:
        """` of NS::NAME` for the operator that the user's line registers."""
        texts = [self.failure.call, self["line"], *(frame.text for frame in self.failure.frames[::-1])]
        found = next((hit for text in texts if (hit := re.search(r"""["'](\w+::[\w.]+)["']""", text))), None)
        name = found[1] if found is not None else self["calling"]
        return f" of {name}" if name else ""

    @property
    def given_schema(self) -> str:
        """A schema with the types that a kernel returned."""
        given, counted = self["given"], re.match(r"(\d+) values", self["given"])
        if counted is not None:
            return f"({', '.join(['Tensor'] * int(counted[1]))})"
        return {"NoneType": "()", "Parameter": "Tensor"}.get(given, str(given))

    @property
    def register_autograd(self) -> str:
        """The call that gives the operator its formula; `register_autograd` refuses an operator that writes."""
        base, packet = self["base"], self.operator.packet
        if self["written"]:
            return f'lib.impl("{base}", Function.apply, "Autograd", allow_override=True)  # an autograd.Function'
        call = f'torch.library.register_autograd("{packet}", backward, setup_context=setup_context)'
        return f"{call}  # backward(ctx, grad) returns {self['gradients']}" if self.operator.schema else call

    @property
    def said(self) -> str:
        """The line of the message in which the pattern was found."""
        first = self.groups[0].splitlines()[0]
        return first_line(next(line for line in self.failure.text.splitlines() if first in line).partition(": ")[2])

    @property
    def own(self) -> str:
        """The object with the failing method or index."""
        found = re.match(r"([\w.\[\]]+?)(?:\.\w+(?:\(|$)|\[)", self.failure.call)
        return found[1] if found else "x"

    @property
    def raised_by_program(self) -> bool:
        """True when the program found a value to be wrong, not PyTorch."""
        stack = " ".join(self.failure.stack)
        by_torch = re.match(r"torch(gen)?\.(?!testing\.)", self["raised_in"]) or "optests." in stack
        return not by_torch and bool(self.failure.kinds & {"AssertionError", "ValueError", "SystemExit"})

    @property
    def concerned(self) -> bool:
        """True if the failing line depends on the operator, or the source is unknown."""
        name = self["base"].partition(".")[0]
        return not self.failure.source.strip() or re.search(rf"\b{name}\b", self.failure.source) is not None

    @property
    def function_class(self) -> str:
        """The autograd.Function with the failing `apply`, or the first of the program."""
        called = re.search(r"(\w+)\.apply\b", self["expression"])
        classes = re.findall(r"class (\w+)\([\w.]*Function\)", self.failure.source)
        return called[1] if called else next(iter(classes), "it")

    @property
    def attributes(self) -> list[str]:
        """The attributes that a class, of the group `cls` or `lost`, or of the event, sets before its handler."""
        name = self.get("cls") or self.get("lost") or self["subject"]
        body = (self.failure.source + self["program"]).partition(f"class {name}(")[2].partition("\nclass ")[0]
        assigned = r"(?:^ +|: )((?:(?:self|t|r|out)\.\w+(?:, | = ))+)\w+(?:, \w+)*(?: *#.*)?$"
        targets = " ".join(re.findall(assigned, body.partition("def __torch_")[0], re.MULTILINE))
        return [*dict.fromkeys(re.findall(r"\.(\w+)", targets))]

    @property
    def operand_op(self) -> str:
        """The operator that the group `operand` calls between matrices or numbers, such as `aten.mul.Tensor`."""
        is_operand = _OPERAND.fullmatch(self["operand"]) is not None  # a pasted text is data, and never runs
        with suppress(Exception):
            values = {side: 2 if self[side] in ("int", "float") else torch().ones(2, 2) for side in ("left", "right")}
            with suppress(TypeError, RuntimeError), CallRecorder(1, by_mode=True) as recorder:
                exec(f"left {self['operand']} right" if is_operand else "", values)
            name = recorder.calls[0].operator.replace("::", ".")
            return name if name.count(".") > 1 else f"{name}.default"
        return "aten.NAME.OVERLOAD"

    @property
    def fake_op(self) -> str:
        """The operator whose fake kernel has the failing line, or the line of the program that led to it."""
        cut = self.in_fake or self.failure.search(r"\nCaused by: .* in \w+\)")  # compile cuts the stack off
        for at in reversed(self.failure.frames) if cut else ():
            for event in self.failure.of("custom_op", "define", "register_fake"):
                facts = self.failure.registry.operator(event.subject) or OperatorFacts("")
                path, _, first = facts.fake.rpartition(":")
                near = Path(path).name == Path(at.file).name
                if near and 0 <= at.line - int(first) < len(getblock(getlines(path)[int(first) - 1 :])):
                    return facts.name
        return ""

    @property
    def in_fake(self) -> bool:
        """True when a fake kernel is on the stack."""
        calls = (name for name in self.failure.stack if not name.endswith("fake_impl.register"))
        return any(re.search(r"fake_impl\b|abstract", name) for name in calls)

    @property
    def returned(self) -> str:
        """The value of the only `return` in the latest kernel of the operator, else its argument; empty if unknown."""
        roles = ("fake", "Meta", "backward", "setup_context")
        made = [e.at for e in self.failure.of("function") if e.subject == self["op"] and e.detail not in roles]
        at = made[-1] if made else None
        body = getblock(getlines(at.file)[at.line - 1 :]) if at is not None else []
        values = re.findall(r"^ +return (\w[\w.]*(?:\(.*\)|\[.*\])?)$", "".join(body), re.MULTILINE)
        if "".join(body).count("return ") > 1:
            values = [value for value in values if value == self["detail"]]
        return values[0] if len(values) == 1 and not values[0].startswith(("tuple(", "list(")) else ""

    @property
    def saves(self) -> str:
        """The statement that saves what a backward reads; `...` is what no argument is named after."""
        values = inputs_of(self.operator.schema)
        if attribute := self.failure.search(r"no attribute '(\w+)'"):
            return f"ctx.{attribute[1]} = {values.get(attribute[1], '...')}"
        unpacked = re.match(r"\(?(\w+(?:, \w+)*),?\)? = ctx\.saved_tensors(?:\[0\])?$", self["line"])
        names = unpacked[1].split(", ") if unpacked is not None else [""]
        return f"ctx.save_for_backward({', '.join(values.get(name, '...') for name in names)})"

    @property
    def fake_call(self) -> str:
        """The call that registers a fake kernel: from a run of the kernel, else guessed from the schema."""
        facts, body, note = self.operator, self.failure.fake_body(self["op"]), ""
        known = facts.fake or ("Meta" in facts.kernels and not facts.custom_op)
        if not body and not known and facts.schema.endswith("-> ()"):
            body = "None"
        elif not body and not known and facts.schema.endswith("-> Tensor") and self["tensors"]:
            body = f"torch.empty_like({self['tensors'].replace(',', ' ').split()[0]})"
            note = "  # give the shape and dtype of your result"
        body, mark, alike = body.partition("  # ")
        note += mark + alike
        head = f'torch.library.register_fake("{facts.packet}", lambda {self["signature"]}: '
        return f"{head}{body}){note}" if body else ""

    @property
    def defined(self) -> str:
        """`, defined at FILE:LINE`; empty if the line is unknown."""
        noted = self.failure.registrations(self.operator.name)
        made = [event for event in noted if event.kind in ("define", "custom_op") and event.at]
        latest = ([event for event in made if event.subject == self.operator.name] or made)[-1:]
        at = str(latest[0].at) if latest else short_site(self.operator.site)
        return f", defined at {at}" if at else ""

    @property
    def ran_at(self) -> str:
        """The line of the kernel that the trials ran, as of `latest`."""
        keys = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "CUDA")
        return self.latest("impl", next((key for key in keys if key in self.operator.kernels), ""))

    def latest(self, kind: EventKind, detail: str) -> str:
        """Return ` at NEW`, or ` at NEW (which replaced the one at OLD)`, for a registration; empty if unknown."""
        lines: list[str] = []
        for event in self.failure.of("custom_op", "collected", kind):
            if event.subject.partition(".")[0] == self.operator.packet and (event.kind, event.detail) == (kind, detail):
                lines.append(str(event.at or ""))
            elif event.subject == self.operator.name and (event.kind == "custom_op" or event.detail == detail):
                lines.clear()
        old = next((line for line in reversed(lines) if line != lines[-1]), "")
        return (f" at {lines[-1]}" if lines else "") + (f" (which replaced the one at {old})" if old else "")

    @property
    def kernels_at(self) -> str:
        """The keys of the operator's kernels with their lines."""
        events = self.failure.registrations(self.operator.name)
        lines = {event.detail: str(event.at) for event in events if event.kind == "impl" and event.at}
        sites = {
            key: lines.get(key) or re.sub(r"^(?=.*\.py:\d+$)", "Library at ", short_site(site))
            for key, site in self.operator.kernels.items()
        }
        return listed(f"{key} ({site})" if site else key for key, site in sites.items())

    @property
    def kernels_held(self) -> str:
        """The kernels that do the work; for PyTorch's own operators, kernels for a backend and composite kernels."""
        name = self.operator.name
        if not name.startswith("aten::"):
            return f"kernels of {name}: {self.kernels_at or 'none'}"
        layout = self.get("layout", "")
        devices = self["key"].removeprefix(layout) if layout else "CPU|CUDA|MPS|XPU|HPU|PrivateUse1"
        works = re.compile(rf"(?!Auto).*(?:{devices}|Meta)$|Composite")
        return f"kernels of {name}: {listed(filter(works.match, self.operator.kernels)) or 'none for a backend'}"

    @property
    def registered(self) -> tuple[str, ...]:
        """A line for each registration of the operator, without those inside custom_op."""
        events = [event for event in self.failure.registrations(self["op"]) if event.at is not None]
        inside = {str(event.at) for event in events if event.kind == "custom_op"}
        return tuple(
            f"{event.at}: {event.kind} {event.subject}" + (f" at {event.detail}" if event.kind == "impl" else "")
            for event in events
            if event.kind not in ("define", "impl", "collected") or str(event.at) not in inside
        )[-6:]


OF_WORDS: Final[Mapping[str, Callable[[Words], object]]] = {
    "all_keys": lambda words: listed(words.operator.kernels),
    "backend_name": lambda words: words.get("part") or words.get("module") or words.failure.device or "privateuseone",
    "base": lambda words: str(words["op"]).rpartition("::")[2],
    "composites": lambda words: listed(
        each.name
        for name in dict.fromkeys(re.findall(r"[a-z]\w+", words["asserted"].partition(": ")[0]))
        if (each := words.failure.registry.operator(f"aten::{name}")) and "CompositeImplicitAutograd" in each.kernels
    ),
    "data_sized": lambda words: "get_ctx()" in words.failure.fake_body(words["op"]),
    "device_type": lambda words: (
        words.renamed or "privateuseone" if words["key"] == "PrivateUse1" else words["key"].lower()
    ),
    "dotted": lambda words: words["op"].replace("::", "."),
    "extension": lambda words: words.groups[1] not in sys.stdlib_module_names,
    "fake_at": lambda words: f" at {short_site(words.operator.fake)}" if words.operator.fake else "",
    "aten": lambda words: words.failure.registry.names("aten"),
    "forms": lambda words: ", ".join(
        filter(re.compile(rf"(?!{words['subject']}$)aten::{words['stem']}_?(\.|$)").match, words["aten"])
    ),
    "formula_at": lambda words: words.latest("function", "backward"),
    "held": lambda words: ", ".join(f'"{name}"' for name in words.attributes),
    "holding": lambda words: next(iter(words.attributes), ""),
    "installed": lambda words: package_of(words["ns"])[1],
    "kept": lambda words: ", ".join(f"self.{name}" for name in words.attributes[1:]),
    "names_there": lambda words: listed(
        dict.fromkeys(name.partition(".")[0] for name in words.failure.registry.names(words["ns"]))
    ),
    "needed": lambda words: needed_arguments(words["declaration"]),
    "other_key": lambda words: next(iter(close_names(words["wrong_key"], (key.name for key in PARSED_BY_TORCH))), ""),
    "overloads": lambda words: listed(filter(None, words.failure.registry.overloads(words.operator.packet))),
    "package": lambda words: package_of(words["ns"])[0],
    "setup_at": lambda words: words.latest("function", "setup_context"),
    "unaliased": lambda words: re.sub(r"\([a-z]\d*!?\)", "", words["refused"]),
    "work_keys": lambda words: listed(key for key in words.operator.backends if key not in ("Meta", "Tracer")),
}
"""Facts of other facts: `composites`, the composite operators in the failing line; `data_sized`, true if a run of the
kernel showed that the size of its result depends on data; `formula_at`, the line of the backward; `forms`, the other
forms of `stem`; `holding`, the attribute in which a class keeps its tensor; `names_there`, the operators of the
namespace `ns`; `unaliased`, `refused` without aliases."""
