// The forward pass: what ham/models does in PyTorch, for one greedy run, recorded as a trace
// (docs/trace_format.md). Weights are float32, sums are float64; a test in a real browser holds
// it against Python's traces. It knows nothing of the page.
const Network = (() => {
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const relu = (values) => values.map((v) => (v > 0 ? v : 0));

  function floats(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const view = new DataView(bytes.buffer);
    return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  }

  // From what ham.use.trace.portable gives: layers by name, each {weight, bias, inputs, outputs}.
  function load(portable) {
    const all = floats(portable.weights);
    const tensors = {};
    let start = 0;
    for (const [name, shape] of Object.entries(portable.shapes)) {
      const size = shape.reduce((a, b) => a * b, 1);
      tensors[name] = { data: all.subarray(start, start + size), shape };
      start += size;
    }
    const linear = (weight, bias) => ({
      weight: tensors[weight].data,
      bias: tensors[bias].data,
      outputs: tensors[weight].shape[0],
      inputs: tensors[weight].shape[1],
    });
    // An MLP's layers are numbered 0, 2, ... with a ReLU between them.
    const mlp = (name) => {
      const layers = [];
      for (let i = 0; tensors[`${name}.${i}.weight`]; i += 2) {
        layers.push(linear(`${name}.${i}.weight`, `${name}.${i}.bias`));
      }
      return layers;
    };
    const raw = portable.kind === "raw-ham";
    const model = {
      kind: portable.kind,
      every: portable.every,
      smallest: portable.smallest,
      bounds: portable.bounds,
      join: mlp("memory.join"),
      // A highway JOIN has three networks instead.
      joinCandidate: mlp("memory.join.candidate"),
      joinGate: mlp("memory.join.gate"),
      joinSide: mlp("memory.join.side"),
      search: mlp("memory.search"),
      candidate: mlp("memory.write.candidate"),
      gate: mlp("memory.write.gate"),
      output: raw ? mlp("output") : [linear("output.weight", "output.bias")],
    };
    model.size = model.candidate.at(-1).outputs;
    if (!raw) {
      model.embed = mlp("memory.embed");
      model.step = controllers[portable.controller];
      if (!model.step) throw new Error(`the page does not know the controller ${portable.controller}`);
      model.cells = model.output[0].inputs;
      model.layers = mlp("controller");
      if (tensors["controller.weight_ih"]) {
        model.fromRead = linear("controller.weight_ih", "controller.bias_ih");
        model.fromState = linear("controller.weight_hh", "controller.bias_hh");
      }
    }
    return model;
  }

  function linear(layer, input) {
    const { weight, bias, inputs, outputs } = layer;
    const result = new Float64Array(outputs);
    for (let row = 0, at = 0; row < outputs; row++) {
      let sum = bias[row];
      for (let i = 0; i < inputs; i++) sum += weight[at++] * input[i];
      result[row] = sum;
    }
    return result;
  }

  function mlp(layers, input) {
    return layers.reduce((values, layer, i) => linear(layer, i ? relu(values) : values), input);
  }

  function joined(a, b) {
    const both = new Float64Array(a.length + b.length);
    both.set(a);
    both.set(b, a.length);
    return both;
  }

  const LEAST_MEAN_SQUARE = 1e-5;
  const below = (top, values) => (top ? values.map((v) => Math.min(v, top)) : values);

  // Multiples of 1 / grid; halves go to the even one, as PyTorch rounds.
  function onGrid(grid, values) {
    if (!grid) return values;
    return values.map((v) => {
      const low = Math.floor(v * grid);
      const rest = v * grid - low;
      return (rest > 0.5 || (rest === 0.5 && low % 2) ? low + 1 : low) / grid;
    });
  }

  const embed = ({ embed, bounds }, row) => onGrid(bounds.grid, below(bounds.top, relu(mlp(embed, row))));

  function join(model, left, right) {
    const { join, top, grid } = model.bounds;
    const both = joined(left, right);
    if (join === "highway") return onGrid(grid, highway(model, left, right, both));
    const made = relu(mlp(model.join, both));
    if (join === "rectified") return onGrid(grid, below(top, made));
    if (join !== "normalised") throw new Error(`the page does not know a ${join} JOIN`);
    const scale = Math.sqrt(made.reduce((sum, v) => sum + v * v, 0) / made.length + LEAST_MEAN_SQUARE);
    return onGrid(grid, made.map((v) => v / scale));
  }

  // Copies up what it does not change.
  function highway(model, left, right, both) {
    const candidate = mlp(model.joinCandidate, both);
    const gate = mlp(model.joinGate, both);
    const side = mlp(model.joinSide, both);
    return candidate.map((made, i) => {
      const [t, s] = [sigmoid(gate[i]), sigmoid(side[i])];
      return t * sigmoid(made) + (1 - t) * (s * left[i] + (1 - s) * right[i]);
    });
  }

  const search = (model, value, query) => sigmoid(mlp(model.search, joined(value, query))[0]);

  function write(model, value, query) {
    const both = joined(value, query);
    const candidate = mlp(model.candidate, both);
    const gate = mlp(model.gate, both);
    const written = value.map((old, i) => {
      const t = sigmoid(gate[i]);
      return t * sigmoid(candidate[i]) + (1 - t) * old;
    });
    return onGrid(model.bounds.grid, written);
  }

  function lstm(model, input, { h, c }) {
    const x = linear(model.fromRead, input);
    const s = linear(model.fromState, h);
    const n = model.cells;
    const gate = (k, i) => x[k * n + i] + s[k * n + i];
    const after = { h: new Float64Array(n), c: new Float64Array(n) };
    const bound = model.bounds.cell || Infinity;
    for (let i = 0; i < n; i++) {
      const cell = sigmoid(gate(1, i)) * c[i] + sigmoid(gate(0, i)) * Math.tanh(gate(2, i));
      after.c[i] = Math.max(-bound, Math.min(bound, cell));
      after.h[i] = sigmoid(gate(3, i)) * Math.tanh(after.c[i]);
    }
    return after;
  }

  function gru(model, input, { h }) {
    const x = linear(model.fromRead, input);
    const s = linear(model.fromState, h);
    const n = model.cells;
    const after = h.map((old, i) => {
      const reset = sigmoid(x[i] + s[i]);
      const keep = sigmoid(x[n + i] + s[n + i]);
      return (1 - keep) * Math.tanh(x[2 * n + i] + reset * s[2 * n + i]) + keep * old;
    });
    return { h: after };
  }

  const feedForward = (model, input) => ({ h: mlp(model.layers, input).map(Math.tanh) });

  // By the names of ham.models.controllers; h is the query.
  const controllers = { lstm, gru, "feed-forward": feedForward };

  // The memory before the first timestep, by heap number: root 1, children 2e and 2e + 1.
  function plant(model, rows, leaves) {
    const zero = new Float64Array(model.size);
    const tree = new Array(2 * leaves).fill(zero);
    if (model.embed) rows.forEach((row, i) => (tree[leaves + i] = embed(model, row)));
    for (let node = leaves - 1; node >= 1; node--) {
      const [left, right] = [2 * node, 2 * node + 1];
      // Neighbours often have the same children (empty leaves): no need to join those again.
      const same = tree[2 * node + 2] === tree[left] && tree[2 * node + 3] === tree[right];
      tree[node] = same && 2 * node + 3 < 2 * leaves ? tree[node + 1] : join(model, tree[left], tree[right]);
    }
    return tree;
  }

  // A greedy run for so many output symbols. Values of nodes are replaced, never changed.
  function run(model, rows, leaves, symbols) {
    const raw = model.kind === "raw-ham";
    const first = plant(model, rows, leaves);
    const tree = first.slice();
    const steps = [];
    let state = raw ? null : { h: new Float64Array(model.cells), c: new Float64Array(model.cells) };
    for (let t = 0; t < symbols * model.every; t++) {
      const query = raw ? Float64Array.from(rows[t]) : state.h;
      const path = [1];
      const pRight = [];
      while (path.at(-1) < leaves) {
        const p = search(model, tree[path.at(-1)], query);
        pRight.push(p);
        path.push(2 * path.at(-1) + (p > 0.5 ? 1 : 0));
      }
      const node = path.at(-1);
      const value = tree[node];
      if (!raw) state = model.step(model, value, state);
      const output = (t + 1) % model.every ? null : mlp(model.output, raw ? value : state.h).map(sigmoid);
      tree[node] = write(model, value, raw ? query : state.h);
      const rejoined = [];
      for (let e = node >> 1; e >= 1; e >>= 1) {
        const before = tree[e];
        tree[e] = join(model, tree[2 * e], tree[2 * e + 1]);
        rejoined.push({ node: e, before, after: tree[e] });
      }
      steps.push({
        query,
        path,
        p_right: pRight,
        leaf: node - leaves,
        value,
        written: { node, before: value, after: tree[node] },
        rejoined,
        output: output && { probabilities: output, bits: Array.from(output, (p) => (p > 0.5 ? 1 : 0)) },
      });
    }
    return { tree: first, steps };
  }

  return { load, run };
})();
