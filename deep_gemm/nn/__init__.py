"""Quantized layers: QuantLinear, the recipes of its operands, and convert() for whole models."""

from .convert import convert
from .linear import QuantLinear
from .recipe import RECIPES, Recipe

__all__ = ["RECIPES", "QuantLinear", "Recipe", "convert"]
