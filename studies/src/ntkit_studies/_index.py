"""The index of experiments: every module of this folder that is one, in the order of the listing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ntkit.errors import InputError

from .skeleton import Experiment

__all__ = ["NAMES", "find", "listing", "of_folder"]

NAMES = (
    "digits",
    "cntk_cifar",
    "random_features_cifar",
    "ntk_convergence",
    "ntk_training",
    "dynamics_1d",
    "label_aware_cifar",
    "local_elasticity_cifar",
    "trained_kernel_cifar",
    "label_systems",
    "label_agnosticism",
    "hierarchy_planes_ships",
    "hierarchy_error",
    "hierarchy_accuracy",
    "uci",
    "matrix_completion",
    "federated_images",
    "corrupted_agop",
    "initial_scales",
    "stable_rate",
    "alignment_prediction",
    "speed_limits",
    "depth_prediction",
    "adaptive_speeds",
    "feature_images",
    "rfm_tasks",
    "mercer_spectra",
    "convergence_bounds",
    "kernel_evolution",
    "cluster_graphs",
    "spawn_phases",
    "fourier_features_1d",
    "image_regression",
    "topology_optimisation",
    "architecture_search",
    "inpainting",
    "myrtle_by_size",
    "resnet_by_size",
    "myrtle_by_resolution",
)
"""The experiments; each is a module with a constant ``EXPERIMENT``."""

_MODULES = {
    "corrupted_agop": "feature_learning.corrupted_agop",
    "initial_scales": "feature_learning.initial_scales",
    "stable_rate": "feature_learning.stable_rate",
    "alignment_prediction": "feature_learning.alignment_prediction",
    "speed_limits": "feature_learning.speed_limits",
    "depth_prediction": "feature_learning.depth_prediction",
    "adaptive_speeds": "feature_learning.adaptive_speeds",
    "feature_images": "feature_learning.images",
    "rfm_tasks": "feature_learning.rfm_tasks",
}
"""Where a module is that is not named like its experiment."""


def find(name: str) -> Experiment[Any, Any, Any, Any]:
    """Return an experiment by name.

    Raises
    ------
    InputError
        If there is none of that name.

    Examples
    --------
    >>> find("cntk_cifar").reproduces
    'Arora et al. 2019, Table 1'
    """
    if name not in NAMES:
        raise InputError(f"there is no experiment {name!r}. Name one of {', '.join(NAMES)}.")
    experiment: Experiment[Any, Any, Any, Any] = import_module(f"{__package__}.{_MODULES.get(name, name)}").EXPERIMENT
    return experiment


def of_folder(folder: Path) -> Experiment[Any, Any, Any, Any]:
    """Return the experiment whose results a folder holds.

    Raises
    ------
    InputError
        If it holds none.
    """
    try:
        return find(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["experiment"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} must hold the results of an experiment: {error}") from error


def listing(names: Sequence[str] = NAMES) -> str:
    """List experiments with what each reproduces and measures."""
    found = [find(name) for name in names]
    wide = max(len(one.name) for one in found)
    lines = ["ntkit run NAME [--quick | --full] [--help]", ""]
    for one in found:
        lines += [f"{one.name:{wide}}  {one.reproduces}", f"{'':{wide}}  {one.title}"]
    return "\n".join(lines)
