"""Matrix products along positions: every way to write one, and what is refused."""

import pytest
import torch
from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.program import Reindex
from ntkit._src.trace import GainRule, Tracer
from ntkit._src.trace.matchers._matrix import _explicit, _written
from ntkit.errors import InputError, UnsupportedLayerError

MATRIX = normal(4, 5, seed=7)


class Mapped(nn.Module):
    """(n, 5, 3) to (n, 4, 8): five tokens of three features; the matrix maps them to four."""

    def __init__(self, form, matrix=MATRIX):
        super().__init__()
        self.first, self.form = nn.Linear(3, 8), form
        self.register_buffer("matrix", matrix)

    def forward(self, x):
        return self.form(self.matrix, torch.relu(self.first(x)))


class MappedByInput(Mapped):
    """(n, 5, 3 + 4) to (n, 4, 8): each token brings its column of the matrix."""

    def forward(self, x):
        return self.form(x[..., 3:].mT, torch.relu(self.first(x[..., :3])))


FORMS = {
    "A @ h": lambda a, h: a @ h,
    "torch.matmul": torch.matmul,
    "h @ A^T": lambda a, h: (h.transpose(1, 2) @ a.mT).transpose(1, 2),
    "einsum": lambda a, h: torch.einsum("ij,bjc->bic" if a.ndim == 2 else "bij,bjc->bic", a, h),
    "einsum, second": lambda a, h: torch.einsum("bjc,ij->bic" if a.ndim == 2 else "bjc,bij->bic", h, a),
    "einsum, ...": lambda a, h: torch.einsum("ij,...jc->...ic" if a.ndim == 2 else "bij,bjc->bic", a, h),
    "einsum, no result": lambda a, h: torch.einsum("ji,bic" if a.ndim == 2 else "bji,bic->bjc", a, h).movedim(
        2 if a.ndim == 2 else 1, 1
    ),
    "einsum, permuted": lambda a, h: torch.einsum("ij,bjc->cbi" if a.ndim == 2 else "bij,bjc->cbi", a, h).permute(
        1, 2, 0
    ),
}


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("form", FORMS)
def test_constant_matrix(form, which):
    x = normal(3, 5, 3)
    before = getattr(ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU()), b_std=0.2), which).positions(x)
    found = getattr(ntkit.infinite_width(Mapped(FORMS[form]), b_std=0.2), which).positions(x)
    torch.testing.assert_close(found, MATRIX @ before @ MATRIX.T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("form", FORMS)
def test_matrix_of_each_input(form, which):
    x1, x2 = normal(3, 5, 7), normal(2, 5, 7, seed=1)
    plain = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU()), b_std=0.2)
    before = getattr(plain, which).positions(x1[..., :3].contiguous(), x2[..., :3].contiguous())
    a1, a2 = (x[:, :, 3:].transpose(1, 2) for x in (x1, x2))
    found = getattr(ntkit.infinite_width(MappedByInput(FORMS[form]), b_std=0.2), which)
    expected = torch.einsum("aqi,abij,brj->abqr", a1, before, a2)
    torch.testing.assert_close(found.positions(x1, x2), expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found(x1, x2), torch.einsum("abqq->ab", expected) / 4, rtol=1e-12, atol=1e-13)
    own = found.diag(x1)
    torch.testing.assert_close(own, found(x1).diagonal(), rtol=1e-12, atol=1e-13)


def test_vector_of_weights():
    x = normal(3, 5, 3)
    net = Mapped(lambda a, h: torch.einsum("j,bjc->bc", a[0], h))
    before = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU())).ntk.positions(x)
    found = ntkit.infinite_width(net).ntk(x)
    torch.testing.assert_close(
        found, torch.einsum("i,abij,j->ab", MATRIX[0], before, MATRIX[0]), rtol=1e-12, atol=1e-14
    )


def test_frozen_parameter_is_its_numbers():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.matrix = nn.Linear(3, 8), nn.Parameter(MATRIX.clone(), requires_grad=False)

        def forward(self, x):
            return self.matrix @ torch.relu(self.first(x))

    x = normal(3, 5, 3)
    expected = ntkit.infinite_width(Mapped(FORMS["A @ h"])).ntk.positions(x)
    torch.testing.assert_close(ntkit.infinite_width(Frozen()).ntk.positions(x), expected, rtol=1e-14, atol=0)


def test_permutations_only_select():
    program = Tracer(Mapped(FORMS["A @ h"], torch.eye(5).double()[[4, 2, 0]]), GainRule()).program((5, 3))
    assert any(node.op == Reindex(0, (4, 2, 0), "matrix") for node in program.nodes)


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_image_rows(which):
    """A matrix along one of two axes leaves the other alone."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(1, 8, 3, padding=1)
            self.register_buffer("matrix", normal(2, 4, seed=3))

        def forward(self, x):
            return torch.einsum("ih,bchw->bciw", self.matrix, torch.relu(self.first(x)))

    net, x = Rows(), normal(2, 1, 4, 3)
    before = getattr(ntkit.infinite_width(nn.Sequential(net.first, nn.ReLU())), which).positions(x)
    found = getattr(ntkit.infinite_width(net), which).positions(x)
    expected = torch.einsum("ih,abhwgv,jg->abiwjv", net.matrix, before, net.matrix)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.matrix = nn.Linear(3, 8), nn.Parameter(MATRIX.clone())

    def forward(self, x):
        return self.matrix @ torch.relu(self.first(x))


REFUSED = {
    "trained": (Trained(), "trained parameters"),
    "channels": (Mapped(lambda a, h: h @ a, normal(8, 8)), "mixes the channels"),
    "random": (Mapped(lambda a, h: h @ h.mT), "a product of random tensors"),
    "random by einsum": (Mapped(lambda a, h: torch.einsum("bic,bjc->bij", h, h)), "a product of random tensors"),
    "a letter twice": (Mapped(lambda a, h: torch.einsum("ijj,bjc->bic", normal(4, 5, 5), h)), "letter twice in one"),
    "three operands": (
        Mapped(lambda a, h: torch.einsum("ij,jk,bkc->bic", a, normal(5, 5), h)),
        "more than two operands",
    ),
    "two axes": (
        Mapped(lambda a, h: torch.einsum("jc,bjc->bc", a, h), normal(5, 8)),
        "not one matrix along one position",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    net, words = REFUSED[name]
    with pytest.raises(UnsupportedLayerError, match=words):
        ntkit.infinite_width(net).ntk(normal(2, 5, 3))


def test_adjacency_of_another_size():
    with pytest.raises(InputError, match="cannot take inputs of shape"):
        ntkit.infinite_width(Mapped(FORMS["A @ h"])).ntk(normal(2, 6, 3))


@pytest.mark.parametrize(
    ("equation", "ranks", "reads", "write"),
    [
        ("ij,bjc->bic", (2, 3), ["ij", "bjc"], "bic"),
        ("ij, ...jc -> ...ic", (2, 4), ["ij", "αβjc"], "αβic"),
        ("...ij,...jc->...ic", (2, 3), ["ij", "αjc"], "αic"),
        ("ji,bic", (2, 3), ["ji", "bic"], "bcj"),
        ("...ji,...i", (3, 3), ["βji", "αβi"], "αβj"),  # dimensions of ... are aligned at their end
    ],
)
def test_letters_of_an_equation(equation, ranks, reads, write):
    assert _explicit(equation, ranks) == (reads, write)
    assert _written("αβic") == "'...ic'"


def test_einsum_of_one_operand_sums_over_positions():
    summed = Lambda(
        lambda m, x: m.fc(torch.einsum("bchw->bc", F.relu(m.a(x)))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1)
    )
    by_sum = Lambda(lambda m, x: m.fc(F.relu(m.a(x)).sum((2, 3))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1))
    same_kernels(summed, by_sum, normal(3, 2, 4, 4))
    moved = Lambda(
        lambda m, x: m.fc(torch.einsum("bchw->bhwc", F.relu(m.a(x)))).mean((1, 2)),
        a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1),
    )  # fmt: skip
    mean = Lambda(lambda m, x: m.fc(F.relu(m.a(x)).mean((2, 3))), a=nn.Conv2d(2, 8, 3), fc=nn.Linear(8, 1))
    same_kernels(moved, mean, normal(3, 2, 4, 4))
