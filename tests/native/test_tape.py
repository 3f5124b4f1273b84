"""The typed tape: what the core accepts and what it prints."""

import pytest
from tests.native.tapes import AT, GOOD, ROW, step, tape
from torch import nn

import ntkit
from ntkit._src.native import NativeEngine
from ntkit._src.native._core import NOTHING, Kind, Layer, Pool


def test_a_tape_reads_as_it_was_written():
    made = tape()
    assert made.slots == [4, 4, 1] and made.cache_size == 9 and made.data_size == 8
    assert [s.kind for s in made.instructions] == [s.kind for s in GOOD]
    layer = made.operations[AT["layer"]]
    assert layer.kernel == [1, 1, 1] and layer.weight == 2.0 and layer.activation.deviation_at == 1
    assert layer.activation.positive_slope == 1.0 and layer.half_in_at == NOTHING


def test_a_tape_prints_every_operation_and_instruction():
    lines = str(tape()).splitlines()
    assert lines[0] == "tape: batch 1, slots of 4, 4, 1 positions, 1 sums of 1, 8 data and 9 cached numbers per input"
    assert lines[2] == "0     Input      size 1x1x4, channels 2"
    assert lines[3] == "1     Layer      in_size 1x1x4, out_size 1x1x4, weight 2, activation (deviation_at 1)"
    assert "13    Store      size 1x1x4, what half, target_at 5" in lines
    first = lines.index("instructions") + 1
    assert lines[first].split() == ["0", "input", "op", "0", "->", "slot", "0", "[0,0,0]", "->", "H"]
    assert lines[first + 1].split() == [
        "1",
        "layer",
        "op",
        "1",
        "slot",
        "0",
        "[0,0,0]",
        "->",
        "slot",
        "1",
        "[0,0,0]",
        "H",
        "->",
        "K",
    ]
    assert lines[first + 3].split() == [
        "3",
        "reduce",
        "op",
        "2",
        "slot",
        "1",
        "[0,0,0]",
        "->",
        "sum",
        "0",
        "[0,0,0]",
        "K",
        "->",
        "K",
    ]
    assert lines[first + 4].split() == [
        "4",
        "settle",
        "op",
        "3",
        "sum",
        "0",
        "[0,0,0]",
        "->",
        "slot",
        "2",
        "[0,0,0]",
        "H",
        "->",
        "K",
    ]
    assert len(lines) == first + len(GOOD)
    flags = step(
        Kind.LAYER, "layer", theta_in=True, theta_out=True, factor=0.5, cache_only=True, chained=True, in_slot=0
    )
    assert repr(flags).split()[6:] == ["H+Theta", "times", "0.5", "cache", "only", "chained"]


def test_fields_are_named_and_typed():
    with pytest.raises(TypeError, match="Pool has no field strides"):
        Pool(strides=2)
    with pytest.raises((TypeError, RuntimeError)):
        Pool(kernel="wide")
    with pytest.raises(AttributeError):
        Pool().kernel = 3


def test_other_gains_give_the_tape_that_would_be_planned():
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, bias=False),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(16, 1),
    )
    limit, other = ntkit.infinite_width(net, 1.3, 0.4), ntkit.infinite_width(net, 0.8, 0.9)
    engine = NativeEngine(limit.program((2, 4, 4)))
    derived = engine.with_gains(limit.with_gains(0.8, 0.9).program((2, 4, 4)))
    for kind in ("between", "cache", "diag"):
        planned = NativeEngine(other.program((2, 4, 4))).tape(kind)
        assert str(derived.tape(kind)) == str(planned) != str(engine.tape(kind))


@pytest.mark.parametrize(
    ("layers", "says"), [([], "no gains of layer 0"), ([[0, 0, 0, 0]], "zero where"), ([[1, 1, 0, 0]], "zero where")]
)
def test_gains_that_do_not_fit_a_tape(layers, says):
    with pytest.raises(ValueError, match=says):
        tape(operations={"layer": Layer(in_size=ROW, out_size=ROW, weight=2.0, number=0)}, instructions=[]).with_gains(
            layers
        )
