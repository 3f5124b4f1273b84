"""Architecture search without training: proxies for a network's performance."""

from ._condition_number import ConditionNumber, condition_number, draw_kaiming
from ._kernel_score import KernelScore, kernel_score
from ._linear_regions import LinearRegions, linear_regions
from ._rank import Ranked, rank

__all__ = [
    "ConditionNumber",
    "KernelScore",
    "LinearRegions",
    "Ranked",
    "condition_number",
    "draw_kaiming",
    "kernel_score",
    "linear_regions",
    "rank",
]
