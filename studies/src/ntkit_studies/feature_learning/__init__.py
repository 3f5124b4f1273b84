"""Experiments of Beaglehole et al. 2024: ``python -m ntkit.experiments.feature_learning.corrupted_agop``."""
