// The kernels of infinitely wide fully connected networks, and gradient flow with them, in closed form. Matrices are arrays of rows.
"use strict";

const INV_SQRT2 = Math.SQRT1_2;
const TWO_PI = 2 * Math.PI;

/** The error function, by the series of Kummer for small z and the continued fraction of erfc beyond; relative error 1e-14. */
function erf(z) {
  const a = Math.abs(z);
  if (a > 6) return Math.sign(z);
  if (a < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * z * z) / (2 * n + 1);
      sum += term;
    }
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-z * z) * sum;
  }
  let fraction = a;
  for (let n = 60; n > 0; n--) fraction = a + n / 2 / fraction;
  return Math.sign(z) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * fraction));
}

const normalCdf = (z) => 0.5 * (1 + erf(z * INV_SQRT2));
const clip = (rho) => Math.max(-1, Math.min(1, rho));

/**
 * For each activation phi: its value and slope, and dual(q1, q2, k) = [E phi(u) phi(v), E phi'(u) phi'(v)] for (u, v) Gaussian with
 * variances q1, q2 and covariance k.
 */
const ACTIVATIONS = {
  ReLU: {
    value: (z) => (z > 0 ? z : 0),
    slope: (z) => (z > 0 ? 1 : 0),
    dual(q1, q2, k) {
      const scale = Math.sqrt(q1 * q2);
      if (scale === 0) return [0, 0.25];
      const rho = clip(k / scale);
      const angle = Math.PI - Math.acos(rho);
      return [(scale * (Math.sqrt(1 - rho * rho) + rho * angle)) / TWO_PI, angle / TWO_PI];
    },
  },
  erf: {
    value: erf,
    slope: (z) => (2 / Math.sqrt(Math.PI)) * Math.exp(-z * z),
    dual(q1, q2, k) {
      const norm = (1 + 2 * q1) * (1 + 2 * q2);
      return [(2 / Math.PI) * Math.asin((2 * k) / Math.sqrt(norm)), 4 / Math.PI / Math.sqrt(norm - 4 * k * k)];
    },
  },
  GELU: {
    value: (z) => z * normalCdf(z),
    slope: (z) => normalCdf(z) + (z * Math.exp((-z * z) / 2)) / Math.sqrt(TWO_PI),
    // By Stein's identity, from G = E Phi(u) Phi(v) and D = E phi(u) phi(v) with phi the normal density and Phi its integral.
    dual(q1, q2, k) {
      const r1 = 1 / (1 + q1), r2 = 1 / (1 + q2);
      const det = (1 + q1) * (1 + q2) - k * k;
      const G = 0.25 + Math.asin(k * Math.sqrt(r1 * r2)) / TWO_PI;
      const D = 1 / (TWO_PI * Math.sqrt(det));
      return [k * G + D * (q1 * q2 + k * k * (r1 + r2 - 1)), G + D * k * (r1 + r2 + 1 / det)];
    },
  },
  sine: {
    value: Math.sin,
    slope: Math.cos,
    dual(q1, q2, k) {
      const near = Math.exp(k - (q1 + q2) / 2), far = Math.exp(-k - (q1 + q2) / 2);
      return [(near - far) / 2, (near + far) / 2];
    },
  },
};

const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);

/** The variances of one input before each activation: one number per hidden layer. */
function variances(x, net) {
  const { dual } = ACTIVATIONS[net.activation];
  const w2 = net.w * net.w, b2 = net.b * net.b;
  const found = [(w2 * dot(x, x)) / x.length + b2];
  while (found.length <= net.depth) {
    const q = found[found.length - 1];
    found.push(w2 * dual(q, q, q)[0] + b2);
  }
  return found;
}

/** [NNGP, NTK] of two inputs, given the variances of each; net = {depth: hidden layers, activation, w, b: gains}. */
function pair(x, y, qx, qy, net) {
  const { dual } = ACTIVATIONS[net.activation];
  const w2 = net.w * net.w, b2 = net.b * net.b;
  let K = (w2 * dot(x, y)) / x.length + b2, Theta = K;
  for (let layer = 0; layer < net.depth; layer++) {
    const [value, slope] = dual(qx[layer], qy[layer], K);
    K = w2 * value + b2;
    Theta = K + w2 * slope * Theta;
  }
  return [K, Theta];
}

/** The kernels between two lists of inputs: {nngp, ntk}, each a matrix (xs, ys). */
function kernels(xs, ys, net) {
  const qy = ys.map((y) => variances(y, net));
  const nngp = [], ntk = [];
  for (const x of xs) {
    const qx = variances(x, net);
    const row = ys.map((y, j) => pair(x, y, qx, qy[j], net));
    nngp.push(Float64Array.from(row, (both) => both[0]));
    ntk.push(Float64Array.from(row, (both) => both[1]));
  }
  return { nngp, ntk };
}

/** Eigenvalues, ascending, and eigenvectors (rows) of a symmetric matrix, by Jacobi's rotations. */
function eigh(matrix) {
  const n = matrix.length;
  const A = matrix.map((row) => Float64Array.from(row));
  const V = A.map((_, i) => Float64Array.from(A, (_, j) => (i === j ? 1 : 0)));
  let total = 0;
  for (const row of A) for (const value of row) total += value * value;
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) off += A[p][q] * A[p][q];
    if (off <= 1e-30 * total) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (Math.abs(A[p][q]) < 1e-300) continue;
        const tau = (A[q][q] - A[p][p]) / (2 * A[p][q]);
        const t = (tau < 0 ? -1 : 1) / (Math.abs(tau) + Math.sqrt(1 + tau * tau));
        const c = 1 / Math.sqrt(1 + t * t), s = t * c;
        const rowP = A[p], rowQ = A[q], vP = V[p], vQ = V[q];
        for (let k = 0; k < n; k++) {
          const a = rowP[k], b = rowQ[k], u = vP[k], v = vQ[k];
          rowP[k] = c * a - s * b; rowQ[k] = s * a + c * b;
          vP[k] = c * u - s * v; vQ[k] = s * u + c * v;
        }
        for (let k = 0; k < n; k++) {
          const row = A[k], a = row[p], b = row[q];
          row[p] = c * a - s * b; row[q] = s * a + c * b;
        }
      }
    }
  }
  const order = [...Array(n).keys()].sort((i, j) => A[i][i] - A[j][j]);
  return { values: Float64Array.from(order, (i) => A[i][i]), vectors: order.map((i) => V[i]) };
}

/** What gradient flow on half the squared error learns by a time: f_t(x) = Theta(x, X) [Theta^-1 (1 - e^(-Theta t))] y. */
function flow(train, targets, net) {
  const { nngp, ntk } = kernels(train, train, net);
  const { values, vectors } = eigh(ntk);
  const n = train.length;
  const weighted = vectors.map((v) => dot(v, targets)); // y in the eigenbasis
  const largest = n ? values[n - 1] : 0;
  const K = vectors.map((v) => {
    const product = nngp.map((row) => dot(v, row));
    return vectors.map((u) => dot(u, product));
  }); // the NNGP kernel in the eigenbasis

  /** (1 - e^(-lambda t)) / lambda of each eigenvalue; what rounding has destroyed is left out. */
  const filter = (t) =>
    Float64Array.from(values, (value) =>
      value <= 1e-13 * largest ? (t === Infinity ? 0 : t) : t === Infinity ? 1 / value : -Math.expm1(-value * t) / value);

  return {
    nngp, ntk, values, largest,
    /** The learning rate above which gradient descent diverges. */
    maxLearningRate: 2 / largest,
    /** Mean and standard deviation at time t, given the kernels of the test inputs with the training inputs, and the test variances. */
    predict(test, priors, t, spread = true) {
      const gains = filter(t);
      const mean = new Float64Array(test.ntk.length), std = new Float64Array(test.ntk.length);
      const coefficients = new Float64Array(n);
      vectors.forEach((v, i) => { for (let j = 0; j < n; j++) coefficients[j] += gains[i] * weighted[i] * v[j]; });
      test.ntk.forEach((row, m) => {
        mean[m] = dot(row, coefficients);
        if (!spread) return;
        const a = vectors.map((v, i) => gains[i] * dot(v, row)); // Theta(x, X) V gains
        const k = vectors.map((v) => dot(v, test.nngp[m]));
        let variance = priors[m];
        for (let i = 0; i < n; i++) {
          variance -= 2 * a[i] * k[i];
          const Ki = K[i];
          let sum = 0;
          for (let j = 0; j < n; j++) sum += Ki[j] * a[j];
          variance += a[i] * sum;
        }
        std[m] = Math.sqrt(Math.max(0, variance));
      });
      return { mean, std };
    },
  };
}

if (typeof module !== "undefined") module.exports = { ACTIVATIONS, erf, kernels, variances, eigh, flow };
