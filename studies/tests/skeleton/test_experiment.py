from __future__ import annotations

import fcntl
from dataclasses import replace

import pytest
from studies.tests.skeleton import toy

from ntkit.errors import InputError, NtkitWarning
from ntkit_studies.skeleton import _experiment, _manifest
from ntkit_studies.skeleton._code_fingerprint import code_fingerprint


@pytest.fixture(autouse=True)
def fresh():
    toy.computed.clear()
    toy.stop_at.clear()


def files(folder):
    return {name: (folder / name).read_bytes() for name in ("results.json", "results.csv")}


def test_two_runs_do_not_share_a_folder(tmp_path, capsys):
    with (tmp_path / "cells.jsonl").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="2"):
            toy.EXPERIMENT.main(["--output", str(tmp_path)])
    error = capsys.readouterr().err
    assert "another run is writing" in error and "name another folder: --output" in error
    assert not toy.computed
    assert toy.EXPERIMENT.main(["--output", str(tmp_path)]) == 0  # the lock went with its file


@pytest.mark.parametrize("parallel", [False, True])
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path, parallel):
    experiment = replace(toy.EXPERIMENT, parallel=parallel)
    assert experiment.main(["--output", str(tmp_path / "whole")]) == 0
    toy.computed.clear()
    toy.stop_at.append(toy.Cell(2, 1))
    assert experiment.main(["--output", str(tmp_path / "stopped"), *(["--workers", "1"] if parallel else [])]) == 130
    assert not (tmp_path / "stopped" / "results.json").exists()
    known = (tmp_path / "stopped" / "cells.jsonl").read_text().count("\n")
    assert known >= 3
    toy.stop_at.clear()
    toy.computed.clear()
    assert experiment.main(["--output", str(tmp_path / "stopped")]) == 0
    assert len(toy.computed) == 6 - known  # nothing twice
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")
    toy.computed.clear()
    assert experiment.main(["--output", str(tmp_path / "stopped")]) == 0
    assert not toy.computed
    assert files(tmp_path / "stopped") == files(tmp_path / "whole")


def test_results_depend_on_settings_seed_data_versions_and_code(tmp_path, monkeypatch):
    def count(experiment=toy.EXPERIMENT, settings=None, **asked):
        toy.computed.clear()
        experiment.run(settings, folder=tmp_path, **asked)
        return len(toy.computed)

    assert count() == 6
    assert count() == 0
    assert count(settings=toy.Settings(widths=(3, 1, 4))) == 2  # which widths changes no result
    assert count(settings=toy.Settings(factor=3.0)) == 6
    assert count(seed=1) == 6
    (tmp_path / "data").write_bytes(b"x")
    assert count(data=tmp_path / "data") == 6
    monkeypatch.setattr(_manifest, "_PACKAGES", ("ntkit",))
    assert count() == 6
    monkeypatch.undo()
    monkeypatch.setattr(_experiment, "code_fingerprint", lambda *functions: "edited")
    assert count() == 6
    monkeypatch.undo()
    assert count() == 0


def test_stored_results_are_read_again(tmp_path):
    results = toy.EXPERIMENT.run(folder=tmp_path)
    again = toy.EXPERIMENT.read(tmp_path)
    assert again == results
    assert again.seconds.keys() == results.values.keys() and not again.from_file


def test_an_error_names_its_cell_and_keeps_the_rest(tmp_path):
    def broken(run: toy.Run[toy.Settings], cell: toy.Cell) -> toy.Product:
        if cell == toy.Cell(2, 0):
            raise RuntimeError("broken")
        return toy.compute(run, cell)

    with pytest.raises(RuntimeError) as error:
        replace(toy.EXPERIMENT, compute=broken).run(folder=tmp_path)
    assert error.value.__notes__ == ["in Cell(width=2, draw=0)"]
    assert (tmp_path / "cells.jsonl").read_text().count("\n") == 2


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    toy.EXPERIMENT.run(progress=lambda *report: seen.append(report))
    assert not list(tmp_path.iterdir())
    assert seen == [("cells", done, 6) for done in range(7)]


def test_nothing_is_prepared_where_nothing_is_left(tmp_path, monkeypatch):
    toy.EXPERIMENT.run(folder=tmp_path)
    code = code_fingerprint(toy.EXPERIMENT.prepare, toy.EXPERIMENT.compute)
    monkeypatch.setattr(_experiment, "code_fingerprint", lambda *functions: code)
    unprepared = replace(toy.EXPERIMENT, prepare=lambda run: pytest.fail("prepared"))
    assert set(unprepared.run(folder=tmp_path).values) == set(toy.cells_of_default())


def test_lines_that_cannot_be_read_are_said(tmp_path):
    toy.EXPERIMENT.run(folder=tmp_path)
    with (tmp_path / "cells.jsonl").open("a") as file:
        file.write('{"key": "cut o')
    with pytest.warns(NtkitWarning, match="1 lines of .* cannot be read"):
        toy.EXPERIMENT.run(folder=tmp_path)


def test_a_file_that_is_no_npz_is_refused_before_the_computation(tmp_path):
    experiment = replace(toy.EXPERIMENT, files="images as an .npz file")
    (tmp_path / "a.npz").write_bytes(b"images")
    with pytest.raises(InputError, match="--data must be images as an .npz file"):
        experiment.run(data=tmp_path / "a.npz")
