import pytest
from torch import nn

import ntkit


def test_explain_tells_what_is_kept():
    first, second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    net = nn.Sequential(first, nn.ReLU(), nn.AvgPool2d(2), second, nn.ReLU(), nn.Flatten(), nn.Linear(512, 1))
    explanation = ntkit.infinite_width(net).explain((3, 16, 16))
    rows = {(row.path, row.operation): row for row in explanation.rows}
    assert rows["1", "relu"].entries_per_pair == 16**4
    assert rows["4", "relu"].entries_per_pair == 64
    assert rows["4", "relu"].own is None
    assert "all" in str(explanation)
    assert len(str(explanation).splitlines()) == 1 + len(explanation.rows)


@pytest.mark.parametrize(
    ("phi", "single", "last"),
    [
        (nn.ReLU(), True, "linear"),
        (nn.GELU(), False, "float32 inputs are computed in float64."),
        (nn.Hardtanh(), False, "The reference engine computes it"),
    ],
)
def test_explain_says_the_precision_of_float32_inputs(phi: nn.Module, single: bool, last: str):
    explanation = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), phi, nn.Linear(8, 1))).explain((3,))
    assert explanation.single_precision == single
    assert str(explanation).splitlines()[-1].startswith(last)


def test_explain_names_the_ranges_beyond_which_the_reference_engine_computes():
    layers = nn.Linear(3, 8), nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)
    explanation = ntkit.infinite_width(nn.Sequential(*layers)).explain((3,))
    assert explanation.ranges == (
        "1 (normalize): standard deviations of any two inputs within a factor of 65,536",
        "3 (tanh): standard deviations up to 2",
    )
    assert str(explanation).splitlines()[-3:] == [
        "The reference engine computes inputs beyond these ranges of the native one:",
        *(f"  {covered}" for covered in explanation.ranges),
    ]
