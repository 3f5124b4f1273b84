"""What code built on ntkit needs: the library's own argument checks, losses, and ways to run and copy a user's module."""

from ntkit._src.common import (
    Loss,
    LossFunction,
    Progress,
    check_batches,
    check_choice,
    check_gram_memory,
    check_integer,
    check_number,
    copy_module,
    find_loss,
    measuring,
    part_of,
    read_output_targets,
)
from ntkit._src.gram import kernel_fingerprint

__all__ = ["Loss", "LossFunction", "Progress", "check_batches", "check_choice", "check_gram_memory", "check_integer"]
__all__ += ["check_number", "copy_module", "find_loss", "kernel_fingerprint", "measuring", "part_of"]
__all__ += ["read_output_targets"]
