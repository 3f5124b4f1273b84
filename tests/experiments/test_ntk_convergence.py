from __future__ import annotations

import json

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.experiments import _finite_cells, ntk_convergence


def test_errors_fall_with_the_width():
    settings = ntk_convergence.Settings(widths=(8, 64), draws=4)
    result = ntk_convergence.run(settings, seed=1)
    for name, errors in result.errors.items():
        assert errors.shape == (2, 4) and (errors > 0).all()
        assert -1.2 < result.rates[name].exponent < -0.15, (name, errors)


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    path, whole = tmp_path / "a.json", ntk_convergence.run(ntk_convergence.QUICK, seed=1)
    calls = []
    initialize = ntk_convergence.initialize

    def stops(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return initialize(*args, **kwargs)

    monkeypatch.setattr(ntk_convergence, "initialize", stops)
    with pytest.raises(KeyboardInterrupt):
        ntk_convergence.run(ntk_convergence.QUICK, seed=1, path=path)
    assert len(json.loads(path.read_text())["cells"]) == 4
    result = ntk_convergence.run(ntk_convergence.QUICK, seed=1, path=path)
    assert len(calls) == 5 + 27 - 4
    for name, errors in whole.errors.items():
        np.testing.assert_array_equal(errors, result.errors[name])


def test_program(tmp_path, capsys):
    path = tmp_path / "result.json"
    assert ntk_convergence.main(["--quick", "--seed", "2", "--output", str(path)]) == 0
    assert len(json.loads(path.read_text())["cells"]) == 27
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "exponent" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        ntk_convergence.main(["--quick", "--seed", "3", "--output", str(path)])
    assert "made with other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "--seed must be"),
        (["--output", "."], "cannot write"),
        (["--output", "missing/a.json"], "cannot write"),
        (["--output", "a.png"], "must not end in .png"),
    ],
)
def test_bad_options_end_it_before_the_computation(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ntk_convergence, "run", lambda *_: pytest.fail("the computation started"))
    with pytest.raises(SystemExit):
        ntk_convergence.main(arguments)
    assert message in capsys.readouterr().err


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1]")
    with pytest.raises(InputError, match="a result of this experiment"):
        _finite_cells.fill([("a", 1, 0)], lambda cell: 1.0, {}, path)


def test_bad_widths():
    with pytest.raises(InputError, match="two different"):
        ntk_convergence.run(ntk_convergence.Settings(widths=(8, 8)))
