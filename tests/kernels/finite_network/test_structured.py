"""How the structured method cuts its work to a byte budget: counted by hand, and the same kernel whatever the cuts."""

import dataclasses

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.kernels.finite_network import Network, as_inputs
from ntkit._src.kernels.finite_network._structured import row_plan
from ntkit._src.kernels.finite_network._survey import survey


def _survey(output):
    module = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 5)).double()
    found = survey(Network(module, output), as_inputs(torch.randn(3, 2, 4, dtype=torch.float64)), 1)
    return dataclasses.replace(found, row_bytes=100)


@pytest.mark.parametrize("output", ["trace", "full"])
def test_rows_and_outputs_fill_the_budget(output):
    """Against the smallest number of passes, found by trying: all rows if some outputs at a time do, else fewer rows."""
    found = _survey(output)
    # 3 positions of windows of 4, and 9 features; gradients at 3 x 3 and 5 outputs, in float64, twice
    fixed, each, outputs, n = 100 + 2 * 8 * 12, 2 * 8 * (9 + 5), 5, 7
    for budget in [*range(0, 40_000, 37), 12_516, 12_515]:
        room = budget * 3 // 4
        rows, s = row_plan(dataclasses.replace(found, byte_budget=budget), n)

        def fits(rows, s, room=room):
            return rows * (fixed + s * each) <= room

        if fits(n, outputs):
            assert (rows, s) == (n, outputs)
        elif output != "full" and fits(n, 1):
            passes = min(p for p in range(1, outputs + 1) if fits(n, -(-outputs // p)))
            assert (rows, s) == (n, -(-outputs // passes))
        elif fits(2, outputs):  # a tile of rows on each side
            assert s == outputs and fits(2 * rows, outputs) and not fits(2 * (rows + 1), outputs)
        else:
            assert rows == 1 and 1 <= s <= outputs
            assert s == 1 or fits(2, s)
            assert s == outputs or not fits(2, s + 1)


@pytest.mark.parametrize("output", ["trace", "full", "sum", 2])
def test_cuts_change_nothing(output):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 5)).double()
    x1, x2 = torch.randn(5, 2, 4, dtype=torch.float64), torch.randn(3, 2, 4, dtype=torch.float64)
    reference = ntkit.empirical(module, output=output, method="jacobian")
    for budget in (1, 3000, 6000, 20_000, 2**29):
        found = ntkit.empirical(module, output=output, method="structured", byte_budget=budget)
        for arguments in ((x1,), (x1, x2)):
            torch.testing.assert_close(found.ntk(*arguments), reference.ntk(*arguments), rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(found.ntk.diag(x1), reference.ntk(x1).diagonal(), rtol=1e-12, atol=1e-13)


class _Switching(nn.Module):
    """Calls another layer for longer batches."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x):
        return self.first(x) if len(x) <= 3 else self.second(x)


def test_a_module_that_looks_at_its_batch_is_refused():
    with pytest.raises(ntkit.errors.InputError, match="computes differently on other batches"):
        ntkit.empirical(_Switching(), method="structured").ntk(torch.randn(5, 2))
