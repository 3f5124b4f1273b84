"""The peer, traker, on the same checkpoints: ``python attribution_peer.py DATA OUT PROJ_DIM`` writes scores and CPU seconds.

Its CPU projector (BasicProjector), single precision, its own settings otherwise; one thread.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time

import torch
from attribution_cases import network
from trak import TRAKer
from trak.projectors import BasicProjector, ProjectionType

BATCH = 100


def scores(data: dict[str, object], dim: int) -> torch.Tensor:
    """Give TRAK's scores, shape (m, n)."""
    model = network().eval()
    size = sum(parameter.numel() for parameter in model.parameters())
    projector = BasicProjector(size, dim, 0, ProjectionType.rademacher, torch.device("cpu"), block_size=dim)
    with tempfile.TemporaryDirectory() as folder:
        traker = TRAKer(
            model=model,
            task="image_classification",
            train_set_size=len(data["x_train"]),
            save_dir=folder,
            device="cpu",
            projector=projector,
            proj_dim=dim,
            use_half_precision=False,
            logging_level=logging.WARNING,
        )
        for number, state in enumerate(data["checkpoints"]):
            traker.load_checkpoint(state, model_id=number)
            for x, y in zip(data["x_train"].split(BATCH), data["y_train"].split(BATCH), strict=True):
                traker.featurize(batch=[x, y], num_samples=len(x))
        traker.finalize_features()
        for number, state in enumerate(data["checkpoints"]):
            traker.start_scoring_checkpoint("test", state, number, len(data["x_test"]))
            for x, y in zip(data["x_test"].split(BATCH), data["y_test"].split(BATCH), strict=True):
                traker.score(batch=[x, y], num_samples=len(x))
        return torch.tensor(traker.finalize_scores("test")).T.clone()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs = torch.load(sys.argv[1], weights_only=True)
    start = time.process_time()
    found = scores(inputs, int(sys.argv[3]))
    torch.save({"scores": found, "seconds": time.process_time() - start}, sys.argv[2])
