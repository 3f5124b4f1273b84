"""Code that several folders share: argument checks, parameters, losses, rows of features, threads, derivatives.

Each file lists in ``__all__`` what other folders may import from here.
"""

from ._arguments import *
from ._batches import *
from ._blocks import *
from ._derivatives import *
from ._generator import *
from ._gram_matrix import *
from ._kinks import *
from ._losses import *
from ._memory import *
from ._module_state import *
from ._parameters import *
from ._random_layers import *
from ._splits import *
