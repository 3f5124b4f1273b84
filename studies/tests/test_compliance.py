from __future__ import annotations

import numpy as np
import pytest

from ntkit_studies._compliance import Beam, element_stiffness, with_volume


def test_elements_resist_everything_but_rigid_motion():
    stiffness = element_stiffness()
    np.testing.assert_allclose(stiffness, stiffness.T, atol=1e-15)
    values = np.linalg.eigvalsh(stiffness)
    np.testing.assert_allclose(values[:3], 0, atol=1e-14)
    assert (values[3:] > 0.1).all()
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float)
    turn = np.stack([-corners[:, 1], corners[:, 0]], axis=1).ravel()
    np.testing.assert_allclose(stiffness @ turn, 0, atol=1e-14)
    # A strain of one along x with free sides has the energy of a bar, E / 2 for modulus and area one.
    stretch = np.stack([corners[:, 0], -0.3 * corners[:, 1]], axis=1).ravel()
    assert stretch @ stiffness @ stretch == pytest.approx(1.0)


def test_the_gradient_is_that_of_differences():
    beam, rng = Beam(5, 3), np.random.default_rng(0)
    density = rng.uniform(0.2, 0.9, beam.elements)
    value, gradient = beam.compliance(density)
    assert value > 0 and (gradient < 0).all()
    for index in (0, 7, 14):
        step = np.zeros_like(density)
        step[index] = 1e-5
        difference = (beam.compliance(density + step)[0] - beam.compliance(density - step)[0]) / 2e-5
        assert gradient[index] == pytest.approx(difference, rel=1e-5)


def test_uniform_densities_scale_the_compliance():
    beam = Beam(6, 2)
    half, full = (beam.compliance(np.full(12, y))[0] for y in (0.5, 1.0))
    assert half / full == pytest.approx(8, rel=1e-4)


def test_volume_is_kept_and_its_slope_goes_back():
    rng = np.random.default_rng(1)
    pre, weights = 3 * rng.normal(size=20), rng.normal(size=20)
    density, slope = with_volume(pre, 0.3)
    assert density.mean() == pytest.approx(0.3, abs=1e-10)
    back = slope * (weights - (slope * weights).sum() / slope.sum())
    for index in (0, 11):
        step = np.zeros(20)
        step[index] = 1e-5
        difference = (with_volume(pre + step, 0.3)[0] - with_volume(pre - step, 0.3)[0]) @ weights / 2e-5
        assert back[index] == pytest.approx(difference, rel=1e-4, abs=1e-8)
