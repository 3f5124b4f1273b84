from __future__ import annotations

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.errors import InputError, InputTypeError

NAN = float("nan")


def problem(n=12, classes=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    x = torch.randn(n, 4, generator=generator, dtype=dtype) + y[:, None]
    return x, y


def ntk():
    return ntkit.infinite_width(mlp(4, 8, 1), b_std=0.3).ntk


def by_loops(kernel, x1, y1, x2, y2, same_points):
    within, between = [], []
    gram, diag1, diag2 = kernel(x1, x2), kernel.diag(x1), kernel.diag(x2)
    for i in range(len(x1)):
        for j in range(len(x2)):
            if same_points and i == j:
                continue
            similarity = float(gram[i, j] / (diag1[i] * diag2[j]).sqrt())
            (within if y1[i] == y2[j] else between).append(similarity)
    intra, inter = sum(within) / len(within), sum(between) / len(between)
    return intra / (intra + inter)


@pytest.mark.parametrize("classes", [2, 3])
def test_train_train_is_the_double_loop_without_the_diagonal(classes):
    x, y = problem(classes=classes)
    assert float(ntkit.local_elasticity(ntk()(x), y)) == pytest.approx(by_loops(ntk(), x, y, x, y, True), rel=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_test_train_is_the_double_loop(classes):
    (x, y), (new, new_y) = problem(classes=classes), problem(n=7, classes=classes, seed=1)
    value = ntkit.local_elasticity(ntk()(new, x), new_y, y, ntk().diag(new), ntk().diag(x))
    assert float(value) == pytest.approx(by_loops(ntk(), new, new_y, x, y, False), rel=1e-12)


def test_scale_of_the_kernel_and_names_of_the_classes_do_not_matter():
    x, y = problem(classes=2)
    gram = ntk()(x)
    value = ntkit.local_elasticity(gram, y)
    torch.testing.assert_close(ntkit.local_elasticity(7 * gram, y), value)
    scale = torch.linspace(0.1, 3, len(x), dtype=gram.dtype)
    torch.testing.assert_close(ntkit.local_elasticity(scale[:, None] * gram * scale, y), value)
    for names in (y.bool(), 5 - y, (2 * y - 1).to(torch.float32)):
        torch.testing.assert_close(ntkit.local_elasticity(gram, names), value)
    mixed = ntkit.local_elasticity(gram, y, y.double(), gram.diagonal(), gram.diagonal())
    torch.testing.assert_close(mixed, ntkit.local_elasticity(gram, y, y, gram.diagonal(), gram.diagonal()))


@pytest.mark.parametrize(
    ("gram", "expected"),
    [
        ([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]], 1.0),
        ([[1.0] * 4] * 4, 0.5),
        ([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]], 0.0),
        # negative between the classes: above 1
        ([[1.0, 1.0, -0.5, -0.5], [1.0, 1.0, -0.5, -0.5], [-0.5, -0.5, 1.0, 1.0], [-0.5, -0.5, 1.0, 1.0]], 2.0),
    ],
)
def test_known_values(gram, expected):
    assert float(ntkit.local_elasticity(torch.tensor(gram), torch.tensor([0, 0, 1, 1]))) == expected


def test_dtype_and_gradient():
    x, y = problem()
    assert ntkit.local_elasticity(ntk()(x.float()), y).dtype == torch.float32
    gram = ntk()(x).requires_grad_()
    assert torch.autograd.gradcheck(lambda g: ntkit.local_elasticity(0.5 * (g + g.T), y), (gram,))


GRAM, Y = torch.eye(4) + 0.5, torch.tensor([0, 0, 1, 1])
DIAG = GRAM.diagonal()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((GRAM, torch.tensor([1, 1, 1, 1])), "no pair of two classes: .* y1 with {1: 4}"),
        ((GRAM, torch.tensor([0, 1, 2, 3])), "no pair of one class"),
        ((GRAM[:2], Y[:2]), "square without y2"),
        ((GRAM[:2], Y[:2], Y), "need diag1 and diag2"),
        ((GRAM, Y, None, DIAG), "go with y2"),
        ((GRAM[:2], Y[:2] + 5, Y, DIAG[:2], DIAG), "a class that both sets have"),
        ((GRAM[:2], Y[:2], torch.zeros(4), DIAG[:2], DIAG), "no pair of two classes"),
        ((GRAM[:2], Y[:2], Y, DIAG, DIAG), r"diag1 must have shape \(2,\)"),
        ((GRAM - 1.5 * torch.eye(4), Y), "positive and finite.*Got 0 at point 0, and 4"),
        ((GRAM[:2], Y[:2], Y, DIAG[:2], torch.tensor([1, 1, NAN, 1])), "Got nan at point 2"),
        ((torch.where(torch.eye(4) > 0, GRAM, NAN), Y), "NaN or infinite"),
        ((GRAM, torch.tensor([0, 0, 1, NAN])), "y1 must be finite"),
        ((GRAM, Y[:3]), r"y1 must have shape \(4,\)"),
        ((GRAM, torch.nn.functional.one_hot(Y)), r"argmax\(1\)"),
        ((GRAM, Y[:, None]), r"Write y1\[:, 0\]"),
        ((GRAM[:0, :0], Y[:0]), "at least one row"),
        ((4 / 3 * torch.eye(4) - 1 / 3, Y), "nothing or less"),
    ],
)
def test_input_that_has_no_ratio(arguments, message):
    with pytest.raises(InputError, match=message):
        ntkit.local_elasticity(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (GRAM.numpy(), Y),
        (GRAM.long(), Y),
        (GRAM, Y.tolist()),
        (GRAM, Y.to(torch.complex64)),
        (GRAM, Y, Y, DIAG.double(), DIAG),
    ],
)
def test_input_of_the_wrong_type(arguments):
    with pytest.raises(InputTypeError):
        ntkit.local_elasticity(*arguments)


def test_a_point_with_itself_counts_where_asked():
    x = torch.tensor([[1.0, 0.2], [1.0, -0.1], [0.1, 1.0]], dtype=torch.float64)
    gram, y = x @ x.T, torch.tensor([0, 0, 1])
    similar = gram / gram.diagonal().sqrt()[:, None] / gram.diagonal().sqrt()
    same = (3 + 2 * similar[0, 1]) / 5  # three points with themselves, and one pair in both orders
    other = (similar[0, 2] + similar[1, 2]) / 2
    torch.testing.assert_close(ntkit.local_elasticity(gram, y, diagonal=True), same / (same + other))
