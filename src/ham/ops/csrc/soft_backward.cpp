// Soft attention backwards in time, with one gradient tree, in panels, for a chunk.

#include <algorithm>

#include "decision.h"
#include "soft.h"

namespace ham {
namespace {

using Tape = SoftEpisode::Tape;
using Backward = SoftEpisode::Backward;

HAM_INLINE float* panel(float* panels, int64_t i, int64_t features) {
  return panels + i * panel_floats(features);
}

// Blocks of the nodes [first, end): body(first of the block, how many).
template <class Body>
void each_block(int64_t first, int64_t end, Body&& body) {
  for (; first < end; first += SoftEpisode::kNodeBlock)
    body(first, std::min(SoftEpisode::kNodeBlock, end - first));
}

// From the gradient of all nodes of timestep t's tree to that of its leaves alone; the first `pulled`
// lanes feel the pull.
void join_all_backward(const Model& model, const Tape& tape, int64_t t, int64_t pulled,
                       const Backward& scratch, float* gradients) {
  int64_t d = model.shape.width, h = model.join_hidden(), outputs = model.join_outputs();
  each_block(1, model.shape.leaves, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t node = first + i;
      add_pull(model, panel(scratch.tree, node, d), tape.tree(t, node), pulled);
      join_backward<true>(model, panel(scratch.tree, 2 * node, d), panel(scratch.joined, i, outputs),
                          panel(scratch.join_hidden, i, h), panel(scratch.tree, node, d),
                          tape.tree(t, node), tape.made_at(t, node), tape.join_hidden_at(t, node),
                          tape.tree(t, 2 * node));
    }
    join_gradient(model, gradients, scratch.joined, scratch.join_hidden, tape.join_hidden_at(t, first),
                  tape.tree(t, 2 * first), count);
  });
}

// From the gradient of the leaves after the update to that of the leaves before, of the
// probabilities (in scratch.reach) and of the new query.
void write_all_backward(const Model& model, const Tape& tape, int64_t t, int64_t active,
                        const Backward& scratch, float* d_half, float* gradients) {
  int64_t n = model.shape.leaves, d = model.shape.width, h = model.shape.hidden;
  int64_t first_width = model.write.out, gates = panel_floats(d);
  if (model.deep()) query_half(model, model.write, scratch.half, tape.new_query(t));
  zero_panel(d_half, first_width);
  each_block(0, n, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t leaf = first + i;
      float *gradient = panel(scratch.tree, n + leaf, d), *d_reach = panel(scratch.reach, n + leaf, 1);
      const float *old = tape.leaf(t, leaf), *mix = tape.mix_at(t, leaf);
      float* hidden = panel(scratch.hidden, i, 2 * h);
      if (model.deep()) node_forward<Finish::relu>(model, model.write, hidden, old, scratch.half);
      NodeShare share(tape.reach_at(t, n + leaf), active);
      for (int v = 0; v < kLanes; v += kWidth) {
        Vec p = load(share.lane + v), d_p = Vec{};
        for (int64_t f = 0; f < d; ++f) {
          int64_t at = f * kLanes + v;
          Vec g = load(gradient + at), value = load(old + at);
          Vec candidate = load(mix + at), gate = load(mix + gates + at);
          // made = old + p (written - old), and written - old = gate (candidate - old) but for rounding
          Vec change = gate * (candidate - value);
          if (model.bounds.grid > 0.f)
            change = on_grid(model.bounds, multiply_add(gate, candidate, (1.f - gate) * value)) - value;
          d_p = multiply_add(g, change, d_p);
          store(scratch.written + at, p * g);
          store(gradient + at, g - p * gate * g);
        }
        store(d_reach + v, d_p);
      }
      const float* d_first =
          write_rest_backward(model, panel(scratch.mix, i, 2 * d), panel(scratch.write_hidden, i, 2 * h),
                              scratch.written, mix, hidden, old);
      node_backward<Start::panel>(model, model.write, gradient, d_first);
      add_panel(d_half, d_first, first_width);
    }
    node_gradient(model, model.write, gradients, model.deep() ? scratch.write_hidden : scratch.mix,
                  tape.leaf(t, first), count);
    write_rest_gradient(model, gradients, scratch.mix, scratch.hidden, count);
  });
}

// The exploration terms at a node, each as often as the node is come by, in the first lanes only.
double exploration_at(const HamEpisode& e, const float* logit, const float* reach, int64_t lanes) {
  double sum = 0;
  for (int v = 0; v < lanes; v += kWidth) {
    Vec x = load(logit + v);
    Vec nats = entropy_of(x, of_logit(x)).nats;
    Vec term = load(reach + v) * exploration_of(e.entropy, nats, e.least_entropy).term;
    for (int64_t lane = 0; lane < kWidth && v + lane < lanes; ++lane) sum += term[lane];
  }
  return sum;
}

// Adds the gradient of the exploration term at a node, which counts as often as the node is come by,
// in the first lanes only.
void add_exploration(const HamEpisode& e, float* d_logit, const float* logit, const float* reach, int64_t lanes) {
  if (e.exploration == 0.f) return;
  NodeShare share(reach, lanes);
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec x = load(logit + v), weight = e.exploration * load(share.lane + v);
    Entropy entropy = entropy_of(x, of_logit(x));
    Vec towards = exploration_of(e.entropy, entropy.nats, e.least_entropy).pull;
    store(d_logit + v, load(d_logit + v) - weight * towards * entropy.slope);
  }
}

// Adds what was read to the gradients of leaves and probabilities, takes the latter up the tree
// and through SEARCH, which gives the gradients of the inner nodes.
void attend_backward(const HamEpisode& e, const Model& model, const Tape& tape, int64_t t, int64_t active,
                     const Backward& scratch, float* d_half, float* gradients) {
  int64_t n = model.shape.leaves, d = model.shape.width, width = model.search_width();
  for (int64_t node = n; node < 2 * n; ++node) {
    const float *value = tape.tree(t, node), *reach = tape.reach_at(t, node);
    float *d_reach = panel(scratch.reach, node, 1), *gradient = panel(scratch.tree, node, d);
    add_scaled(gradient, reach, scratch.d_value, d);
    for (int v = 0; v < kLanes; v += kWidth) {
      Vec d_p = load(d_reach + v);
      for (int64_t f = 0; f < d; ++f)
        d_p = multiply_add(load(scratch.d_value + f * kLanes + v), load(value + f * kLanes + v), d_p);
      store(d_reach + v, d_p);
    }
  }
  for (int64_t node = n - 1; node >= 1; --node) {
    const float* below = panel(scratch.reach, 2 * node, 1);
    for (int v = 0; v < kLanes; v += kWidth) {
      Vec p = load(tape.right_at(t, node) + v), left = load(below + v), right = load(below + kLanes + v);
      store(panel(scratch.reach, node, 1) + v, multiply_add(p, right, (1.f - p) * left));
    }
  }
  if (model.deep()) query_half(model, model.search[0], scratch.half, tape.query(t));
  zero_panel(d_half, width);
  each_block(1, n, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t node = first + i;
      float *d_logit = panel(scratch.search_logit, i, 1), *d_first = panel(scratch.search_first, i, width);
      const float* below = panel(scratch.reach, 2 * node, 1);
      for (int v = 0; v < kLanes; v += kWidth) {
        Vec p = load(tape.right_at(t, node) + v), reach = load(tape.reach_at(t, node) + v);
        store(d_logit + v, reach * (load(below + kLanes + v) - load(below + v)) * p * (1.f - p));
      }
      add_exploration(e, d_logit, tape.logit_at(t, node), tape.reach_at(t, node), active);
      float* hidden = panel(scratch.hidden, i, width);
      if (model.deep())
        node_forward<Finish::relu>(model, model.search[0], hidden, tape.tree(t, node), scratch.half);
      search_backward(model, d_first, panel(scratch.tree, node, d), d_logit, hidden);
      add_panel(d_half, d_first, width);
    }
    search_gradient(model, gradients, scratch.search_first, scratch.search_logit, scratch.hidden,
                    tape.tree(t, first), count);
  });
}

// Of the whole tree, inner nodes and leaves: what this timestep hands to the one before it.
void clip_tree(const HamEpisode& e, const Backward& scratch) {
  if (e.tree_clip == 0.f) return;
  for (int64_t i = 0; i < panel_floats(2 * e.leaves * e.width); i += kWidth)
    store(scratch.tree + i, clamp(load(scratch.tree + i), -e.tree_clip, e.tree_clip));
}

void build_backward(const Model& model, const EpisodeChunk& chunk, const Tape& tape, const Backward& scratch,
                    float* gradients) {
  int64_t n = model.shape.leaves, d = model.shape.width, h = model.shape.hidden;
  join_all_backward(model, tape, 0, chunk.lanes, scratch, gradients);
  if (chunk.filled == 0) return;
  for (int64_t row = 0; row < chunk.filled; ++row) {
    int64_t leaf = chunk.occupied.leaf(row);
    embed_backward(model, panel(scratch.embedded, row, d), panel(scratch.embed_hidden, row, h),
                   panel(scratch.tree, n + leaf, d), tape.leaf(0, leaf), tape.embed_made_at(row),
                   tape.embed_hidden_at(row));
  }
  mlp_gradient(model.embed, model.deep(), gradients, scratch.embedded, scratch.embed_hidden,
               tape.embed_hidden, tape.inputs, model.shape.bits, chunk.filled);
}

}  // namespace

void SoftEpisode::backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const {
  const HamEpisode& e = a;
  const EpisodeChunk& chunk = chunks[task];
  const Shape& shape = model.shape;
  int64_t n = shape.leaves, width = shape.width, stride = tape.state_width();
  Lanes lanes(chunk, scratch.spare);
  zero_panel(scratch.tree, 2 * n * width);
  zero_panel(scratch.reach, 2 * n);
  scratch.start(shape);

  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    int64_t step_at = t % kStepBlock;
    lanes.active = chunk.active(t);
    if (t < chunk.updates) {
      float* d_half = panel(scratch.write_half, step_at, model.write.out);
      join_all_backward(model, tape, t + 1, chunk.updated(e, t), scratch, gradients);
      write_all_backward(model, tape, t, lanes.active, scratch, d_half, gradients);
      if (shape.has_lstm) add_query_backward(model, model.write, scratch.d_query, d_half);
    }
    zero_panel(scratch.d_value, width);
    controller_backward(e, model, lanes, tape, scratch, t);
    float* d_half = panel(scratch.search_half, step_at, model.search_width());
    attend_backward(e, model, tape, t, lanes.active, scratch, d_half, gradients);
    clip_tree(e, scratch);
    if (shape.has_lstm) add_query_backward(model, model.search[0], scratch.d_query, d_half);

    if (step_at != 0) continue;
    int64_t end = std::min(chunk.steps, t + kStepBlock), updates = std::min(end, chunk.updates) - t;
    controller_gradient(e, model, tape, scratch, t, end, gradients);
    query_gradient(model, model.search[0], gradients, scratch.search_half, tape.query(t), stride, end - t);
    if (updates > 0)
      query_gradient(model, model.write, gradients, scratch.write_half, tape.new_query(t), stride, updates);
  }
  build_backward(model, chunk, tape, scratch, gradients);
}

Penalties SoftEpisode::penalties(int64_t task, const Tape& tape) const {
  const EpisodeChunk& chunk = chunks[task];
  Penalties sums;
  for (int64_t t = 0; t <= chunk.updates && a.pull > 0.f; ++t)
    for (int64_t node = 1; node < a.leaves; ++node)
      sums.pull += half_squares(model, tape.tree(t, node), t == 0 ? chunk.lanes : chunk.updated(a, t - 1));
  for (int64_t t = 0; t < chunk.steps && a.exploration > 0.f; ++t)
    for (int64_t node = 1; node < a.leaves; ++node)
      sums.exploration += exploration_at(a, tape.logit_at(t, node), tape.reach_at(t, node), chunk.active(t));
  return sums;
}

}  // namespace ham
