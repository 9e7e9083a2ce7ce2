"""Weights for the drafters that need some: the target's own text, and one recipe per drafter."""
