"""Hoeffding's decomposition of a label-aware kernel in the labels."""
