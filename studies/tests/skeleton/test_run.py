from __future__ import annotations

import json

import pytest
from studies.tests.skeleton.toy import EXPERIMENT

from ntkit.errors import InputError


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("results.json", lambda content: content | {"cells": [{"cell": 1, "result": 2}]}),
        ("results.json", lambda content: content | {"cells": content["cells"][1:]}),
        ("results.json", lambda content: content | {"settings": {}}),
        ("manifest.json", lambda content: content | {"versions": 3}),
        ("manifest.json", lambda content: {}),
    ],
)
def test_other_files_are_refused(tmp_path, name, change):
    EXPERIMENT.run(folder=tmp_path)
    (tmp_path / name).write_text(json.dumps(change(json.loads((tmp_path / name).read_text()))))
    with pytest.raises(InputError, match="must hold results.json and manifest.json"):
        EXPERIMENT.read(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match="must hold results.json"):
        EXPERIMENT.read(tmp_path)


def test_results_hold_no_times_and_the_manifest_does(tmp_path):
    results = EXPERIMENT.run(folder=tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    assert set(content) == {"experiment", "settings", "seed", "data", "cells"}
    assert set(content["cells"][0]) == {"cell", "result"}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["cell_seconds"]) == len(results.values) and manifest["versions"]["torch"]
    assert manifest["wall_seconds"] > 0 and manifest["machine"]["cores"]
