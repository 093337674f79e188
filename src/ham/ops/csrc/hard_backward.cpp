// LSTM+HAM and raw HAM backwards in time, with one gradient tree for each lane.

#include "hard.h"

namespace ham {
namespace {

// Weight gradients of SEARCH's node half and of JOIN, over the timesteps [first, end).
void reduce_paths(const Model& model, const EpisodeChunk& chunk, const HardEpisode::Tape& tape,
                  const HardEpisode::Backward& scratch, int64_t first, int64_t end, float* gradients) {
  int64_t levels = model.shape.levels;
  if (levels == 0) return;
  Descent descent = tape.descent(first);
  search_gradient(model, gradients, scratch.search_first, scratch.search_logit, descent.hidden,
                  descent.nodes, (end - first) * levels);
  int64_t updates = std::min(end, chunk.updates) - first;
  if (updates <= 0) return;
  Ascent ascent = tape.ascent(first);
  join_gradient(model, gradients, scratch.joined, scratch.join_hidden, ascent.hidden, ascent.pairs,
                updates * levels);
}

// Weight gradients of what runs once a timestep, over the timesteps [first, end).
void reduce_steps(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const HardEpisode::Tape& tape,
                  const HardEpisode::Backward& scratch, int64_t first, int64_t end, float* gradients) {
  const Shape& shape = model.shape;
  int64_t stride = tape.state_width();
  controller_gradient(e, model, tape, scratch, first, end, gradients);
  if (shape.levels > 0)
    query_gradient(model, model.search[0], gradients, scratch.search_half, tape.query(first), stride,
                   end - first);
  int64_t updates = std::min(end, chunk.updates) - first;
  if (updates <= 0) return;
  write_gradient(model, gradients, scratch.mix, scratch.write_hidden, tape.ascent(first).write_hidden,
                 tape.value(first), stride, updates);
}

// Makes room for the gradients of the nodes that a chunk comes by, and of their siblings; there are no others.
void open_paths(const Forest& forest, const EpisodeChunk& chunk, const HardEpisode::Tape& tape) {
  for (int64_t lane = 0; lane < chunk.lanes; ++lane)
    for (int64_t t = 0; t < chunk.duration[lane]; ++t)
      for (int64_t node = tape.leaf_at(t)[lane] / 2; forest.opened[lane].open(node); node /= 2)
        std::memset(forest.children(lane, node), 0, sizeof(float) * 2 * forest.width);
}

}  // namespace

void HardEpisode::backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const {
  if (task < builders) return build_shared_backward(task, tape, scratch, gradients);
  const HamEpisode& e = a;
  const EpisodeChunk& chunk = chunks[task];
  const Shape& shape = model.shape;
  int64_t levels = shape.levels, width = shape.width;
  Forest forest = Forest::of_lanes(Lanes(chunk, scratch.spare), scratch.trees, e.leaves, width);
  forest.track(scratch.opened, e.leaves);
  open_paths(forest, chunk, tape);
  zero_panel(scratch.root, width);
  scratch.start(shape);
  float* root = levels > 0 ? scratch.root : nullptr;

  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    forest.active = chunk.active(t);
    // Forward wrote the record of the timestep before long ago: it is asked for meanwhile.
    Ahead ahead;
    if (t > 0) tape.record(ahead, t - 1, t - 1 < chunk.updates);
    ahead.spread(t < chunk.updates ? 2 * levels : levels);
    int64_t path_at = t % scratch.path_steps * levels, step_at = t % kStepBlock;
    Descent descent = tape.descent(t);
    if (t < chunk.updates) {
      AscentGradient out = {scratch.write_hidden + step_at * panel_floats(2 * shape.hidden),
                            scratch.mix + step_at * panel_floats(2 * width),
                            scratch.join_hidden + path_at * panel_floats(model.join_hidden()),
                            scratch.joined + path_at * panel_floats(model.join_outputs())};
      int64_t pulled = chunk.updated(e, t);
      update_backward(model, forest, tape.ascent(t), out, scratch.d_write, tape.value(t),
                      descent.leaf, root, scratch.gradient, scratch.taken, scratch.sibling,
                      scratch.d_pair, false, pulled, ahead);
      copy_panel(scratch.d_value, scratch.d_write, width);
      add_panel(scratch.d_query, scratch.d_write + panel_floats(width), shape.query);
    } else {
      zero_panel(scratch.d_value, width);
    }
    controller_backward(e, model, forest, tape, scratch, t);
    if (levels > 0) {
      float* d_logit = scratch.search_logit + path_at * kLanes;
      float* d_half = scratch.search_half + step_at * panel_floats(model.search_width());
      if (e.d_turn_logits)
        forest.gather(d_logit, e.d_turn_logits, e.timesteps, t, levels);
      else
        zero_panel(d_logit, levels);
      // What the path's nodes held in the gradient tree was taken by update_backward (or is
      // zero still): SEARCH's gradient takes its place, nothing needs clearing.
      attend_backward<false>(model, forest, descent,
                             scratch.search_first + path_at * panel_floats(model.search_width()),
                             d_half, d_logit, scratch.d_node, root, ahead);
      if (shape.has_lstm) add_query_backward(model, model.search[0], scratch.d_query, d_half);
    }
    scatter<false>(rows_to_write(forest, descent.leaf), scratch.d_value, width);

    if (t % scratch.path_steps == 0)
      reduce_paths(model, chunk, tape, scratch, t, std::min(chunk.steps, t + scratch.path_steps),
                   gradients);
    if (step_at == 0)
      reduce_steps(e, model, chunk, tape, scratch, t, std::min(chunk.steps, t + kStepBlock), gradients);
  }

  forest.active = chunk.lanes;
  if (levels == 0) gather(scratch.root, opened_rows(forest, 1), width);
  if (!chunk.builds) return give_shared(task, forest, scratch.root);
  Build(model, forest, tape.build, true, chunk.occupied, chunk.stock, nullptr, chunk.length)
      .backward(scratch.build, scratch.root, gradients);
}

Penalties HardEpisode::penalties(int64_t task, const Tape& tape) const {
  const EpisodeChunk& chunk = chunks[task];
  Penalties sums;
  if (chunk.builds) {
    Forest forest(Lanes(chunk, SpareRows{}), a.leaves, model.shape.width);
    Build build(model, forest, tape.build, true, chunk.occupied, chunk.stock, nullptr, chunk.length);
    sums.pull = build.half_squares() * (task < builders ? static_cast<double>(a.runs) : 1);
  }
  for (int64_t t = 0; t < chunk.updates; ++t)
    for (int64_t level = 0; level < model.shape.levels; ++level)
      sums.pull += half_squares(model, tape.ascent(t).joined + level * panel_floats(model.shape.width),
                                chunk.updated(a, t));
  return sums;
}

}  // namespace ham
