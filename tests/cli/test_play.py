"""The playground: its numbers are the library's, in a browser, and one file holds it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import webbrowser
from itertools import pairwise

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.cli._play import page

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ACTIVATIONS = {
    "ReLU": nn.ReLU,
    "erf": lambda: ntkit.Elementwise(torch.erf),
    "GELU": nn.GELU,
    "sine": lambda: ntkit.Elementwise(torch.sin),
}
TIMES = (0.7, float("inf"))
PROBE = """<script>
const found = CASES.map(({ x, test, y, net }) => {
  const solved = flow(x, y, net), cross = kernels(test, x, net), priors = test.map((one) => variances(one, net)[net.depth]);
  const finite = new FiniteNetwork(x[0].length, 512, net, 1), before = x.map((one) => finite.forward(one)), rate = 1e-7;
  finite.step(x, y, rate);
  return {
    ntk: cross.ntk.map((row) => [...row]), nngp: cross.nngp.map((row) => [...row]), rate: solved.maxLearningRate,
    predicted: [0.7, Infinity].map((t) => { const found = solved.predict(cross, priors, t);
      return [[...found.mean], [...found.std]]; }),
    moved: x.map((one, i) => (finite.forward(one) - before[i]) / rate), errors: before.map((value, i) => value - y[i]),
  };
});
document.body.innerHTML = "";
document.body.dataset.found = JSON.stringify(found);
</script></body>"""


def network(activation: str, depth: int, inputs: int) -> nn.Sequential:
    sizes = [inputs, *[16] * depth]
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), ACTIVATIONS[activation]())]
    return nn.Sequential(*hidden, nn.Linear(16, 1))


CASES = [(name, depth, inputs) for name, depth, inputs in zip(ACTIVATIONS, (3, 2, 2, 1), (1, 2, 1, 2), strict=True)]
NETS = [{"activation": name, "depth": depth, "w": 1.3, "b": 0.4} for name, depth, _ in CASES]


def data(case: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = CASES[case][2]
    return normal(6, inputs, seed=case), normal(4, inputs, seed=10 + case), normal(6, seed=20 + case)


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> list[dict[str, list]]:
    """What the page computes in a browser."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    cases = [
        {"x": x.tolist(), "test": test.tolist(), "y": y.tolist(), "net": net}
        for net, (x, test, y) in zip(NETS, map(data, range(len(CASES))), strict=True)
    ]
    path = tmp_path_factory.mktemp("play") / "play.html"
    path.write_text(page().replace("</body>", PROBE.replace("CASES", json.dumps(cases))), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--dump-dom", path.as_uri()]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r'data-found="([^"]*)"', text)
    assert found is not None, "the page's scripts did not run"
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("case", range(len(CASES)), ids=list(ACTIVATIONS))
def test_numbers_of_the_page_are_the_librarys(shown, case):
    x, test, y = data(case)
    found, net = shown[case], NETS[case]
    limit = ntkit.infinite_width(network(*CASES[case]), w_std=net["w"], b_std=net["b"])
    for which in ("ntk", "nngp"):
        torch.testing.assert_close(
            torch.tensor(found[which], dtype=torch.float64), getattr(limit, which)(test, x), rtol=1e-10, atol=1e-10
        )
    assert found["rate"] == pytest.approx(2 / torch.linalg.eigvalsh(limit.ntk(x))[-1].item(), rel=1e-9)
    for t, (mean, std) in zip(TIMES, found["predicted"], strict=True):
        posterior = ntkit.posterior(limit, x, y[:, None], test, mode="ntk", t=t)
        spread = posterior.covariance.diagonal().clamp(min=0).sqrt()
        torch.testing.assert_close(torch.tensor(mean, dtype=torch.float64), posterior.mean[:, 0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(torch.tensor(std, dtype=torch.float64), spread, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", range(len(CASES)), ids=list(ACTIVATIONS))
def test_a_step_of_a_finite_network_moves_as_the_tangent_kernel_says(shown, case):
    """To first order a step changes the outputs by -rate Theta (f - y), with the limit's Theta up to O(width^-1/2)."""
    found, net = shown[case], NETS[case]
    limit = ntkit.infinite_width(network(*CASES[case]), w_std=net["w"], b_std=net["b"])
    expected = -limit.ntk(data(case)[0]) @ torch.tensor(found["errors"], dtype=torch.float64)
    moved = torch.tensor(found["moved"], dtype=torch.float64)
    assert (moved - expected).norm() < 0.25 * expected.norm()


def test_command_writes_one_file_or_opens_it(program, tmp_path, monkeypatch):
    assert program("play", "--out", "play.html") == "play.html\n"
    text = (tmp_path / "play.html").read_text("utf-8")
    assert text == page() and not re.search(r"(src|href)=", text)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    program("play")
    assert opened[0].startswith("file://") and not program.err
