"""The long tests of tests/test_call_layers.py, which the quick tier leaves out."""

from __future__ import annotations

import numpy as np
import pytest

from dispatchlab import tensor
from dispatchlab.lab import Lab
from tests import test_call_layers
from tests.call_cases import CASES, Case, flat, tensors
from tests.test_call_layers import _batched_arrays, _flat_function

lab = test_call_layers.lab


@pytest.mark.parametrize("case", CASES, ids=str)
def test_vmap_nested_twice_is_two_loops(lab: Lab, case: Case) -> None:
    arrays = _batched_arrays(case, (2, 3))
    list_lengths = [len(one) if isinstance(one, list) else None for one in arrays]
    values = flat(tensors(arrays))
    function = _flat_function(lab, case, list_lengths)
    rows = [[function(*(tensor(one.numpy()[i, j]) for one in values)).numpy() for j in range(3)] for i in range(2)]
    found = lab.vmap(lab.vmap(function))(*values)
    assert found.shape == (2, 3, *rows[0][0].shape)
    assert np.allclose(found.numpy(), np.array(rows), rtol=1e-12)
