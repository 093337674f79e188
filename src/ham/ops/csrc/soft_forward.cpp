// Soft attention over time.

#include "soft.h"

namespace ham {
namespace {

using Tape = SoftEpisode::Tape;
using Forward = SoftEpisode::Forward;

void join_all(const Model& model, const Tape& tape, int64_t t) {
  for (int64_t node = model.shape.leaves - 1; node >= 1; --node)
    join_forward(model, tape.tree(t, node), tape.made_at(t, node), tape.join_hidden_at(t, node),
                 tape.tree(t, 2 * node));
}

void build(const HamEpisode& e, const Model& model, const Lanes& lanes, const EpisodeChunk& chunk,
           const Tape& tape) {
  LaneInputs inputs = inputs_of(e, chunk);
  zero_panel(tape.tree(0), model.shape.width);
  zero_panel(tape.leaf(0, 0), model.shape.leaves * model.shape.width);
  for (int64_t row = 0; row < chunk.filled; ++row)
    embed_forward(model, lanes, inputs.row, chunk.length, row, tape.leaf(0, chunk.occupied.leaf(row)),
                  tape.embed_made_at(row), tape.embed_hidden_at(row), tape.input_at(row));
  join_all(model, tape, 0);
}

void attend_forward(const Model& model, const Tape& tape, int64_t t, const Forward& scratch) {
  int64_t n = model.shape.leaves;
  query_half(model, model.search[0], scratch.half, tape.query(t));
  for (int v = 0; v < kLanes; v += kWidth) store(tape.reach_at(t, 1) + v, splat(1.f));
  for (int64_t node = 1; node < n; ++node) {
    float *logit = tape.logit_at(t, node), *right = tape.right_at(t, node), *below = tape.reach_at(t, 2 * node);
    const float* here = tape.reach_at(t, node);
    search_forward(model, logit, scratch.hidden, tape.tree(t, node), scratch.half);
    for (int v = 0; v < kLanes; v += kWidth) {
      Vec p = sigmoid(load(logit + v)), reach = load(here + v);
      store(right + v, p);
      store(below + v, reach * (1.f - p));
      store(below + kLanes + v, reach * p);
    }
  }
  zero_panel(tape.value(t), model.shape.width);
  for (int64_t leaf = 0; leaf < n; ++leaf)
    add_scaled(tape.value(t), tape.reach_at(t, n + leaf), tape.leaf(t, leaf), model.shape.width);
}

void update_forward(const Model& model, const Tape& tape, int64_t t, int64_t active,
                    const Forward& scratch) {
  int64_t n = model.shape.leaves, width = model.shape.width;
  query_half(model, model.write, scratch.half, tape.new_query(t));
  for (int64_t leaf = 0; leaf < n; ++leaf) {
    const float* old = tape.leaf(t, leaf);
    float* mix = tape.mix_at(t, leaf);
    if (model.deep())
      node_forward<Finish::relu>(model, model.write, scratch.hidden, old, scratch.half);
    else
      node_forward<Finish::none>(model, model.write, mix, old, scratch.half);
    write_rest(model, scratch.written, mix, scratch.hidden, old);
    NodeShare share(tape.reach_at(t, n + leaf), active);
    float* made = tape.leaf(t + 1, leaf);
    for (int64_t f = 0; f < width; ++f)
      for (int v = 0; v < kLanes; v += kWidth) {
        int64_t i = f * kLanes + v;
        Vec p = load(share.lane + v);
        store(made + i, multiply_add(p, load(scratch.written + i), (1.f - p) * load(old + i)));
      }
  }
  join_all(model, tape, t + 1);
}

// The likeliest leaf of every lane, the first one of equals.
void record_likeliest(const HamEpisode& e, const Lanes& lanes, const Tape& tape, int64_t t) {
  for (int64_t lane = 0; lane < lanes.active; ++lane) {
    int64_t best = 0;
    for (int64_t leaf = 1; leaf < e.leaves; ++leaf)
      if (tape.reach_at(t, e.leaves + leaf)[lane] > tape.reach_at(t, e.leaves + best)[lane]) best = leaf;
    e.leaf[lanes.example[lane] * e.timesteps + t] = best;
  }
}

void record_tree(const HamEpisode& e, const Lanes& lanes, int64_t updates, const Tape& tape) {
  for (int64_t node = 0; node < 2 * e.leaves; ++node)  // node 0 is nobody's: zeros since the build
    lanes.scatter(e.tree, 2 * e.leaves, node, e.width, tape.tree(node > 0 ? updates : 0, node));
}

}  // namespace

void SoftEpisode::forward(int64_t task, const Tape& tape, const Forward& scratch) const {
  const HamEpisode& e = a;
  const EpisodeChunk& chunk = chunks[task];
  Lanes lanes(chunk, scratch.spare);
  build(e, model, lanes, chunk, tape);
  start_controller(e, lanes, tape);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    lanes.active = chunk.active(t);
    take_query(e, lanes, tape, t);
    attend_forward(model, tape, t, scratch);
    if (e.leaf) record_likeliest(e, lanes, tape, t);
    controller_forward(e, model, lanes, tape, t, scratch.output);
    if (t < chunk.updates) update_forward(model, tape, t, lanes.active, scratch);
  }
  lanes.active = chunk.lanes;
  if (e.tree) record_tree(e, lanes, chunk.updates, tape);
  clear_rest(e, chunk, 0);
}

}  // namespace ham
