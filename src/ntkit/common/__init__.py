"""What several folders need: argument checks, parameters, losses, rows of features, threads, nested derivatives."""

from ._batches import check_batches, check_finite, check_input_size, check_pair, check_result
from ._class_labels import check_labels, class_numbers
from ._input_shape import check_input_shape, fold_rows
from ._linear_system import check_gram, check_ridge, check_right_hand_side
from ._losses import Loss, LossFunction, find_loss, read_targets
from ._module_copies import OwnParameters, copy_module, restored_tensors
from ._nested_derivatives import Elementary
from ._numbers import Numbers, as_columns, check_steps, check_times, listed
from ._parameters import (
    ParameterSource,
    Scaled,
    check_module,
    ntk_gains,
    parameter_source,
    strip_ntk,
)
from ._threads import SERIAL_ENTRIES, on_threads, serial_product

__all__ = [
    "SERIAL_ENTRIES",
    "Elementary",
    "Loss",
    "LossFunction",
    "Numbers",
    "OwnParameters",
    "ParameterSource",
    "Scaled",
    "as_columns",
    "check_batches",
    "check_finite",
    "check_gram",
    "check_input_shape",
    "check_input_size",
    "check_labels",
    "check_module",
    "check_pair",
    "check_result",
    "check_ridge",
    "check_right_hand_side",
    "check_steps",
    "check_times",
    "class_numbers",
    "copy_module",
    "find_loss",
    "fold_rows",
    "listed",
    "ntk_gains",
    "on_threads",
    "parameter_source",
    "read_targets",
    "restored_tensors",
    "serial_product",
    "strip_ntk",
]
