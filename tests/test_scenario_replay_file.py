"""A saved counterexample finds its registrations again by name, or says what became of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.sequence import StepSequence
from dispatchlab.scenario import (
    Replay,
    Scenario,
    ScenarioError,
    StaleReplayError,
    load_replay,
    make_replay,
    parse_replay,
    parse_scenario,
    replay_text,
    resolve,
    staleness,
)
from dispatchlab.scenario.write import digest_of
from tests.effort import examples

HEAD = "claim: Two kernels.\nregistrations:\n"
DEF = "  - {def: foo(Tensor x) -> Tensor, debug: d}\n"
A = "  - {impl: foo, dispatch: CPU, debug: a}\n"
B = "  - {impl: foo, dispatch: CPU, debug: b}\n"
META = "  - {impl: foo, dispatch: Meta, debug: m}\n"


def _scenario(*entries: str) -> Scenario:
    return parse_scenario(HEAD + "".join(entries), file="folder/two.yaml")


BEFORE = _scenario(DEF, A, B)
REPLAY = make_replay(BEFORE, (1, 2), (2, 0, 1, ~0), engine="lab", semantics="torch-2.13", seed=7)

TEXT = f"""\
replay: 3
scenario: two.yaml
digest: {digest_of(BEFORE)}
engine: lab
semantics: torch-2.13
seed: 7
registrations:
  - def test::foo  # 0
  - impl test::foo CPU  # 1
  - impl test::foo CPU (2)  # 2
expected_sequence: "+1 +2"
actual_sequence: "+2 +0 +1 -0"
check: {replay_text(REPLAY).splitlines()[-1].removeprefix("check: ")}
"""


def test_a_replay_is_written_so_that_people_can_read_it() -> None:
    assert re.sub('digest: "?([0-9a-f]+)"?', r"digest: \1", replay_text(REPLAY)) == TEXT


def test_a_replay_file_loads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "two.replay.yaml"
    path.write_text(replay_text(REPLAY), encoding="utf-8")
    assert load_replay(path) == REPLAY
    assert parse_replay(TEXT) == REPLAY


def test_a_fresh_replay_is_not_stale_and_keeps_its_sequences() -> None:
    assert staleness(REPLAY, BEFORE) == ()
    assert resolve(REPLAY, BEFORE) == (REPLAY.expected_sequence, REPLAY.actual_sequence)


@pytest.mark.parametrize(
    ("entries", "reasons", "sequences"),
    [
        ((A, META, B, DEF), ("new: impl test::foo Meta",), ((0, 2), (2, 3, 0, ~3))),
        ((A, B, DEF), ("the registrations are in another order",), ((0, 1), (1, 2, 0, ~2))),
        (
            (DEF, A, B.replace("debug: b", "debug: c")),
            (
                "the registrations have the same names, but what one of them says (a schema, a kernel, or only the "
                "line number in a debug text) or what is observed has changed",
            ),
            ((1, 2), (2, 0, 1, ~0)),
        ),
    ],
)
def test_a_stale_replay_whose_registrations_are_still_there_runs_in_new_numbers(
    entries: tuple[str, ...], reasons: tuple[str, ...], sequences: tuple[StepSequence, StepSequence]
) -> None:
    now = _scenario(*entries)
    assert staleness(REPLAY, now) == reasons
    assert resolve(REPLAY, now) == sequences


def test_a_registration_that_no_sequence_uses_may_go() -> None:
    replay = make_replay(_scenario(A, B, META), (0, 1), (1, 0), engine="lab", semantics="strict")
    now = _scenario(A, B)
    assert staleness(replay, now) == ("gone or renamed: impl test::foo Meta",)
    assert resolve(replay, now) == ((0, 1), (1, 0))


def test_a_replay_without_its_registrations_is_explained() -> None:
    now = _scenario(DEF, A, META)
    with pytest.raises(StaleReplayError) as caught:
        resolve(REPLAY, now)
    assert caught.value.reasons == ("gone or renamed: impl test::foo CPU (2)", "new: impl test::foo Meta")
    assert str(caught.value) == (
        "the replay no longer fits two.yaml; search again with `dispatchlab permute`\n"
        "  gone or renamed: impl test::foo CPU (2)\n"
        "  new: impl test::foo Meta"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "replay: 3",
            "replay: 2",
            "a.yaml:1:9: expected the version 3 but found '2'; another release of dispatchlab reads other versions",
        ),
        ("seed: 7", "sead: 7", "a.yaml:6:1: 'sead' is not a field of a replay; did you mean seed?"),
        ("seed: 7", "seed: x", "a.yaml:6:7: expected a number but found 'x'"),
        (
            "engine: lab\n",
            "",
            "a.yaml:1:1: `engine` is missing in a replay; that is: the engine that the sequences were",
        ),
        (digest_of(BEFORE), "abc", "a.yaml:3:9: expected 32 hexadecimal digits but found 'abc'"),
        ('"+1 +2"', '"+1 +3"', "a.yaml:11:24: expected a registration from 0 to 2 but found '+3' in '+1 +3'"),
        (
            '"+1 +2"',
            "+1 -2",
            "a.yaml:11:23: expected the release of something registered here (2 is not) but found '-2'",
        ),
        ('"+1 +2"', "+1 2", "a.yaml:11:23: expected a step such as +0 or -0 but found '2' in '+1 2'"),
        ("CPU (2)", "CPU", "a.yaml:10:5: 'impl test::foo CPU' appears twice, first on line 9"),
        (TEXT, "", "a.yaml:1:1: expected a replay but found nothing; write a mapping with `replay` and `scenario`"),
    ],
)
def test_a_broken_replay_is_refused_with_its_source_location(old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_replay(TEXT.replace(old, new), file="a.yaml")
    (problem,) = caught.value.problems
    assert str(problem).startswith(message)


def test_a_replay_that_was_changed_is_refused_whatever_was_changed() -> None:
    assert parse_replay(TEXT.replace("  # 1", "  # one")) == REPLAY
    for old, new in (
        ('"+1 +2"', '"+2 +1"'),
        ("+0 +1 -0", "+0 +1"),
        ("engine: lab", "engine: torch"),
        ("semantics: torch-2.13", "semantics: strict"),
        ("seed: 7", "seed: 8"),
        ("seed: 7\n", ""),
        ("two.yaml", "three.yaml"),
        ("scenario:", "path: a\nscenario:"),
        ("  - def test::foo  # 0", "  - def test::bar  # 0"),
        (digest_of(BEFORE), digest_of(BEFORE)[::-1]),
        ("check: ", "check: 0000000000000000  # "),
    ):
        with pytest.raises(ScenarioError, match=r"the replay was changed after it was saved|32 hexadecimal digits"):
            parse_replay(TEXT.replace(old, new))


def test_both_sequences_are_checked_at_once() -> None:
    text = TEXT.replace('"+1 +2"', "+9").replace('"+2 +0 +1 -0"', f"+{'9' * 5000}")
    with pytest.raises(ScenarioError) as caught:
        parse_replay(text)
    assert len(caught.value.problems) == 2


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)

ENGINES = st.sampled_from(["lab", "torch"])


@st.composite
def replays(draw: st.DrawFn) -> Replay:
    names = tuple(draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)))
    orders = st.permutations(range(len(names)))

    def sequence() -> StepSequence:
        steps = draw(orders)[: draw(st.integers(0, len(names)))]
        return (*steps, *(~step for step in steps[: draw(st.integers(0, len(steps)))]))

    digest = draw(st.text("0123456789abcdef", min_size=32, max_size=32))
    seed = draw(st.none() | st.integers(-(2**64), 2**64))
    return Replay(draw(NAMES), digest, names, sequence(), sequence(), draw(ENGINES), draw(NAMES), seed, draw(NAMES))


@examples(200)
@given(replays())
def test_a_written_replay_loads_back_equal(replay: Replay) -> None:
    assert parse_replay(replay_text(replay)) == replay
    again = parse_replay(replay_text(replace(replay, expected_sequence=())))
    assert again.expected_sequence == ()


def _outcome(data: bytes) -> str:
    """`replay` or `refused`; any other exception is a failure of the test."""
    try:
        replay = parse_replay(data)
    except ScenarioError as error:
        return "refused" if error.problems else "refused for no reason"
    for scenario in (BEFORE, _scenario(META)):
        try:
            expected, actual = resolve(replay, scenario)
        except StaleReplayError as error:
            if not error.reasons:
                return "stale for no reason"
        else:
            used = {max(step, ~step) for step in (*expected, *actual)}
            assert used <= set(range(len(scenario.registrations)))
    return "replay"


@examples(200)
@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.text(max_size=4) | st.sampled_from(["+0", "-1", " (2)", "0"]))
def test_a_broken_replay_is_a_replay_or_one_error(at: int, length: int, inserted: str) -> None:
    broken = TEXT[:at] + inserted + TEXT[at + length :]
    assert _outcome(broken.encode("utf-8", "surrogatepass")) in ("replay", "refused")


@examples(200)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_replay_or_one_error(data: bytes) -> None:
    assert _outcome(data) in ("replay", "refused")


def test_the_fuzzed_replay_reaches_both_outcomes() -> None:
    assert (_outcome(TEXT.encode()), _outcome(b"")) == ("replay", "refused")
