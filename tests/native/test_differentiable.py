"""Native kernels under autograd: which engine runs, derivatives of derivatives, precisions."""

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import ntkit

LIMIT = ntkit.infinite_width(mlp(3, 8, 8, 1), b_std=0.1)
IMAGES = ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)))


def test_auto_takes_the_native_engine_forwards_and_backwards():
    x, z = normal(4, 3).requires_grad_(), normal(5, 3, seed=1)
    kernel = LIMIT.ntk(x, z)
    assert torch.equal(kernel, LIMIT.ntk(x.detach(), z))
    assert type(kernel.grad_fn).__name__ == "_GramBackward"
    assert not LIMIT.ntk(x.detach(), z).requires_grad


@pytest.mark.parametrize("which", ["ntk", "nngp"])
def test_gradcheck(which):
    kernel, images = getattr(LIMIT, which), getattr(IMAGES, which)
    x, z = normal(3, 3).requires_grad_(), normal(2, 3, seed=1).requires_grad_()
    assert gradcheck(lambda a, b: kernel(a, b, engine="native"), (x, z))
    assert gradcheck(lambda a: images(a, engine="native"), (normal(2, 1, 4).requires_grad_(),))
    assert gradcheck(lambda a: kernel.diag(a, engine="native"), (x,))


def test_second_derivatives():
    x, z = normal(3, 3).requires_grad_(), normal(2, 3, seed=1).requires_grad_()
    assert gradgradcheck(lambda a, b: LIMIT.ntk(a, b, engine="native"), (x, z))
    assert gradgradcheck(lambda a: LIMIT.ntk(a, engine="native"), (x,))
    w = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)

    def squares(w, engine):
        (first,) = torch.autograd.grad(
            ntkit.infinite_width(mlp(3, 8, 1), w, 0.1).ntk(x.detach(), engine=engine).square().sum(),
            w,
            create_graph=True,
        )
        return torch.autograd.grad(first, w)[0]

    torch.testing.assert_close(squares(w, "native"), squares(w, "reference"), rtol=1e-10, atol=0)


def test_one_tensor_on_both_sides():
    x = normal(4, 3).requires_grad_()
    both = torch.autograd.grad(LIMIT.ntk(x, x).sum(), x)[0]
    torch.testing.assert_close(both, torch.autograd.grad(LIMIT.ntk(x).sum(), x)[0], rtol=1e-12, atol=1e-12)


def test_only_what_is_asked_for():
    x, z = normal(4, 3).requires_grad_(), normal(5, 3, seed=1).requires_grad_()
    kernels = LIMIT.both(x, z)
    for kernel, other in ((kernels.ntk, LIMIT.ntk(x, z)), (kernels.nngp, LIMIT.nngp(x, z))):
        expected = torch.autograd.grad(other.sum(), z)[0]
        torch.testing.assert_close(
            torch.autograd.grad(kernel.sum(), z, retain_graph=True)[0], expected, rtol=1e-12, atol=1e-12
        )


def test_float32_inputs_have_derivatives_in_float64_rounded_once():
    x, z = normal(4, 3).float(), normal(5, 3, seed=1).float()
    single = torch.autograd.grad(LIMIT.ntk(a := x.clone().requires_grad_(), z).sum(), a)[0]
    double = torch.autograd.grad(LIMIT.ntk(a := x.double().requires_grad_(), z.double()).sum(), a)[0]
    assert single.dtype == torch.float32
    assert float((single - double).abs().max()) < 1e-6 * float(double.abs().max())


def test_transforms_and_batched_derivatives_stay_exact():
    x, z = normal(3, 3), normal(2, 3, seed=1)
    expected = torch.autograd.functional.jacobian(lambda a: LIMIT.ntk(a, z, engine="reference"), x)
    for found in (
        torch.func.jacrev(lambda a: LIMIT.ntk(a, z))(x),
        torch.autograd.functional.jacobian(lambda a: LIMIT.ntk(a, z), x),
        torch.autograd.functional.jacobian(lambda a: LIMIT.ntk(a, z), x, vectorize=True),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
