"""The papers' tables and figures, one module each: ``ntkit list`` lists them.

A new experiment is one file on the skeleton (:mod:`ntkit_studies.skeleton`), named in ``_index.py``:

- ``Settings``, a frozen dataclass whose Attributes section becomes the command line's help, and ``sizes``, which returns those of
  ``--quick``, of the default and of ``--full``;
- a frozen dataclass for a cell and one for its result; ``cells`` lists what to compute, ``prepare`` computes what cells share,
  ``compute`` computes one cell;
- ``report`` turns results into tables and figures, with a :class:`~ntkit_studies.skeleton.Comparison` for every number of
  the paper: the verdict follows by rule;
- ``estimate``, if larger runs take hours or gigabytes: an :class:`~ntkit_studies.skeleton.Estimate` from short trials, said
  before ``--full`` and sizes of one's own; what needs more memory than the machine has is refused.

The skeleton does the rest: a store from which an interrupted run resumes to the same bytes, ``results.json``, ``results.csv``,
``report.html``, and ``manifest.json`` with versions, machine, data hash and durations.
"""

from __future__ import annotations

from ._index import NAMES, find
from ._rebuild import rebuild_reports
from ._stored_runs import stored_runs
from ._uci_tables import SplitTable, load_uci

__all__ = ["NAMES", "SplitTable", "find", "load_uci", "rebuild_reports", "stored_runs"]
