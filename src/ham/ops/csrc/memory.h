// One access to the tree: attend (descend by SEARCH) and update (WRITE, then JOIN upwards),
// forward and backward, for the lanes of one chunk.
#pragma once

#include "join.h"
#include "lanes.h"
#include "opened.h"
#include "search.h"
#include "write.h"

namespace ham {

constexpr int64_t kLargeTree = 1 << 18;

// Trees [2 leaves][width] of a chunk's lanes.
struct Forest : Lanes {
  float* tree[kLanes] = {};
  OpenNodes opened[kLanes];
  int64_t width;
  bool large;  // beyond what stays in a cache near the core

  Forest(const Lanes& lanes, int64_t leaves, int64_t features)
      : Lanes(lanes), width(features), large(2 * leaves * features > kLargeTree / static_cast<int64_t>(sizeof(float))) {}

  // One tree after the other: an example's, or a lane's.
  static Forest of_examples(const Lanes& lanes, float* trees, int64_t leaves, int64_t width) {
    Forest forest(lanes, leaves, width);
    for (int64_t lane = 0; lane < lanes.active; ++lane)
      forest.tree[lane] = trees + lanes.example[lane] * 2 * leaves * width;
    return forest;
  }
  static Forest of_lanes(const Lanes& lanes, float* trees, int64_t leaves, int64_t width) {
    Forest forest(lanes, leaves, width);
    for (int64_t lane = 0; lane < lanes.active; ++lane) forest.tree[lane] = trees + lane * 2 * leaves * width;
    return forest;
  }
  // Keeps track of which nodes are open; none is at first.
  void track(float* memory, int64_t leaves) {
    for (int64_t lane = 0; lane < active; ++lane) {
      opened[lane] = OpenNodes(memory + lane * OpenNodes::floats(leaves), leaves);
      opened[lane].close_all();
    }
  }
  bool tracked() const { return opened[0].tracked(); }
  float* children(int64_t lane, int64_t node) const { return tree[lane] + 2 * node * width; }
};

HAM_INLINE Rows rows_of(const Forest& forest, const int64_t* node, float* otherwise) {
  Rows rows;
  for (int lane = 0; lane < kLanes; ++lane)
    rows.row[lane] = lane < forest.active ? forest.tree[lane] + node[lane] * forest.width : otherwise;
  return rows;
}
HAM_INLINE Rows rows_to_read(const Forest& forest, const int64_t* node) {
  return rows_of(forest, node, forest.spare.zeros);
}
HAM_INLINE Rows rows_to_write(const Forest& forest, const int64_t* node) {
  return rows_of(forest, node, forest.spare.trash);
}

// One node of every tree; zeros where its parent is closed.
HAM_INLINE Rows opened_rows(const Forest& forest, int64_t node) {
  Rows rows;
  for (int lane = 0; lane < kLanes; ++lane)
    rows.row[lane] = lane < forest.active && forest.opened[lane].has(node / 2)
                         ? forest.tree[lane] + node * forest.width
                         : forest.spare.zeros;
  return rows;
}

struct Nodes {
  int64_t of[kLanes];
};

HAM_INLINE Nodes same_node(int64_t node) {
  Nodes nodes;
  for (int lane = 0; lane < kLanes; ++lane) nodes.of[lane] = node;
  return nodes;
}

// Both children of a node are neighbours in memory: asked for while SEARCH still decides
// between them, whichever is taken is there in time, and so is its sibling for the update.
HAM_INLINE void prefetch_children(const Forest& forest, const Nodes& nodes) {
  constexpr int64_t kLine = 16;
  for (int64_t lane = 0; lane < forest.active; ++lane) {
    const float* pair = forest.tree[lane] + 2 * nodes.of[lane] * forest.width;
    for (int64_t f = 0; f < 2 * forest.width + kLine; f += kLine) __builtin_prefetch(pair + f);
  }
}

// The path's node at `level` (the root is level 0, the leaf level `levels`).
HAM_INLINE Nodes path_nodes(const int64_t* leaf, int64_t levels, int64_t level) {
  Nodes nodes;
  for (int lane = 0; lane < kLanes; ++lane) nodes.of[lane] = leaf[lane] >> (levels - level);
  return nodes;
}

HAM_INLINE Nodes siblings(const Nodes& nodes) {
  Nodes other;
  for (int lane = 0; lane < kLanes; ++lane) other.of[lane] = nodes.of[lane] ^ 1;
  return other;
}

struct alignas(64) LaneMask {
  int32_t lane[kLanes];
};

HAM_INLINE LaneMask right_children(const Nodes& nodes) {
  LaneMask mask;
  for (int lane = 0; lane < kLanes; ++lane) mask.lane[lane] = -static_cast<int32_t>(nodes.of[lane] & 1);
  return mask;
}

// [left; right] <-> (child on the path, its sibling), by which side the child is on.
HAM_INLINE void make_pair(float* pair, const float* child, const float* sibling,
                          const LaneMask& child_is_right, int64_t width) {
  float* right = pair + panel_floats(width);
  for (int64_t f = 0; f < width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      Bits mask = load_bits(child_is_right.lane + v);
      Vec a = load(child + f * kLanes + v), b = load(sibling + f * kLanes + v);
      store(pair + f * kLanes + v, mask ? b : a);
      store(right + f * kLanes + v, mask ? a : b);
    }
}

HAM_INLINE void split_pair(float* child, float* sibling, const float* pair,
                           const LaneMask& child_is_right, int64_t width) {
  const float* right = pair + panel_floats(width);
  for (int64_t f = 0; f < width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      Bits mask = load_bits(child_is_right.lane + v);
      Vec a = load(pair + f * kLanes + v), b = load(right + f * kLanes + v);
      store(child + f * kLanes + v, mask ? b : a);
      store(sibling + f * kLanes + v, mask ? a : b);
    }
}

// What is done at every level of an access beside it.
struct Nothing {
  template <class... Known>
  void operator()(const Known&...) const {}
};

// What attend leaves for backward; panels in order of level, root first.
struct Descent {
  float* nodes;
  float* hidden;  // SEARCH's hidden layer, depth 2 only
  int64_t* leaf;  // the node reached, per lane
};

// `root` is the root's panel, or null where it must be gathered; `uniforms` and `logits` are
// panels [levels]; right iff uniform < sigmoid(logit), null uniforms standing for one half. `meanwhile` is told the
// nodes it is at, whose children come next.
template <class Meanwhile = Nothing>
void attend_forward(const Model& model, const Forest& forest, const Descent& descent, float* value, float* logits,
                    float* half, const float* root, const float* query, const float* uniforms,
                    Meanwhile&& meanwhile = Meanwhile()) {
  int64_t width = model.shape.width, levels = model.shape.levels;
  query_half(model, model.search[0], half, query);
  Nodes node = same_node(1);
  for (int64_t level = 0; level < levels; ++level) {
    float* panel = descent.nodes + level * panel_floats(width);
    float* logit = logits + level * kLanes;
    meanwhile(node);
    if (forest.large) prefetch_children(forest, node);
    if (level == 0 && root)
      copy_panel(panel, root, width);
    else
      gather(panel, rows_to_read(forest, node.of), width);
    search_forward(model, logit, descent.hidden + level * panel_floats(model.search_width()), panel,
                   half);
    LaneMask right;
    for (int v = 0; v < kLanes; v += kWidth) {
      Vec threshold = uniforms ? load(uniforms + level * kLanes + v) : splat(0.5f);
      Bits turn = threshold < sigmoid(load(logit + v));
      std::memcpy(right.lane + v, &turn, sizeof turn);
    }
    for (int lane = 0; lane < kLanes; ++lane) node.of[lane] = 2 * node.of[lane] - right.lane[lane];
  }
  std::copy(node.of, node.of + kLanes, descent.leaf);
  gather(value, rows_to_read(forest, node.of), width);
}

// What update leaves for backward; pairs, hidden, made and joined in order of level, root first.
struct Ascent {
  float* write_hidden;
  float* mix;
  float* pairs;
  float* hidden;  // JOIN's hidden layer, depth 2 only
  float* made;    // what JOIN made before bounds, where it keeps that
  float* joined;
};

// `input` is [value; query]; `child` and `sibling` are scratch panels. With `store_root` false
// the root is left in ascent.joined only.
template <class Meanwhile = Nothing>
void update_forward(const Model& model, const Forest& forest, const Ascent& ascent, const float* input,
                    const int64_t* leaf, float* child, float* sibling, bool store_root,
                    Meanwhile&& meanwhile = Meanwhile()) {
  int64_t width = model.shape.width, levels = model.shape.levels;
  write_forward(model, child, ascent.mix, ascent.write_hidden, input);
  scatter<false>(rows_to_write(forest, leaf), child, width);
  const float* below = child;
  for (int64_t level = levels - 1; level >= 0; --level) {
    Nodes nodes = path_nodes(leaf, levels, level + 1);
    float* pair = ascent.pairs + level * panel_floats(2 * width);
    float* joined = ascent.joined + level * panel_floats(width);
    meanwhile();
    gather(sibling, rows_to_read(forest, siblings(nodes).of), width);
    make_pair(pair, below, sibling, right_children(nodes), width);
    join_forward(model, joined, ascent.made + level * panel_floats(model.join_made()),
                 ascent.hidden + level * panel_floats(model.join_hidden()), pair);
    if (level > 0 || store_root)
      scatter<false>(rows_to_write(forest, path_nodes(leaf, levels, level).of), joined, width);
    below = joined;
  }
}

// Gradients at pre-activations, kept for the weight gradients; shapes as in Ascent.
struct AscentGradient {
  float* write_hidden;
  float* mix;
  float* hidden;
  float* joined;
};

// Takes the gradients of the path's new nodes out of the gradient trees `forest` (the caller
// overwrites them, or zeroes them here with `zero_taken`), adds those of the siblings, and
// returns the gradient of [value; query] in d_input. `root` as in attend_forward; the first
// `pulled` lanes feel the pull.
template <class Meanwhile = Nothing>
void update_backward(const Model& model, const Forest& forest, const Ascent& ascent, const AscentGradient& out,
                     float* d_input, const float* input, const int64_t* leaf, const float* root, float* gradient,
                     float* taken, float* sibling, float* d_pair, bool zero_taken, int64_t pulled,
                     Meanwhile&& meanwhile = Meanwhile()) {
  int64_t width = model.shape.width, levels = model.shape.levels;
  for (int64_t level = 0; level <= levels; ++level) {
    Nodes nodes = path_nodes(leaf, levels, level);
    if (level == 0 && root) {
      copy_panel(gradient, root, width);
    } else {
      gather(taken, rows_to_read(forest, nodes.of), width);
      if (level == 0)
        copy_panel(gradient, taken, width);
      else
        add_panel(gradient, taken, width);
      if (zero_taken)
        for (int lane = 0; lane < forest.active; ++lane)
          std::memset(forest.tree[lane] + nodes.of[lane] * width, 0, sizeof(float) * width);
    }
    if (level == levels) break;
    meanwhile();
    int64_t hidden = level * panel_floats(model.join_hidden());
    int64_t joined = level * panel_floats(width);
    add_pull(model, gradient, ascent.joined + joined, pulled);
    join_backward(model, d_pair, out.joined + level * panel_floats(model.join_outputs()),
                  out.hidden + hidden, gradient, ascent.joined + joined,
                  ascent.made + level * panel_floats(model.join_made()), ascent.hidden + hidden,
                  ascent.pairs + level * panel_floats(2 * width));
    Nodes below = path_nodes(leaf, levels, level + 1);
    split_pair(gradient, sibling, d_pair, right_children(below), width);
    scatter<true>(rows_to_write(forest, siblings(below).of), sibling, width);
  }
  write_backward(model, d_input, out.mix, out.write_hidden, gradient, ascent.mix,
                 ascent.write_hidden, input);
}

// d_logits: panels [levels]; `d_first` receives the gradients at SEARCH's first layer and
// `d_half` their sum over levels. The nodes' gradients are put into (add: added to) the
// gradient trees; the root's goes to `root` where that is given.
template <bool add, class Meanwhile = Nothing>
void attend_backward(const Model& model, const Forest& forest, const Descent& descent, float* d_first,
                     float* d_half, const float* d_logits, float* d_node, float* root,
                     Meanwhile&& meanwhile = Meanwhile()) {
  int64_t width = model.shape.width, levels = model.shape.levels, first = model.search_width();
  zero_panel(d_half, first);
  for (int64_t level = 0; level < levels; ++level) {
    float* d_level = d_first + level * panel_floats(first);
    bool into_root = level == 0 && root;
    meanwhile();
    search_backward(model, d_level, into_root ? root : d_node, d_logits + level * kLanes,
                    descent.hidden + level * panel_floats(first));
    add_panel(d_half, d_level, first);
    if (!into_root)
      scatter<add>(rows_to_write(forest, path_nodes(descent.leaf, levels, level).of), d_node, width);
  }
}

}  // namespace ham
