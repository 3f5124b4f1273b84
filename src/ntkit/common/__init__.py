"""What several folders need: argument checks, losses, rows of features, threads, nested derivatives."""

from ._batches import all_finite, check_batches, check_finite, check_input_size, check_pair, check_result
from ._class_labels import check_labels, class_numbers
from ._input_shape import check_input_shape, fold_rows
from ._linear_system import check_gram, check_ridge, check_right_hand_side
from ._losses import Loss, LossFunction, find_loss, read_targets
from ._nested_derivatives import Elementary
from ._numbers import Numbers, as_columns, check_steps, check_times, listed
from ._threads import SERIAL_ENTRIES, on_threads, serial_product

__all__ = [
    "SERIAL_ENTRIES",
    "Elementary",
    "Loss",
    "LossFunction",
    "Numbers",
    "all_finite",
    "as_columns",
    "check_batches",
    "check_finite",
    "check_gram",
    "check_input_shape",
    "check_input_size",
    "check_labels",
    "check_pair",
    "check_result",
    "check_ridge",
    "check_right_hand_side",
    "check_steps",
    "check_times",
    "class_numbers",
    "find_loss",
    "fold_rows",
    "listed",
    "on_threads",
    "read_targets",
    "serial_product",
]
