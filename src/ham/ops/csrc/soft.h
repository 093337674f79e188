// An episode with soft attention (DHAM): every timestep runs SEARCH at all inner nodes, WRITE at all
// leaves and JOIN at all inner nodes. README.md beside this folder derives it.
//
// All lanes visit all nodes, so a tree is panels in heap order, and the two children of a node lie
// side by side: they are JOIN's input as they are. The tape keeps the tree of every timestep; the
// first layers of SEARCH and WRITE are computed again, which takes as long as to fetch them.
#pragma once

#include "controller.h"

namespace ham {

struct SoftEpisode : Episode {
  // Nodes whose gradients wait for one weight-gradient reduction; their panels stay in L2.
  static constexpr int64_t kNodeBlock = 32;

  struct Tape : ControllerTape {
    float* trees;          // [timestep][2 leaves][width]
    float* reach;          // [timestep][2 leaves]: the probability of coming by a node
    float* right;          // [timestep][leaves]: of going right at an inner node
    float* logits;         // [timestep][leaves]: its logit
    float* mix;            // [timestep][leaves][2 width]
    float* join_hidden;    // [timestep][leaves][JOIN's hidden]: of the JOINs that made this timestep's tree
    float* made;           // [timestep][leaves][what they made before bounds]
    float* inputs;         // [row][bits]
    float* embed_hidden;   // [row][hidden]
    float* embed_made;     // [row][what EMBED made before bounds]
    int64_t join_width, made_width, embed_made_width;

    void lay_out(Arena& arena, const Model& model, const EpisodeChunk& chunk, int64_t every, bool keep) {
      ControllerTape::lay_out(arena, model.shape, chunk.steps, every, keep);
      int64_t n = shape.leaves, d = shape.width, h = shape.hidden;
      int64_t steps = keep ? chunk.steps : 1, updates = keep ? chunk.updates : 1;
      int64_t trees_made = keep ? chunk.updates + 1 : 1, each = keep ? n : 1;
      int64_t embeds = keep ? chunk.filled : 1;
      trees = arena.panels(trees_made * 2 * n, d);
      reach = arena.panels(steps * 2 * n, 1);
      right = arena.panels(steps * n, 1);
      logits = arena.panels(steps * n, 1);
      mix = arena.panels(updates * each, 2 * d);
      join_width = model.join_hidden();
      made_width = model.join_made();
      embed_made_width = model.embed_made();
      join_hidden = arena.panels(trees_made * each, join_width);
      made = arena.panels(trees_made * each, made_width);
      inputs = arena.panels(embeds, shape.bits);
      embed_hidden = arena.panels(embeds, h);
      embed_made = arena.panels(embeds, embed_made_width);
    }

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
      return activations(join_hidden, t, node, join_width);
    }
    float* made_at(int64_t t, int64_t node) const { return activations(made, t, node, made_width); }
    float* input_at(int64_t row) const { return inputs + at(row) * panel_floats(shape.bits); }
    float* embed_hidden_at(int64_t row) const { return embed_hidden + at(row) * panel_floats(shape.hidden); }
    float* embed_made_at(int64_t row) const { return embed_made + at(row) * panel_floats(embed_made_width); }
  };

  struct Forward {
    SpareRows spare;
    float *half, *hidden, *written, *output;
    Tape untaped;

    void lay_out(Arena& arena, const HamEpisode& e, const Model& model) {
      half = arena.panels(1, std::max(model.search_width(), model.write.out));
      hidden = arena.panels(1, 2 * model.shape.hidden);
      written = arena.panels(1, model.shape.width);
      output = arena.panels(1, model.shape.outputs);
      if (!e.taped) untaped.lay_out(arena, model, EpisodeChunk{}, 1, false);
    }
  };

  struct Backward : ControllerScratch {
    SpareRows spare;
    float* tree;     // [2 leaves][width]: the gradient of the tree
    float* reach;    // [2 leaves]
    float* written;  // [width]
    float* half;     // [the wider first layer]
    float* hidden;   // [node of a block][hidden]: SEARCH's or WRITE's, computed again
    // Gradients at pre-activations: of a block of nodes, then rings per timestep.
    float *search_first, *search_logit, *write_hidden, *mix, *joined, *join_hidden;
    float *search_half, *write_half;
    float *embedded, *embed_hidden;

    void lay_out(Arena& arena, const Model& model, int64_t filled) {
      const Shape& shape = model.shape;
      int64_t n = shape.leaves, d = shape.width, h = shape.hidden, block = std::min(n, kNodeBlock);
      ControllerScratch::lay_out(arena, shape);
      tree = arena.panels(2 * n, d);
      reach = arena.panels(2 * n, 1);
      written = arena.panels(1, d);
      half = arena.panels(1, std::max(model.search_width(), model.write.out));
      hidden = arena.panels(block, 2 * h);
      search_first = arena.panels(block, model.search_width());
      search_logit = arena.panels(block, 1);
      write_hidden = arena.panels(block, 2 * h);
      mix = arena.panels(block, 2 * d);
      joined = arena.panels(block, model.join_outputs());
      join_hidden = arena.panels(block, model.join_hidden());
      search_half = arena.panels(kStepBlock, model.search_width());
      write_half = arena.panels(kStepBlock, model.write.out);
      embedded = arena.panels(filled, d);
      embed_hidden = arena.panels(filled, h);
    }
  };

  using Episode::Episode;

  Tape tape(Arena& arena, int64_t task) const { return tape_of<Tape>(arena, task); }
  Forward forward_scratch(Arena& arena) const { return scratch_of<Forward>(arena, a, model); }
  Backward backward_scratch(Arena& arena) const { return scratch_of<Backward>(arena, model, filled); }
  bool is_intact(int64_t, const Tape&) const { return true; }  // numbers only, no places

  void forward(int64_t task, const Tape& tape, const Forward& scratch) const;
  void backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const;
  Penalties penalties(int64_t task, const Tape& tape) const;
};

// How often a node is come by: its probability, never in the lanes that have finished.
struct alignas(64) NodeShare {
  float lane[kLanes];

  NodeShare(const float* reach, int64_t active) {
    for (int i = 0; i < kLanes; ++i) lane[i] = i < active ? reach[i] : 0.f;
  }
};

}  // namespace ham
