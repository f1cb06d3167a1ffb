"""The cells of readiness are derived from facts alone: synthetic operators, one fact changed at a time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from dispatchlab.errors import DispatchLabError
from dispatchlab.files.baseline import BaselineError
from dispatchlab.files.file_kinds import FileContent, FileKind, content_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_runs import Outcome, Run
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.registration import KernelFlags, TorchLibraryFunction
from dispatchlab.pytorch.introspection.readiness_reader import PackageOperators, parameters_of
from dispatchlab.pytorch.introspection.readiness_runs import summed
from dispatchlab.pytorch.registry import live_operator_runs
from dispatchlab.pytorch.worker.process import WorkerCrashed
from dispatchlab.questions.check.findings import readiness_findings
from dispatchlab.questions.readiness.blocks import readiness_view, summary
from dispatchlab.questions.readiness.known_failures import (
    known_failures_text,
    load_known_failures,
)
from dispatchlab.questions.readiness.operator_readiness import (
    RUN_ONLY,
    Answer,
    Aspect,
    Cell,
    OperatorFacts,
    Readiness,
    cell_of,
    readiness,
    row_of,
)
from dispatchlab.questions.readiness.package_readiness import (
    NoOperatorsError,
    decided,
    package_readiness,
    readiness_of,
)
from dispatchlab.records.backend_coverage import Filled, Way
from dispatchlab.records.model import RecordedKernel, RecordedOperator, Registry, name_of

_UNARY = "(Tensor x) -> Tensor"


def facts(
    signature: str = _UNARY,
    *keys: str,
    functions: tuple[TorchLibraryFunction, ...] = (),
    python: tuple[PythonRegistration, ...] = (),
    tags: tuple[str, ...] = (),
    filled: dict[str, Filled] | None = None,
    cuda: bool = True,
) -> OperatorFacts:
    """Facts of an operator `my::op` with kernels at some keys; `filled` are further slots."""
    kernels = tuple(
        RecordedKernel(key, "registered at my.py:1", None, KernelFlags.BOXED)
        for key in sorted(DispatchKey[k] for k in keys)
    )
    schema = f"my::op{signature}"
    slots = {DispatchKey[key]: slot for key, slot in (filled or {}).items()}
    slots |= {kernel.key: Filled(Way.DIRECT, kernel.key) for kernel in kernels}
    return OperatorFacts(
        RecordedOperator(name_of("my::op"), schema, "def", None, frozenset(tags), kernels),
        parse_printed(schema),
        python,
        frozenset(functions),
        lambda key: slots.get(key, Filled(Way.MISSING)),
        lambda backend: cuda,
    )


def answer(given: OperatorFacts, aspect: Aspect) -> Answer:
    return cell_of(given, aspect).answer


COMPOSITE = {
    key: Filled(Way.COMPOSITE, DispatchKey.CompositeImplicitAutograd)
    for key in ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutogradOther", "Meta", "FuncTorchBatched")
}
FALLBACK = {"FuncTorchBatched": Filled(Way.FALLBACK, DispatchKey.FuncTorchBatched)}


def test_a_kernel_of_a_backend_is_a_yes_and_none_is_a_no_only_where_the_build_has_that_backend() -> None:
    assert answer(facts(_UNARY, "CPU"), Aspect.CPU) is Answer.REGISTERED
    assert answer(facts(_UNARY, "CPU"), Aspect.CUDA) is Answer.NO
    assert answer(facts(_UNARY, "CPU", cuda=False), Aspect.CUDA) is Answer.UNKNOWN


def test_what_a_composite_does_is_never_guessed() -> None:
    given = facts(filled=COMPOSITE)
    open_ = {one.aspect for one in row_of(given).cells if one.answer is Answer.UNKNOWN}
    decided = {one.aspect for one in row_of(given).cells} - open_
    assert decided == {Aspect.BACKENDS, Aspect.FUNCTIONALIZE, Aspect.AUTOCAST, Aspect.TAGS}


def test_custom_op_has_a_fake_when_it_was_given_one_or_needs_none() -> None:
    custom = (TorchLibraryFunction.CUSTOM_OP,)
    assert answer(facts(_UNARY, "CPU", "Meta", functions=custom), Aspect.FAKE) is Answer.NO
    with_fake = (*custom, TorchLibraryFunction.REGISTER_FAKE)
    assert answer(facts(_UNARY, "CPU", "Meta", functions=with_fake), Aspect.FAKE) is Answer.REGISTERED
    assert answer(facts("(Tensor(a!) x) -> ()", "CPU", "Meta", functions=custom), Aspect.FAKE) is Answer.REGISTERED


def test_a_gap_names_the_call_that_closes_it_with_its_documentation() -> None:
    cell = cell_of(facts(_UNARY, "CPU"), Aspect.FAKE)
    assert cell == Cell(
        Aspect.FAKE,
        Answer.NO,
        "nothing is registered for Meta, and there is no fake implementation",
        'torch.library.register_fake("my::op", ...)',
        "https://docs.pytorch.org/docs/stable/library.html#torch.library.register_fake",
    )


def test_a_call_that_this_pytorch_lacks_is_not_named() -> None:
    given = replace(facts(_UNARY, "CPU"), offered=frozenset({"torch.library.register_fake"}))
    assert cell_of(given, Aspect.FAKE) == cell_of(facts(_UNARY, "CPU"), Aspect.FAKE)
    cell = cell_of(given, Aspect.AUTOCAST)
    assert (cell.answer, cell.closes, cell.link) == (Answer.UNKNOWN, "", "")
    view = replace(facts("(Tensor(a) x) -> Tensor(a)", "CPU"), offered=frozenset())
    assert cell_of(view, Aspect.FUNCTIONALIZE).closes.startswith("return a copy")


def test_advice_fits_the_operator() -> None:
    def call(signature: str, aspect: Aspect, *keys: str) -> str:
        return cell_of(facts(signature, *keys, filled=FALLBACK), aspect).closes

    for key, device in (
        ("CUDA", '"cuda", torch.float16'),
        ("CPU", '"cpu", torch.bfloat16'),
        ("XPU", '"xpu", torch.float16'),
        ("PrivateUse1", '"privateuseone", torch.float16'),
    ):
        assert call(_UNARY, Aspect.AUTOCAST, key) == f'torch.library.register_autocast("my::op", {device})'
    renamed = replace(facts(_UNARY, "PrivateUse1", filled=FALLBACK), privateuse1="npu")
    assert 'my::op", "npu", ' in cell_of(renamed, Aspect.AUTOCAST).closes
    assert call(_UNARY, Aspect.AUTOCAST, "CUDA", "CPU") == call(_UNARY, Aspect.AUTOCAST, "CPU")
    assert call("(Tensor x) -> int", Aspect.VMAP, "CPU") == 'torch.library.register_vmap("my::op", ...)'
    assert not call("(Tensor x) -> __torch__.torch.classes.my.Kept", Aspect.VMAP, "CPU")
    assert call(_UNARY, Aspect.AUTOGRAD, "CPU").startswith("torch.library.register_autograd(")
    assert not call("(Tensor(a) x) -> Tensor(a)", Aspect.AUTOGRAD, "CPU")


@pytest.mark.parametrize(
    ("signature", "tags", "wanted"),
    [
        (_UNARY, (), Answer.NOT_NEEDED),
        ("(Tensor(a!) x) -> ()", (), Answer.REGISTERED),
        ("(Tensor(a!)[] xs) -> ()", (), Answer.REGISTERED),
        ("(Tensor(a!) x) -> Tensor", (), Answer.REGISTERED),
        ("(Tensor(a!) x) -> Tensor[]", (), Answer.NO),
        ("(Tensor(a!) x) -> Tensor(a!)", (), Answer.NO),
        ("(Tensor(a!) x) -> Tensor(a!)", ("inplace",), Answer.REGISTERED),
        ("(Tensor(a) x) -> Tensor(a)", (), Answer.NO),
    ],
)
def test_functionalization_goes_by_the_schema(signature: str, tags: tuple[str, ...], wanted: Answer) -> None:
    assert answer(facts(signature, "CPU", tags=tags), Aspect.FUNCTIONALIZE) is wanted
    assert answer(facts(signature, "CPU", "Functionalize", tags=tags), Aspect.FUNCTIONALIZE) in (
        Answer.REGISTERED,
        Answer.NOT_NEEDED,
    )


@pytest.mark.parametrize(
    ("signature", "wanted"),
    [
        (_UNARY, Answer.REGISTERED),
        ("(Tensor x) -> (Tensor, Tensor)", Answer.REGISTERED),
        ("(Tensor x) -> Tensor[]", Answer.NO),
        ("(Tensor[] xs) -> Tensor", Answer.NO),
        ("(Tensor(a!) x) -> ()", Answer.NO),
        ("(Tensor(a!) x) -> Tensor(a!)", Answer.UNKNOWN),
        ("(int n) -> int", Answer.NOT_NEEDED),
    ],
)
def test_the_fallback_of_vmap_takes_some_schemas(signature: str, wanted: Answer) -> None:
    assert answer(facts(signature, "CPU", filled=FALLBACK), Aspect.VMAP) is wanted
    assert answer(facts(signature, "CPU", "FuncTorchBatched"), Aspect.VMAP) in (Answer.REGISTERED, Answer.NOT_NEEDED)


def test_the_compiled_columns_follow_the_fake() -> None:
    without = facts(_UNARY, "CPU")
    given = facts(_UNARY, "CPU", functions=(TorchLibraryFunction.REGISTER_FAKE,))
    for aspect in (Aspect.EXPORT, Aspect.INDUCTOR):
        assert answer(without, aspect) is Answer.NO
        assert answer(given, aspect) is Answer.REGISTERED
    lowered = (PythonRegistration("inductor_lowerings", "my::op", function="my:lower"),)
    cell = cell_of(
        facts(_UNARY, "CPU", functions=(TorchLibraryFunction.REGISTER_FAKE,), python=lowered), Aspect.INDUCTOR
    )
    assert cell.reason == "its lowering"


def test_a_composite_under_vmap_runs_as_the_fallback_takes_it() -> None:
    with_fallback = COMPOSITE | FALLBACK
    assert answer(facts(filled=with_fallback), Aspect.VMAP) is Answer.REGISTERED
    assert answer(facts("(Tensor x) -> ()", filled=with_fallback), Aspect.VMAP) is Answer.NO


@pytest.mark.parametrize(
    ("parameters", "wanted", "reason"),
    [
        ("x, y, *, z", Answer.NO, "missing a required argument: 'y'"),
        ("x, y=None, *, z", Answer.NO, "missing a required"),
        ("x, *, z=None", Answer.UNKNOWN, "too many positional arguments"),
        ("x, y=None", Answer.UNKNOWN, "got an unexpected keyword argument 'z'"),
        ("x, y=None, *, z=None", Answer.REGISTERED, "torch.library.register_fake"),
        ("*arguments, **named", Answer.REGISTERED, "torch.library.register_fake"),
    ],
)
def test_a_fake_has_to_take_calls_that_leave_out_defaults(parameters: str, wanted: Answer, reason: str) -> None:
    scope: dict[str, object] = {}
    exec(f"def fake({parameters}): ...", scope)
    given = facts(
        "(Tensor x, int? y=None, *, int? z=None) -> Tensor",
        "CPU",
        functions=(TorchLibraryFunction.REGISTER_FAKE,),
    )
    fake = scope["fake"]
    assert callable(fake)
    cell = cell_of(replace(given, fake_parameters=parameters_of(fake)), Aspect.FAKE)
    assert cell.answer is wanted
    assert reason in cell.reason


def test_a_fake_that_is_wrapped_says_nothing_of_what_it_takes() -> None:
    @wraps(answer)
    def wrapping(*arguments: object) -> object:
        return arguments

    assert parameters_of(wrapping) is None
    known = parameters_of(partial(answer, aspect=Aspect.FAKE))
    assert known is not None
    assert [one.has_default for one in known] == [False, True]


def test_runs_decide_cells_and_leave_those_alone_that_they_do_not() -> None:
    unknown = Cell(Aspect.CPU, Answer.UNKNOWN, "a run shows it")
    yes = Cell(Aspect.FAKE, Answer.REGISTERED, "torch.library.register_fake")
    no = Cell(Aspect.DTENSOR, Answer.NO, "no rule", "register(...)", "https://x")
    not_needed = Cell(Aspect.AUTOGRAD, Answer.NOT_NEEDED, "no tensor")
    works, fails = Run(Outcome.WORKS, "a call"), Run(Outcome.FAILS, "TypeError: no")
    assert decided(unknown, works) == Cell(Aspect.CPU, Answer.YES, "a call", by_run=True)
    assert decided(unknown, fails) == Cell(Aspect.CPU, Answer.NO, "TypeError: no", by_run=True)
    assert decided(yes, fails).reason == "TypeError: no; registered: torch.library.register_fake"
    assert decided(no, fails) == replace(no, by_run=True)
    assert decided(no, works).answer is Answer.YES
    assert decided(yes, Run(Outcome.NOT_NEEDED, "no float")).answer is Answer.NOT_NEEDED
    assert decided(yes, works) == Cell(Aspect.FAKE, Answer.YES, "a call", by_run=True)
    not_run = decided(yes, Run(Outcome.NOT_DECIDED, "no device"))
    assert not_run == replace(yes, reason="torch.library.register_fake; no run decides it: no device")
    assert decided(not_needed, fails) == decided(not_needed, works) == not_needed
    pure = Cell(Aspect.FUNCTIONALIZE, Answer.NOT_NEEDED, "its schema says that it writes to nothing")
    assert (decided(pure, works), decided(pure, fails).answer) == (pure, Answer.NO)
    assert decided(yes, None) == yes


def test_rules_of_dtensor_and_autocast_are_found() -> None:
    rule = (PythonRegistration("dtensor_rules", "my::op", "rule", "my:shard"),)
    assert answer(facts(_UNARY, "CPU", python=rule), Aspect.DTENSOR) is Answer.REGISTERED
    assert answer(facts(_UNARY, "CPU"), Aspect.DTENSOR) is Answer.NO
    assert cell_of(facts("(Tensor x) -> Tensor[]", "CPU"), Aspect.DTENSOR).closes == ""
    own = (PythonRegistration("dtensor_rules", "my::op", "rule", "x:register_sharding.<locals>.custom_strategy"),)
    assert answer(facts(_UNARY, "CPU", python=own), Aspect.DTENSOR) is Answer.REGISTERED
    assert answer(facts("(Tensor x) -> Tensor[]", "CPU", python=own), Aspect.DTENSOR) is Answer.NO
    assert answer(facts(_UNARY, "CPU", "AutocastCUDA"), Aspect.AUTOCAST) is Answer.REGISTERED
    assert answer(facts(_UNARY, "CPU"), Aspect.AUTOCAST) is Answer.UNKNOWN


def test_the_exit_code_goes_by_the_columns_that_are_required() -> None:
    given = [facts(_UNARY, "CPU")]
    assert readiness(["my"], "2.13.0", given).exit_code == 1
    assert readiness(["my"], "2.13.0", given, required=[Aspect.CPU]).exit_code == 0
    assert readiness(["my"], "2.13.0", given, required=()).exit_code == 0


def test_text_and_json_have_every_cell() -> None:
    found = readiness(["my"], "2.13.0", [facts(_UNARY, "CPU")])
    assert summary(found) == "readiness of my: 0 of 1 operators ready, 1 with gaps"
    text = readiness_view(found).text()
    assert all(f"  {aspect} " in text for aspect in Aspect)
    shown = json.loads(readiness_view(found).json())
    assert shown["with_gaps"] == ["my::op"]
    assert set(shown["operators"][0]["cells"]) == set(map(str, Aspect))


def _several() -> Readiness:
    """Five operators, more than are shown with every reason."""
    found = readiness(["my"], "2.13.0", [facts(_UNARY, "CPU")])
    (row,) = found.rows
    return replace(found, rows=tuple(replace(row, operator=f"my::operator_{at}") for at in range(5)))


def _drawn(found: Readiness, width: int) -> str:
    stream = io.StringIO()
    readiness_view(found).draw(Console(file=stream, width=width, force_terminal=True, color_system="standard"))
    return stream.getvalue()


def test_a_gap_that_runs_show_on_several_inputs_is_said_once() -> None:
    found = _several()
    said = [f"on (int64[{at}]): it raises E: my.operator_{at}.default {at > 2}" for at in range(5)]
    rows = [
        replace(row, cells=tuple(replace(one, reason=why) if one.aspect is Aspect.FAKE else one for one in row.cells))
        for row, why in zip(found.rows, said, strict=True)
    ]
    text = readiness_view(replace(found, rows=tuple(rows))).text()
    assert f"fake (3), the first: {said[0]}\n  my::operator_0, my::operator_1, my::operator_2\n" in text
    assert f"fake (2), the first: {said[3]}\n  my::operator_3, my::operator_4\n" in text


def test_a_terminal_has_a_table_with_a_colour_for_each_mark() -> None:
    text = _drawn(_several(), 100)
    line = next(line for line in text.splitlines() if line.startswith("my::operator_3"))
    assert [mark for mark in line.split(" ") if mark][1:4] == [
        "\x1b[2mreg\x1b[0m",
        "\x1b[1;31mNO\x1b[0m",
        "\x1b[1;31mNO\x1b[0m",
    ]
    assert text.count("\x1b[1;31mNO\x1b[0m") == 5 * sum(cell.answer is Answer.NO for cell in _several().rows[0].cells)


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_narrow_terminal_has_the_columns_of_each_operator_by_their_answer(width: int) -> None:
    stream = io.StringIO()
    readiness_view(_several()).draw(Console(file=stream, width=width))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    begin = lines.index("my::operator_0")
    assert lines[begin + 1].startswith("  reg  cpu")
    shown = " ".join(" ".join(lines[begin + 1 : lines.index("my::operator_1")]).replace(",", "").split())
    assert all(str(aspect) in shown.split() for aspect in Aspect if aspect not in RUN_ONLY)
    assert str(Aspect.STRIDES) not in shown


def test_a_page_has_every_cell_and_escapes_what_packages_wrote() -> None:
    found = _several()
    evil = replace(found.rows[0].cells[3], reason="raises <script>alert(1)</script>", by_run=True)
    row = replace(found.rows[0], cells=(*found.rows[0].cells[:3], evil, *found.rows[0].cells[4:]))
    page = readiness_view(replace(found, rows=(row, *found.rows[1:]), notes=("a note & more",))).html()
    assert page.endswith("</html>\n")
    assert "<script>alert" not in page
    assert "a note &amp; more" in page
    assert page.count("<tr") >= 5 * (len(Aspect) + 1)
    assert "https://docs.pytorch.org/docs/stable/library.html#torch.library.register_fake" in page
    assert "register_fake" in page


class ManualTimer:
    """A timer that ends when the test says so."""

    daemon = False
    made: ClassVar[list[ManualTimer]] = []

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        self.end = end
        self.made.append(self)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass


class AnswersWhenKilled:
    """A live engine whose worker answers the first question at the moment at which it is killed."""

    def __init__(self, **_: object) -> None:
        self.is_killed = False

    def __enter__(self) -> AnswersWhenKilled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def worker(self) -> AnswersWhenKilled:
        return self

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        self.is_killed = False

    def ask(self, function: str, inputs: str, operator: str = "", column: str = "") -> object:
        if not operator:
            return ("a::one", "a::two")
        if self.is_killed:
            raise WorkerCrashed("it was killed before")
        if not column:
            return ("cpu",)
        if operator == "a::one":
            ManualTimer.made[-1].end()
            assert self.is_killed
        return Run(Outcome.WORKS, operator)


def test_an_import_that_defines_no_operator_names_the_packages_that_do() -> None:
    made = RecordedOperator(name_of("other::op"), f"other::op{_UNARY}", "registered at other/ops.py:3")
    found = PackageOperators(Registry("2.13.0", (made,)), frozenset(), {})
    with pytest.raises(NoOperatorsError, match="of its own; it defines operators of other: name that, too"):
        readiness_of(found, ["mine"])
    assert [row.operator for row in readiness_of(found, ["mine", "other"]).rows] == ["other::op"]
    with pytest.raises(NoOperatorsError, match="or one that calls what registers them"):
        readiness_of(found._replace(before=frozenset({"other::op"})), ["mine", "other"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.safetensors", "none.safetensors: no captured inputs: No such file or directory; write it with pytest"),
        ("text.safetensors", "the file is damaged (its header is longer than the file); write it with pytest"),
        ("text.json", "it is neither MODULE:NAME nor a file whose name ends with .safetensors; expected"),
    ],
)
def test_inputs_that_are_none_are_refused_before_an_import(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(DispatchLabError) as refused:
        package_readiness(["a_module_that_nobody_has"], inputs=str(tmp_path / name))
    assert said in str(refused.value)


def test_a_worker_that_answers_as_it_is_killed_takes_no_other_operator_along(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = AnswersWhenKilled()
    monkeypatch.setattr("dispatchlab.pytorch.registry.LiveEngine", lambda **_: engine)
    monkeypatch.setattr("dispatchlab.pytorch.registry.Timer", ManualTimer)
    done = live_operator_runs((), "a:b", ("a::one", "a::two"), limit_s=1)
    assert done.notes == ()
    assert {name: runs["cpu"].how for name, runs in done.runs.items()} == {"a::one": "a::one", "a::two": "a::two"}
    for timer in ManualTimer.made:  # it was cancelled, and comes too late
        timer.end()
    assert not engine.is_killed


def test_a_baseline_knows_failures_and_lists_those_that_are_gone(tmp_path: Path) -> None:
    found = readiness(["my"], "2.13.0", [facts(_UNARY, "CPU")], required=[Aspect.FAKE, Aspect.CUDA])
    file = tmp_path / "known.json"
    file.write_text(known_failures_text(found))
    known = load_known_failures(str(file))
    assert known == {("my::op", Aspect.FAKE), ("my::op", Aspect.CUDA)}
    assert content_of(file) == FileContent(FileKind.KNOWN_FAILURES)
    again = replace(found, known=known)
    assert (again.exit_code, again.new_failures, again.fixed) == (0, (), ())
    assert "new failures: none" in readiness_view(again).text()
    more = replace(again, required=(*found.required, Aspect.DTENSOR))
    assert (more.exit_code, more.new_failures) == (1, (("my::op", Aspect.DTENSOR),))
    assert "new failures: my::op dtensor" in readiness_view(more).text()
    fixed = readiness(["my"], "2.13.0", [facts(_UNARY, "CPU", functions=(TorchLibraryFunction.REGISTER_FAKE,))])
    fixed = replace(fixed, known=known | {("my::other", Aspect.FAKE)})
    assert (fixed.exit_code, fixed.fixed) == (0, (("my::op", Aspect.FAKE),))
    assert "known failures that fail no more: my::op fake" in readiness_view(fixed).text()
    file.write_text(known_failures_text(fixed, fixed.known or ()))
    assert load_known_failures(str(file)) == {("my::op", Aspect.CUDA), ("my::other", Aspect.FAKE)}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"version": 1}', '{"version": 1, "failures": [{"operator": "a", "column": "b"}]}']
)
def test_a_file_that_is_no_baseline_is_one_sentence(content: str, tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    file.write_text(content)
    with pytest.raises(BaselineError, match="write it with"):
        load_known_failures(str(file))


def test_a_column_goes_by_the_worst_of_its_inputs() -> None:
    works, fails = Run(Outcome.WORKS, "a call"), Run(Outcome.FAILS, "no")
    open_, not_needed = Run(Outcome.NOT_DECIDED, "?"), Run(Outcome.NOT_NEEDED, "-")
    assert summed([works, open_, fails, not_needed], 4) == fails
    assert summed([open_, works, not_needed, works], 5) == Run(Outcome.WORKS, "a call (2 of 5 inputs)")
    assert summed([works], 1) == works
    assert summed([open_, not_needed], 2) == not_needed
    assert summed([open_], 1) == open_


def test_findings_are_the_gaps_that_no_baseline_knows() -> None:
    required = [Aspect.FAKE, Aspect.EXPORT, Aspect.DTENSOR]
    found = readiness(["my"], "2.13.0", [facts(_UNARY, "CPU")], required=required)
    findings = tuple(readiness_findings(found))
    assert [one.code for one in findings] == ["readiness-fake", "readiness-dtensor"]
    assert findings[0].message.startswith("it is not ready for fake, export: ")
    assert findings[0].owners == ((found.rows[0].source,) if found.rows[0].source else ())
    known = replace(found, known=frozenset({("my::op", Aspect.FAKE), ("my::op", Aspect.EXPORT)}))
    assert [one.code for one in readiness_findings(known)] == ["readiness-dtensor"]
    assert "my::op" in readiness_view(found).markdown()


def test_a_failing_run_keeps_the_call_that_closes_the_gap() -> None:
    cell = row_of(facts(_UNARY, "CPU")).cell(Aspect.AUTOGRAD)
    assert (cell.answer, cell.closes.partition("(")[0]) == (Answer.UNKNOWN, "torch.library.register_autograd")
    failed = decided(cell, Run(Outcome.FAILS, "the result has no gradient"))
    assert (failed.answer, failed.closes, failed.by_run) == (Answer.NO, cell.closes, True)
    assert decided(cell, Run(Outcome.NOT_NEEDED, "integers")).answer is Answer.NOT_NEEDED
