// Fully connected networks of finite width in the parametrisation of the tangent kernel, trained by gradient descent.
"use strict";

/** Numbers of a normal distribution from a seed. */
function normals(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = Math.imul(state ^ (state >>> 15), state | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** f(x) = last layer of h_L, where h_(l+1) = phi(w W h_l / sqrt(n_l) + b B) and all W, B start from N(0, 1). */
class FiniteNetwork {
  constructor(inputs, width, net, seed) {
    const normal = normals(seed);
    const sizes = [inputs, ...Array(net.depth).fill(width), 1];
    this.net = net;
    this.layers = sizes.slice(1).map((outputs, l) => ({
      inputs: sizes[l],
      outputs,
      scale: net.w / Math.sqrt(sizes[l]),
      W: Float64Array.from({ length: outputs * sizes[l] }, normal),
      B: Float64Array.from({ length: outputs }, normal),
    }));
  }

  /** The output at one input; keeps each layer's input and pre-activation if asked to. */
  forward(x, kept = null) {
    const { value } = ACTIVATIONS[this.net.activation];
    let h = x;
    this.layers.forEach((layer, l) => {
      const z = new Float64Array(layer.outputs);
      for (let o = 0, at = 0; o < layer.outputs; o++) {
        let sum = 0;
        for (let i = 0; i < layer.inputs; i++) sum += layer.W[at++] * h[i];
        z[o] = layer.scale * sum + this.net.b * layer.B[o];
      }
      if (kept) kept[l] = { h, z };
      h = l + 1 < this.layers.length ? z.map(value) : z;
    });
    return h[0];
  }

  /** One step of gradient descent on half the squared error; returns that loss before the step. */
  step(xs, ys, rate) {
    const { slope } = ACTIVATIONS[this.net.activation];
    const gradients = this.layers.map((layer) => [new Float64Array(layer.W.length), new Float64Array(layer.B.length)]);
    let loss = 0;
    xs.forEach((x, n) => {
      const kept = [];
      const error = this.forward(x, kept) - ys[n];
      loss += (error * error) / 2;
      let delta = Float64Array.of(error);
      for (let l = this.layers.length - 1; l >= 0; l--) {
        const layer = this.layers[l], { h } = kept[l], [dW, dB] = gradients[l];
        const back = l ? new Float64Array(layer.inputs) : null;
        for (let o = 0; o < layer.outputs; o++) {
          const scaled = delta[o] * layer.scale, start = o * layer.inputs;
          dB[o] += delta[o] * this.net.b;
          for (let i = 0; i < layer.inputs; i++) {
            dW[start + i] += scaled * h[i];
            if (back) back[i] += scaled * layer.W[start + i];
          }
        }
        if (l) {
          const z = kept[l - 1].z;
          delta = back.map((value, i) => value * slope(z[i]));
        }
      }
    });
    this.layers.forEach((layer, l) => {
      const [dW, dB] = gradients[l];
      for (let i = 0; i < dW.length; i++) layer.W[i] -= rate * dW[i];
      for (let i = 0; i < dB.length; i++) layer.B[i] -= rate * dB[i];
    });
    return loss;
  }
}

if (typeof module !== "undefined") {
  globalThis.ACTIVATIONS = require("./kernels.js").ACTIVATIONS;
  module.exports = { FiniteNetwork, normals };
}
