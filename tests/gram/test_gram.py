"""ntkit.gram against the kernel itself: in memory, on disk, resumed, damaged, refused."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import mlp
from torch import Tensor, nn

import ntkit
from ntkit._src.gram import Tile
from ntkit.errors import InputError, InputTypeError, MemoryLimitError, StoreError

ENDINGS = [".zarr", ".npy"]


def _network() -> ntkit.Kernel:
    net = mlp(3, 8, 8, 1)
    return ntkit.infinite_width(net, b_std=0.2).ntk


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("out", [None, *ENDINGS])
@pytest.mark.parametrize("tile", [None, 1, 7, 23])
def test_equals_the_kernel_to_the_bit(x: Tensor, out: str | None, tile: int | None, dtype: torch.dtype, tmp_path: Path):
    kernel, x = _network(), x[: 8 if tile == 1 else None].to(dtype)
    path = None if out is None else tmp_path / f"k{out}"
    for x2 in (None, x[:5] + 0.1 if tile == 1 else x[:10] + 0.1):
        if path is not None:
            path = path.with_stem("k" if x2 is None else "cross")
        found = ntkit.gram(kernel, x, x2, out=path, tile=tile)
        dense = found if isinstance(found, Tensor) else found.to_dense()
        assert dense.dtype == dtype
        assert torch.equal(dense, kernel(x, x2))
        if path is not None:
            assert torch.equal(ntkit.open_gram(path).to_dense(), dense)


def test_stores_single_precision_of_a_kernel_computed_in_double(x: Tensor, tmp_path: Path):
    kernel = _network()
    found = ntkit.gram(kernel, x, out=tmp_path / "k.zarr", tile=8, dtype=torch.float32)
    assert torch.equal(found.to_dense(), kernel(x).float())


def test_other_libraries_read_the_matrix(x: Tensor, linear: Any, tmp_path: Path):
    import zarr

    dense = linear(x).numpy()
    ntkit.gram(linear, x, out=tmp_path / "k.npy", tile=5)
    np.testing.assert_array_equal(np.load(tmp_path / "k.npy"), dense)
    ntkit.gram(linear, x, x, out=tmp_path / "cross.zarr", tile=5)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "cross.zarr", mode="r")[:], dense)
    ntkit.gram(linear, x, out=tmp_path / "k.zarr", tile=5)
    upper = zarr.open_array(tmp_path / "k.zarr", mode="r")[:]
    assert np.isnan(upper[20, 0]), "what is not stored must not read as a number"
    np.testing.assert_array_equal(np.triu(upper), np.triu(dense))


@pytest.mark.parametrize("ending", ENDINGS)
def test_resumes_where_it_was_stopped(x: Tensor, linear: Any, ending: str, tmp_path: Path):
    path = tmp_path / f"k{ending}"

    def stop(done: int, total: int) -> None:
        if done > 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ntkit.gram(linear, x, out=path, tile=5, progress=stop)
    first = linear.calls
    partial = ntkit.open_gram(path)
    assert not partial.complete and "missing" in repr(partial)
    assert not (tmp_path / "k.npy").exists(), "an unfinished .npy has another name"
    with pytest.raises(StoreError, match=r"tile \(4, 4\).*not computed yet"):
        partial.tile(Tile(4, 4))

    seen: list[tuple[int, int]] = []
    whole = ntkit.gram(
        linear, x, out=path, progress=lambda *at: seen.append(at)
    )  # the tile of the store, not the default one
    assert whole.complete and whole.plan.size == 5
    assert first < 15 and linear.calls <= 16, "at most the tile in flight is computed twice"
    assert seen[0][0] > 0 and seen == sorted(seen) and {total for _, total in seen} == {whole.plan.entries}
    assert seen[-1] == (whole.plan.entries, whole.plan.entries)
    calls = linear.calls
    ntkit.gram(linear, x, out=path)
    assert linear.calls == calls
    alone = tmp_path / "alone"
    alone.mkdir()
    ntkit.gram(linear, x, out=alone / f"k{ending}", tile=5)
    mine = {
        name: text for name, text in _files(tmp_path).items() if not name.startswith("alone") and "tiles" not in name
    }
    assert mine == {name: text for name, text in _files(alone).items() if "tiles" not in name}


def _damage(path: Path, how: str) -> None:
    file = path / "c" / "0" / "1" if path.suffix == ".zarr" else path
    content = bytearray(file.read_bytes())
    place = 40 if path.suffix == ".zarr" else len(content) // 2
    match how:
        case "flipped":
            content[place] ^= 1
            file.write_bytes(content)
        case "cut off":
            file.write_bytes(content[: len(content) // 2])
        case "gone":
            file.unlink()


@pytest.mark.parametrize("how", ["flipped", "cut off", "gone"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_damaged_tile_is_refused_and_computed_anew(x: Tensor, linear: Any, ending: str, how: str, tmp_path: Path):
    if ending == ".npy" and how == "gone":
        pytest.skip("tiles of an .npy file are one file")
    path = tmp_path / f"k{ending}"
    ntkit.gram(linear, x, out=path, tile=8)
    calls = linear.calls
    _damage(path, how)
    with pytest.raises(StoreError, match=r"damaged|gone"):
        ntkit.open_gram(path).to_dense()
    again = ntkit.gram(linear, x, out=path)
    assert torch.equal(again.to_dense(), linear(x))
    if ending == ".zarr":
        assert linear.calls == calls + 2, "one tile, and the one of this test"


def test_a_half_written_line_of_the_journal_costs_one_tile(x: Tensor, linear: Any, tmp_path: Path):
    path = tmp_path / "k.zarr"
    ntkit.gram(linear, x, out=path, tile=8)
    journal = path / "ntkit-tiles.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    calls = linear.calls
    assert torch.equal(ntkit.gram(linear, x, out=path).to_dense(), linear(x))
    assert linear.calls == calls + 2
    assert ntkit.open_gram(path).complete


DIFFERENT: list[tuple[str, dict[str, Any]]] = [
    ("x1: other data", {"x1": lambda x: x + 1}),
    ("x1: other data", {"x1": lambda x: x.flip(0)}),
    ("tile: 8 is stored, 9 requested", {"tile": 9}),
    ("dtype: float64 is stored, float32 requested", {"dtype": torch.float32}),
    ("symmetric: True is stored, False requested", {"x2": lambda x: x}),
    (r"Linear.fingerprint\(\)", {"kernel": "other"}),
]


@pytest.mark.parametrize(("message", "change"), DIFFERENT)
def test_a_store_of_something_else_is_refused(x: Tensor, linear: Any, message: str, change: Any, tmp_path: Path):
    path = tmp_path / "k.zarr"
    ntkit.gram(linear, x, out=path, tile=8)
    before = _files(tmp_path)
    x1 = change.get("x1", lambda x: x)(x)
    x2 = change["x2"](x) if "x2" in change else None
    linear.name = change.get("kernel", linear.name)
    with pytest.raises(StoreError, match=message):
        ntkit.gram(linear, x1, x2, out=path, tile=change.get("tile", 8), dtype=change.get("dtype"))
    assert _files(tmp_path) == before
    fresh = ntkit.gram(linear, x1, x2, out=path, tile=change.get("tile", 8), dtype=change.get("dtype"), resume=False)
    assert fresh.complete


def test_another_version_of_the_library_is_refused(x: Tensor, linear: Any, tmp_path: Path):
    path = tmp_path / "k.npy"
    ntkit.gram(linear, x, out=path)
    notes = tmp_path / "k.npy.ntkit.json"
    notes.write_text(notes.read_text().replace(f'"library": "{ntkit.__version__}"', '"library": "0.0.1"'))
    with pytest.raises(StoreError, match=rf"library: 0.0.1 is stored, {ntkit.__version__} requested"):
        ntkit.gram(linear, x, out=path)
    notes.write_text("{")
    with pytest.raises(StoreError, match="manifest"):
        ntkit.gram(linear, x, out=path)
    notes.write_text('{"format": 2}')
    with pytest.raises(StoreError, match="layout 2"):
        ntkit.open_gram(path)


def test_gains_and_layers_of_a_network_are_told_apart(x: Tensor, tmp_path: Path):
    def kernel(w_std: float = 1.0, activation: nn.Module | None = None, which: str = "ntk") -> ntkit.Kernel:
        net = nn.Sequential(nn.Linear(3, 8), activation or nn.ReLU(), nn.Linear(8, 1))
        return getattr(ntkit.infinite_width(net, w_std=w_std), which)

    path = tmp_path / "k.zarr"
    ntkit.gram(kernel(), x, out=path)
    ntkit.gram(kernel(), x, out=path)
    for other, part in (
        (kernel(1.1), "linear at '0'"),
        (kernel(activation=nn.GELU()), "gelu at '1'"),
        (kernel(which="nngp"), "nngp"),
    ):
        with pytest.raises(StoreError, match=part):
            ntkit.gram(other, x, out=path)


def test_a_full_disk_is_found_before_the_run(x: Tensor, linear: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
    with pytest.raises(StoreError, match=r"needs 4\.\d kB more on disk, and 100 bytes are free.*float32"):
        ntkit.gram(linear, x, out=tmp_path / "k.zarr")
    assert not list(tmp_path.iterdir()) and linear.calls == 0


def test_a_disk_that_fills_up_loses_nothing(x: Tensor, linear: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, sync, writes = tmp_path / "k.zarr", os.fsync, []

    def full(handle: int) -> None:
        writes.append(handle)
        if len(writes) > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"no space is left.*kept.*again"):
        ntkit.gram(linear, x, out=path, tile=5)
    monkeypatch.setattr(os, "fsync", sync)
    assert 0 < len(ntkit.open_gram(path).store.missing) < 15
    assert not list(path.rglob("*tmp*")), "half a tile was left behind"
    assert torch.equal(ntkit.gram(linear, x, out=path).to_dense(), linear(x))


def test_a_folder_that_may_not_be_written_to(x: Tensor, linear: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "readonly"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # the superuser may write anywhere
        mkdir = Path.mkdir

        def refuse(self: Path, *args: Any, **kwargs: Any) -> None:
            if self.parent == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            mkdir(self, *args, **kwargs)

        monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"not allowed.*may write"):
        ntkit.gram(linear, x, out=folder / "new" / "k.zarr")


def test_an_error_of_the_progress_callback_is_raised_as_it_is(x: Tensor, linear: Any, tmp_path: Path):
    def broken(done: int, total: int) -> None:
        raise BrokenPipeError("nobody reads the progress")

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        ntkit.gram(linear, x, out=tmp_path / "k.zarr", tile=16, progress=broken)


def test_what_is_not_a_store_is_left_alone(x: Tensor, linear: Any, tmp_path: Path):
    np.save(tmp_path / "mine.npy", np.ones(3))
    for resume in (True, False):
        with pytest.raises(StoreError, match="not a Gram matrix stored by ntkit"):
            ntkit.gram(linear, x, out=tmp_path / "mine.npy", resume=resume)
    assert np.load(tmp_path / "mine.npy").sum() == 3
    with pytest.raises(StoreError, match="no stored Gram matrix"):
        ntkit.open_gram(tmp_path / "mine.npy")


def test_two_runs_do_not_share_a_store(x: Tensor, linear: Any, tmp_path: Path):
    path = tmp_path / "k.zarr"

    def second(done: int, total: int) -> None:
        with pytest.raises(StoreError, match="another run"):
            ntkit.gram(linear, x, out=path)

    ntkit.gram(linear, x, out=path, tile=8, progress=second)


def test_too_large_for_memory(linear: Any):
    x = torch.zeros(1, 1).expand(3_000_000, 1)
    with pytest.raises(MemoryLimitError, match=r"36\.0 TB.*out='name.zarr'"):
        ntkit.gram(linear, x)


class Bad(ntkit.Kernel):
    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Any:
        return self.value(x1, x1 if x2 is None else x2)

    def diag(self, x: Tensor) -> Tensor:
        return x[:, 0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kernel": 3}, InputTypeError, "kernel must be an ntkit Kernel"),
        ({"x1": [[1.0]]}, InputTypeError, "x must be a torch.Tensor"),
        ({"x1": torch.full((3, 2), torch.nan)}, InputError, "finite"),
        ({"tile": 0}, InputError, "tile must be at least 1"),
        ({"tile": 2.5}, InputTypeError, "tile must be an integer"),
        ({"dtype": torch.float16}, InputTypeError, "float32, torch.float64 or None"),
        ({"out": "k.csv"}, InputError, r"end in \.zarr or \.npy"),
        ({"out": 3}, InputTypeError, "must be a path"),
        ({"kernel": Bad(lambda a, b: a @ b.T), "out": "k.npy"}, InputError, r"method fingerprint\(self\)"),
        ({"kernel": Bad(lambda a, b: a)}, InputError, r"shape \(23, 23\).*Got shape \(23, 3\)"),
        ({"kernel": Bad(lambda a, b: 1e300 * (1e300 * a @ b.T))}, InputError, "beyond the range"),
        ({"kernel": Bad(lambda a, b: 1e300 * a @ b.T), "dtype": torch.float32}, InputError, "beyond the range"),
    ],
)
def test_bad_input(x: Tensor, linear: Any, change: dict[str, Any], error: type, message: str, tmp_path: Path):
    arguments: dict[str, Any] = {"kernel": linear, "x1": x, **change}
    if isinstance(arguments.get("out"), str):
        arguments["out"] = tmp_path / arguments["out"]
    with pytest.raises(error, match=message):
        ntkit.gram(**arguments)
