"""Linear systems with a Gram matrix; every solver returns a value, a status and numbers about the run."""

from ntkit._src.common import check_gram, check_ridge, check_right_hand_side

from ._blocked_cholesky import BlockedCholesky
from ._centres import PivotedCholesky, choose_centres, default_centres, pivoted_cholesky
from ._cholesky import CholeskyFactor, InPlaceFactor, best_factor, factorize, factorize_exactly, factorize_in_place
from ._conjugate_gradients import CG
from ._eigenpro import EigenPro
from ._eigh import Spectrum, decompose
from ._falkon import Falkon
from ._indefinite import Indefinite
from ._lapack import cholesky, inverse_diagonal
from ._method import Method, Outcome, Solution, Status, System
from ._nystrom import Nystrom, NystromSystem
from ._solve import METHODS, predict, solve
