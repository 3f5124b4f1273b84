"""Experiments of Beaglehole et al. 2024: ``python -m ntkit_studies.feature_learning.corrupted_agop``."""
