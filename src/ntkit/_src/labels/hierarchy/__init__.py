"""The tangent hierarchy and the label-aware kernel that follows from it (Chen, He, Su 2020, sections 2.2, A.2, B)."""
