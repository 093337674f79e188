// A whole episode of LSTM+HAM or of raw HAM, forward and backward, chunk by chunk of lanes.
// README.md beside this folder derives it.

#include <algorithm>
#include <cmath>

#include "alone.h"
#include "episode.h"

namespace ham {
namespace {

constexpr int64_t kPathBlock = 48;

// Everything backward needs of a chunk's forward pass; without a tape, room for one timestep.
struct Tape : ControllerTape {
  int64_t search_width;
  int64_t join_width, made_width;
  float *nodes, *search_hidden, *leaf, *write_hidden, *mix, *pairs, *join_hidden, *made, *joined;
  BuildTape build;

  void lay_out(Arena& arena, const Model& model, const EpisodeChunk& chunk, int64_t every, bool keep) {
    ControllerTape::lay_out(arena, model.shape, chunk.steps, every, keep);
    search_width = model.deep() ? model.search_width() : 0;
    join_width = model.join_hidden();
    made_width = model.join_made();
    int64_t steps = keep ? chunk.steps : 1, updates = keep ? chunk.updates : 1;
    int64_t d = shape.width, h = shape.hidden;
    nodes = arena.panels(steps * shape.levels, d);
    search_hidden = arena.panels(steps * shape.levels, search_width);
    leaf = arena.panels(steps, 2);
    write_hidden = arena.panels(updates, 2 * h);
    mix = arena.panels(updates, 2 * d);
    pairs = arena.panels(updates * shape.levels, 2 * d);
    join_hidden = arena.panels(updates * shape.levels, join_width);
    made = arena.panels(updates * shape.levels, made_width);
    joined = arena.panels(updates * shape.levels, d);
    build.lay_out(arena, model, chunk.occupied, chunk.stock, keep);
  }

  int64_t* leaf_at(int64_t t) const {
    return reinterpret_cast<int64_t*>(leaf + at(t) * panel_floats(2));
  }
  bool is_intact(int64_t leaves, int64_t steps) const {
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        if (leaf_at(t)[lane] < leaves || leaf_at(t)[lane] >= 2 * leaves) return false;
    return true;
  }
  Descent descent(int64_t t) const {
    int64_t level = at(t) * shape.levels;
    return {nodes + level * panel_floats(shape.width),
            search_hidden + level * panel_floats(search_width), leaf_at(t)};
  }
  Ascent ascent(int64_t t) const {
    int64_t level = at(t) * shape.levels;
    return {write_hidden + at(t) * panel_floats(2 * shape.hidden),
            mix + at(t) * panel_floats(2 * shape.width),
            pairs + level * panel_floats(2 * shape.width),
            join_hidden + level * panel_floats(join_width),
            made + level * panel_floats(made_width),
            joined + level * panel_floats(shape.width)};
  }
  const float* root_before(int64_t t) const {
    if (shape.levels == 0) return nullptr;
    return t == 0 ? build.root : ascent(t - 1).joined;
  }
};

struct ForwardScratch {
  ForestScratch rows;
  float *query_half, *logits, *uniforms, *child, *sibling, *output;
  Tape untaped;
  alone::Scratch alone;

  void lay_out(Arena& arena, const HamEpisode& e, const Model& model) {
    const Shape& shape = model.shape;
    rows.lay_out(arena, e, e.tree == nullptr);
    query_half = arena.panels(1, model.search_width());
    logits = arena.panels(shape.levels, 1);
    uniforms = arena.panels(shape.levels, 1);
    child = arena.panels(1, shape.width);
    sibling = arena.panels(1, shape.width);
    output = arena.panels(1, shape.outputs);
    if (e.taped) return;
    EpisodeChunk any;
    any.stock.kinds = e.kinds;
    untaped.lay_out(arena, model, any, 1, false);
    alone.lay_out(arena, model);
  }
};

void record_leaf(const HamEpisode& e, int64_t step, int64_t levels, int64_t leaf) {
  if (e.leaf) e.leaf[step] = leaf - e.leaves;
  if (e.turns)
    for (int64_t level = 0; level < levels; ++level)
      e.turns[step * levels + level] = (leaf >> (levels - 1 - level)) & 1;
}

void record_descent(const HamEpisode& e, const Forest& forest, const EpisodeChunk& chunk, int64_t t,
                    int64_t levels, const int64_t* leaf) {
  for (int64_t lane = 0; lane < forest.active; ++lane)
    record_leaf(e, chunk.example[lane] * e.timesteps + t, levels, leaf[lane]);
}

// Fewer lanes than this take longer side by side than one after the other.
constexpr int64_t kFewLanes = 4;

// One lane's timesteps by itself; its tree is built.
void forward_alone(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Forest& forest,
                   int64_t lane, const ForwardScratch& scratch) {
  const Shape& shape = model.shape;
  int64_t example = chunk.example[lane], query_size = shape.query, width = shape.width;
  const alone::Scratch& own = scratch.alone;
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
    int64_t leaf = alone::attend(model, own, tree, forest.large, query,
                                 e.uniforms ? e.uniforms + step * shape.levels : nullptr,
                                 e.turn_logits ? e.turn_logits + step * shape.levels : nullptr);
    record_leaf(e, step, shape.levels, leaf);
    std::copy_n(tree + leaf * width, width, value);
    if (shape.has_lstm) alone::lstm(model, own, new_query, query);
    if ((t + 1) % e.every == 0) {
      if (shape.has_lstm) {
        alone::apply<Finish::none>(model.output[0], own.output, new_query);
      } else if (model.deep()) {
        alone::apply<Finish::relu>(model.output[0], own.hidden, value);
        alone::apply<Finish::none>(model.output[1], own.output, own.hidden);
      } else {
        alone::apply<Finish::none>(model.output[0], own.output, value);
      }
      int64_t symbol = example * (e.timesteps / e.every) + (t + 1) / e.every - 1;
      std::copy_n(own.output, shape.outputs, e.output_logits + symbol * shape.outputs);
    }
    if (t < updates) alone::update(model, own, tree, leaf, value);
    if (shape.has_lstm) std::copy_n(new_query, query_size, query);
  }
}

void forward_chunk(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                   ForwardScratch& scratch) {
  const Shape& shape = model.shape;
  int64_t levels = shape.levels;
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, e.tree);
  Build(model, forest, tape.build, tape.taped, chunk.occupied, chunk.stock, inputs_of(e, chunk).row, chunk.length)
      .forward();
  if (!tape.taped && chunk.lanes < kFewLanes) {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) forward_alone(e, model, chunk, forest, lane, scratch);
    clear_rest(e, chunk, levels);
    return;
  }
  start_controller(e, forest, chunk, tape);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    forest.active = chunk.active(t);
    take_query(e, forest, chunk, tape, t);
    if (e.uniforms) gather_rows(scratch.uniforms, forest, chunk, e.uniforms, e.timesteps, t, levels);

    Descent descent = tape.descent(t);
    attend_forward(model, forest, descent, tape.value(t), scratch.logits, scratch.query_half,
                   tape.root_before(t), tape.query(t), e.uniforms ? scratch.uniforms : nullptr);
    if (e.turn_logits)
      scatter_rows(forest, chunk, e.turn_logits, e.timesteps, t, levels, scratch.logits);
    record_descent(e, forest, chunk, t, levels, descent.leaf);

    controller_forward(e, model, forest, chunk, tape, t, scratch.output);
    if (t < chunk.updates)
      update_forward(model, forest, tape.ascent(t), tape.value(t), descent.leaf, scratch.child,
                     scratch.sibling, e.tree != nullptr);
  }
  clear_rest(e, chunk, levels);
}

struct BackwardScratch : ControllerScratch {
  ForestScratch rows;
  float *root, *d_write, *gradient, *taken, *sibling, *d_pair, *d_node;
  // Rings of gradients at pre-activations: per level of a path, per timestep.
  float *search_first, *search_logit, *join_hidden, *joined;
  float *search_half, *write_hidden, *mix;
  int64_t path_steps;
  BuildScratch build;

  void lay_out(Arena& arena, const HamEpisode& e, const Model& model, int64_t joins,
               int64_t filled) {
    const Shape& shape = model.shape;
    int64_t d = shape.width, q = shape.query, h = shape.hidden, levels = shape.levels;
    ControllerScratch::lay_out(arena, shape);
    rows.lay_out(arena, e, true);
    root = arena.panels(1, d);
    d_write = arena.panels(1, d + q);
    gradient = arena.panels(1, d);
    taken = arena.panels(1, d);
    sibling = arena.panels(1, d);
    d_pair = arena.panels(1, 2 * d);
    d_node = arena.panels(1, d);
    path_steps = levels == 0 ? kStepBlock : std::max<int64_t>(1, kPathBlock / levels);
    search_first = arena.panels(path_steps * levels, model.search_width());
    search_logit = arena.panels(path_steps * levels, 1);
    join_hidden = arena.panels(path_steps * levels, model.join_hidden());
    joined = arena.panels(path_steps * levels, model.join_outputs());
    search_half = arena.panels(kStepBlock, model.search_width());
    write_hidden = arena.panels(kStepBlock, 2 * h);
    mix = arena.panels(kStepBlock, 2 * d);
    build.lay_out(arena, model, joins, filled, e.kinds);
  }
};

// Weight gradients of SEARCH's node half and of JOIN, over the timesteps [first, end).
void reduce_paths(const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                  const BackwardScratch& scratch, int64_t first, int64_t end, float* gradients) {
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
void reduce_steps(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                  const BackwardScratch& scratch, int64_t first, int64_t end, float* gradients) {
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

HAM_INLINE void prefetch(const float* piece, int64_t panels, int64_t features) {
  for (int64_t line = 0; line < panels * features; ++line) __builtin_prefetch(piece + line * kLanes, 0, 2);
}

// Forward wrote a timestep's record long ago: it is asked for while the one after it is worked on.
void prefetch_step(const Model& model, const EpisodeChunk& chunk, const Tape& tape, int64_t t) {
  const Shape& shape = model.shape;
  int64_t levels = shape.levels, width = shape.width, query = shape.has_lstm ? shape.query : 0;
  Descent descent = tape.descent(t);
  prefetch(tape.query(t), 1, tape.state_width());
  prefetch(tape.cell_before(t), 1, query);
  prefetch(tape.gates_at(t), 1, 4 * query);
  prefetch(tape.tanh_cell_at(t), 1, query);
  prefetch(descent.nodes, levels, width);
  prefetch(descent.hidden, levels, tape.search_width);
  if (t >= chunk.updates) return;
  Ascent ascent = tape.ascent(t);
  prefetch(ascent.write_hidden, 1, 2 * shape.hidden);
  prefetch(ascent.mix, 1, 2 * width);
  prefetch(ascent.pairs, levels, 2 * width);
  prefetch(ascent.hidden, levels, tape.join_width);
  prefetch(ascent.made, levels, tape.made_width);
  prefetch(ascent.joined, levels, width);
}

void backward_chunk(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                    BackwardScratch& scratch, float* gradients) {
  const Shape& shape = model.shape;
  int64_t levels = shape.levels, width = shape.width;
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, nullptr);
  std::memset(scratch.rows.trees, 0, sizeof(float) * chunk.lanes * 2 * e.leaves * width);
  zero_panel(scratch.root, width);
  scratch.start(shape);
  float* root = levels > 0 ? scratch.root : nullptr;

  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    forest.active = chunk.active(t);
    if (t > 0) prefetch_step(model, chunk, tape, t - 1);
    int64_t path_at = t % scratch.path_steps * levels, step_at = t % kStepBlock;
    Descent descent = tape.descent(t);
    if (t < chunk.updates) {
      AscentGradient out = {scratch.write_hidden + step_at * panel_floats(2 * shape.hidden),
                            scratch.mix + step_at * panel_floats(2 * width),
                            scratch.join_hidden + path_at * panel_floats(model.join_hidden()),
                            scratch.joined + path_at * panel_floats(model.join_outputs())};
      // Nothing reads what an example's last update made, so that is not pulled.
      int64_t pulled = chunk.active(t + 1);
      update_backward(model, forest, tape.ascent(t), out, scratch.d_write, tape.value(t),
                      descent.leaf, root, scratch.gradient, scratch.taken, scratch.sibling,
                      scratch.d_pair, false, pulled);
      copy_panel(scratch.d_value, scratch.d_write, width);
      add_panel(scratch.d_query, scratch.d_write + panel_floats(width), shape.query);
    } else {
      zero_panel(scratch.d_value, width);
    }
    controller_backward(e, model, forest, chunk, tape, scratch, t);
    if (levels > 0) {
      float* d_logit = scratch.search_logit + path_at * kLanes;
      float* d_half = scratch.search_half + step_at * panel_floats(model.search_width());
      if (e.d_turn_logits)
        gather_rows(d_logit, forest, chunk, e.d_turn_logits, e.timesteps, t, levels);
      else
        zero_panel(d_logit, levels);
      // What the path's nodes held in the gradient tree was taken by update_backward (or is
      // zero still): SEARCH's gradient takes its place, nothing needs clearing.
      attend_backward<false>(model, forest, descent,
                             scratch.search_first + path_at * panel_floats(model.search_width()),
                             d_half, d_logit, scratch.d_node, root);
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
  if (levels == 0) {
    Nodes only;
    std::fill(only.of, only.of + kLanes, 1);
    gather(scratch.root, rows_to_read(forest, only.of), width);
  }
  Build(model, forest, tape.build, true, chunk.occupied, chunk.stock, nullptr, chunk.length)
      .backward(scratch.build, scratch.root, gradients);
}

struct Hard {
  using Tape = ham::Tape;
  using ForwardScratch = ham::ForwardScratch;
  using BackwardScratch = ham::BackwardScratch;
  static constexpr auto forward_chunk = ham::forward_chunk;
  static constexpr auto backward_chunk = ham::backward_chunk;
};

}  // namespace
}  // namespace ham

using HardEpisode = ham::Episode<ham::Hard>;
void ham_episode_sizes(const HamEpisode* e, int64_t* sizes) { HardEpisode(*e).sizes(sizes); }
void ham_episode_forward(const HamEpisode* e) { HardEpisode(*e).forward(); }
int64_t ham_episode_backward(const HamEpisode* e) { return HardEpisode(*e).backward() ? 0 : -1; }

int64_t ham_gradient(HamGradient* g) {
  HamEpisode& e = g->episode;
  HamObjective& o = g->objective;
  int64_t levels = ham::levels_of(e.leaves), timesteps = e.batch * e.timesteps;
  int64_t features = e.batch * (e.has_lstm ? e.rows : e.timesteps) * e.bits;
  if (ham_range(e.durations, e.batch, 0, e.timesteps) >= 0 ||
      (e.has_lstm && ham_range(e.lengths, e.batch, 0, e.rows) >= 0) ||
      ham_first_not_finite(e.inputs, features) >= 0 ||
      ham_first_not_finite(e.uniforms, timesteps * levels) >= 0 ||
      (e.first_cell && (ham_first_not_finite(e.first_state, e.batch * e.query) >= 0 ||
                        ham_first_not_finite(e.first_cell, e.batch * e.query) >= 0)))
    return -1;

  o.batch = e.batch;
  o.symbols = e.timesteps / e.every;
  o.bits = e.outputs;
  o.timesteps = e.timesteps;
  o.levels = levels;
  o.query = e.query;
  o.every = e.every;
  o.durations = e.durations;
  e.taped = 1;
  HardEpisode episode(e);
  int64_t sizes[3];
  episode.sizes(sizes);
  ham::Arena arena(g->workspace);
  e.output_logits = arena.take(o.batch * o.symbols * o.bits);
  e.turn_logits = arena.take(timesteps * levels);
  e.turns = reinterpret_cast<uint8_t*>(arena.take((timesteps * levels + 3) / 4));
  e.queries = arena.take(timesteps * e.query);
  o.d_outputs = arena.take(o.batch * o.symbols * o.bits);
  o.d_turn_logits = arena.take(timesteps * levels);
  o.scratch = arena.take(ham_objective_floats(&o));
  e.tape = arena.take(sizes[0]);
  e.scratch = arena.take(std::max(sizes[1], sizes[2]));
  if (arena.used() > g->floats) return arena.used();

  o.outputs = e.output_logits;
  o.turn_logits = e.turn_logits;
  o.turns = e.turns;
  o.queries = e.queries;
  o.terms = g->terms;
  e.d_output_logits = o.d_outputs;
  e.d_turn_logits = o.d_turn_logits;
  episode.forward_and_backward([&] { ham_objective(&o); });
  double squares = 0;
  for (int64_t i = 0; i < g->weights; ++i) squares += static_cast<double>(g->gradient[i]) * g->gradient[i];
  g->norm = std::sqrt(squares);
  return 0;
}
