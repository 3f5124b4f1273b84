"""Fitted estimators as files of numbers and text, so that loading one executes nothing."""

from __future__ import annotations

from ._saved_model import SavedModel, load_model, read_model, save_model
from ._tree import build_described, describe_module
