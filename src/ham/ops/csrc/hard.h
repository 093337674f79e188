// An episode of LSTM+HAM or raw HAM, whose memory decides where to go: what it keeps and needs.
// README.md beside this folder derives it.
#pragma once

#include "ahead.h"
#include "controller.h"
#include "one_example.h"

namespace ham {

struct HardEpisode : Episode {
  static constexpr int64_t kPathBlock = 48;

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
      if (chunk.builds)
        build.lay_out(arena, model, chunk.occupied, chunk.stock, keep);
      else
        build.root = arena.panels(1, d);
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
    // All of a timestep's record.
    template <class Pieces>
    void record(Pieces& pieces, int64_t t, bool updates) const {
      int64_t levels = shape.levels, width = shape.width, cells = shape.has_lstm ? shape.query : 0;
      pieces.add(query(t), 1, state_width());
      pieces.add(cell_before(t), 1, cells);
      pieces.add(gates_at(t), 1, 4 * cells);
      pieces.add(tanh_cell_at(t), 1, cells);
      pieces.add(descent(t).nodes, levels, width);
      pieces.add(descent(t).hidden, levels, search_width);
      if (!updates) return;
      pieces.add(ascent(t).write_hidden, 1, 2 * shape.hidden);
      pieces.add(ascent(t).mix, 1, 2 * width);
      pieces.add(ascent(t).pairs, levels, 2 * width);
      pieces.add(ascent(t).hidden, levels, join_width);
      pieces.add(ascent(t).made, levels, made_width);
      pieces.add(ascent(t).joined, levels, width);
    }
    const float* root_before(int64_t t) const {
      if (shape.levels == 0) return nullptr;
      return t == 0 ? build.root : ascent(t - 1).joined;
    }
  };

  struct Forward {
    SpareRows spare;
    float *trees, *opened, *query_half, *logits, *uniforms, *child, *sibling, *output;
    Tape untaped;
    one_example::Scratch one;

    void lay_out(Arena& arena, const HamEpisode& e, const Model& model) {
      const Shape& shape = model.shape;
      int64_t lanes = e.tree ? 0 : std::min<int64_t>(e.batch, kLanes);
      trees = arena.take(lanes * 2 * e.leaves * e.width);
      opened = arena.take(lanes * OpenNodes::floats(e.leaves));
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
      one.lay_out(arena, model);
    }
  };

  struct Backward : ControllerScratch {
    SpareRows spare;
    float *trees, *opened, *root, *d_write, *gradient, *taken, *sibling, *d_pair, *d_node;
    // Rings of gradients at pre-activations: per level of a path, per timestep.
    float *search_first, *search_logit, *join_hidden, *joined;
    float *search_half, *write_hidden, *mix;
    int64_t path_steps;
    BuildScratch build;

    void lay_out(Arena& arena, const HamEpisode& e, const Model& model, int64_t joins, int64_t filled) {
      const Shape& shape = model.shape;
      int64_t d = shape.width, q = shape.query, h = shape.hidden, levels = shape.levels;
      ControllerScratch::lay_out(arena, shape);
      int64_t lanes = std::min<int64_t>(e.batch, kLanes);
      trees = arena.take(lanes * 2 * e.leaves * e.width);
      opened = arena.take(lanes * OpenNodes::floats(e.leaves));
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

  int64_t builders = 0;  // chunks of inputs, which come first where runs share trees
  int64_t joins = 0;     // of the chunk that builds its trees with most

  explicit HardEpisode(const HamEpisode& e) : Episode(e) {
    if (e.runs > 1) share_trees();
    for (const EpisodeChunk& chunk : chunks)
      if (chunk.builds) joins = std::max(joins, BuildTape::slots(model.shape, chunk.occupied, chunk.stock, true));
  }

  int64_t first_tasks() const { return builders; }
  // Of all `shared_trees`, and of which of their nodes are open.
  static int64_t shared_floats(const HamEpisode& e) {
    return shared_count(e) * (tree_floats(e) + OpenNodes::floats(e.leaves));
  }

  Tape tape(Arena& arena, int64_t task) const { return tape_of<Tape>(arena, task); }
  Forward forward_scratch(Arena& arena) const { return scratch_of<Forward>(arena, a, model); }
  Backward backward_scratch(Arena& arena) const { return scratch_of<Backward>(arena, a, model, joins, filled); }
  bool is_intact(int64_t task, const Tape& tape) const { return tape.is_intact(a.leaves, chunks[task].steps); }

  void forward(int64_t task, const Tape& tape, const Forward& scratch) const;
  void backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const;
  Penalties penalties(int64_t task, const Tape& tape) const;

 private:
  static int64_t tree_floats(const HamEpisode& e) { return 2 * e.leaves * e.width; }
  static int64_t shared_count(const HamEpisode& e) { return e.batch / e.runs + (e.batch + kLanes - 1) / kLanes; }

  // shared_trees.cpp
  void share_trees();
  void build_shared(int64_t task, const Tape& tape, const Forward& scratch) const;
  void open_shared(int64_t task, const Forest& forest, int64_t lane, int64_t node) const;
  void give_shared(int64_t task, const Forest& forest, const float* root) const;
  void build_shared_backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const;
  int64_t input_of(int64_t task, int64_t lane) const { return ((task - builders) * kLanes + lane) / a.runs; }
  float* shared_tree(int64_t i) const { return a.shared_trees + i * tree_floats(a); }
  OpenNodes shared_opened(int64_t i) const {
    return {shared_tree(shared_count(a)) + i * OpenNodes::floats(a.leaves), a.leaves};
  }
};

}  // namespace ham
