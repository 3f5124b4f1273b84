"""Neural tangent kernels of ordinary PyTorch modules.

Importing this package loads nothing, not even torch: each name is found when it is first used. The types of all names are in
``__init__.pyi``.
"""

from importlib import import_module

_NAMES = {
    "diagnostics": "attribute local_elasticity",
    "dynamics": "Descent GradientFlow evidence leave_one_out log_marginal_likelihood max_learning_rate posterior",
    "estimators": "LabelAwareClassifier NTKClassifier NTKFeatures NTKRegressor RFMClassifier RFMRegressor StreamingRidge"
    " load_model save_model tabular_pipeline",
    "finite": "Checkpoint Record Schedule TrainState initialize linearize monte_carlo parametrize_ntk remove_ntk taylor"
    " train widen",
    "gram": "gram open_gram",
    "kernels": "Kernel as_gpytorch_kernel empirical infinite_width",
    "kernels._sklearn": "as_sklearn_kernel",
    "labels": "LabelAware TangentHierarchy alignment finite_width_correction hierarchy_terms hoeffding hierarchy_kernel",
    "layers": "Elementwise",
    "solvers": "solve",
    "trace": "adapt supported_layers",
}
"""Folders of the implementation, or a file that imports much, and the names that each makes public."""

_MODULES = [
    "applications",
    "datasets",
    "diagnostics",
    "errors",
    "extending",
    "features",
    "labels",
    "layers",
    "plots",
    "results",
    "solvers",
    "stax",
    "testing",
]

_FOLDERS = {name: folder for folder, names in _NAMES.items() for name in names.split()}

__all__ = [*_MODULES, *_FOLDERS]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    value: object
    if name in _FOLDERS:
        value = getattr(import_module(f"ntkit._src.{_FOLDERS[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"ntkit.{name}")
    elif name == "__version__":
        value = import_module("importlib.metadata").version("ntkit")
    else:
        raise AttributeError(f"module 'ntkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
