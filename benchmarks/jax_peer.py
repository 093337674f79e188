"""LSTM+HAM's training step in JAX, jit + scan: what the native engine is measured against.

It computes what `ham.models.LSTMHAM` and `ham.train.objective` define, with the paper's settings
(Hamming reward, learned baseline, α/H), from the same parameters, batch and uniforms.

Notable choices, each the faster of those tried: the whole batch, the time loop, clipping and
Adam are one jitted function; a descent decides its way without gradient and then reads all its
nodes with one gather, because each gather costs a dense tree on the way back; all K + 1 nodes of
a path are written with one scatter. Shapes must be static, so every batch is padded to n + 1
timesteps.

Only benchmarks and their tests import this; `pip install 'ham-memory[bench]'` brings JAX.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ham.ops.episode import LEAST_ENTROPY
from ham.train.adam import EPSILON, MEAN_DECAY, SQUARE_DECAY


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def mlp(p, name, x):
    """Depth 2, as `ham.models.transformations.MLP`."""
    return linear(p, f"{name}.2", jax.nn.relu(linear(p, f"{name}.0", x)))


def join(p, pair):
    return jax.nn.relu(mlp(p, "memory.join", pair))


def write(p, value, query):
    both = jnp.concatenate([value, query], -1)
    t = jax.nn.sigmoid(mlp(p, "memory.write.gate", both))
    return t * jax.nn.sigmoid(mlp(p, "memory.write.candidate", both)) + (1 - t) * value


def search(p, nodes, query):
    """Logits at nodes [batch, k, size]; the query's half of the first layer is shared by all k."""
    weight = p["memory.search.0.weight"]
    size = nodes.shape[-1]
    half = query @ weight[:, size:].T + p["memory.search.0.bias"]
    hidden = jax.nn.relu(nodes @ weight[:, :size].T + half[:, None])
    return linear(p, "memory.search.2", hidden)[..., 0]


def lstm(p, value, h, c):
    gates = (
        value @ p["controller.weight_ih"].T
        + p["controller.bias_ih"]
        + h @ p["controller.weight_hh"].T
        + p["controller.bias_hh"]
    )
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def rows(tree, nodes):
    return jnp.take_along_axis(tree, nodes[..., None], 1)


def build(p, inputs, lengths):
    """The tree over the embedded inputs, heap-numbered, row 0 unused."""
    leaves = jax.nn.relu(mlp(p, "memory.embed", inputs))
    leaves = leaves * (jnp.arange(inputs.shape[1]) < lengths[:, None])[..., None]
    levels = [leaves]
    while (width := levels[-1].shape[1]) > 1:
        levels.append(join(p, levels[-1].reshape(len(leaves), width // 2, -1)))
    return jnp.concatenate([jnp.zeros_like(leaves[:, :1]), *reversed(levels)], 1)


def episode(p, inputs, lengths, asked, uniforms):
    """Outputs [batch, time, bits], decision logits and turns [batch, time, depth], queries."""
    batch, leaves = inputs.shape[:2]
    depth = leaves.bit_length() - 1
    place = jnp.arange(batch)[:, None]

    def timestep(carry, given):
        tree, h, c = carry
        t, uniform = given
        path = [jnp.ones(batch, jnp.int32)]
        turns = []
        frozen, frozen_tree, frozen_h = jax.lax.stop_gradient((p, tree, h))
        for level in range(depth):
            node = rows(frozen_tree, path[-1][:, None])
            turns.append(uniform[:, level] < jax.nn.sigmoid(search(frozen, node, frozen_h)[:, 0]))
            path.append(2 * path[-1] + turns[-1])
        way = jnp.stack(path, 1)
        found = rows(tree, jnp.concatenate([way, way[:, 1:] ^ 1], 1))
        nodes, beside = found[:, : depth + 1], found[:, depth + 1 :]
        logits = search(p, nodes[:, :depth], h)
        value = nodes[:, depth]
        new_h, c = lstm(p, value, h, c)
        output = linear(p, "output", new_h)
        fresh = [write(p, value, new_h)]
        for level in range(depth, 0, -1):
            is_right = (way[:, level] & 1 == 1)[:, None]
            there = beside[:, level - 1]
            left, right = jnp.where(is_right, there, fresh[-1]), jnp.where(is_right, fresh[-1], there)
            fresh.append(join(p, jnp.concatenate([left, right], -1)))
        runs = (t < asked)[:, None, None]
        written = jnp.where(runs, jnp.stack(fresh[::-1], 1), nodes)
        tree = tree.at[place, way].set(written, unique_indices=True, mode="promise_in_bounds")
        return (tree, new_h, c), (output, logits, jnp.stack(turns, 1), h)

    start = jnp.zeros((batch, p["controller.weight_hh"].shape[1]))
    times = (jnp.arange(uniforms.shape[1]), uniforms.transpose(1, 0, 2))
    _, recorded = jax.lax.scan(timestep, (build(p, inputs, lengths), start, start), times)
    return tuple(part.swapaxes(0, 1) for part in recorded)


def loss(p, batch, *, discount, reinforce, exploration):
    """As `ham.train.objective.objective` with the learned baseline and without normalisation."""
    outputs, logits, turns, queries = episode(
        p, batch["inputs"], batch["lengths"], batch["asked"], batch["uniforms"]
    )
    count, symbols = batch["counted"].shape
    targets, counted = batch["targets"], batch["counted"].astype(outputs.dtype)
    ran = (jnp.arange(symbols) < batch["asked"][:, None]).astype(outputs.dtype)
    bit_losses = jnp.maximum(outputs, 0) - outputs * targets + jnp.log1p(jnp.exp(-jnp.abs(outputs)))
    cross_entropy = (bit_losses.sum(-1) * counted).sum() / count

    rewards = ((outputs > 0) == (targets > 0.5)).mean(-1) * counted
    delay = np.arange(symbols)[:, None] - np.arange(symbols)
    returns = rewards @ jnp.asarray(np.where(delay >= 0, discount ** np.maximum(delay, 0.0), 0), jnp.float32)
    predictions = linear(p, "baseline", jax.lax.stop_gradient(queries))[..., 0]
    advantages = jax.lax.stop_gradient(returns - predictions)
    baseline = (jnp.square(predictions - returns) * ran).sum() / jnp.maximum(ran.sum(), 1)

    log_probs = jax.nn.log_sigmoid(jnp.where(turns, logits, -logits))
    policy = -(log_probs.sum(-1) * advantages * ran).sum() / count
    doubt = -jnp.abs(logits)
    entropies = jax.nn.softplus(doubt) - doubt * jax.nn.sigmoid(doubt)
    exploring = ((1 / (entropies + LEAST_ENTROPY)) * ran[..., None]).sum() / count
    return cross_entropy + baseline + reinforce * policy + exploration * exploring


def adam(p, gradients, mean, square, steps, rate, clip):
    """Clip by the norm of all gradients, then Adam, as `ham.train` does."""
    each = jax.tree_util.tree_map
    norm = jnp.sqrt(sum(jnp.square(g).sum() for g in gradients.values()))
    scale = jnp.minimum(1.0, clip / norm)
    gradients = each(lambda g: g * scale, gradients)
    mean = each(lambda m, g: m + (1 - MEAN_DECAY) * (g - m), mean, gradients)
    square = each(lambda s, g: SQUARE_DECAY * s + (1 - SQUARE_DECAY) * g * g, square, gradients)
    unbiased = jnp.sqrt(1 - SQUARE_DECAY**steps)
    size = rate / (1 - MEAN_DECAY**steps)
    p = each(lambda w, m, s: w - size * m / (jnp.sqrt(s) / unbiased + EPSILON), p, mean, square)
    return p, mean, square


class Trainer:
    """One model's weights and Adam's moments, and the jitted step over them."""

    def __init__(self, parameters, *, discount, reinforce, exploration, clip, rate):
        """`parameters`: a state dict of `LSTMHAM`, as arrays."""
        self.parameters = {name: jnp.array(value) for name, value in parameters.items()}
        self.mean = {name: jnp.zeros_like(value) for name, value in self.parameters.items()}
        self.square = {name: jnp.zeros_like(value) for name, value in self.parameters.items()}
        self.steps = 0
        cost = functools.partial(loss, discount=discount, reinforce=reinforce, exploration=exploration)

        def step(p, mean, square, steps, batch):
            value, gradients = jax.value_and_grad(cost)(p, batch)
            return *adam(p, gradients, mean, square, steps, rate, clip), value

        self._step = jax.jit(step, donate_argnums=(0, 1, 2))

    def step(self, batch) -> float:
        """Train on one batch, and wait until it is done."""
        self.steps += 1
        self.parameters, self.mean, self.square, value = self._step(
            self.parameters, self.mean, self.square, np.float32(self.steps), batch
        )
        return float(value)


def padded(examples, uniforms, leaves):
    """A batch of `ham.train.objective.Examples` as arrays, n + 1 timesteps long."""
    symbols = leaves + 1
    missing = symbols - examples.counted.shape[1]
    arrays = {name: np.asarray(getattr(examples, name)) for name in ("inputs", "targets", "counted")}
    for name in ("targets", "counted"):
        array = arrays[name]
        arrays[name] = np.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2))
    arrays["uniforms"] = np.pad(np.asarray(uniforms), [(0, 0), (0, missing), (0, 0)])
    for name in ("lengths", "asked"):
        arrays[name] = np.asarray(getattr(examples, name)).astype(np.int32)
    return arrays
