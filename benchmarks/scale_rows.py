"""Nystrom regression of many rows: time, memory and error beside scikit-learn's, on synthetic rows or on real flights.

    python benchmarks/scale_rows.py [--n 1000000] [--centres 2000] [--peers] [--store]
    python benchmarks/scale_rows.py --flights flights-3m.parquet [--centres 2000] [--store]
    python benchmarks/scale_rows.py --growth 100000 1000000 10000000 [--centres 500] [--store]

Synthetic: 50 normal features, y = a random smooth function of them plus noise; a ReLU network with three hidden layers.
Flights: the delay of each flight from date, distance, origin and destination (``data/flights-3m.parquet`` of the npm package
vega-datasets, read with pyarrow); a tenth of the rows is for testing and another tenth, at most 50,000, for choosing the
ridge. Peers: HistGradientBoosting with its defaults, and Nystroem (RBF, the same number of centres, width chosen on the same
held-out rows) + Ridge. Each runs in a process of its own; memory is that process's peak, data and imports included.
Growth: ntkit alone, on several numbers of synthetic rows. The three ways are stored as scale_rows, scale_flights and
scale_growth.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from history import Table, add_store, publish, started, threads
from scale_common import apart, by_error, describe, figures, relu_network, stopwatch

import ntkit
from ntkit._src.gram import KernelGram
from ntkit._src.solvers import Nystrom, predict

FEATURES, HELD_OUT = 50, 50_000
RIDGES = tuple(10.0**power for power in range(-9, 3))


def synthetic(n: int) -> tuple[Any, Any]:
    """Give n rows with 50 features and their targets, float32."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(FEATURES, 8)) / FEATURES**0.5, random.normal(size=8)
    x = np.empty((n, FEATURES), np.float32)
    y = np.empty(n, np.float32)
    for start in range(0, n, 100_000):
        part = slice(start, min(start + 100_000, n))
        x[part] = random.normal(size=(part.stop - part.start, FEATURES))
        y[part] = np.sin(2 * x[part] @ first) @ second + 0.1 * random.normal(size=part.stop - part.start)
    return x, y


def flights(path: str) -> tuple[Any, Any]:
    """Give rows of the flights, standardised, and delays in minutes, float32, in random order."""
    import pandas

    table = pandas.read_parquet(path)
    minute = table["date"].dt.hour * 60 + table["date"].dt.minute
    columns = [
        np.sin(2 * np.pi * minute / 1440), np.cos(2 * np.pi * minute / 1440), minute / 1440,
        table["date"].dt.dayofyear / 366, np.log1p(table["distance"]), table["distance"] / 1000,
    ]  # fmt: skip
    for days in range(7):
        columns.append(table["date"].dt.dayofweek == days)
    for column in ("origin", "destination"):
        for place in table[column].value_counts().index[:40]:
            columns.append(table[column] == place)
    x = np.stack([np.asarray(column, np.float32) for column in columns], 1)
    x = (x - x.mean(0)) / x.std(0)
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], np.asarray(table["delay"], np.float32)[order]


def data(n: int, path: str | None) -> tuple[tuple[Any, Any], tuple[Any, Any], tuple[Any, Any]]:
    """Give rows for training, for choosing and for testing."""
    if path is None:
        x, y = synthetic(n + n // 10)
        test = n // 10
    else:
        x, y = flights(path)
        x, y = x[:n], y[:n]
        test = len(x) // 10
    held = min(HELD_OUT, len(x) // 10)
    return (x[test + held :], y[test + held :]), (x[test : test + held], y[test : test + held]), (x[:test], y[:test])


def rmse(found: Any, truth: Any) -> float:
    """Give the root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(found, np.float64) - truth) ** 2)))


def ours(n: int, path: str | None, centres: int, how: str) -> dict[str, Any]:
    """Fit with the ridge that is best on held-out rows, and predict."""
    (x, y), (hx, hy), (tx, ty) = data(n, path)
    mean, scale = y.mean(), y.std()
    lap = stopwatch()
    x1, y1 = torch.from_numpy(x), torch.from_numpy((y - mean) / scale)
    kernel = ntkit.infinite_width(relu_network(x.shape[1]), b_std=0.1).ntk
    system = Nystrom(centres, how).set_up(KernelGram(kernel, x1), RIDGES[0], y1)  # type: ignore[arg-type]
    points = x1[system.centres]
    cross = kernel(torch.from_numpy(hx), points).double()
    tried = {}
    for ridge in RIDGES:
        value = system.with_ridge(ridge).solve(y1).value.double()
        tried[ridge] = rmse((cross @ value).numpy() * scale + mean, hy)
    best = min(tried, key=lambda ridge: tried[ridge])
    solution = system.with_ridge(best).solve(y1)
    fit = lap()
    found = predict(kernel, torch.from_numpy(tx), x1, solution).numpy() * scale + mean
    seconds = fit + lap()
    return {"seconds": seconds, "fit": fit, "RMSE": rmse(found, ty), "ridge": best, "rows": len(x)}


def boosting(n: int, path: str | None) -> dict[str, Any]:
    """Fit HistGradientBoosting with its defaults, and predict."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    (x, y), _, (tx, ty) = data(n, path)
    lap = stopwatch()
    model = HistGradientBoostingRegressor().fit(x, y)
    fit = lap()
    found = model.predict(tx)
    return {"seconds": fit + lap(), "fit": fit, "RMSE": rmse(found, ty), "rows": len(x)}


def gaussian(n: int, path: str | None, centres: int) -> dict[str, Any]:
    """Fit Nystroem + Ridge with an RBF, its width and the ridge chosen on held-out rows from a part, and predict."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    (x, y), (hx, hy), (tx, ty) = data(n, path)
    lap = stopwatch()
    part = slice(0, 50_000)
    tried = {}
    for gamma in (0.1 / x.shape[1], 0.3 / x.shape[1], 1 / x.shape[1]):
        for alpha in (1e-3, 1e-1):
            small = make_pipeline(Nystroem(gamma=gamma, n_components=min(centres, 500), random_state=0), Ridge(alpha))
            tried[gamma, alpha] = rmse(small.fit(x[part], y[part]).predict(hx), hy)
    gamma, alpha = min(tried, key=lambda one: tried[one])
    model = make_pipeline(Nystroem(gamma=gamma, n_components=centres, random_state=0), Ridge(alpha)).fit(x, y)
    fit = lap()
    found = np.concatenate([model.predict(block) for block in np.array_split(tx, max(1, len(tx) // 20_000))])
    return {"seconds": fit + lap(), "fit": fit, "RMSE": rmse(found, ty), "rows": len(x)}


def models(n: int, path: str | None, centres: int, how: str, peers: bool) -> Table:
    """Compare ntkit with its peers, if they are asked for."""
    given = {"n": n, "path": path}
    found = apart(ours, **given, centres=centres, how=how)
    chosen = f", ridge {found['ridge']:g}, chosen on held-out rows" if "ridge" in found else ""
    tried = [(f'ntkit, `Nystrom({centres}, "{how}")`{chosen}', found)]
    if peers:
        tried.append(("gradient boosting (`HistGradientBoosting`, defaults)", apart(boosting, **given)))
        tried.append((f"RBF `Nystroem` + `Ridge`, M = {centres:,}", apart(gaussian, **given, centres=centres)))
    tried.sort(key=lambda one: by_error(one[1]))
    decimals = 2 if path else 3
    rows = [[name, *figures(found, decimals)] for name, found in tried]
    flights = f"Delays of flights, {found.get('rows', n):,} of them for training"
    what = flights if path else f"Regression of {n:,} synthetic rows with {FEATURES} features"
    caption = (
        f"{what}, {centres:,} centres, float32, {threads()}, one run each: test error, seconds with the choice of the ridge or "
        "of the RBF's width on held-out rows, and peak memory of the process."
    )
    return Table(["model", "RMSE (minutes)" if path else "RMSE", "seconds", "memory (GB)"], rows, caption)


def growth(sizes: list[int], centres: int, how: str) -> Table:
    """Time ntkit on several numbers of rows, and fit how the time grows."""
    found = [apart(ours, n=size, path=None, centres=centres, how=how) for size in sizes]
    times = [(size, one["seconds"]) for size, one in zip(sizes, found, strict=True) if "seconds" in one]
    fitted = ""
    if len(times) > 1:
        fitted = f"; seconds grow as n^{np.polyfit(*np.log(times).T, 1)[0]:.2f}"
    what = f"Regression of n synthetic rows with {FEATURES} features, {centres:,} centres"
    caption = f"{what}, float32, {threads()}, one run each{fitted}."
    rows = [[f"{size:,}", *figures(one)[1:]] for size, one in zip(sizes, found, strict=True)]
    return Table(["rows", "seconds", "memory (GB)"], rows, caption)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, help="rows; 1,000,000, and all of the flights, if not given")
    parser.add_argument("--centres", type=int, default=2000)
    parser.add_argument("--how", default="rpcholesky", choices=["uniform", "rpcholesky", "leverage", "kmeans++"])
    parser.add_argument(
        "--peers", action="store_true", help="compare with scikit-learn's methods, as --flights always does"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--flights", help="the file of flights")
    way.add_argument("--growth", type=int, nargs="+", help="numbers of rows; nothing else is measured")
    add_store(parser)
    options = parser.parse_args()
    start = started()
    describe()
    if options.growth:
        publish("scale_growth", [growth(options.growth, options.centres, options.how)], start, options.store)
        return
    n = options.n or (3_000_000 if options.flights else 1_000_000)
    table = models(n, options.flights, options.centres, options.how, options.peers or bool(options.flights))
    publish("scale_flights" if options.flights else "scale_rows", [table], start, options.store)


if __name__ == "__main__":
    main()
