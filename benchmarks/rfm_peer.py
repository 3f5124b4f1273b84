"""xrfm 0.4.5 as a process of its own: one job a line on the standard input, one answer a line on the standard output.

A job is a JSON object with the path of an .npz file (x, y, x_test; y one column or one-hot) and settings; the answer has the
seconds of the fit and the predictions.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from xrfm.rfm_src import RFM

CLOCKS = {False: time.perf_counter, True: time.process_time}
VALIDATION_ROWS = 50  # it always validates; so many rows cost little


def machine(job: dict, diagonal: bool, bandwidth: float, iters: int) -> RFM:
    """Give a machine that is not fitted yet."""
    return RFM(
        kernel="laplace", iters=iters, bandwidth=bandwidth, diag=diagonal, device="cpu", verbose=False,
        tuning_metric=job.get("metric", "mse"),
    )  # fmt: skip


def fixed(job: dict, x: torch.Tensor, y: torch.Tensor, x_test: torch.Tensor) -> tuple[float, np.ndarray]:
    """Fit with the settings of the job."""
    model = machine(job, job["diagonal"], job["bandwidth"], job["iterations"])
    start = CLOCKS[job["cpu_time"]]()
    model.fit(
        (x, y), (x[:VALIDATION_ROWS], y[:VALIDATION_ROWS]), iters=job["iterations"], reg=job["ridge"],
        return_best_params=False, early_stop_rfm=False,
    )  # fmt: skip
    seconds = CLOCKS[job["cpu_time"]]() - start
    return seconds, model.predict(x_test).numpy()


def grid(job: dict, x: torch.Tensor, y: torch.Tensor, x_test: torch.Tensor) -> tuple[float, np.ndarray]:
    """Choose bandwidth, ridge and full or diagonal metric on a fifth of the rows, and fit again on all."""
    rows = torch.from_numpy(np.random.RandomState(0).permutation(len(x)))
    held_out, rest = rows[: len(x) // 5], rows[len(x) // 5 :]
    start = CLOCKS[job["cpu_time"]]()
    best = None
    for bandwidth in (2.0, 10.0):
        for ridge in (1e-3, 1e-1):
            for diagonal in (False, True):
                model = machine(job, diagonal, bandwidth, 5)
                model.fit((x[rest], y[rest]), (x[held_out], y[held_out]), iters=5, reg=ridge, early_stop_rfm=False)
                found = model.predict(x[held_out]).argmax(1)
                accuracy = float((found == y[held_out].argmax(1)).double().mean())
                iters = 5 if model.best_iter is None else int(model.best_iter)
                if best is None or accuracy > best[0]:
                    best = (accuracy, bandwidth, ridge, diagonal, iters)
    _, bandwidth, ridge, diagonal, iters = best
    model = machine(job, diagonal, bandwidth, iters)
    model.fit(
        (x, y),
        (x[:VALIDATION_ROWS], y[:VALIDATION_ROWS]),
        iters=iters,
        reg=ridge,
        return_best_params=False,
        early_stop_rfm=False,
    )
    return CLOCKS[job["cpu_time"]]() - start, model.predict(x_test).numpy()


def main() -> None:
    """Answer the jobs."""
    for line in sys.stdin:
        job = json.loads(line)
        torch.set_num_threads(job["threads"])
        with np.load(job["data"]) as data:
            x, y, x_test = (torch.from_numpy(data[name]).float() for name in ("x", "y", "x_test"))
        seconds, predictions = (grid if job.get("grid") else fixed)(job, x, y, x_test)
        print(json.dumps({"seconds": seconds, "predictions": predictions.tolist()}), flush=True)


if __name__ == "__main__":
    main()
