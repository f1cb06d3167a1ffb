"""Profiles measured on the running PyTorch: they equal what is bundled, and measuring leaves nothing behind."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.introspection import profile_probe
from dispatchlab.live.introspection.profile_probe import NotMeasurableError, measure_profile
from dispatchlab.live.introspection.slot_memory import SlotView, entry_address, memory_layout, recomputed_by
from dispatchlab.model.profile import Profile, bundled_profile, profile_text, read_profile

torch = pytest.importorskip("torch")

C = torch._C


@pytest.fixture(scope="module")
def measured() -> Profile:
    if memory_layout() is None:
        pytest.skip("the slots of this PyTorch cannot be read")
    return measure_profile()


@pytest.mark.parametrize("field", [each.name for each in fields(Profile) if each.name != "not_probed"])
def test_the_measured_profile_equals_the_bundled_one(measured: Profile, field: str) -> None:
    assert measured.name == "torch-2.13"
    found, expected = getattr(measured, field), getattr(bundled_profile("torch-2.13"), field)
    if field == "torch":
        found, expected = found.partition("+")[0], expected.partition("+")[0]
    assert found == expected


def test_a_measured_profile_is_read_as_it_is_written(measured: Profile, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(profile_text(measured))
    assert read_profile(tmp_path / "mine.json") == measured
    assert measured.not_probed == ("signature_life", "tags_outlive_def")


def test_measuring_leaves_no_operator_and_no_fallback(measured: Profile) -> None:
    names = [name for name in C._dispatch_get_all_op_names() if name.startswith("dlabp")]
    assert names == []
    library = C._dispatch_library("FRAGMENT", "afterwards", "", "here", 1)
    library.define("a(Tensor x) -> Tensor", "")
    try:
        rows = [line.partition(":")[0] for line in C._dispatch_dump_table("afterwards::a").splitlines()]
    finally:
        library.reset()
    assert sorted(rows) == sorted(measured.fallbacks)
    assert is_own("dlabp17::a")


def test_what_is_recomputed_is_seen_and_the_slots_serve_calls_afterwards() -> None:
    layout = memory_layout()
    if layout is None:
        pytest.skip("the slots of this PyTorch cannot be read")
    library = torch.library.Library("recomputed", "DEF")
    library.define("a(Tensor x) -> Tensor")
    library.impl("a", lambda x: x + 1, "CPU")
    address = entry_address(layout, "recomputed::a")
    assert address is not None
    view = SlotView(layout, address)
    before = view.fingerprints().copy()
    assert recomputed_by(view, lambda: None) == ()
    assert (view.fingerprints() == before).all()
    other = torch.library.Library("recomputed", "FRAGMENT")
    slots = recomputed_by(view, lambda: other.impl("a", lambda x: x + 2, "CUDA"))
    assert [bundled_profile("torch-2.13").runtime[slot] for slot in slots] == ["CUDA", "AutogradCUDA"]
    with pytest.raises(ZeroDivisionError):  # which is no refusal
        recomputed_by(view, lambda: 1 // 0)
    assert torch.ops.recomputed.a(torch.zeros(1)).item() == 1
    other._destroy()
    library._destroy()


def test_a_torch_whose_slots_cannot_be_read_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_probe, "memory_layout", lambda: None)
    with pytest.raises(NotMeasurableError, match=r"no profile of PyTorch 2.* can be measured: its slots "):
        measure_profile()
