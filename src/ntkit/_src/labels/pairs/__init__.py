"""Label-aware kernels by regression on pairs of points (Chen, He, Su 2020, sections 2.1, 3.1, D.3)."""
