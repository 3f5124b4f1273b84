"""The components of every experiment: its parts, its store, its verdicts, its report and its command line."""

from __future__ import annotations

from ._claim import Claim
from ._command_line import Progress
from ._estimate import Estimate, duration, fitted_seconds
from ._experiment import Experiment, experiment_of
from ._manifest import Data
from ._records import decode
from ._report import Report, write_report
from ._run import Results, Run, Size, share_nothing
from ._settings import check_at_least
from ._verdict import Comparison, Verdict, verdict

__all__ = [
    "Claim",
    "Comparison",
    "Data",
    "Estimate",
    "Experiment",
    "Progress",
    "Report",
    "Results",
    "Run",
    "Size",
    "Verdict",
    "check_at_least",
    "decode",
    "duration",
    "experiment_of",
    "fitted_seconds",
    "share_nothing",
    "verdict",
    "write_report",
]
