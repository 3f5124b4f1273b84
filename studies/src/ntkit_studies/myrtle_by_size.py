"""Time, operations and accuracy of training with the kernels of the Myrtle network, against the number of images.

Figures 5 and 6 of Golikov et al. 2022: two classes of images with the binary cross-entropy, and all classes with the
cross-entropy. Run it with ``python -m ntkit_studies myrtle_by_size --data cifar.npz``; without data it uses
scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import sys
from functools import partial

from ._by_size import Settings, cells, estimate, prepare, report
from ._deep_networks import myrtle
from ._flow_costs import compute
from ._images import FILES
from .skeleton import Experiment, Size

__all__ = ["EXPERIMENT", "PAPER_SECONDS", "QUICK", "main", "run"]

QUICK = Settings(sizes=(10, 20, 40), test=40, draws=2)
_FULL = Settings(sizes=(100, 200, 500, 1000, 2000, 5000, 10000), test=1000)

PAPER_SECONDS = {2: 5e9}
"""Section 9, for a million images and a GTX 1080Ti: "5e9 seconds, which is around 160 years"."""


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    return {"quick": QUICK, "default": Settings(), "full": _FULL}[size]


EXPERIMENT = Experiment(
    name="myrtle_by_size",
    title="Time, operations and accuracy of training with the kernels of the Myrtle network, by number of images.",
    reproduces="Golikov et al. 2022, Figs 5 and 6",
    sizes=sizes,
    cells=cells,
    prepare=partial(prepare, network=myrtle),
    compute=compute,
    report=partial(report, network="The Myrtle network", figures={2: 5, 10: 6}, paper=PAPER_SECONDS),
    embedded="digits",
    files=FILES,
    estimate=partial(estimate, network=myrtle),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
