"""Time, operations and accuracy of training with the kernels of ResNet-50, against the number of images.

Figure 7 of Golikov et al. 2022: all classes of images with the cross-entropy, a ResNet-50 without batch normalisation. Run it
with ``python -m ntkit_studies resnet_by_size --data cifar.npz``; without data it uses scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import sys
from functools import partial

from ._by_size import Settings, cells, estimate, prepare, report
from ._deep_networks import resnet50
from ._flow_costs import compute
from ._images import FILES
from .skeleton import Experiment, Size

__all__ = ["EXPERIMENT", "PAPER_SECONDS", "QUICK", "main", "run"]

_DEFAULT = Settings(classes=(10,))
QUICK = Settings(sizes=(10, 20), test=10, classes=(10,), draws=1)
_FULL = Settings(sizes=(100, 200, 500, 1000, 2000, 5000, 10000), test=1000, classes=(10,))

PAPER_SECONDS = {10: 6.25e11}
"""Section 9, for a million images and a GTX 1080Ti: "6.25e11 seconds, which is around 20000 years"."""


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    return {"quick": QUICK, "default": _DEFAULT, "full": _FULL}[size]


EXPERIMENT = Experiment(
    name="resnet_by_size",
    title="Time, operations and accuracy of training with the kernels of ResNet-50, by number of images.",
    reproduces="Golikov et al. 2022, Fig. 7",
    sizes=sizes,
    cells=cells,
    prepare=partial(prepare, network=resnet50),
    compute=compute,
    report=partial(report, network="ResNet-50 without batch normalisation", figures={10: 7}, paper=PAPER_SECONDS),
    embedded="digits",
    files=FILES,
    estimate=partial(estimate, network=resnet50),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
