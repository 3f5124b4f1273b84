"""The 53,940 diamonds: Nystrom regression of the log price, with centres, ridge and gains chosen on held-out rows.

    python benchmarks/scale_diamonds.py --data diamonds.csv [--centres 1000 2000 4000] [--rows 53940] [--store]

``diamonds.csv`` is in the PyPI package plotnine. A fifth of the rows is for testing and never looked at before; a tenth of the
rest is held out to choose everything: the metric of the inputs (the identity, or that which a recursive feature machine learns
from 1,500 training rows, or the root of that), depth, bias gain, ridge. Peers, on the same rows: HistGradientBoosting with its
defaults, Nystroem (RBF) + Ridge with width and ridge chosen on the held-out rows.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np
import torch
from history import MISSING, Table, add_store, publish, started, threads
from scale_common import apart, by_error, describe, figures, relu_network, stopwatch
from torch import Tensor

import ntkit
from ntkit._src.gram import KernelGram
from ntkit._src.solvers import Nystrom, predict

RIDGES = tuple(10.0 ** (power / 2) for power in range(-18, -3))
GAINS = ((3, 0.1), (3, 0.5), (3, 1.0), (5, 0.5))  # hidden layers and b_std
METRIC_ROWS = 1500  # of the training part, from which a recursive feature machine learns a metric of the inputs


def load(path: str, rows: int) -> tuple[Any, ...]:
    """Give training, held-out and test rows and log prices, float64."""
    import pandas

    table = pandas.read_csv(path)
    numbers = table[["carat", "depth", "table", "x", "y", "z"]].to_numpy(float)
    numbers = np.concatenate([numbers, np.log(numbers[:, :1]), np.log1p(numbers[:, 3:])], 1)
    kinds = pandas.get_dummies(table[["cut", "color", "clarity"]]).to_numpy(float)
    order = np.random.default_rng(0).permutation(len(table))[:rows]
    x, y = np.concatenate([numbers, kinds], 1)[order], np.log(table["price"].to_numpy(float))[order]
    test = len(x) // 5
    held = test + (len(x) - test) // 10
    measured = slice(
        numbers.shape[1]
    )  # some diamonds have sides of 0 or 59 mm: cut to what the training rows mostly have
    x[:, measured] = np.clip(x[:, measured], *np.quantile(x[test:, measured], [0.001, 0.999], axis=0))
    mean, std = x[test:].mean(0), x[test:].std(0) + 1e-12
    x = (x - mean) / std
    return x[held:], y[held:], x[test:held], y[test:held], x[:test], y[:test]


def rmse(found: Any, truth: Any) -> float:
    """Give the root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(found) - truth) ** 2)))


def learned_maps(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Give the roots of a recursive feature machine's metric and of its root, (d, d), which keep the rows' mean square."""
    machine = ntkit.RFMRegressor(iterations=(1, 2, 3), ridge=1e-3).fit(x[:METRIC_ROWS].numpy(), y[:METRIC_ROWS].numpy())
    metric = torch.as_tensor(machine.metric_, dtype=x.dtype)
    values, vectors = torch.linalg.eigh(torch.diag(metric) if metric.ndim == 1 else metric)
    maps = {}
    for name, power in (("learned", 1 / 2), ("root of learned", 1 / 4)):
        root = vectors * values.clamp_min(0) ** power @ vectors.T
        maps[name] = root * (x.square().mean() / (x @ root).square().mean()).sqrt()
    return maps


def ours(path: str, rows: int, centres: int, how: str, tuned: bool) -> dict[str, Any]:
    """Choose metric and gains with few centres, then the ridge with all, on held-out rows; then fit both parts and test."""
    x, y, hx, hy, tx, ty = (torch.from_numpy(part) for part in load(path, rows))
    lap = stopwatch()
    mean = y.mean()
    maps = {"identity": torch.eye(x.shape[1], dtype=x.dtype)}
    if tuned:
        maps |= learned_maps(x, y)
    raw = x, hx, tx

    def best(metric: str, depth: int, b_std: float, m: int) -> tuple[float, float]:
        x, hx, _ = (part @ maps[metric] for part in raw)
        kernel = ntkit.infinite_width(relu_network(x.shape[1], depth), b_std=b_std).ntk
        system = Nystrom(m, how).set_up(KernelGram(kernel, x), RIDGES[0], y - mean)  # type: ignore[arg-type]
        cross = kernel(hx, x[system.centres])
        errors = {r: rmse(cross @ system.with_ridge(r).solve(y - mean).value + mean, hy.numpy()) for r in RIDGES}
        ridge = min(errors, key=lambda r: errors[r])
        return errors[ridge], ridge

    metric, depth, b_std, ridge = "identity", 3, 0.1, 1e-6
    if tuned:
        _, metric, depth, b_std = min((best(k, d, b, min(500, centres))[0], k, d, b) for k in maps for d, b in GAINS)
        _, ridge = best(metric, depth, b_std, centres)
    x, hx, tx = (part @ maps[metric] for part in raw)
    kernel = ntkit.infinite_width(relu_network(x.shape[1], depth), b_std=b_std).ntk
    whole, targets = torch.cat([x, hx]), torch.cat([y, hy]) - mean
    system = Nystrom(centres, how).set_up(KernelGram(kernel, whole), ridge, targets)  # type: ignore[arg-type]
    solution = system.solve(targets)
    found = predict(kernel, tx, whole, solution) + mean
    chosen = {"metric": metric, "ridge": ridge, "depth": depth, "b_std": b_std} if tuned else {}
    return {"seconds": lap(), "RMSE": rmse(found, ty.numpy()), **chosen}


def boosting(path: str, rows: int) -> dict[str, Any]:
    """Fit HistGradientBoosting with its defaults."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    x, y, hx, hy, tx, ty = load(path, rows)
    lap = stopwatch()
    model = HistGradientBoostingRegressor(random_state=0).fit(np.concatenate([x, hx]), np.concatenate([y, hy]))
    return {"RMSE": rmse(model.predict(tx), ty), "seconds": lap()}


def gaussian(path: str, rows: int, centres: int) -> dict[str, Any]:
    """Fit Nystroem + Ridge, width and ridge chosen on the held-out rows."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    x, y, hx, hy, tx, ty = load(path, rows)
    lap = stopwatch()
    tried = {}
    for gamma, alpha in itertools.product((0.003, 0.01, 0.03, 0.1), (1e-6, 1e-4, 1e-2)):
        model = make_pipeline(Nystroem(gamma=gamma, n_components=min(500, centres), random_state=0), Ridge(alpha))
        tried[gamma, alpha] = rmse(model.fit(x, y - y.mean()).predict(hx) + y.mean(), hy)
    gamma, alpha = min(tried, key=lambda one: tried[one])
    model = make_pipeline(Nystroem(gamma=gamma, n_components=centres, random_state=0), Ridge(alpha))
    model.fit(np.concatenate([x, hx]), np.concatenate([y, hy]) - y.mean())
    return {"RMSE": rmse(model.predict(tx) + y.mean(), ty), "seconds": lap(), "gamma": gamma, "alpha": alpha}


def choice(found: dict[str, Any]) -> str:
    """Tell what was chosen on the held-out rows; nothing if nothing was."""
    if "gamma" in found:
        return f"gamma {found['gamma']:g}, ridge {found['alpha']:g}"
    if "metric" in found:
        network = f"{found['depth']} hidden layers, bias gain {found['b_std']:g}"
        return f"metric: {found['metric']}, {network}, ridge {found['ridge']:.1e}"
    return ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--centres", type=int, nargs="*", default=[1000, 2000, 4000])
    parser.add_argument("--rows", type=int, default=53_940)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    describe()
    given = {"path": options.data, "rows": options.rows}
    tried = [("gradient boosting (`HistGradientBoosting`, defaults)", MISSING, apart(boosting, **given))]
    for m in options.centres:
        plain = apart(ours, **given, centres=m, how="uniform", tuned=False)
        tried.append(("ntkit, uniform centres, ridge 1e-6, nothing chosen", f"{m:,}", plain))
        tuned = apart(ours, **given, centres=m, how="rpcholesky", tuned=True)
        tried.append(("ntkit, chosen on held-out rows, `rpcholesky` centres", f"{m:,}", tuned))
        other = apart(gaussian, **given, centres=m)
        tried.append(("RBF `Nystroem` + `Ridge`, chosen on held-out rows", f"{m:,}", other))
    tried.sort(key=lambda one: by_error(one[2]))
    rows = [[name, m, *figures(found, 4)] for name, m, found in tried]
    choices = [[name, m, choice(found)] for name, m, found in tried if choice(found)]
    caption = (
        f"Log price of {options.rows:,} diamonds, a fifth of them for testing, M centres, float64, {threads()}, one run each: "
        "test error, seconds with every choice on held-out rows, and peak memory of the process."
    )
    tables = [
        Table(["model", "M", "RMSE", "seconds", "memory (GB)"], rows, caption),
        Table(["model", "M", "chosen"], choices, "What the same runs chose on held-out rows."),
    ]
    publish("scale_diamonds", tables, start, options.store)


if __name__ == "__main__":
    main()
