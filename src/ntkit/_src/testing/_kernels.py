"""The conformance suite of kernels: what every kernel must satisfy."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.kernels import Kernel


class KernelConformance:
    """Tests of a new kernel: subclass it in a test file and write :meth:`kernels` and :meth:`inputs`."""

    def kernels(self) -> list[Kernel]:
        """Return the kernels to test."""
        raise NotImplementedError

    def inputs(self) -> Tensor:
        """Return at least four distinct inputs, shape (n, ...), float64."""
        raise NotImplementedError

    def test_symmetric(self) -> None:
        """K(x) is symmetric to the bit and equals K(x, x)."""
        x = self.inputs()
        for kernel in self.kernels():
            k = kernel(x)
            assert torch.equal(k, k.T)
            torch.testing.assert_close(k, kernel(x, x), rtol=1e-10, atol=1e-12)

    def test_positive_semidefinite(self) -> None:
        """No eigenvalue is negative beyond rounding, repeated inputs included."""
        x = torch.cat([self.inputs(), self.inputs()[:2]])
        for kernel in self.kernels():
            values = torch.linalg.eigvalsh(kernel(x))
            assert values.min() > -1e-10 * values.max()

    def test_transposed(self) -> None:
        """K(x1, x2) is the transpose of K(x2, x1)."""
        x1, x2 = self.inputs()[:3], self.inputs()[1:]
        for kernel in self.kernels():
            torch.testing.assert_close(kernel(x1, x2), kernel(x2, x1).T, rtol=1e-12, atol=1e-14)

    def test_diag(self) -> None:
        """``diag`` is the diagonal."""
        x = self.inputs()
        for kernel in self.kernels():
            torch.testing.assert_close(kernel.diag(x), kernel(x).diagonal(), rtol=1e-10, atol=1e-12)

    def test_permuted(self) -> None:
        """Permuting a batch permutes the matrix."""
        x = self.inputs()
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        for kernel in self.kernels():
            torch.testing.assert_close(kernel(x[order]), kernel(x)[order][:, order], rtol=1e-12, atol=1e-14)

    def test_dtype(self) -> None:
        """float32 in, float32 out, close to float64."""
        x = self.inputs()
        for kernel in self.kernels():
            single = kernel(x.float())
            assert single.dtype == torch.float32
            torch.testing.assert_close(single.double(), kernel(x.float().double()), rtol=1e-4, atol=1e-6)
