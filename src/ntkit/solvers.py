"""Methods of :func:`ntkit.solve`: each is a class that holds its settings."""

from ntkit._src.solvers import (
    CG,
    BlockedCholesky,
    EigenPro,
    Falkon,
    Indefinite,
    Method,
    Nystrom,
    Outcome,
    Status,
    System,
    predict,
)

__all__ = [
    "CG",
    "BlockedCholesky",
    "EigenPro",
    "Falkon",
    "Indefinite",
    "Method",
    "Nystrom",
    "Outcome",
    "Status",
    "System",
    "predict",
]
