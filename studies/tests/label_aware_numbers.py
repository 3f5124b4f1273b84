"""Scores of label-aware kernels made of given numbers."""

import numpy as np

from ntkit_studies._label_aware_scores import METHODS, Scores


def scores(base, test, validation, error):
    tables = ({name: np.array(one[name]) for name in METHODS} for one in (test, validation, error))
    zero = {name: np.zeros_like(np.array(test[name]), dtype=bool) for name in METHODS}
    return Scores((0.1, 1.0), np.array(base), *tables, zero)
