from __future__ import annotations

import torch

from ntkit_studies import fourier_features_1d
from ntkit_studies.fourier_features_1d import Kind, Settings


def test_spectra_flatten_with_the_embedding_and_the_gain():
    settings = Settings(points=32, signals=2, steps=10.0)
    results = fourier_features_1d.run(settings)
    found = {str(cell): one for cell, one in results.values.items()}
    assert len(found) == 5 + 6
    high = [
        found[name].eigenvalues[12]
        for name in ("ReLU, first frequency", "ReLU, amplitudes j^-1", "ReLU, amplitudes j^-0")
    ]
    assert high[0] < high[1] < high[2]
    assert found["sine, w 1, b 0"].eigenvalues[11] < found["sine, w 10, b 0"].eigenvalues[11]
    low, top = (found[name].learnt for name in ("ReLU, first frequency", "ReLU, amplitudes j^-0"))
    assert low < top == 17
    odd = found["sine, w 3, b 0"].eigenvalues[2::2]
    assert max(odd) < 1e-12 and found["sine, w 3, b 1"].eigenvalues[2] > 1e-3
    table = fourier_features_1d.report(results).sections[0].parts[0]
    assert len(table.rows) == 11 and len(table.header) == len(table.rows[0])


def test_eigenvalues_are_those_of_the_gram_matrix():
    settings = Settings(points=16, signals=1)
    cell = Kind("relu", 1.0, 2**0.5, 0.1)
    kernel = fourier_features_1d._kernel(cell, settings)
    x = torch.arange(16, dtype=torch.float64)[:, None] / 16
    dense = torch.linalg.eigvalsh(kernel(x)) / kernel(x).trace()
    ours = (
        fourier_features_1d.run(Settings(points=16, signals=1, powers=(1.0,), sine_gains=())).values[cell].eigenvalues
    )
    every = sorted([*ours, *ours[1:8]])  # frequencies but 0 and the highest count twice
    assert torch.allclose(torch.tensor(every, dtype=torch.float64), dense, atol=1e-12)


def test_signals_have_frequencies_that_training_points_resolve():
    signals = fourier_features_1d._signals(Settings(points=32, signals=3), 0)
    waves = torch.fft.rfft(signals, dim=0).abs()
    assert signals.shape == (64, 3) and (waves[16:] < 1e-12).all() and (waves[1:16] > 0).all()
