"""Label-aware kernels: pairwise regression, the tangent hierarchy, Hoeffding's decomposition, alignment."""

from ntkit._src.common import check_labels, class_numbers

from ._alignment import alignment
from .decomposition._hoeffding import Hoeffding, hoeffding
from .hierarchy._finite_width_correction import FiniteWidthCorrection, finite_width_correction
from .hierarchy._hierarchy_kernel import HierarchyTerms, hierarchy_kernel, hierarchy_terms
from .hierarchy._module_hierarchy import ModuleHierarchy
from .hierarchy._tangent_hierarchy import TangentHierarchy
from .hierarchy._two_layer_hierarchy import TwoLayerHierarchy
from .pairs._function_of_labels import function_of_labels
from .pairs._label_aware import STRENGTHS, Definiteness, LabelAware
from .pairs._pairs import PairEstimator, Pairs
from .pairs._strength import StrengthSearch
