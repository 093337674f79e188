// The tree before the first timestep: EMBED at the leaves, JOIN upwards; and its backward.
// A subtree without any input holds only zeros and their JOINs: it is the same for every lane
// and place, so each height of it is computed once (for raw HAM that is the whole tree).
#pragma once

#include "memory.h"

namespace ham {

struct BuildTape {
  float* pairs;         // [slot][2 width]
  float* hidden;        // [slot][hidden]
  float* inputs;        // [leaf][bits]
  float* embed_hidden;  // [leaf][hidden]
  float* blanks;        // [height][width]: an empty subtree's root
  float* root;          // [width]

  // `filled` leaves hold inputs in some lane of the chunk; a tape keeps a slot for every JOIN,
  // without one a slot per height is enough.
  static int64_t slots(const Shape& shape, int64_t filled, bool taped) {
    if (!taped) return shape.levels;
    int64_t count = filled < shape.leaves ? shape.levels : 0;
    for (int64_t height = 1; height <= shape.levels; ++height)
      count += (filled + (int64_t{1} << height) - 1) >> height;
    return count;
  }

  void lay_out(Arena& arena, const Shape& shape, int64_t filled, bool taped) {
    int64_t joins = slots(shape, filled, taped), embeds = taped ? filled : 1;
    pairs = arena.panels(joins, 2 * shape.width);
    hidden = arena.panels(joins, shape.hidden);
    inputs = arena.panels(embeds, shape.bits);
    embed_hidden = arena.panels(embeds, shape.hidden);
    blanks = arena.panels(shape.levels + 1, shape.width);
    root = arena.panels(1, shape.width);
  }
};

struct BuildScratch {
  float* joined;        // [slot][width]: gradients at pre-activations, from here on
  float* hidden;        // [slot][hidden]
  float* embedded;      // [leaf][width]
  float* embed_hidden;  // [leaf][hidden]
  float* blanks;        // [height][width]
  float* pairs;         // [height][2 width]
  float* taken;         // [width]
  float* unused;        // [2 width]

  void lay_out(Arena& arena, const Shape& shape, int64_t joins, int64_t filled) {
    joined = arena.panels(joins, shape.width);
    hidden = arena.panels(joins, shape.hidden);
    embedded = arena.panels(filled, shape.width);
    embed_hidden = arena.panels(filled, shape.hidden);
    blanks = arena.panels(shape.levels + 1, shape.width);
    pairs = arena.panels(shape.levels + 1, 2 * shape.width);
    taken = arena.panels(1, shape.width);
    unused = arena.panels(1, 2 * shape.width);
  }
};

// EMBED at one leaf; lanes without an input there get zeros.
inline void embed_forward(const Model& model, const Forest& forest, const float* const* inputs,
                          const int64_t* lengths, int64_t leaf, float* value, float* hidden, float* input) {
  const Shape& shape = model.shape;
  const float* rows[kLanes];
  LaneMask present;
  for (int lane = 0; lane < kLanes; ++lane) {
    bool is_present = lane < forest.active && leaf < lengths[lane];
    rows[lane] = is_present ? inputs[lane] + leaf * shape.bits : forest.zeros;
    present.lane[lane] = -static_cast<int32_t>(is_present);
  }
  gather(input, rows, shape.bits);
  mlp_forward<Finish::relu>(model.embed, model.deep(), value, hidden, input);
  for (int64_t f = 0; f < shape.width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      float* at = value + f * kLanes + v;
      store(at, load_bits(present.lane + v) ? load(at) : Vec{});
    }
}

// `value` is the leaf's: it is zero, and stops the gradient, where there was no input too.
inline void embed_backward(const Model& model, float* d_embedded, float* d_hidden, const float* gradient,
                           const float* value, const float* hidden) {
  each_vector(model.shape.width, [&](int64_t i) {
    store(d_embedded + i, where_positive(load(value + i), load(gradient + i)));
  });
  if (model.deep()) backward<Finish::where_positive>(model.embed[1], d_hidden, d_embedded, hidden);
}

class Build {
 public:
  // inputs[lane]: that lane's [leaves][bits]; lengths[lane] <= filled.
  Build(const Model& model, const Forest& forest, const BuildTape& tape, bool taped, int64_t filled,
        const float* const* inputs, const int64_t* lengths)
      : model_(model), shape_(model.shape), forest_(forest), tape_(tape), taped_(taped),
        filled_(filled), inputs_(inputs), lengths_(lengths) {}

  // Fills the trees of `forest` and tape.root.
  void forward() {
    zero_panel(blank(0), shape_.width);
    if (filled_ < shape_.leaves)
      for (int64_t height = 1; height <= shape_.levels; ++height) {
        int64_t slot = take_slot(height);
        copy_panel(pair(slot), blank(height - 1), shape_.width);
        copy_panel(pair(slot) + panel_floats(shape_.width), blank(height - 1), shape_.width);
        join_forward(model_, blank(height), hidden(slot), pair(slot));
      }
    for (int64_t lane = 0; lane < forest_.active; ++lane)
      std::memset(forest_.tree[lane], 0, sizeof(float) * shape_.width);
    build(1, shape_.levels, tape_.root);
  }

  // `forest` holds gradient trees here; root_gradient is the root's (its row is ignored).
  void backward(const BuildScratch& scratch, float* root_gradient, float* gradients) {
    scratch_ = scratch;
    int64_t width = shape_.width, joins = BuildTape::slots(shape_, filled_, true);
    next_slot_ = filled_ < shape_.leaves ? shape_.levels : 0;
    zero_panel(scratch.blanks, width * (shape_.levels + 1));
    push_down(1, shape_.levels, root_gradient, tape_.root);
    if (filled_ < shape_.leaves)
      for (int64_t height = shape_.levels; height >= 1; --height) {
        int64_t slot = height - 1;
        join_backward(model_, scratch.unused, d_joined(slot), d_hidden(slot), d_blank(height),
                      blank(height), hidden(slot));
        add_panel(d_blank(height - 1), scratch.unused, width);
        add_panel(d_blank(height - 1), scratch.unused + panel_floats(width), width);
      }
    join_gradient(model_, gradients, scratch.joined, scratch.hidden, tape_.hidden, tape_.pairs, joins);
    if (filled_ > 0)
      mlp_gradient(model_.embed, model_.deep(), gradients, scratch.embedded, scratch.embed_hidden,
                   tape_.embed_hidden, tape_.inputs, shape_.bits, filled_);
  }

 private:
  float* pair(int64_t slot) const { return tape_.pairs + slot * panel_floats(2 * shape_.width); }
  float* hidden(int64_t slot) const { return tape_.hidden + slot * panel_floats(shape_.hidden); }
  float* blank(int64_t height) const { return tape_.blanks + height * panel_floats(shape_.width); }
  float* d_joined(int64_t slot) const { return scratch_.joined + slot * panel_floats(shape_.width); }
  float* d_hidden(int64_t slot) const { return scratch_.hidden + slot * panel_floats(shape_.hidden); }
  float* d_blank(int64_t height) const { return scratch_.blanks + height * panel_floats(shape_.width); }
  int64_t first_leaf(int64_t node, int64_t height) const { return (node << height) - shape_.leaves; }
  int64_t take_slot(int64_t height) { return taped_ ? next_slot_++ : height - 1; }

  Nodes same_node(int64_t node) const {
    Nodes nodes;
    for (int lane = 0; lane < kLanes; ++lane) nodes.of[lane] = node;
    return nodes;
  }

  void build(int64_t node, int64_t height, float* value) {
    if (first_leaf(node, height) >= filled_) {
      copy_panel(value, blank(height), shape_.width);
      fill_blank(node, height);
      return;
    }
    if (height == 0) {
      embed(node - shape_.leaves, value);
    } else {
      int64_t slot = take_slot(height);
      build(2 * node, height - 1, pair(slot));
      build(2 * node + 1, height - 1, pair(slot) + panel_floats(shape_.width));
      join_forward(model_, value, hidden(slot), pair(slot));
    }
    scatter<false>(rows_to_write(forest_, same_node(node).of), value, shape_.width);
  }

  void embed(int64_t leaf, float* value) {
    int64_t slot = taped_ ? leaf : 0;
    embed_forward(model_, forest_, inputs_, lengths_, leaf, value,
                  tape_.embed_hidden + slot * panel_floats(shape_.hidden),
                  tape_.inputs + slot * panel_floats(shape_.bits));
  }

  void fill_blank(int64_t node, int64_t height) {
    int64_t width = shape_.width;
    for (int64_t below = height; below >= 0; --below)
      for (int64_t lane = 0; lane < forest_.active; ++lane) {
        int64_t first = node << (height - below), count = int64_t{1} << (height - below);
        float* row = forest_.tree[lane] + first * width;
        for (int64_t i = 0; i < count; ++i, row += width)
          for (int64_t f = 0; f < width; ++f) row[f] = blank(below)[f * kLanes];
      }
  }

  // `value` is the node's own panel: its sign is the mask of its ReLU.
  void push_down(int64_t node, int64_t height, float* gradient, const float* value) {
    int64_t width = shape_.width;
    if (first_leaf(node, height) >= filled_) {
      add_panel(d_blank(height), gradient, width);
      if (height > 0) add_pull(model_, d_blank(height), blank(height), forest_.active);
      take_blank(node, height);
    } else if (height == 0) {
      int64_t leaf = node - shape_.leaves;
      int64_t hidden = leaf * panel_floats(shape_.hidden);
      embed_backward(model_, scratch_.embedded + leaf * panel_floats(width), scratch_.embed_hidden + hidden,
                     gradient, value, tape_.embed_hidden + hidden);
    } else {
      int64_t slot = next_slot_++;
      float* d_pair = scratch_.pairs + height * panel_floats(2 * width);
      add_pull(model_, gradient, value, forest_.active);
      join_backward(model_, d_pair, d_joined(slot), d_hidden(slot), gradient, value, hidden(slot));
      for (int64_t side = 0; side < 2; ++side) {
        float* d_child = d_pair + side * panel_floats(width);
        gather(scratch_.taken, rows_to_read(forest_, same_node(2 * node + side).of), width);
        add_panel(d_child, scratch_.taken, width);
        push_down(2 * node + side, height - 1, d_child, pair(slot) + side * panel_floats(width));
      }
    }
  }

  // Adds the gradients of an empty subtree's inner nodes, below its root, height by height.
  void take_blank(int64_t node, int64_t height) {
    int64_t width = shape_.width;
    for (int64_t below = height - 1; below >= 1; --below) {
      int64_t first = node << (height - below), count = int64_t{1} << (height - below);
      for (int64_t lane = 0; lane < forest_.active; ++lane) {
        const float* row = forest_.tree[lane] + first * width;
        for (int64_t i = 0; i < count; ++i, row += width)
          for (int64_t f = 0; f < width; ++f) d_blank(below)[f * kLanes + lane] += row[f];
      }
      add_pull(model_, d_blank(below), blank(below), forest_.active, static_cast<float>(count));
    }
  }

  const Model& model_;
  const Shape& shape_;
  const Forest& forest_;
  const BuildTape& tape_;
  bool taped_;
  int64_t filled_;
  const float* const* inputs_;
  const int64_t* lengths_;
  BuildScratch scratch_{};
  int64_t next_slot_ = 0;
};

}  // namespace ham
