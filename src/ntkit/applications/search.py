"""Architecture search: scores of untrained networks."""

from ntkit._src.applications.search import (
    ConditionNumber,
    KernelScore,
    LinearRegions,
    Ranked,
    condition_number,
    draw_kaiming,
    kernel_score,
    linear_regions,
    rank,
)

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
