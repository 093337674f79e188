// LSTM+HAM and raw HAM over time, chunk by chunk of lanes.

#include "hard.h"

namespace ham {
namespace {

void record_leaf(const HamEpisode& e, int64_t step, int64_t levels, int64_t leaf) {
  if (e.leaf) e.leaf[step] = leaf - e.leaves;
  if (e.turns)
    for (int64_t level = 0; level < levels; ++level)
      e.turns[step * levels + level] = (leaf >> (levels - 1 - level)) & 1;
}

void record_descent(const HamEpisode& e, const Lanes& lanes, int64_t t, int64_t levels, const int64_t* leaf) {
  for (int64_t lane = 0; lane < lanes.active; ++lane)
    record_leaf(e, lanes.example[lane] * e.timesteps + t, levels, leaf[lane]);
}

// Fewer lanes than this take longer side by side than one after the other.
constexpr int64_t kFewLanes = 4;

// One lane's timesteps by itself; its tree is built.
void forward_one(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Forest& forest,
                   int64_t lane, const HardEpisode::Forward& scratch) {
  const Shape& shape = model.shape;
  int64_t example = chunk.example[lane], query_size = shape.query, width = shape.width;
  const one_example::Scratch& own = scratch.one;
  float *query = own.state, *value = query + query_size, *new_query = value + width;
  float* tree = forest.tree[lane];
  if (e.first_cell) {
    std::copy_n(e.first_state + example * query_size, query_size, query);
    std::copy_n(e.first_cell + example * query_size, query_size, own.cell);
  } else {
    std::fill_n(query, query_size, 0.f);
    std::fill_n(own.cell, query_size, 0.f);
  }
  int64_t updates = e.tree ? chunk.duration[lane] : chunk.duration[lane] - 1;
  for (int64_t t = 0; t < chunk.duration[lane]; ++t) {
    int64_t step = example * e.timesteps + t;
    if (!shape.has_lstm) {
      std::copy_n(e.inputs + step * query_size, query_size, query);
      std::copy_n(query, query_size, new_query);
    }
    if (e.queries) std::copy_n(query, query_size, e.queries + step * query_size);
    int64_t leaf = one_example::attend(model, own, tree, forest.large, query,
                                 e.uniforms ? e.uniforms + step * shape.levels : nullptr,
                                 e.turn_logits ? e.turn_logits + step * shape.levels : nullptr);
    record_leaf(e, step, shape.levels, leaf);
    std::copy_n(tree + leaf * width, width, value);
    if (shape.has_lstm) one_example::lstm(model, own, new_query, query);
    if ((t + 1) % e.every == 0) {
      if (shape.has_lstm) {
        one_example::apply<Finish::none>(model.output[0], own.output, new_query);
      } else if (model.deep()) {
        one_example::apply<Finish::relu>(model.output[0], own.hidden, value);
        one_example::apply<Finish::none>(model.output[1], own.output, own.hidden);
      } else {
        one_example::apply<Finish::none>(model.output[0], own.output, value);
      }
      int64_t symbol = example * (e.timesteps / e.every) + (t + 1) / e.every - 1;
      std::copy_n(own.output, shape.outputs, e.output_logits + symbol * shape.outputs);
    }
    if (t < updates) one_example::update(model, own, tree, leaf, value);
    if (shape.has_lstm) std::copy_n(new_query, query_size, query);
  }
}

}  // namespace

void HardEpisode::forward(int64_t task, const Tape& tape, const Forward& scratch) const {
  if (task < builders) return build_shared(task, tape, scratch);
  const HamEpisode& e = a;
  const EpisodeChunk& chunk = chunks[task];
  int64_t levels = model.shape.levels;
  Lanes lanes(chunk, scratch.spare);
  Forest forest = e.tree ? Forest::of_examples(lanes, e.tree, e.leaves, e.width)
                         : Forest::of_lanes(lanes, scratch.trees, e.leaves, e.width);
  bool one_by_one = !tape.taped && chunk.lanes < kFewLanes;
  if (!e.tree && !one_by_one) forest.track(scratch.opened, e.leaves);
  LaneInputs inputs = inputs_of(e, chunk);
  Build build(model, forest, tape.build, tape.taped, chunk.occupied, chunk.stock, inputs.row, chunk.length);
  auto open = [&](int64_t lane, int64_t node) {
    chunk.builds ? build.open(lane, node) : open_shared(task, forest, lane, node);
  };
  if (chunk.builds) {
    build.forward();
  } else {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) open(lane, 0);
    gather(tape.build.root, rows_to_read(forest, same_node(1).of), e.width);
  }
  if (one_by_one) {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) forward_one(e, model, chunk, forest, lane, scratch);
    clear_rest(e, chunk, levels);
    return;
  }
  start_controller(e, forest, tape);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    forest.active = chunk.active(t);
    take_query(e, forest, tape, t);
    if (e.uniforms) forest.gather(scratch.uniforms, e.uniforms, e.timesteps, t, levels);

    Ahead ahead;
    if (tape.taped && t + 1 < chunk.steps) tape.record(ahead, t + 1, t + 1 < chunk.updates);
    ahead.spread(2 * levels);

    auto at_level = [&](const Nodes& nodes) {
      ahead();
      if (!forest.tracked()) return;
      for (int64_t lane = 0; lane < forest.active; ++lane)
        if (forest.opened[lane].open(nodes.of[lane])) open(lane, nodes.of[lane]);
    };
    Descent descent = tape.descent(t);
    attend_forward(model, forest, descent, tape.value(t), scratch.logits, scratch.query_half,
                   tape.root_before(t), tape.query(t), e.uniforms ? scratch.uniforms : nullptr, at_level);
    if (e.turn_logits) forest.scatter(e.turn_logits, e.timesteps, t, levels, scratch.logits);
    record_descent(e, forest, t, levels, descent.leaf);

    controller_forward(e, model, forest, tape, t, scratch.output);
    if (t < chunk.updates)
      update_forward(model, forest, tape.ascent(t), tape.value(t), descent.leaf, scratch.child,
                     scratch.sibling, e.tree != nullptr, ahead);
  }
  clear_rest(e, chunk, levels);
}

}  // namespace ham
