"""The native engine: the same bits whatever the threads and tiles, exact symmetry, interruption, progress."""

import os
import signal
import threading
import time
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from tests.cases import Function, Residual, mlp, normal
from torch import nn

import ntkit
from ntkit._src.native import NativeEngine, _core, _runner, _tapes


def convs(*channels, **options):
    layers = []
    for a, b in pairwise(channels):
        layers += [nn.Conv2d(a, b, 3, **options), nn.ReLU()]
    return layers


POOLED = nn.Sequential(
    *convs(3, 8, padding=1),
    nn.AvgPool2d(2),
    *convs(8, 8, padding=1),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 1),
)


def engine_of(net, *shape):
    return NativeEngine(ntkit.infinite_width(net).program(shape))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_same_bits_whatever_the_threads_and_tiles(threads, monkeypatch):
    x, z = normal(13, 3, 8, 8), normal(9, 3, 8, 8, seed=1)
    x[2, :, :, :5], z[3] = 0, 0  # variances that are zero, in some blocks only
    results = []
    for count, chunk in ((1, 48 << 20), (2, 48 << 20), (3, 1 << 14), (2, 1)):
        threads(count)
        monkeypatch.setattr(_runner, "_CHUNK_BYTES", chunk)
        engine = engine_of(POOLED, 3, 8, 8)
        results.append([*engine.gram(x, None, True, True), *engine.gram(x, z, True, True), engine.diag(x, True)])
        results[-1] += [*engine.gram(x.float(), None, True, True)]
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("head", ["flatten", "average"])
def test_same_bits_whatever_the_neighbours(head, signed, dtype):
    """Copies, multiples, parts far apart in size and disjoint ones are gone into; what stands beside them must not notice."""
    x = normal(20, 3, 9, 9).to(dtype)
    x = x if signed else x.abs()
    x[1], x[2], x[3, :, :, :4] = x[0], 3 * x[0], 2 * x[0, :, :, :4]
    x[4, :, :5] *= 1e-8
    x[5, :2], x[6, 2] = 0, 0  # disjoint
    x[5], x[6] = x[5].abs(), x[6].abs()
    x[7] = 1
    pool = [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    net = nn.Sequential(*convs(3, 4, 4, 4, padding=1), *pool, nn.Flatten(), nn.Linear(4 if pool else 324, 1))
    engine = engine_of(net, 3, 9, 9)
    whole = engine.gram(x, x.clone(), True, True)
    assert all(torch.isfinite(kernel).all() for kernel in whole)
    for column in range(len(x)):
        alone = engine.gram(x, x[column : column + 1], True, True)
        assert all(torch.equal(a[:, column : column + 1], b) for a, b in zip(whole, alone, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vectors_on_any_number_of_threads(dtype, threads, monkeypatch):
    """Not the same bits: torch's BLAS computes the inner products, and some round otherwise with other threads or batches."""
    close = partial(torch.testing.assert_close, rtol=2e-5 if dtype == torch.float32 else 1e-13, atol=0)
    x = normal(1300, 50).to(dtype)  # three tiles of matrix products
    net = mlp(50, 8, 8, 1)
    results = []
    for count, chunk in ((1, 48 << 20), (2, 48 << 20), (2, 1 << 16)):
        threads(count)
        monkeypatch.setattr(_runner, "_CHUNK_BYTES", chunk)
        engine = engine_of(net, 50)
        whole = engine.gram(x, None, True, True)
        for part in (engine.gram(x[7:9], x, True, True), engine.gram(x, x[1290:1291], True, True)):
            results.append([*part])
        results.append([*whole])
    for group in range(3):
        for other in results[group::3]:
            close(results[group], other)
    # Below its diagonal a Gram matrix is a mirror image, where x and x' have changed places.
    close(results[0][0][:, 9:], results[2][0][7:9, 9:])
    close(results[1][0][:1290], results[2][0][:1290, 1290:1291])


@pytest.mark.parametrize("chunk", [1, 1 << 12, 48 << 20])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 150])
def test_vectors_in_blocks_of_any_size(n, chunk, monkeypatch):
    monkeypatch.setattr(_runner, "_CHUNK_BYTES", chunk)
    net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(0.1), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net, b_std=0.2)
    x, z = normal(n, 12), normal(70, 12, seed=1)
    z[0] = x[0]
    for other in (None, z):
        native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
        for a, b in zip(native, reference, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)
    torch.testing.assert_close(limit.ntk.diag(x), limit.ntk(x).diagonal(), rtol=1e-14, atol=0)


def test_symmetric_to_the_bit_and_equal_to_two_batches():
    x = normal(11, 3, 8, 8)
    engine = engine_of(POOLED, 3, 8, 8)
    whole = engine.gram(x, None, True, True)
    pair = engine.gram(x, x.clone(), True, True)
    for a, b in zip(whole, pair, strict=True):
        assert torch.equal(a, a.T)
        torch.testing.assert_close(a, b, rtol=1e-14, atol=0)


def test_repeated_inputs_are_exact():
    x = normal(4, 3, 8, 8)
    engine = engine_of(POOLED, 3, 8, 8)
    torch.testing.assert_close(
        engine.gram(x, x.clone(), True, False).ntk.diagonal(), engine.diag(x, True), rtol=1e-14, atol=0
    )


def test_progress_counts_every_entry(monkeypatch):
    monkeypatch.setattr(_runner, "_CHUNK_BYTES", 1 << 14)
    x = normal(19, 3, 8, 8)
    engine = engine_of(POOLED, 3, 8, 8)
    for x2, total in ((None, 190), (x[:7], 133)):
        calls = []
        engine.gram(x, x2, True, False, progress=lambda done, there_are, calls=calls: calls.append((done, there_are)))
        assert calls[-1] == (total, total)
        assert all(there_are == total for _, there_are in calls)
        assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_an_error_of_the_progress_callback_is_raised():
    def fail(done, there_are):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        engine_of(POOLED, 3, 8, 8).gram(normal(5, 3, 8, 8), None, True, False, progress=fail)


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background of a shell ignore it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interruption_stops_within_a_second_and_leaves_no_threads():
    net = nn.Sequential(*convs(3, *[8] * 6, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    engine = engine_of(net, 3, 16, 16)
    x = normal(2000, 3, 16, 16)
    engine.runner().plan("between", True)
    before = len(os.listdir("/proc/self/task")) if os.path.exists("/proc/self/task") else None
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(1.0, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.gram(x, None, True, False)
    assert time.monotonic() - sent[0] < 1.0
    timer.join()
    if before is not None:
        assert len(os.listdir("/proc/self/task")) <= before


@pytest.mark.parametrize(
    ("data", "units", "cache", "message"),
    [(5, 1, 0, "wrong size"), (4, 1, 1, "wrong shape"), (4, 2, 0, "one unit per input, or three")],
)
def test_arrays_of_another_shape_are_refused(data, units, cache, message):
    plan = engine_of(mlp(4, 8, 1), 4).runner().plan("cache", False)
    with pytest.raises(ValueError, match=message):
        _core.self(
            plan.tape,
            numbers=np.zeros((2, data)),
            units=np.ones((2, units)),
            products=np.zeros((1, 1, 1, 1, 512)),
            cache_known=False,
            cache=np.zeros((2, plan.cache_size + cache)),
            nngp=np.zeros(2),
            ntk=np.zeros(2),
            threads=1,
            progress=None,
        )


def test_convolution_that_shrinks_one_axis_and_grows_another():
    """Between its two passes a plane is larger than before and after."""
    net = nn.Sequential(
        nn.Conv2d(1, 4, (3, 1), stride=(3, 1), padding=(0, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(40, 1)
    )
    x = normal(5, 1, 7, 1)
    limit = ntkit.infinite_width(net, b_std=0.3)
    torch.testing.assert_close(limit.ntk(x, engine="native"), limit.ntk(x, engine="reference"), rtol=1e-12, atol=0)


def test_only_the_planes_that_are_needed():
    """One plane an operation under flatten, all of them under global pooling, (2 k - 1)^2 under a k x k pool."""
    flat = (
        engine_of(nn.Sequential(*convs(3, 8, padding=1), nn.Flatten(), nn.Linear(512, 1)), 3, 8, 8)
        .runner()
        .plan("between", True)
    )
    assert flat.planes == 4  # a convolution and its activation are one
    gap = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    assert engine_of(gap, 3, 8, 8).runner().plan("between", True).planes == 2 * 15 * 15 + 15 + 1 + 1 + 1
    pool = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 1))
    assert engine_of(pool, 3, 8, 8).runner().plan("between", True).planes == 2 * 9 + 3 + 1 + 1 + 1


@pytest.mark.parametrize("mode", ["zeros", "circular"])
@pytest.mark.parametrize("kernel", [2, 3])
def test_planes_computed_again_are_the_same(kernel, mode, monkeypatch):
    """Where little may be kept, planes that pools share are computed for each offset: more of them, in less room."""
    convolutions = {"padding": 1, "padding_mode": mode}
    net = nn.Sequential(
        *convs(3, 4, **convolutions), nn.AvgPool2d(kernel), *convs(4, 4, **convolutions), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 1),
    )  # fmt: skip
    x = normal(5, 3, 12, 10)
    results, plans = [], []
    for room in (_tapes.KEPT_BYTES, 0):
        monkeypatch.setattr(_tapes, "KEPT_BYTES", room)
        engine = engine_of(net, 3, 12, 10)
        plans.append(engine.runner().plan("between", True))
        results.append(engine.gram(x, None, True, True))
    assert plans[0].planes < plans[1].planes
    assert plans[0].kept_bytes > plans[1].kept_bytes
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


CIRCULAR = {"padding": 1, "padding_mode": "circular"}


def head():
    return nn.Flatten(), nn.LazyLinear(1)


NETWORKS = {
    "flatten": ((3, 6, 5), [*convs(3, 4, 4, padding=1), *head()]),
    "average": ((3, 5, 6), [*convs(3, 4, 4, padding=1), nn.AdaptiveAvgPool2d(1), *head()]),
    "layers after the average": (
        (3, 5, 5),
        [*convs(3, 4, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)],
    ),
    "pools between": (
        (3, 8, 8),
        [
            *convs(3, 4, padding=1), nn.AvgPool2d(2), *convs(4, 4, padding=1), nn.AvgPool2d(3, 2, 1), *convs(4, 4, padding=1),
            *head(),
        ],
    ),
    "pools that count no padding": (
        (3, 6, 6),
        [*convs(3, 4, padding=1), nn.AvgPool2d(3, 2, 1, count_include_pad=False), *convs(4, 4, padding=1), *head()],
    ),
    "circular": ((3, 6, 4), [*convs(3, 4, 4, **CIRCULAR), nn.AdaptiveAvgPool2d(1), *head()]),
    "circular, then pools": (
        (3, 6, 6), [*convs(3, 4, **CIRCULAR), nn.AvgPool2d(2), *convs(4, 4, **CIRCULAR), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "circular with a stride, then zeros": (
        (3, 7, 5), [*convs(3, 4, stride=2, **CIRCULAR), *convs(4, 4, padding=1), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "zeros, then circular": (
        (3, 5, 4), [*convs(3, 4, padding=2), *convs(4, 4, **CIRCULAR), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "wide pools, then circular": (
        (3, 8, 7), [*convs(3, 4, padding=1), nn.AvgPool2d(5, 1), *convs(4, 4, **CIRCULAR), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "three axes": (
        (2, 3, 4, 3), [nn.Conv3d(2, 4, (2, 3, 2), (1, 2, 1), 1), nn.ReLU(), nn.AdaptiveAvgPool3d(1), *head()]
    ),
    "mean over one axis": (
        (3, 5, 4),
        [*convs(3, 4, padding=1), Function(lambda x: x.mean(2)), nn.Conv1d(4, 4, 3, padding=1), nn.LeakyReLU(0.2), *head()],
    ),
    "slices and padding": (
        (3, 6, 6),
        [
            *convs(3, 4, padding=1), Function(lambda x: nn.functional.pad(x[:, :, 1::2], (2, 1))), nn.Conv2d(4, 4, 1),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), *head(),
        ],
    ),
    "residual": (
        (3, 5, 5),
        [nn.Conv2d(3, 4, 3, padding=1), Residual(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)), nn.AdaptiveAvgPool2d(1), *head()],
    ),
    "normalised": (
        (6,), [nn.Linear(6, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1)]
    ),
    "normalised over positions": (
        (3, 4, 4), [nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(1, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "smooth": (
        (6,),
        [
            nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 4), Function(torch.erf), nn.Linear(4, 4), Function(torch.sin),
            nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), Function(torch.cos), nn.Linear(4, 1),
        ],
    ),
    "polynomials": (
        (3, 4, 4), [nn.Conv2d(3, 4, 3, padding=1), Function(lambda x: x**3), nn.AdaptiveAvgPool2d(1), *head()]
    ),
    "a multiple": ((3, 4, 4), [nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), Function(lambda x: 2 * x), *head()]),
    "a constant": (
        (6,), [nn.Linear(6, 4), Function(lambda x: x + 1.5), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)]
    ),
    "a constant at every position": (
        (3, 4, 4),
        [
            nn.Conv2d(3, 4, 3, padding=1), Function(lambda x: x - 0.5), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), *head(),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("b_std", [0.0, 0.3])
def test_as_the_reference_engine(name, b_std):
    """Also for equal, opposite and nearly equal inputs, and multiples of one another."""
    shape, layers = NETWORKS[name]
    net = nn.Sequential(*layers).double()
    x = normal(8, *shape)
    net(x)  # gives lazy layers their sizes
    x[1], x[2], x[3], x[4], x[5] = x[0], 3 * x[0], -x[0], x[0] + 1e-3 * x[6], 0 * x[0]
    limit = ntkit.infinite_width(net, b_std=b_std)
    native, reference = (limit.both(x, engine=engine) for engine in ("native", "reference"))
    for a, b in zip(native, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13 * b.abs().max().item())
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-13, atol=0)


def smooth_images(n, side, seed=0):
    """Images as real ones are, with neighbours alike: waves of few periods, between 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand((n, 3, side // 4, side // 4), generator=generator)
    return nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")


@pytest.mark.parametrize("depth", [3, 20])
@pytest.mark.parametrize("head", ["flatten", "average"])
def test_single_precision_can_be_trusted(depth, head):
    """Against double precision on the same numbers: 5e-6, and 1e-6 where two inputs are the same, near copies included."""
    pool = [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    net = nn.Sequential(*convs(3, *[4] * depth, padding=1), *pool, nn.Flatten(), nn.Linear(4 if pool else 576, 1))
    x = smooth_images(8, 12)
    x[1], x[2], x[3] = x[0], x[0] * (1 + 1e-4), x[0] + 1e-3 * smooth_images(1, 12, seed=1)[0]
    x[4], x[5], x[6, :, :6] = 0.5 * x[0], 1.7 * x[3], 0
    limit = ntkit.infinite_width(net)
    single, double = (limit.both(z, engine="native") for z in (x, x.double()))
    for a, b in zip(single, double, strict=True):
        error = (a.double() / b - 1).abs()
        assert a.dtype == torch.float32 and torch.equal(a, a.T)
        assert error.max() < 5e-6
        assert max(error.diagonal().max(), error[0, 1]) < 1e-6


def test_vectors_of_single_precision():
    net = mlp(50, 8, 8, 8, 1)
    x = normal(200, 50).float()
    x[1], x[2], x[3], x[4] = x[0], x[0] + 1e-4 * x[5], 7 * x[0], 1e-3 * x[6]
    limit = ntkit.infinite_width(net, b_std=0.1)
    for a, b in zip(limit.both(x, engine="native"), limit.both(x.double(), engine="native"), strict=True):
        error = (a.double() - b).abs() / (b.diagonal()[:, None] * b.diagonal()).sqrt()
        assert error.max() < 2e-6
        assert error.diagonal().max() < 1e-6
