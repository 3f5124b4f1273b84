"""Experiments, one module each: ``python -m ntkit.experiments.digits``."""
