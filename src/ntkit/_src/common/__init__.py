"""Code that several folders share: argument checks, parameters, losses, rows of features, threads, derivatives."""

from ._batches import (
    all_finite,
    check_batches,
    check_finite,
    check_input_size,
    check_integers,
    check_pair,
    check_result,
    check_tensor,
)
from ._checks import check_choice, check_integer, check_number
from ._class_labels import check_labels, class_numbers
from ._deprecation import warn_renamed
from ._derivatives import as_constant, constant, differentiated, transformed, without_derivatives
from ._generator import check_generator, random_state, restored_generator, restored_random_state
from ._input_shape import check_input_shape, fold_rows
from ._kinks import Kink, find_kinks
from ._largest_eigenvalue import largest_eigenvalue
from ._linear_system import check_gram, check_pairs, check_ridge, check_right_hand_side
from ._losses import Loss, LossFunction, find_loss, read_output_targets, read_targets
from ._memory import available_bytes, check_gram_memory
from ._mirror import mirror_rows, mirror_upper
from ._module_copies import OwnParameters, copy_module
from ._module_state import call_with, evaluation_mode, measuring, plain_attention, unchanged
from ._nested_derivatives import Elementary
from ._numbers import Numbers, as_columns, check_steps, check_times, listed
from ._parameters import (
    ParameterSource,
    Scaled,
    check_module,
    check_precision,
    ntk_gains,
    parameter_source,
    strip_ntk,
)
from ._progress import Progress, shifted_progress
from ._random_layers import RANDOM, RANDOM_INSTEAD, drawing_layers, random_layers
from ._random_rotation import random_rotation
from ._row_blocks import block_rows, row_blocks, split_rows
from ._shown import shown
from ._singular import why_singular
from ._splits import data_splits
from ._threads import SERIAL_ENTRIES, on_threads, serial_product

__all__ = [
    "RANDOM",
    "RANDOM_INSTEAD",
    "SERIAL_ENTRIES",
    "Elementary",
    "Kink",
    "Loss",
    "LossFunction",
    "Numbers",
    "OwnParameters",
    "ParameterSource",
    "Progress",
    "Scaled",
    "all_finite",
    "as_columns",
    "as_constant",
    "available_bytes",
    "block_rows",
    "call_with",
    "check_batches",
    "check_choice",
    "check_finite",
    "check_generator",
    "check_gram",
    "check_gram_memory",
    "check_input_shape",
    "check_input_size",
    "check_integer",
    "check_integers",
    "check_labels",
    "check_module",
    "check_number",
    "check_pair",
    "check_pairs",
    "check_precision",
    "check_result",
    "check_ridge",
    "check_right_hand_side",
    "check_steps",
    "check_tensor",
    "check_times",
    "class_numbers",
    "constant",
    "copy_module",
    "data_splits",
    "differentiated",
    "drawing_layers",
    "evaluation_mode",
    "find_kinks",
    "find_loss",
    "fold_rows",
    "largest_eigenvalue",
    "listed",
    "measuring",
    "mirror_rows",
    "mirror_upper",
    "ntk_gains",
    "on_threads",
    "parameter_source",
    "plain_attention",
    "random_layers",
    "random_rotation",
    "random_state",
    "read_output_targets",
    "read_targets",
    "restored_generator",
    "restored_random_state",
    "row_blocks",
    "serial_product",
    "shifted_progress",
    "shown",
    "split_rows",
    "strip_ntk",
    "transformed",
    "unchanged",
    "warn_renamed",
    "why_singular",
    "without_derivatives",
]
