from __future__ import annotations

import runpy
import sys

import pytest

from ntkit_studies.__main__ import main

QUICK = ["--quick", "--widths", "4", "8", "--draws", "2"]


def test_without_a_name_it_lists_all(capsys):
    assert main([]) == 0
    assert "Arora et al. 2019, Table 1" in capsys.readouterr().out


def test_a_name_runs_one_and_the_report_is_written_again(tmp_path, capsys):
    assert main(["ntk_convergence", *QUICK, "--output", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report.html").unlink()
    (tmp_path / "results.csv").unlink()
    assert main(["--report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_bytes() == page and (tmp_path / "results.csv").exists()
    assert "exponent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nothing"], "there is no experiment 'nothing'"), (["--report", "missing"], "must hold the results")],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("module", [["ntkit_studies", "ntk_convergence"], ["ntkit_studies.ntk_convergence"]])
@pytest.mark.filterwarnings("ignore:.* found in sys.modules after import")
def test_both_forms_of_the_command(module, tmp_path, monkeypatch, capsys):
    name, *arguments = module
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments, *QUICK, "--output", "a.html"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    assert not end.value.code
    assert "exponent" in (tmp_path / "a.html").read_text(encoding="utf-8")
