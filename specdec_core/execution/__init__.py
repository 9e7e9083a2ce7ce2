"""How a forward pass is executed. Every choice is exact; they differ in speed only."""

from .eager import Eager

__all__ = ["Eager"]
