// The page: points to drag, sliders, and the pictures that follow from them.
"use strict";

const RANGE = 2.2; // inputs and targets from -RANGE to RANGE
const MEMBERS = 3;
const MOST_POINTS = 40;
const $ = (id) => document.getElementById(id);

const line = (xs, f) => xs.map((x) => ({ x: [x], y: f(x) }));
const spaced = (n, from, to) => Array.from({ length: n }, (_, i) => from + ((to - from) * i) / Math.max(1, n - 1));
const ring = (n, radius, y, turn = 0) =>
  spaced(n + 1, 0, 2 * Math.PI).slice(0, n).map((a) => ({ x: [radius * Math.cos(a + turn), radius * Math.sin(a + turn)], y }));
const moon = (n, y, sign) =>
  spaced(n, 0, Math.PI).map((a) => ({ x: [sign * (1.1 * Math.cos(a) - 0.5), sign * (1.1 * Math.sin(a) - 0.25)], y }));

const PRESETS = {
  "A gap": {
    about: "No data in the middle: the band says what the networks cannot know there.",
    points: () => line([...spaced(5, -1.8, -0.8), ...spaced(5, 0.8, 1.8)], (x) => Math.sin(2 * x)),
  },
  Waves: { about: "Slow waves are learned first; watch it along t.", points: () => line(spaced(14, -1.9, 1.9), (x) => Math.sin(4 * x)), depth: 3 },
  "A step": { about: "A jump between two levels.", points: () => line(spaced(10, -1.8, 1.8), (x) => (x < 0 ? -1 : 1)), activation: "erf", w: 2.2 },
  "Width matters": {
    about: "Four units per layer and six layers: the networks scatter far beyond the band. Widen them, draw new ones and train again.",
    points: () => line(spaced(6, -1.6, 1.6), (x) => x / 2), activation: "ReLU", depth: 6, width: 2, w: 1.4, time: 2,
  },
  "A rate too high": {
    about: "Gradient descent at 1.3 times the largest stable rate. Train: the error doubles every few steps, in the steepest direction of the kernel.",
    points: () => line(spaced(7, -1.7, 1.7), (x) => Math.cos(2 * x)), rate: 1.3,
  },
  "Two moons": { about: "Two classes in the plane; colour is the mean prediction.", points: () => [...moon(12, -1, 1), ...moon(12, 1, -1)], depth: 3 },
  Rings: { about: "A class around another one.", points: () => [...ring(8, 0.6, -1), ...ring(16, 1.6, 1)] },
  "Exclusive or": { about: "Four corners: no straight line divides them.", points: () => [[-1, -1, -1], [1, 1, -1], [-1, 1, 1], [1, -1, 1]].map(([a, b, y]) => ({ x: [a, b], y })) },
  "Forty points": { about: "As many points as the page takes.", points: () => line(spaced(MOST_POINTS, -2, 2), (x) => Math.sin(3 * x) + 0.2 * Math.sin(17 * x)) },
};
const USUAL = { activation: "ReLU", depth: 2, w: 1.4, b: 0.3, time: 4, width: 6, rate: 0.5 };

const state = { ...USUAL, points: [], selected: 0, networks: null, elapsed: 0, training: false, diverged: false, seed: 1 };
let exact = null; // what depends on data and network alone: kernels of the grid, eigenvalues

const net = () => ({ depth: state.depth, activation: state.activation, w: state.w, b: state.b });
const plane = () => state.points.length > 0 && state.points[0].x.length === 2;
const time = () => (state.training || state.networks ? state.elapsed : state.time >= 4 ? Infinity : 10 ** state.time);

function gridOf() {
  if (!plane()) return spaced(161, -RANGE, RANGE).map((x) => [x]);
  const axis = spaced(32, -RANGE, RANGE);
  return axis.flatMap((b) => axis.map((a) => [a, b]));
}

function solve() {
  const inputs = state.points.map((point) => point.x), grid = gridOf();
  exact = { grid, flow: flow(inputs, state.points.map((point) => point.y), net()), test: kernels(grid, inputs, net()) };
  exact.priors = plane() ? null : grid.map((x) => variances(x, net())[state.depth]);
}

function drawNetworks() {
  state.networks = Array.from({ length: MEMBERS }, (_, m) => new FiniteNetwork(state.points[0].x.length, 2 ** state.width, net(), 1000 * state.seed + m));
  state.elapsed = 0;
  state.diverged = false;
}

/** Train for some milliseconds; the time of gradient flow advances by the rate at each step. */
function advance(milliseconds) {
  const rate = state.rate * exact.flow.maxLearningRate;
  const xs = state.points.map((point) => point.x), ys = state.points.map((point) => point.y);
  const until = performance.now() + milliseconds;
  do {
    const losses = state.networks.map((network) => network.step(xs, ys, rate));
    state.elapsed += rate;
    state.diverged = losses.some((loss) => !(loss < 1e4 * xs.length));
  } while (!state.diverged && performance.now() < until && state.elapsed < 1e4);
  if (state.diverged || state.elapsed >= 1e4) state.training = false;
}

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
};

/** A colour between two hues for a value between -1 and 1. */
function hue(value) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const a = Math.min(1, Math.abs(value));
  return `hsl(${value < 0 ? 212 : 14} ${20 + 60 * a}% ${dark ? 12 + 38 * a : 98 - 36 * a}%)`;
}

function drawPlot() {
  const canvas = $("plot"), g = canvas.getContext("2d"), colour = colours();
  const { width, height } = canvas;
  const px = (x) => ((x + RANGE) / (2 * RANGE)) * width, py = (y) => height - ((y + RANGE) / (2 * RANGE)) * height;
  g.clearRect(0, 0, width, height);
  const { mean, std } = exact.flow.predict(exact.test, exact.priors, time(), !plane());
  if (plane()) {
    const side = Math.sqrt(exact.grid.length), w = width / (side - 1), h = height / (side - 1);
    exact.grid.forEach(([a, b], i) => {
      g.fillStyle = hue(mean[i]);
      g.fillRect(px(a) - w / 2, py(b) - h / 2, w + 1, h + 1);
    });
  } else {
    g.strokeStyle = colour("line");
    g.beginPath(); g.moveTo(0, py(0)); g.lineTo(width, py(0)); g.stroke();
    const trace = (values) => exact.grid.forEach(([x], i) => g.lineTo(px(x), py(values[i])));
    g.beginPath();
    trace(mean.map((m, i) => m + 2 * std[i]));
    [...exact.grid.keys()].reverse().forEach((i) => g.lineTo(px(exact.grid[i][0]), py(mean[i] - 2 * std[i])));
    g.fillStyle = colour("band"); g.fill();
    if (state.networks) {
      g.strokeStyle = colour("finite"); g.lineWidth = 2.5;
      for (const network of state.networks) {
        g.beginPath(); trace(exact.grid.map((x) => Math.max(-99, Math.min(99, network.forward(x))))); g.stroke();
      }
    }
    g.strokeStyle = colour("mean"); g.lineWidth = 4;
    g.beginPath(); trace(mean); g.stroke();
  }
  state.points.forEach((point, i) => {
    const [x, y] = plane() ? point.x : [point.x[0], point.y];
    g.beginPath(); g.arc(px(x), py(y), i === state.selected ? 13 : 10, 0, 2 * Math.PI);
    g.fillStyle = plane() && point.y < 0 ? colour("other") : colour("point"); g.fill();
    g.strokeStyle = colour("page"); g.lineWidth = 3; g.stroke();
  });
  $("reading").textContent = reading();
}

function reading() {
  const t = time(), text = [`t = ${t === Infinity ? "infinity" : t.toPrecision(3)}`];
  text.push(`largest stable learning rate ${exact.flow.maxLearningRate.toPrecision(3)}`);
  if (state.networks && plane()) {
    const right = state.points.filter((point) => state.networks[0].forward(point.x) * point.y > 0).length;
    text.push(`a network of width ${2 ** state.width} has ${right} of ${state.points.length} points right`);
  }
  if (state.diverged) text.push("gradient descent diverges: lower the learning rate and draw new networks");
  return `${text.join("; ")}.`;
}

function drawMatrix() {
  const canvas = $("matrix"), g = canvas.getContext("2d"), n = state.points.length;
  const order = [...Array(n).keys()].sort((i, j) => state.points[i].x[0] - state.points[j].x[0]);
  const { ntk } = exact.flow, largest = Math.max(...ntk.map((row, i) => Math.abs(row[i])));
  const size = canvas.width / n;
  order.forEach((i, a) => order.forEach((j, b) => {
    g.fillStyle = hue(ntk[i][j] / largest);
    g.fillRect(b * size, a * size, size + 1, size + 1);
  }));
}

function drawSpectrum() {
  const canvas = $("spectrum"), g = canvas.getContext("2d"), colour = colours();
  const values = [...exact.flow.values].reverse(), top = Math.log10(values[0]), decades = 12;
  g.clearRect(0, 0, canvas.width, canvas.height);
  const w = canvas.width / values.length, h = canvas.height - 20;
  values.forEach((value, i) => {
    const share = Math.max(0.01, 1 - (top - Math.log10(Math.max(value, 1e-300))) / decades);
    g.fillStyle = colour("band");
    g.fillRect(i * w + 1, canvas.height - share * h, Math.max(1, w - 2), share * h);
    const learned = time() === Infinity ? 1 : -Math.expm1(-value * time());
    g.fillStyle = colour("mean");
    g.fillRect(i * w + 1, canvas.height - share * h * learned, Math.max(1, w - 2), share * h * learned);
  });
}

/** Everything on the page anew. */
function render() {
  drawPlot(); drawMatrix(); drawSpectrum();
}

const CONTROLS = {
  depth: (value) => `${value}`,
  w: (value) => value.toFixed(2),
  b: (value) => value.toFixed(2),
  time: (value) => (value >= 4 ? "infinity" : (10 ** value).toPrecision(2)),
  width: (value) => `${2 ** value}`,
  rate: (value) => value.toFixed(2),
};

function showControls() {
  for (const [id, text] of Object.entries(CONTROLS)) {
    $(id).value = state[id];
    document.querySelector(`output[for="${id}"]`).textContent = text(state[id]);
  }
  $("activation").value = state.activation;
  $("train").textContent = state.training ? "Stop" : "Train finite networks";
}

function forget() {
  state.networks = null; state.training = false; state.diverged = false; state.elapsed = 0;
}

function choose(name) {
  const { about, points, ...settings } = PRESETS[name];
  forget();
  Object.assign(state, USUAL, settings, { points: points(), selected: 0 });
  $("about").textContent = about;
  solve(); showControls(); render();
}

function loop() {
  if (!state.training) { showControls(); render(); return; }
  advance(12);
  render();
  requestAnimationFrame(loop);
}

function start() {
  for (const name of Object.keys(PRESETS)) $("preset").add(new Option(name));
  for (const name of Object.keys(ACTIVATIONS)) $("activation").add(new Option(name));
  $("preset").onchange = (event) => choose(event.target.value);
  $("activation").onchange = (event) => { forget(); state.activation = event.target.value; solve(); showControls(); render(); };
  for (const id of Object.keys(CONTROLS)) {
    $(id).oninput = (event) => {
      state[id] = Number(event.target.value);
      if (id !== "rate") forget();
      if (["depth", "w", "b"].includes(id)) solve();
      showControls(); render();
    };
  }
  $("train").onclick = () => {
    if (state.training) { state.training = false; return; }
    if (!state.networks || state.diverged) drawNetworks();
    state.training = true;
    showControls(); loop();
  };
  $("reset").onclick = () => { state.seed += 1; state.training = false; drawNetworks(); showControls(); render(); };

  const plot = $("plot");
  let dragging = false;
  const place = (event) => {
    const box = plot.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * 2 * RANGE - RANGE, RANGE - ((event.clientY - box.top) / box.height) * 2 * RANGE];
  };
  const move = ([a, b]) => {
    const inside = (value) => Math.max(-RANGE, Math.min(RANGE, value)), point = state.points[state.selected];
    forget();
    if (plane()) point.x = [inside(a), inside(b)];
    else [point.x, point.y] = [[inside(a)], inside(b)];
    solve(); showControls(); render();
  };
  const where = (point) => (plane() ? point.x : [point.x[0], point.y]);
  plot.onpointerdown = (event) => {
    const [a, b] = place(event);
    const distances = state.points.map((point) => Math.hypot(where(point)[0] - a, where(point)[1] - b));
    const nearest = distances.indexOf(Math.min(...distances));
    if (distances[nearest] > 0.35) return;
    state.selected = nearest; dragging = true;
    plot.setPointerCapture(event.pointerId); render();
  };
  plot.onpointermove = (event) => { if (dragging) move(place(event)); };
  plot.onpointerup = plot.onpointercancel = () => { dragging = false; };
  plot.onkeydown = (event) => {
    const [a, b] = where(state.points[state.selected]);
    const steps = { ArrowLeft: [-0.05, 0], ArrowRight: [0.05, 0], ArrowUp: [0, 0.05], ArrowDown: [0, -0.05] };
    if (event.key in steps) move([a + steps[event.key][0], b + steps[event.key][1]]);
    else if (event.key === "n" || event.key === "p") {
      state.selected = (state.selected + (event.key === "n" ? 1 : state.points.length - 1)) % state.points.length;
      render();
    } else return;
    event.preventDefault();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  const asked = decodeURIComponent(location.hash.slice(1));
  $("preset").value = asked in PRESETS ? asked : "A gap";
  choose($("preset").value);
}

start();
