from __future__ import annotations

import json

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold

import ntkit

METHODS = ["ntkit", "RBF SVM", "random forest", "gradient boosting"]


def test_classes_are_those_of_a_loop_by_hand(program, table):
    arguments = ["evaluate", "table.csv", "--target", "label", "--drop", "price", "--folds", "2", "--seed", "3"]
    found = json.loads(program(*arguments, "--json"))
    assert list(found["methods"]) == METHODS and found["measure"] == "accuracy"
    frame = pd.read_csv("table.csv")
    X, y = frame[["size", "count", "kind", "old"]], frame["label"].to_numpy(dtype=str)
    expected = []
    for train, test in StratifiedKFold(2, shuffle=True, random_state=3).split(X, y):
        model = ntkit.tabular_pipeline().fit(X.iloc[train], y[train])
        expected.append(accuracy_score(y[test], model.predict(X.iloc[test])))
    np.testing.assert_allclose(found["methods"]["ntkit"]["scores"], expected)
    assert found["methods"]["ntkit"]["mean"] == np.mean(expected)


def test_numbers_and_the_table(program, table):
    out = program("evaluate", "table.csv", "--target", "price", "--drop", "label", "--folds", "2")
    lines = out.splitlines()
    assert lines[0].split() == ["method", "R2", "std", "seconds"]
    scores = [float(line[len("gradient boosting") :].split()[0]) for line in lines[1:]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 4


def test_too_many_parts(program, table):
    message = program.fails("evaluate", "table.csv", "--target", "label", "--folds", "50")
    assert "at most the rows of the rarest class" in message
    message = program.fails("evaluate", "table.csv", "--target", "price", "--folds", "50")
    assert "at most half of the 60 rows" in message


def test_many_rows_leave_the_svm_out(program, table, monkeypatch):
    monkeypatch.setattr("ntkit._src.cli._evaluate._SVM_ROWS", 50)
    found = json.loads(program("evaluate", "table.csv", "--target", "label", "--folds", "2", "--json"))
    assert list(found["methods"]) == [name for name in METHODS if name != "RBF SVM"]
    assert "left out: RBF SVM" in program.err
