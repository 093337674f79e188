// A whole episode of LSTM+HAM or of raw HAM, forward and backward, chunk by chunk of lanes.
// README.md beside this folder derives it.

#include <algorithm>
#include <cmath>

#include "alone.h"
#include "api.h"
#include "build.h"
#include "threads.h"

namespace ham {
namespace {

constexpr int64_t kPathBlock = 48;

int64_t levels_of(int64_t leaves) {
  int64_t levels = 0;
  while ((int64_t{1} << levels) < leaves) ++levels;
  return levels;
}

Shape shape_of(const HamEpisode& e) {
  return {e.leaves, levels_of(e.leaves), e.has_lstm ? e.bits : 0, e.width,
          e.query,  e.depth == 2 ? e.hidden : 0, e.outputs, e.depth, e.has_lstm != 0};
}

void add_layers(Model& model) {
  const Shape& s = model.shape;
  if (s.has_lstm) model.mlp(model.embed, s.bits, s.width);
  model.mlp(model.join, 2 * s.width, s.width);
  model.mlp(model.search, s.width + s.query, 1);
  model.write_layers();
  if (s.has_lstm) {
    model.lstm_layer(model.lstm, s.query, s.width);
    model.layer(model.output[0], s.query, s.outputs);
    model.linear(model.output[0], 0, s.outputs);
  } else {
    model.mlp(model.output, s.width, s.outputs);
  }
}

struct EpisodeChunk : Chunk {
  int64_t length[kLanes];
  int64_t updates = 0, filled = 0;
};

std::vector<EpisodeChunk> make_chunks(const HamEpisode& e) {
  auto chunks = chunks_of<EpisodeChunk>(e.batch, e.durations);
  for (EpisodeChunk& chunk : chunks)
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
      chunk.length[lane] = e.has_lstm ? e.lengths[chunk.example[lane]] : 0;
      chunk.filled = std::max(chunk.filled, chunk.length[lane]);
    }
  // Nobody sees what the last timestep writes, unless the final tree is asked for.
  for (EpisodeChunk& chunk : chunks)
    chunk.updates = e.tree ? chunk.steps : std::max<int64_t>(chunk.steps - 1, 0);
  return chunks;
}

// Everything backward needs of a chunk's forward pass; without a tape, room for one timestep.
struct Tape {
  bool taped;
  Shape shape;
  int64_t search_width;
  float *state, *cell, *gates, *tanh_cell, *nodes, *search_hidden, *leaf;
  float *write_hidden, *mix, *pairs, *join_hidden, *joined, *output_hidden;
  BuildTape build;

  void lay_out(Arena& arena, const Model& model, const EpisodeChunk& chunk, int64_t every, bool keep) {
    taped = keep;
    shape = model.shape;
    search_width = model.deep() ? model.search_width() : 0;
    int64_t steps = keep ? chunk.steps : 1, updates = keep ? chunk.updates : 1;
    int64_t l = shape.has_lstm ? shape.query : 0, d = shape.width, h = shape.hidden;
    state = arena.panels(steps, state_width());
    cell = arena.panels(steps + 1, l);
    gates = arena.panels(steps, 4 * l);
    tanh_cell = arena.panels(steps, l);
    nodes = arena.panels(steps * shape.levels, d);
    search_hidden = arena.panels(steps * shape.levels, search_width);
    leaf = arena.panels(steps, 2);
    write_hidden = arena.panels(updates, 2 * h);
    mix = arena.panels(updates, 2 * d);
    pairs = arena.panels(updates * shape.levels, 2 * d);
    join_hidden = arena.panels(updates * shape.levels, h);
    joined = arena.panels(updates * shape.levels, d);
    output_hidden = arena.panels(keep ? steps / every : 1, shape.has_lstm ? 0 : h);
    build.lay_out(arena, shape, chunk.filled, keep);
  }

  // query | value | new query: adjacent, so the LSTM reads [query; value] and WRITE
  // [value; new query] as one panel each.
  int64_t state_width() const { return 2 * shape.query + shape.width; }
  int64_t at(int64_t t) const { return taped ? t : 0; }
  float* query(int64_t t) const { return state + at(t) * panel_floats(state_width()); }
  float* value(int64_t t) const { return query(t) + panel_floats(shape.query); }
  float* new_query(int64_t t) const { return value(t) + panel_floats(shape.width); }
  float* cell_before(int64_t t) const { return cell + at(t) * panel_floats(shape.query); }
  float* gates_at(int64_t t) const { return gates + at(t) * panel_floats(4 * shape.query); }
  float* tanh_cell_at(int64_t t) const { return tanh_cell + at(t) * panel_floats(shape.query); }
  int64_t* leaf_at(int64_t t) const {
    return reinterpret_cast<int64_t*>(leaf + at(t) * panel_floats(2));
  }
  float* output_hidden_at(int64_t symbol) const {
    return output_hidden + at(symbol) * panel_floats(shape.hidden);
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
            join_hidden + level * panel_floats(shape.hidden),
            joined + level * panel_floats(shape.width)};
  }
  const float* root_before(int64_t t) const {
    if (shape.levels == 0) return nullptr;
    return t == 0 ? build.root : ascent(t - 1).joined;
  }
};

// Trees and the two rows that stand in for lanes without one.
struct ForestScratch {
  float *trees, *zeros, *trash;

  static int64_t longest_row(const HamEpisode& e) {
    return std::max({e.width, e.bits, e.query, e.outputs, levels_of(e.leaves), int64_t{1}});
  }
  void lay_out(Arena& arena, const HamEpisode& e, bool with_trees) {
    int64_t lanes = std::min<int64_t>(e.batch, kLanes);
    trees = arena.take(with_trees ? lanes * 2 * e.leaves * e.width : 0);
    zeros = arena.take(longest_row(e));
    trash = arena.take(longest_row(e));
  }
  void start(const HamEpisode& e) {
    std::memset(zeros, 0, sizeof(float) * longest_row(e));
    std::memset(trash, 0, sizeof(float) * longest_row(e));
  }
  Forest forest(const HamEpisode& e, const EpisodeChunk& chunk, float* given) const {
    Forest forest;
    forest.width = e.width;
    forest.large = 2 * e.leaves * e.width > kLargeTree / static_cast<int64_t>(sizeof(float));
    forest.zeros = zeros;
    forest.trash = trash;
    forest.active = chunk.lanes;
    int64_t floats = 2 * e.leaves * e.width;
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      forest.tree[lane] = given ? given + chunk.example[lane] * floats : trees + lane * floats;
    return forest;
  }
};

// Rows of one timestep of a tensor [batch][steps][features], for the lanes still running.
Rows rows_of(const Forest& forest, const EpisodeChunk& chunk, float* tensor, int64_t steps, int64_t step,
             int64_t features, float* otherwise) {
  Rows rows;
  for (int64_t lane = 0; lane < kLanes; ++lane)
    rows.row[lane] = lane < forest.active
                         ? tensor + (chunk.example[lane] * steps + step) * features
                         : otherwise;
  return rows;
}
void gather_rows(float* panel, const Forest& forest, const EpisodeChunk& chunk, const float* tensor,
                 int64_t steps, int64_t step, int64_t features) {
  gather(panel, rows_of(forest, chunk, const_cast<float*>(tensor), steps, step, features, forest.zeros),
         features);
}
void scatter_rows(const Forest& forest, const EpisodeChunk& chunk, float* tensor, int64_t steps,
                  int64_t step, int64_t features, const float* panel) {
  scatter<false>(rows_of(forest, chunk, tensor, steps, step, features, forest.trash), panel, features);
}

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
    untaped.lay_out(arena, model, EpisodeChunk{}, 1, false);
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

// What no timestep reached.
void clear_rest(const HamEpisode& e, const EpisodeChunk& chunk, int64_t levels) {
  auto clear = [](auto* tensor, int64_t example, int64_t steps, int64_t first, int64_t features, int byte) {
    if (tensor)
      std::memset(tensor + (example * steps + first) * features, byte,
                  sizeof *tensor * (steps - first) * features);
  };
  for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
    int64_t example = chunk.example[lane], first = chunk.duration[lane];
    clear(e.output_logits, example, e.timesteps / e.every, first / e.every, e.outputs, 0);
    clear(e.turn_logits, example, e.timesteps, first, levels, 0);
    clear(e.turns, example, e.timesteps, first, levels, 0);
    clear(e.leaf, example, e.timesteps, first, 1, 0xFF);
    clear(e.queries, example, e.timesteps, first, e.query, 0);
  }
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
  std::fill_n(query, query_size, 0.f);
  std::fill_n(own.cell, query_size, 0.f);
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
  int64_t levels = shape.levels, symbols = e.timesteps / e.every;
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, e.tree);
  const float* inputs[kLanes] = {};
  if (shape.has_lstm)
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      inputs[lane] = e.inputs + chunk.example[lane] * e.leaves * e.bits;
  Build(model, forest, tape.build, tape.taped, chunk.filled, inputs, chunk.length).forward();
  if (!tape.taped && chunk.lanes < kFewLanes) {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) forward_alone(e, model, chunk, forest, lane, scratch);
    clear_rest(e, chunk, levels);
    return;
  }
  if (shape.has_lstm) {
    zero_panel(tape.query(0), shape.query);
    zero_panel(tape.cell_before(0), shape.query);
  }
  for (int64_t t = 0; t < chunk.steps; ++t) {
    forest.active = chunk.active(t);
    float *query = tape.query(t), *value = tape.value(t), *new_query = tape.new_query(t);
    if (!shape.has_lstm) {
      gather_rows(query, forest, chunk, e.inputs, e.timesteps, t, shape.query);
      copy_panel(new_query, query, shape.query);
    } else if (t > 0) {
      copy_panel(query, tape.new_query(t - 1), shape.query);
    }
    if (e.queries) scatter_rows(forest, chunk, e.queries, e.timesteps, t, shape.query, query);
    if (e.uniforms) gather_rows(scratch.uniforms, forest, chunk, e.uniforms, e.timesteps, t, levels);

    Descent descent = tape.descent(t);
    attend_forward(model, forest, descent, value, scratch.logits, scratch.query_half,
                   tape.root_before(t), query, e.uniforms ? scratch.uniforms : nullptr);
    if (e.turn_logits)
      scatter_rows(forest, chunk, e.turn_logits, e.timesteps, t, levels, scratch.logits);
    record_descent(e, forest, chunk, t, levels, descent.leaf);

    if (shape.has_lstm)
      lstm_forward(model.lstm, new_query, tape.cell_before(t + 1), tape.gates_at(t), tape.tanh_cell_at(t),
                   query, tape.cell_before(t));
    if ((t + 1) % e.every == 0) {
      int64_t symbol = (t + 1) / e.every - 1;
      if (shape.has_lstm)
        forward<Finish::none>(model.output[0], scratch.output, new_query);
      else
        mlp_forward<Finish::none>(model.output, model.deep(), scratch.output,
                                  tape.output_hidden_at(symbol), value);
      scatter_rows(forest, chunk, e.output_logits, symbols, symbol, shape.outputs, scratch.output);
    }
    if (t < chunk.updates)
      update_forward(model, forest, tape.ascent(t), value, descent.leaf, scratch.child,
                     scratch.sibling, e.tree != nullptr);
  }
  clear_rest(e, chunk, levels);
}

struct BackwardScratch {
  ForestScratch rows;
  float *root, *d_state, *d_write, *d_query, *d_cell, *d_value, *d_logits_in;
  float *gradient, *taken, *sibling, *d_pair, *d_node;
  // Rings of gradients at pre-activations: per level of a path, per timestep, per symbol.
  float *search_first, *search_logit, *join_hidden, *joined;
  float *search_half, *gates, *write_hidden, *mix, *output, *output_hidden;
  int64_t path_steps;
  BuildScratch build;

  void lay_out(Arena& arena, const HamEpisode& e, const Model& model, int64_t joins,
               int64_t filled) {
    const Shape& shape = model.shape;
    int64_t d = shape.width, q = shape.query, h = shape.hidden, levels = shape.levels;
    rows.lay_out(arena, e, true);
    root = arena.panels(1, d);
    d_state = arena.panels(1, q + d);
    d_write = arena.panels(1, d + q);
    d_query = arena.panels(1, q);
    d_cell = arena.panels(1, q);
    d_value = arena.panels(1, d);
    d_logits_in = arena.panels(1, std::max<int64_t>(levels, 1));
    gradient = arena.panels(1, d);
    taken = arena.panels(1, d);
    sibling = arena.panels(1, d);
    d_pair = arena.panels(1, 2 * d);
    d_node = arena.panels(1, d);
    path_steps = levels == 0 ? kStepBlock : std::max<int64_t>(1, kPathBlock / levels);
    search_first = arena.panels(path_steps * levels, model.search_width());
    search_logit = arena.panels(path_steps * levels, 1);
    join_hidden = arena.panels(path_steps * levels, h);
    joined = arena.panels(path_steps * levels, d);
    search_half = arena.panels(kStepBlock, model.search_width());
    gates = arena.panels(kStepBlock, shape.has_lstm ? 4 * q : 0);
    write_hidden = arena.panels(kStepBlock, 2 * h);
    mix = arena.panels(kStepBlock, 2 * d);
    output = arena.panels(kStepBlock, shape.outputs);
    output_hidden = arena.panels(kStepBlock, shape.has_lstm ? 0 : h);
    build.lay_out(arena, shape, joins, filled);
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
  int64_t steps = end - first, stride = tape.state_width();
  if (shape.levels > 0)
    search_query_gradient(model, gradients, scratch.search_half, tape.query(first), stride, steps);
  if (shape.has_lstm)
    add_gradient(model.lstm, gradients, scratch.gates, 4 * shape.query, tape.query(first), stride, steps);
  int64_t updates = std::min(end, chunk.updates) - first;
  if (updates > 0) {
    Ascent ascent = tape.ascent(first);
    write_gradient(model, gradients, scratch.mix, scratch.write_hidden, ascent.write_hidden,
                   tape.value(first), stride, updates);
  }
  int64_t symbol = first / e.every, symbols = end / e.every - symbol;
  if (symbols <= 0) return;
  int64_t t = (symbol + 1) * e.every - 1;
  if (shape.has_lstm)
    add_gradient(model.output[0], gradients, scratch.output, shape.outputs, tape.new_query(t),
                 stride * e.every, symbols);
  else
    mlp_gradient(model.output, model.deep(), gradients, scratch.output, scratch.output_hidden,
                 tape.output_hidden_at(symbol), tape.value(t), stride * e.every, symbols);
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
  prefetch(ascent.hidden, levels, shape.hidden);
  prefetch(ascent.joined, levels, width);
}

void backward_chunk(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                    BackwardScratch& scratch, float* gradients) {
  const Shape& shape = model.shape;
  int64_t levels = shape.levels, width = shape.width, symbols = e.timesteps / e.every;
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, nullptr);
  std::memset(scratch.rows.trees, 0, sizeof(float) * chunk.lanes * 2 * e.leaves * width);
  zero_panel(scratch.root, width);
  zero_panel(scratch.d_query, shape.query);
  zero_panel(scratch.d_cell, shape.query);
  float* root = levels > 0 ? scratch.root : nullptr;

  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    forest.active = chunk.active(t);
    if (t > 0) prefetch_step(model, chunk, tape, t - 1);
    int64_t path_at = t % scratch.path_steps * levels, step_at = t % kStepBlock;
    Descent descent = tape.descent(t);
    if (t < chunk.updates) {
      AscentGradient out = {scratch.write_hidden + step_at * panel_floats(2 * shape.hidden),
                            scratch.mix + step_at * panel_floats(2 * width),
                            scratch.join_hidden + path_at * panel_floats(shape.hidden),
                            scratch.joined + path_at * panel_floats(width)};
      update_backward(model, forest, tape.ascent(t), out, scratch.d_write, tape.value(t),
                      descent.leaf, root, scratch.gradient, scratch.taken, scratch.sibling,
                      scratch.d_pair, false);
      copy_panel(scratch.d_value, scratch.d_write, width);
      add_panel(scratch.d_query, scratch.d_write + panel_floats(width), shape.query);
    } else {
      zero_panel(scratch.d_value, width);
    }
    if ((t + 1) % e.every == 0) {
      int64_t symbol = (t + 1) / e.every - 1;
      int64_t at = symbol - (t - step_at) / e.every;
      float* d_output = scratch.output + at * panel_floats(shape.outputs);
      if (e.d_output_logits)
        gather_rows(d_output, forest, chunk, e.d_output_logits, symbols, symbol, shape.outputs);
      else
        zero_panel(d_output, shape.outputs);
      if (shape.has_lstm) {
        add_backward(model.output[0], scratch.d_query, d_output);
      } else {
        float* d_hidden = scratch.output_hidden + at * panel_floats(shape.hidden);
        mlp_backward(model.output, model.deep(), scratch.d_node, d_hidden, d_output,
                     tape.output_hidden_at(symbol));
        add_panel(scratch.d_value, scratch.d_node, width);
      }
    }
    if (shape.has_lstm) {
      float* d_gates = scratch.gates + step_at * panel_floats(4 * shape.query);
      lstm_backward(model.lstm, d_gates, scratch.d_cell, scratch.d_query, tape.gates_at(t),
                    tape.tanh_cell_at(t), tape.cell_before(t));
      backward<Finish::none>(model.lstm, scratch.d_state, d_gates);
      copy_panel(scratch.d_query, scratch.d_state, shape.query);
      add_panel(scratch.d_value, scratch.d_state + panel_floats(shape.query), width);
    }
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
      if (shape.has_lstm) search_query_backward(model, scratch.d_query, d_half);
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
  Build(model, forest, tape.build, true, chunk.filled, nullptr, chunk.length)
      .backward(scratch.build, scratch.root, gradients);
}

// The whole call: chunks, packed parameters, where each chunk's tape and each worker's scratch is.
class Episode {
 public:
  explicit Episode(const HamEpisode& e) : e_(e), model_(shape_of(e)), chunks_(make_chunks(e)) {
    add_layers(model_);
    for (const EpisodeChunk& chunk : chunks_) {
      filled_ = std::max(filled_, chunk.filled);
      joins_ = std::max(joins_, BuildTape::slots(model_.shape, chunk.filled, true));
      starts_.push_back(tape_floats_);
      if (!e.taped) continue;
      Arena arena(nullptr);
      Tape{}.lay_out(arena, model_, chunk, e.every, true);
      tape_floats_ += arena.used();
    }
    workers_ = std::max<int64_t>(1, std::min<int64_t>(e.threads, chunks_.size()));
  }

  void sizes(int64_t* sizes) const {
    sizes[0] = tape_floats_;
    sizes[1] = packed_floats() + workers_ * worker_floats<ForwardScratch>();
    sizes[2] = packed_floats() + workers_ * worker_floats<BackwardScratch>() +
               static_cast<int64_t>(chunks_.size()) * gradient_floats();
  }

  void forward() {
    model_.pack(e_.parameters, e_.scratch);
    Team team(workers_);
    forward(team);
  }

  void backward() {
    model_.pack(e_.parameters, e_.scratch);
    Team team(workers_);
    backward(team);
  }

  // Both on one team, with what turns results into gradients in between.
  template <class Between>
  void forward_and_backward(const Between& between) {
    Team team(workers_);
    model_.pack(e_.parameters, e_.scratch);
    forward(team);
    between();
    backward(team);
  }

 private:
  void forward(Team& team) {
    std::vector<ForwardScratch> scratch(workers_);
    lay_out_workers(scratch);
    team.run(chunks_.size(), [&](int64_t i, int64_t worker) {
      if (!e_.taped)
        forward_chunk(e_, model_, chunks_[i], scratch[worker].untaped, scratch[worker]);
      else
        forward_chunk(e_, model_, chunks_[i], tape(i), scratch[worker]);
    });
  }

  void backward(Team& team) {
    std::vector<BackwardScratch> scratch(workers_);
    lay_out_workers(scratch);
    float* gradients = e_.scratch + packed_floats() + workers_ * worker_floats<BackwardScratch>();
    int64_t floats = gradient_floats(), count = static_cast<int64_t>(chunks_.size());
    team.run(count, [&](int64_t i, int64_t worker) {
      std::memset(gradients + i * floats, 0, sizeof(float) * floats);
      backward_chunk(e_, model_, chunks_[i], tape(i), scratch[worker], gradients + i * floats);
    });
    // In the order of the chunks, whoever computed them: the sum does not depend on threads.
    for (int64_t i = 1; i < count; ++i)
      for (int64_t j = 0; j < floats; ++j) gradients[j] += gradients[i * floats + j];
    model_.unpack(gradients, e_.d_parameters);
  }

  int64_t packed_floats() const { return model_.packed_floats; }
  int64_t gradient_floats() const { return (model_.gradient_floats + 15) / 16 * 16; }

  void measure(ForwardScratch& scratch, Arena& arena) const { scratch.lay_out(arena, e_, model_); }
  void measure(BackwardScratch& scratch, Arena& arena) const {
    scratch.lay_out(arena, e_, model_, joins_, filled_);
  }
  template <class Scratch>
  int64_t worker_floats() const {
    Arena arena(nullptr);
    Scratch scratch;
    measure(scratch, arena);
    return arena.used();
  }
  template <class Scratch>
  void lay_out_workers(std::vector<Scratch>& scratch) const {
    int64_t floats = worker_floats<Scratch>();
    for (int64_t worker = 0; worker < workers_; ++worker) {
      Arena arena(e_.scratch + packed_floats() + worker * floats);
      measure(scratch[worker], arena);
    }
  }
  Tape tape(int64_t i) const {
    Arena arena(e_.tape + starts_[i]);
    Tape tape;
    tape.lay_out(arena, model_, chunks_[i], e_.every, true);
    return tape;
  }

  const HamEpisode& e_;
  Model model_;
  std::vector<EpisodeChunk> chunks_;
  std::vector<int64_t> starts_;
  int64_t tape_floats_ = 0, joins_ = 0, filled_ = 0, workers_ = 1;
};

}  // namespace
}  // namespace ham

void ham_episode_sizes(const HamEpisode* e, int64_t* sizes) { ham::Episode(*e).sizes(sizes); }
void ham_episode_forward(const HamEpisode* e) { ham::Episode(*e).forward(); }
void ham_episode_backward(const HamEpisode* e) { ham::Episode(*e).backward(); }

int64_t ham_gradient(HamGradient* g) {
  HamEpisode& e = g->episode;
  HamObjective& o = g->objective;
  int64_t levels = ham::levels_of(e.leaves), timesteps = e.batch * e.timesteps;
  int64_t features = e.batch * (e.has_lstm ? e.leaves : e.timesteps) * e.bits;
  if (ham_range(e.durations, e.batch, 0, e.timesteps) >= 0 ||
      (e.has_lstm && ham_range(e.lengths, e.batch, 0, e.leaves) >= 0) ||
      ham_first_not_finite(e.inputs, features) >= 0 ||
      ham_first_not_finite(e.uniforms, timesteps * levels) >= 0)
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
  ham::Episode episode(e);
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
