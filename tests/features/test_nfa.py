"""The measures of the neural feature ansatz, written out."""

from __future__ import annotations

import math

import pytest
import torch
from tests.features.cases import CASES, brute, build, moved, weight_of
from torch import Tensor, nn

from ntkit import features
from ntkit.errors import InputError, InputTypeError


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.trace(a.T @ b) / (torch.linalg.matrix_norm(a) * torch.linalg.matrix_norm(b)))


def _pearson(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("kind", ["cosine", "pearson"])
@pytest.mark.parametrize("name", CASES)
def test_measures_are_those_of_brute_force(name: str, kind: str, batch_size: int | None) -> None:
    module, x = build(name)
    initial = moved(module)
    found = features.nfa(module, x, initial=initial, kind=kind, batch_size=batch_size)
    start, _ = build(name)
    start.load_state_dict(initial)
    rho = _cosine if kind == "cosine" else _pearson
    for path, measured in found.items():
        J, J0 = brute(module, x, path)[0], brute(start, x, path)[0]
        W, W0 = weight_of(module.get_submodule(path)), weight_of(start.get_submodule(path))
        K = torch.einsum("acpi,acpj->ij", J, J) / len(x)
        Kb = torch.einsum("acpi,acpj->ij", J - J0, J - J0) / len(x)
        Wb = W - W0
        F, G, Fb, Gb, Gd = W.T @ W, W.T @ K @ W, Wb.T @ Wb, Wb.T @ K @ Wb, Wb.T @ Kb @ Wb
        expected = {
            "uncentred": rho(F, G),
            "centred": rho(Fb, Gb),
            "centred_ratio": float(torch.trace(Fb @ Gb) / torch.trace(F @ G)),
            "movement": float(torch.linalg.matrix_norm(Wb) / torch.linalg.matrix_norm(W)),
        }
        if float(Kb.abs().max()) > 0:
            expected["double_centred"] = rho(Fb, Gd)
            expected["ptk_centred"] = rho(W0.T @ W0, W0.T @ Kb @ W0)
        else:
            assert math.isnan(measured.double_centred) and math.isnan(measured.ptk_centred)
        expected["double_ratio"] = float(torch.trace(Fb @ Gd) / torch.trace(Fb @ Gb))
        for field, value in expected.items():
            assert getattr(measured, field) == pytest.approx(value, rel=1e-10, abs=1e-12), (path, field)
        assert measured.kind == kind


def test_without_initial_weights_only_the_ansatz_itself_is_measured() -> None:
    module, x = build("mlp")
    measured = features.nfa(module, x)["0"]
    assert 0 < measured.uncentred <= 1
    assert all(
        math.isnan(getattr(measured, field)) for field in ("centred", "centred_ratio", "movement", "ptk_centred")
    )


def test_nothing_has_moved_at_the_start() -> None:
    module, x = build("mlp")
    for measured in features.nfa(module, x, initial=module.state_dict()).values():
        assert math.isnan(measured.centred) and math.isnan(measured.double_ratio)
        assert measured.centred_ratio == 0 and measured.movement == 0


def test_batch_statistics_of_the_start_are_used() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double().eval()
    x = torch.randn(5, 3, dtype=torch.float64)
    initial = {name: value.clone() for name, value in module.state_dict().items()}
    module[1].running_var += 1.0
    measured = features.nfa(module, x, initial=initial)["0"]
    J = brute(module, x, "0")[0]
    module.load_state_dict(initial)
    J0, W0 = brute(module, x, "0")[0], weight_of(module[0])
    Kb = torch.einsum("acpi,acpj->ij", J - J0, J - J0) / 5
    assert measured.ptk_centred == pytest.approx(_cosine(W0.T @ W0, W0.T @ Kb @ W0), rel=1e-10)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: s.pop("0.weight"), InputError, "It lacks '0.weight'"),
        (lambda s: s.update({"0.weight": torch.ones(2, 2)}), InputError, r"must have shape \(6, 4\)"),
        (lambda s: s.update({"0.weight": s["0.weight"].float()}), InputTypeError, "must be torch.float64"),
    ],
)
def test_bad_initial_state(change, error: type[Exception], message: str) -> None:
    module, x = build("mlp")
    state = dict(module.state_dict())
    change(state)
    with pytest.raises(error, match=message):
        features.nfa(module, x, initial=state)


def test_initial_state_with_other_gains_is_refused() -> None:
    module, x = build("mlp, NTK parametrisation")
    state = dict(module.state_dict())
    key = next(name for name in state if name.endswith("_extra_state"))
    state[key] = state[key] + 1
    with pytest.raises(InputError, match="must agree with the module"):
        features.nfa(module, x, initial=state)
