// An episode with soft attention (DHAM): every timestep runs SEARCH at all inner nodes, WRITE at all
// leaves and JOIN at all inner nodes. README.md beside this folder derives it.
//
// All lanes visit all nodes, so a tree is panels in heap order, and the two children of a node lie
// side by side: they are JOIN's input as they are. The tape keeps the tree of every timestep; the
// first layers of SEARCH and WRITE are computed again, which takes as long as to fetch them.

#include <algorithm>

#include "decision.h"
#include "episode.h"

namespace ham {
namespace {

// Nodes whose gradients wait for one weight-gradient reduction; their panels stay in L2.
constexpr int64_t kNodeBlock = 32;

struct Tape : ControllerTape {
  float* trees;          // [timestep][2 leaves][width]
  float* reach;          // [timestep][2 leaves]: the probability of coming by a node
  float* right;          // [timestep][leaves]: of going right at an inner node
  float* logits;         // [timestep][leaves]: its logit
  float* mix;            // [timestep][leaves][2 width]
  float* join_hidden;    // [timestep][leaves][hidden]: of the JOINs that made this timestep's tree
  float* inputs;         // [leaf][bits]
  float* embed_hidden;   // [leaf][hidden]

  void lay_out(Arena& arena, const Model& model, const EpisodeChunk& chunk, int64_t every, bool keep) {
    ControllerTape::lay_out(arena, model.shape, chunk.steps, every, keep);
    int64_t n = shape.leaves, d = shape.width, h = shape.hidden;
    int64_t steps = keep ? chunk.steps : 1, updates = keep ? chunk.updates : 1;
    int64_t made = keep ? chunk.updates + 1 : 1, each = keep ? n : 1;
    int64_t embeds = keep ? chunk.filled : 1;
    trees = arena.panels(made * 2 * n, d);
    reach = arena.panels(steps * 2 * n, 1);
    right = arena.panels(steps * n, 1);
    logits = arena.panels(steps * n, 1);
    mix = arena.panels(updates * each, 2 * d);
    join_hidden = arena.panels(made * each, h);
    inputs = arena.panels(embeds, shape.bits);
    embed_hidden = arena.panels(embeds, h);
  }

  bool is_intact(int64_t, int64_t) const { return true; }  // numbers only, no places

  float* tree(int64_t t, int64_t node = 0) const {
    return trees + (at(t) * 2 * shape.leaves + node) * panel_floats(shape.width);
  }
  float* leaf(int64_t t, int64_t leaf) const { return tree(t, shape.leaves + leaf); }
  float* reach_at(int64_t t, int64_t node) const {
    return reach + (at(t) * 2 * shape.leaves + node) * kLanes;
  }
  float* right_at(int64_t t, int64_t node) const { return right + (at(t) * shape.leaves + node) * kLanes; }
  float* logit_at(int64_t t, int64_t node) const { return logits + (at(t) * shape.leaves + node) * kLanes; }
  // A layer's activations at a node: only backward looks at them again.
  float* activations(float* all, int64_t t, int64_t node, int64_t features) const {
    return all + at(t * shape.leaves + node) * panel_floats(features);
  }
  float* mix_at(int64_t t, int64_t leaf) const { return activations(mix, t, leaf, 2 * shape.width); }
  float* join_hidden_at(int64_t t, int64_t node) const {
    return activations(join_hidden, t, node, shape.hidden);
  }
  float* input_at(int64_t leaf) const { return inputs + at(leaf) * panel_floats(shape.bits); }
  float* embed_hidden_at(int64_t leaf) const { return embed_hidden + at(leaf) * panel_floats(shape.hidden); }
};

struct ForwardScratch {
  ForestScratch rows;
  float *half, *hidden, *written, *output;
  Tape untaped;

  void lay_out(Arena& arena, const HamEpisode& e, const Model& model) {
    rows.lay_out(arena, e, false);
    half = arena.panels(1, std::max(model.search_width(), model.write.out));
    hidden = arena.panels(1, 2 * model.shape.hidden);
    written = arena.panels(1, model.shape.width);
    output = arena.panels(1, model.shape.outputs);
    if (!e.taped) untaped.lay_out(arena, model, EpisodeChunk{}, 1, false);
  }
};

void join_all(const Model& model, const Tape& tape, int64_t t) {
  for (int64_t node = model.shape.leaves - 1; node >= 1; --node)
    join_forward(model, tape.tree(t, node), tape.join_hidden_at(t, node), tape.tree(t, 2 * node));
}

void build(const HamEpisode& e, const Model& model, const Forest& forest, const EpisodeChunk& chunk,
           const Tape& tape) {
  LaneInputs inputs = inputs_of(e, chunk);
  zero_panel(tape.tree(0), model.shape.width);
  for (int64_t leaf = 0; leaf < model.shape.leaves; ++leaf) {
    if (leaf < chunk.filled)
      embed_forward(model, forest, inputs.row, chunk.length, leaf, tape.leaf(0, leaf),
                    tape.embed_hidden_at(leaf), tape.input_at(leaf));
    else
      zero_panel(tape.leaf(0, leaf), model.shape.width);
  }
  join_all(model, tape, 0);
}

void attend_forward(const Model& model, const Tape& tape, int64_t t, const ForwardScratch& scratch) {
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

// How often a node is come by: its probability, never in the lanes that have finished.
struct alignas(64) Share {
  float lane[kLanes];

  Share(const float* reach, int64_t active) {
    for (int i = 0; i < kLanes; ++i) lane[i] = i < active ? reach[i] : 0.f;
  }
};

void update_forward(const Model& model, const Tape& tape, int64_t t, int64_t active,
                    const ForwardScratch& scratch) {
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
    Share share(tape.reach_at(t, n + leaf), active);
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
void record_likeliest(const HamEpisode& e, const EpisodeChunk& chunk, int64_t active, const Tape& tape, int64_t t) {
  for (int64_t lane = 0; lane < active; ++lane) {
    int64_t best = 0;
    for (int64_t leaf = 1; leaf < e.leaves; ++leaf)
      if (tape.reach_at(t, e.leaves + leaf)[lane] > tape.reach_at(t, e.leaves + best)[lane]) best = leaf;
    e.leaf[chunk.example[lane] * e.timesteps + t] = best;
  }
}

void record_tree(const HamEpisode& e, const Forest& forest, const EpisodeChunk& chunk, const Tape& tape) {
  for (int64_t node = 0; node < 2 * e.leaves; ++node)  // node 0 is nobody's: zeros since the build
    scatter_rows(forest, chunk, e.tree, 2 * e.leaves, node, e.width,
                 tape.tree(node > 0 ? chunk.updates : 0, node));
}

void forward_chunk(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                   ForwardScratch& scratch) {
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, nullptr);
  build(e, model, forest, chunk, tape);
  start_controller(tape);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    forest.active = chunk.active(t);
    take_query(e, forest, chunk, tape, t);
    attend_forward(model, tape, t, scratch);
    if (e.leaf) record_likeliest(e, chunk, forest.active, tape, t);
    controller_forward(e, model, forest, chunk, tape, t, scratch.output);
    if (t < chunk.updates) update_forward(model, tape, t, forest.active, scratch);
  }
  forest.active = chunk.lanes;
  if (e.tree) record_tree(e, forest, chunk, tape);
  clear_rest(e, chunk, 0);
}

struct BackwardScratch : ControllerScratch {
  ForestScratch rows;
  float* tree;     // [2 leaves][width]: the gradient of the tree
  float* reach;    // [2 leaves]
  float* written;  // [width]
  float* half;     // [the wider first layer]
  float* hidden;   // [node of a block][hidden]: SEARCH's or WRITE's, computed again
  // Gradients at pre-activations: of a block of nodes, then rings per timestep.
  float *search_first, *search_logit, *write_hidden, *mix, *joined, *join_hidden;
  float *search_half, *write_half;
  float *embedded, *embed_hidden;

  void lay_out(Arena& arena, const HamEpisode& e, const Model& model, int64_t, int64_t filled) {
    const Shape& shape = model.shape;
    int64_t n = shape.leaves, d = shape.width, h = shape.hidden, block = std::min(n, kNodeBlock);
    ControllerScratch::lay_out(arena, shape);
    rows.lay_out(arena, e, false);
    tree = arena.panels(2 * n, d);
    reach = arena.panels(2 * n, 1);
    written = arena.panels(1, d);
    half = arena.panels(1, std::max(model.search_width(), model.write.out));
    hidden = arena.panels(block, 2 * h);
    search_first = arena.panels(block, model.search_width());
    search_logit = arena.panels(block, 1);
    write_hidden = arena.panels(block, 2 * h);
    mix = arena.panels(block, 2 * d);
    joined = arena.panels(block, d);
    join_hidden = arena.panels(block, h);
    search_half = arena.panels(kStepBlock, model.search_width());
    write_half = arena.panels(kStepBlock, model.write.out);
    embedded = arena.panels(filled, d);
    embed_hidden = arena.panels(filled, h);
  }
};

HAM_INLINE float* panel(float* panels, int64_t i, int64_t features) {
  return panels + i * panel_floats(features);
}

// Blocks of the nodes [first, end): body(first of the block, how many).
template <class Body>
void each_block(int64_t first, int64_t end, Body&& body) {
  for (; first < end; first += kNodeBlock) body(first, std::min(kNodeBlock, end - first));
}

// From the gradient of all nodes of timestep t's tree to that of its leaves alone; the first `pulled`
// lanes feel the pull.
void join_all_backward(const Model& model, const Tape& tape, int64_t t, int64_t pulled,
                       const BackwardScratch& scratch, float* gradients) {
  int64_t d = model.shape.width, h = model.shape.hidden;
  each_block(1, model.shape.leaves, [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t node = first + i;
      add_pull(model, panel(scratch.tree, node, d), tape.tree(t, node), pulled);
      join_backward<true>(model, panel(scratch.tree, 2 * node, d), panel(scratch.joined, i, d),
                          panel(scratch.join_hidden, i, h), panel(scratch.tree, node, d),
                          tape.tree(t, node), tape.join_hidden_at(t, node));
    }
    join_gradient(model, gradients, scratch.joined, scratch.join_hidden, tape.join_hidden_at(t, first),
                  tape.tree(t, 2 * first), count);
  });
}

// From the gradient of the leaves after the update to that of the leaves before, of the
// probabilities (in scratch.reach) and of the new query.
void write_all_backward(const Model& model, const Tape& tape, int64_t t, int64_t active,
                        const BackwardScratch& scratch, float* d_half, float* gradients) {
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
      Share share(tape.reach_at(t, n + leaf), active);
      for (int v = 0; v < kLanes; v += kWidth) {
        Vec p = load(share.lane + v), d_p = Vec{};
        for (int64_t f = 0; f < d; ++f) {
          int64_t at = f * kLanes + v;
          Vec g = load(gradient + at), value = load(old + at);
          Vec candidate = load(mix + at), gate = load(mix + gates + at);
          // made = old + p gate (candidate - old)
          d_p = multiply_add(g, gate * (candidate - value), d_p);
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

// Adds the gradient of the exploration term at a node, which counts as often as the node is come by,
// in the first lanes only.
void add_exploration(const HamEpisode& e, float* d_logit, const float* logit, const float* reach, int64_t lanes) {
  if (e.exploration == 0.f) return;
  Share share(reach, lanes);
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec x = load(logit + v), weight = e.exploration * load(share.lane + v);
    Entropy entropy = entropy_of(x, of_logit(x));
    Vec inverse = 1.f / (entropy.nats + e.least_entropy);
    Vec pull = e.entropy == kInverse ? weight * (inverse * inverse) * entropy.slope : weight * entropy.slope;
    store(d_logit + v, load(d_logit + v) - pull);
  }
}

// Adds what was read to the gradients of leaves and probabilities, takes the latter up the tree
// and through SEARCH, which gives the gradients of the inner nodes.
void attend_backward(const HamEpisode& e, const Model& model, const Tape& tape, int64_t t, int64_t active,
                     const BackwardScratch& scratch, float* d_half, float* gradients) {
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
void clip_tree(const HamEpisode& e, const BackwardScratch& scratch) {
  if (e.tree_clip == 0.f) return;
  for (int64_t i = 0; i < panel_floats(2 * e.leaves * e.width); i += kWidth)
    store(scratch.tree + i, clamp(load(scratch.tree + i), -e.tree_clip, e.tree_clip));
}

void build_backward(const Model& model, const EpisodeChunk& chunk, const Tape& tape, const BackwardScratch& scratch,
                    float* gradients) {
  int64_t n = model.shape.leaves, d = model.shape.width, h = model.shape.hidden;
  join_all_backward(model, tape, 0, chunk.lanes, scratch, gradients);
  if (chunk.filled == 0) return;
  for (int64_t leaf = 0; leaf < chunk.filled; ++leaf)
    embed_backward(model, panel(scratch.embedded, leaf, d), panel(scratch.embed_hidden, leaf, h),
                   panel(scratch.tree, n + leaf, d), tape.leaf(0, leaf), tape.embed_hidden_at(leaf));
  mlp_gradient(model.embed, model.deep(), gradients, scratch.embedded, scratch.embed_hidden,
               tape.embed_hidden, tape.inputs, model.shape.bits, chunk.filled);
}

void backward_chunk(const HamEpisode& e, const Model& model, const EpisodeChunk& chunk, const Tape& tape,
                    BackwardScratch& scratch, float* gradients) {
  const Shape& shape = model.shape;
  int64_t n = shape.leaves, width = shape.width, stride = tape.state_width();
  scratch.rows.start(e);
  Forest forest = scratch.rows.forest(e, chunk, nullptr);
  zero_panel(scratch.tree, 2 * n * width);
  zero_panel(scratch.reach, 2 * n);
  scratch.start(shape);

  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    int64_t step_at = t % kStepBlock;
    forest.active = chunk.active(t);
    if (t < chunk.updates) {
      float* d_half = panel(scratch.write_half, step_at, model.write.out);
      join_all_backward(model, tape, t + 1, chunk.active(t + 1), scratch, gradients);
      write_all_backward(model, tape, t, forest.active, scratch, d_half, gradients);
      if (shape.has_lstm) add_query_backward(model, model.write, scratch.d_query, d_half);
    }
    zero_panel(scratch.d_value, width);
    controller_backward(e, model, forest, chunk, tape, scratch, t);
    float* d_half = panel(scratch.search_half, step_at, model.search_width());
    attend_backward(e, model, tape, t, forest.active, scratch, d_half, gradients);
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

struct Soft {
  using Tape = ham::Tape;
  using ForwardScratch = ham::ForwardScratch;
  using BackwardScratch = ham::BackwardScratch;
  static constexpr auto forward_chunk = ham::forward_chunk;
  static constexpr auto backward_chunk = ham::backward_chunk;
};

}  // namespace
}  // namespace ham

using SoftEpisode = ham::Episode<ham::Soft>;
void ham_soft_sizes(const HamEpisode* e, int64_t* sizes) { SoftEpisode(*e).sizes(sizes); }
void ham_soft_forward(const HamEpisode* e) { SoftEpisode(*e).forward(); }
int64_t ham_soft_backward(const HamEpisode* e) { return SoftEpisode(*e).backward() ? 0 : -1; }
