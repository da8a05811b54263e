"""What is asked for: tensors and options, checked, and the frozen problem that they make."""

from .choices import CMode, GroupKind, Mainloop, Major, ScaleChoice
from .gemm_problem import GemmProblem
from .grouping import Grouping
from .scale_recipe import ScaleRecipe
from .variant import GemmVariant

__all__ = [
    "CMode",
    "GemmProblem",
    "GemmVariant",
    "GroupKind",
    "Grouping",
    "Mainloop",
    "Major",
    "ScaleChoice",
    "ScaleRecipe",
]
