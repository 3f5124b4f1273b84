from __future__ import annotations

from dataclasses import fields, replace

import pytest
from studies.tests.image_files import write_images

from ntkit.errors import InputError
from ntkit_studies._index import _MODULES, NAMES, find, listing, of_folder
from ntkit_studies.skeleton._run import Run


def test_every_module_is_listed_with_what_it_reproduces():
    text = listing()
    for name in NAMES:
        experiment = find(name)
        assert experiment.name == name and experiment.title.endswith(".")
        assert f"{name} " in text and experiment.reproduces in text and experiment.title in text


def test_no_module_is_forgotten():
    from pathlib import Path

    import ntkit_studies

    folder = Path(ntkit_studies.__path__[0])
    files = {
        path.relative_to(folder) for place in (folder, folder / "feature_learning") for path in place.glob("[!_]*.py")
    }
    assert files == {Path(_MODULES.get(name, name).replace(".", "/") + ".py") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_size_has_settings_and_cells(name, tmp_path):
    experiment = find(name)
    data = write_images(tmp_path / "a.npz", 10, 2, 8) if experiment.files.startswith("images") else None
    for file in {None, data}:
        for size in ("quick", "default", "full"):
            settings = experiment.sizes(size, file is not None)
            cells = experiment.cells(Run(settings, 0, file, tmp_path, lambda *_: None))
            assert cells and all(isinstance(cell, experiment.kinds[0]) for cell in cells)


def test_unknown_names(tmp_path):
    with pytest.raises(InputError, match="there is no experiment 'digit'. Name one of digits"):
        find("digit")
    with pytest.raises(InputError, match="must hold the results of an experiment"):
        of_folder(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_settings_refuse_negative_sizes(name):
    settings = find(name).sizes("quick", False)
    for field in fields(settings):
        value = getattr(settings, field.name)
        several = isinstance(value, tuple) and value and type(value[0]) is int
        # Others are refused when data are drawn.
        drawn = ("pool", "train", "test", "validation", "pair", "classes", "table")
        if field.name not in drawn and (type(value) is int or several):
            with pytest.raises(InputError):
                replace(settings, **{field.name: (-1,) * len(value) if several else -1})
