"""Tables as tensors: the scaling of arrays, with gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gdkl.inputs import TableInput


@pytest.mark.filterwarnings("ignore:Constant column")
@pytest.mark.parametrize("tame", [False, True])
def test_rows_of_tensors_are_those_of_arrays(tame):
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 4))
    X[:, 1], X[:3, 2] = 7.0, 1e4  # a constant column, and one with a long tail
    table = TableInput.fit([X], tame_tails=tame)
    assert not tame or table.tails[1].any()
    new = torch.as_tensor(random.normal(size=(3, 5, 4)) * np.array([4.0, 1.0, 3000.0, 1.0]), dtype=torch.float64)
    found = table.tensor_rows(new)
    np.testing.assert_allclose(found.reshape(15, -1), table.rows(new.reshape(15, -1).numpy()), rtol=1e-12)
    assert torch.autograd.gradcheck(table.tensor_rows, (new.requires_grad_(),))
    assert table.tensor_rows(new.detach().float()).dtype == torch.float64
