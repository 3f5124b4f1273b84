"""
A data frame with gaps and categories
=====================================

``tabular_pipeline`` prepares mixed columns, and a model file keeps the result.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import ntkit

random = np.random.default_rng(0)
frame = pd.DataFrame({"size": random.standard_normal(200), "kind": random.choice(["a", "b", "c"], 200)})
label = np.where((frame["size"] > 0) ^ (frame["kind"] == "a"), "yes", "no")
frame.loc[::17, "size"] = np.nan
model = ntkit.tabular_pipeline().fit(frame[:150], label[:150])
print(f"accuracy {(model.predict(frame[150:]) == label[150:]).mean():.2f}")

# %%
# The file holds JSON and arrays; loading it executes nothing.
path = Path(tempfile.mkdtemp()) / "model.ntkit"
ntkit.save_model(model, path)
again = ntkit.load_model(path)
print("the same predictions:", bool((again.predict(frame) == model.predict(frame)).all()))
