"""
What is computed, and what is refused
=====================================

Every operation with its cost; and the nearest network that has a limit.
"""

from torch import nn

import ntkit

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 1))
try:
    ntkit.infinite_width(net)
except ntkit.errors.UnsupportedLayerError as error:
    print(error)

# %%
# ``adapt`` replaces what has no limit.
adapted = ntkit.adapt(net, (3, 8, 8))
print(adapted)
print(ntkit.infinite_width(adapted.module).explain((3, 8, 8)))
