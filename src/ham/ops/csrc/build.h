// The tree before the first timestep: EMBED at the leaves, JOIN upwards; and its backward.
// A subtree without any input holds only zeros and their JOINs: it is the same for every lane
// and place, so each height of it is computed once (for raw HAM that is the whole tree). The same
// holds where all leaves of a subtree hold one vector that was given (`Stock`).
#pragma once

#include <algorithm>
#include <vector>

#include "memory.h"

namespace ham {

// The leaves that hold a row of the input in some lane of a chunk: row i lies at leaf places[i], ascending,
// or at leaf i without places.
struct Occupied {
  int64_t rows = 0;
  const int64_t* places = nullptr;

  int64_t leaf(int64_t row) const { return places ? places[row] : row; }
  // The first row at this leaf or to the right of it.
  int64_t row_from(int64_t leaf) const {
    return places ? std::lower_bound(places, places + rows, leaf) - places : std::min(leaf, rows);
  }
  // Subtrees of a height that are not empty.
  int64_t subtrees(int64_t height) const {
    if (!places) return (rows + (int64_t{1} << height) - 1) >> height;
    int64_t count = 0;
    for (int64_t row = 0; row < rows; ++row)
      count += row == 0 || places[row] >> height != places[row - 1] >> height;
    return count;
  }
};

// What the leaves of raw HAM hold at first: those from end[i - 1] to end[i] hold value[i], in every lane; those
// behind the last end are blank.
struct Stock {
  int64_t kinds = 0;
  const float* value = nullptr;  // [kind][width]
  const int64_t* end = nullptr;  // [kind], ascending

  int64_t kind(int64_t leaf) const { return std::upper_bound(end, end + kinds, leaf) - end; }
  // Subtrees of a height whose leaves are of different kinds: they lie across an end.
  int64_t mixed(int64_t height, int64_t leaves) const {
    int64_t count = 0, last = -1;
    for (int64_t i = 0; i < kinds; ++i) {
      int64_t before = (end[i] - 1) >> height, behind = end[i] >> height;
      bool across = before == behind && end[i] < leaves && kind(end[i] - 1) != kind(end[i]);
      if (across && behind != last) ++count, last = behind;
    }
    return count;
  }
  // The height of the tallest subtree all of whose leaves are of this kind; blank ones are the kind behind the last.
  int64_t tallest(int64_t kind, int64_t leaves) const {
    int64_t first = kind > 0 ? end[kind - 1] : 0, behind = kind < kinds ? end[kind] : leaves, height = 0;
    auto fits = [&](int64_t size) { return (first + size - 1) / size * size + size <= behind; };
    while (fits(int64_t{2} << height)) ++height;
    return height;
  }
};

struct BuildTape {
  float* pairs;         // [slot][2 width]
  float* hidden;        // [slot][JOIN's hidden]
  float* made;          // [slot][what JOIN made before bounds]
  float* inputs;        // [row][bits]
  float* embed_hidden;  // [row][hidden]
  float* embed_made;    // [row][what EMBED made before bounds]
  float* blanks;        // [kind][height][width]: the root of an empty subtree, or of one whose leaves are equal
  float* blank_pairs;   // [kind][height] two of it as rows of a tree, no panels
  float* root;          // [width]

  // A tape keeps a slot for every JOIN, without one a slot per height is enough.
  static int64_t slots(const Shape& shape, const Occupied& occupied, const Stock& stock, bool taped) {
    if (!taped) return shape.levels;
    int64_t count = occupied.rows < shape.leaves ? shape.levels * (stock.kinds + 1) : 0;
    for (int64_t height = 1; height <= shape.levels; ++height)
      count += occupied.subtrees(height) + stock.mixed(height, shape.leaves);
    return count;
  }

  void lay_out(Arena& arena, const Model& model, const Occupied& occupied, const Stock& stock, bool taped) {
    const Shape& shape = model.shape;
    int64_t joins = slots(shape, occupied, stock, taped), embeds = taped ? occupied.rows : 1;
    pairs = arena.panels(joins, 2 * shape.width);
    hidden = arena.panels(joins, model.join_hidden());
    made = arena.panels(joins, model.join_made());
    inputs = arena.panels(embeds, shape.bits);
    embed_hidden = arena.panels(embeds, shape.hidden);
    embed_made = arena.panels(embeds, model.embed_made());
    blanks = arena.panels((shape.levels + 1) * (stock.kinds + 1), shape.width);
    blank_pairs = arena.take((shape.levels + 1) * (stock.kinds + 1) * 2 * shape.width);
    root = arena.panels(1, shape.width);
  }
};

struct BuildScratch {
  float* joined;        // [slot][JOIN's outputs]: gradients at pre-activations, from here on
  float* hidden;        // [slot][JOIN's hidden]
  float* embedded;      // [row][width]
  float* embed_hidden;  // [row][hidden]
  float* blanks;        // [kind][height][width]
  float* pairs;         // [height][2 width]
  float* taken;         // [width]
  float* unused;        // [2 width]

  void lay_out(Arena& arena, const Model& model, int64_t joins, int64_t rows, int64_t kinds) {
    const Shape& shape = model.shape;
    joined = arena.panels(joins, model.join_outputs());
    hidden = arena.panels(joins, model.join_hidden());
    embedded = arena.panels(rows, shape.width);
    embed_hidden = arena.panels(rows, shape.hidden);
    blanks = arena.panels((shape.levels + 1) * (kinds + 1), shape.width);
    pairs = arena.panels(shape.levels + 1, 2 * shape.width);
    taken = arena.panels(1, shape.width);
    unused = arena.panels(1, 2 * shape.width);
  }
};

// EMBED of one row; lanes that do not have it get zeros. `made` has embed_made() features.
inline void embed_forward(const Model& model, const Lanes& lanes, const float* const* inputs,
                          const int64_t* lengths, int64_t row, float* value, float* made, float* hidden,
                          float* input) {
  const Shape& shape = model.shape;
  const float* rows[kLanes];
  LaneMask present;
  for (int lane = 0; lane < kLanes; ++lane) {
    bool is_present = lane < lanes.active && row < lengths[lane];
    rows[lane] = is_present ? inputs[lane] + row * shape.bits : lanes.spare.zeros;
    present.lane[lane] = -static_cast<int32_t>(is_present);
  }
  gather(input, rows, shape.bits);
  mlp_forward<Finish::relu>(model.embed, model.deep(), value, hidden, input);
  for (int64_t f = 0; f < shape.width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      int64_t at = f * kLanes + v;
      Vec x = load_bits(present.lane + v) ? below_ceiling(model.bounds, load(value + at)) : Vec{};
      if (model.embed_made() > 0) store(made + at, x);
      store(value + at, on_grid(model.bounds, x));
    }
}

// Where there was no input, the leaf's value is zero, which stops the gradient too.
inline void embed_backward(const Model& model, float* d_embedded, float* d_hidden, const float* gradient,
                           const float* value, const float* made, const float* hidden) {
  const float* before = model.embed_made() > 0 ? made : value;
  each_vector(model.shape.width, [&](int64_t i) {
    store(d_embedded + i, where_inside(model.bounds, load(before + i), load(gradient + i)));
  });
  if (model.deep()) backward<Finish::where_positive>(model.embed[1], d_hidden, d_embedded, hidden);
}

class Build {
 public:
  // inputs[lane]: that lane's [rows][bits]; lengths[lane] <= occupied.rows. Where there are rows, there is no stock.
  // `runs` feel the pull on a tree.
  Build(const Model& model, const Forest& forest, const BuildTape& tape, bool taped, const Occupied& occupied,
        const Stock& stock, const float* const* inputs, const int64_t* lengths, int64_t runs = 1)
      : model_(model), shape_(model.shape), forest_(forest), tape_(tape), taped_(taped),
        occupied_(occupied), stock_(stock), inputs_(inputs), lengths_(lengths), runs_(static_cast<float>(runs)) {}

  // Fills the trees of `forest` and tape.root. Where open nodes are kept track of, empty subtrees stay closed.
  void forward() {
    if (has_blanks())
      for (int64_t kind = 0; kind <= stock_.kinds; ++kind) {
        for (int64_t f = 0; f < shape_.width; ++f)
          for (int lane = 0; lane < kLanes; ++lane)
            blank(kind, 0)[f * kLanes + lane] =
                kind < stock_.kinds ? stock_.value[kind * shape_.width + f] : 0;
        int64_t tallest = stock_.tallest(kind, shape_.leaves);
        for (int64_t height = 1; height <= tallest; ++height) {
          int64_t slot = taped_ ? blank_slot(kind, height) : height - 1;
          copy_panel(pair(slot), blank(kind, height - 1), shape_.width);
          copy_panel(pair(slot) + panel_floats(shape_.width), blank(kind, height - 1), shape_.width);
          join_forward(model_, blank(kind, height), made(slot), hidden(slot), pair(slot));
        }
        for (int64_t height = 0; height <= tallest; ++height)
          for (int64_t f = 0; f < 2 * shape_.width; ++f)
            blank_pair(kind, height)[f] = blank(kind, height)[f % shape_.width * kLanes];
      }
    next_slot_ = blank_slots();
    for (int64_t lane = 0; lane < forest_.active; ++lane)
      std::memset(forest_.tree[lane], 0, sizeof(float) * shape_.width);
    build(1, shape_.levels, tape_.root);
  }

  // What the children of a node hold that was closed so far.
  void open(int64_t lane, int64_t node) const {
    int64_t height = shape_.levels - (63 - __builtin_clzll(static_cast<uint64_t>(node)));
    int64_t kind = stock_.kind((node << height) - shape_.leaves);
    std::memcpy(forest_.children(lane, node), blank_pair(kind, height - 1), sizeof(float) * 2 * shape_.width);
  }

  // `forest` holds gradient trees here, with track of what is open; root_gradient is the root's (its row is ignored).
  void backward(const BuildScratch& scratch, float* root_gradient, float* gradients) {
    scratch_ = scratch;
    int64_t width = shape_.width, joins = BuildTape::slots(shape_, occupied_, stock_, true);
    next_slot_ = blank_slots();
    zero_panel(scratch.blanks, width * (shape_.levels + 1) * (stock_.kinds + 1));
    push_down(1, shape_.levels, root_gradient, tape_.root);
    std::vector<uint8_t> used(static_cast<size_t>(joins), 1);
    std::fill_n(used.begin(), blank_slots(), 0);
    if (has_blanks())
      for (int64_t kind = 0; kind <= stock_.kinds; ++kind)
        for (int64_t height = stock_.tallest(kind, shape_.leaves); height >= 1; --height) {
          int64_t slot = blank_slot(kind, height);
          used[static_cast<size_t>(slot)] = 1;
          join_backward(model_, scratch.unused, d_joined(slot), d_hidden(slot), d_blank(kind, height),
                        blank(kind, height), made(slot), hidden(slot), pair(slot));
          add_panel(d_blank(kind, height - 1), scratch.unused, width);
          add_panel(d_blank(kind, height - 1), scratch.unused + panel_floats(width), width);
        }
    join_gradient(model_, gradients, scratch.joined, scratch.hidden, tape_.hidden, tape_.pairs, joins,
                  used.data());
    if (occupied_.rows > 0)
      mlp_gradient(model_.embed, model_.deep(), gradients, scratch.embedded, scratch.embed_hidden,
                   tape_.embed_hidden, tape_.inputs, shape_.bits, occupied_.rows);
  }

  // The sum of h^2 / 2 over all values that JOIN made, from the tape.
  double half_squares() {
    next_slot_ = blank_slots();
    return half_squares_below(1, shape_.levels, tape_.root);
  }

 private:
  double half_squares_below(int64_t node, int64_t height, const float* value) {
    if (height == 0) return 0;
    double sum = 0;
    if (int64_t kind = kind_of(node, height); kind >= 0) {
      for (int64_t below = height; below >= 1; --below)
        sum += static_cast<double>(int64_t{1} << (height - below)) *
               ham::half_squares(model_, blank(kind, below), forest_.active);
      return sum;
    }
    int64_t slot = next_slot_++;
    for (int64_t side = 0; side < 2; ++side)
      sum += half_squares_below(2 * node + side, height - 1, pair(slot) + side * panel_floats(shape_.width));
    return sum + ham::half_squares(model_, value, forest_.active);
  }

  float* pair(int64_t slot) const { return tape_.pairs + slot * panel_floats(2 * shape_.width); }
  float* hidden(int64_t slot) const { return tape_.hidden + slot * panel_floats(model_.join_hidden()); }
  float* made(int64_t slot) const { return tape_.made + slot * panel_floats(model_.join_made()); }
  int64_t of_kind(int64_t kind, int64_t height) const {
    return (kind * (shape_.levels + 1) + height) * panel_floats(shape_.width);
  }
  float* blank(int64_t kind, int64_t height) const { return tape_.blanks + of_kind(kind, height); }
  float* blank_pair(int64_t kind, int64_t height) const {
    return tape_.blank_pairs + (kind * (shape_.levels + 1) + height) * 2 * shape_.width;
  }
  float* d_joined(int64_t slot) const {
    return scratch_.joined + slot * panel_floats(model_.join_outputs());
  }
  float* d_hidden(int64_t slot) const {
    return scratch_.hidden + slot * panel_floats(model_.join_hidden());
  }
  float* d_blank(int64_t kind, int64_t height) const { return scratch_.blanks + of_kind(kind, height); }
  bool has_blanks() const { return occupied_.rows < shape_.leaves; }
  // Subtrees whose leaves are all of one kind come first, those of a kind together. Each has a slot for every height,
  // of which only those are used that it is as tall as.
  int64_t blank_slot(int64_t kind, int64_t height) const { return kind * shape_.levels + height - 1; }
  int64_t blank_slots() const { return has_blanks() ? blank_slot(stock_.kinds + 1, 1) : 0; }
  int64_t first_row(int64_t node, int64_t height) const {
    return occupied_.row_from((node << height) - shape_.leaves);
  }
  // The kind of all its leaves, the stock's or blank; -1: they differ, or hold rows.
  int64_t kind_of(int64_t node, int64_t height) const {
    if (first_row(node, height) != first_row(node + 1, height)) return -1;
    int64_t first = (node << height) - shape_.leaves, last = first + (int64_t{1} << height) - 1;
    return stock_.kind(first) == stock_.kind(last) ? stock_.kind(first) : -1;
  }
  int64_t take_slot(int64_t height) { return taped_ ? next_slot_++ : height - 1; }

  void build(int64_t node, int64_t height, float* value) {
    if (int64_t kind = kind_of(node, height); kind >= 0) {
      copy_panel(value, blank(kind, height), shape_.width);
      if (!forest_.tracked()) return fill_blank(kind, node, height);
    } else if (height == 0) {
      embed(first_row(node, 0), value);
    } else {
      int64_t slot = take_slot(height);
      if (forest_.tracked())
        for (int64_t lane = 0; lane < forest_.active; ++lane) forest_.opened[lane].open(node);
      build(2 * node, height - 1, pair(slot));
      build(2 * node + 1, height - 1, pair(slot) + panel_floats(shape_.width));
      join_forward(model_, value, made(slot), hidden(slot), pair(slot));
    }
    scatter<false>(rows_to_write(forest_, same_node(node).of), value, shape_.width);
  }

  void embed(int64_t row, float* value) {
    int64_t slot = taped_ ? row : 0;
    embed_forward(model_, forest_, inputs_, lengths_, row, value,
                  tape_.embed_made + slot * panel_floats(model_.embed_made()),
                  tape_.embed_hidden + slot * panel_floats(shape_.hidden),
                  tape_.inputs + slot * panel_floats(shape_.bits));
  }

  void fill_blank(int64_t kind, int64_t node, int64_t height) {
    int64_t width = shape_.width;
    for (int64_t below = height; below >= 0; --below)
      for (int64_t lane = 0; lane < forest_.active; ++lane) {
        int64_t first = node << (height - below), count = int64_t{1} << (height - below);
        float* rows = forest_.tree[lane] + first * width;
        std::memcpy(rows, blank_pair(kind, below), sizeof(float) * width);
        for (int64_t done = 1; done < count; done *= 2)  // count is a power of two
          std::memcpy(rows + done * width, rows, sizeof(float) * done * width);
      }
  }

  // `value` is the node's own panel: its sign is the mask of its ReLU.
  void push_down(int64_t node, int64_t height, float* gradient, const float* value) {
    int64_t width = shape_.width;
    if (int64_t kind = kind_of(node, height); kind >= 0) {
      add_panel(d_blank(kind, height), gradient, width);
      if (height > 0) add_pull(model_, d_blank(kind, height), blank(kind, height), forest_.active, runs_);
      for (int64_t lane = 0; lane < forest_.active; ++lane) take_blank(kind, node, height, lane);
      for (int64_t below = height - 1; below >= 1; --below)
        add_pull(model_, d_blank(kind, below), blank(kind, below), forest_.active,
                 runs_ * static_cast<float>(int64_t{1} << (height - below)));
    } else if (height == 0) {
      int64_t row = first_row(node, 0), hidden = row * panel_floats(shape_.hidden);
      embed_backward(model_, scratch_.embedded + row * panel_floats(width), scratch_.embed_hidden + hidden,
                     gradient, value, tape_.embed_made + row * panel_floats(model_.embed_made()),
                     tape_.embed_hidden + hidden);
    } else {
      int64_t slot = next_slot_++;
      float* d_pair = scratch_.pairs + height * panel_floats(2 * width);
      add_pull(model_, gradient, value, forest_.active, runs_);
      join_backward(model_, d_pair, d_joined(slot), d_hidden(slot), gradient, value, made(slot),
                    hidden(slot), pair(slot));
      for (int64_t side = 0; side < 2; ++side) {
        float* d_child = d_pair + side * panel_floats(width);
        gather(scratch_.taken, opened_rows(forest_, 2 * node + side), width);
        add_panel(d_child, scratch_.taken, width);
        push_down(2 * node + side, height - 1, d_child, pair(slot) + side * panel_floats(width));
      }
    }
  }

  // Adds the gradients of an empty subtree's inner nodes below its root, from left to right at every height.
  void take_blank(int64_t kind, int64_t node, int64_t height, int64_t lane) {
    if (height < 2 || !forest_.opened[lane].has(node)) return;
    int64_t width = shape_.width;
    const float* rows = forest_.children(lane, node);
    float* sums = d_blank(kind, height - 1) + lane;
    for (int64_t f = 0; f < width; ++f) sums[f * kLanes] = sums[f * kLanes] + rows[f] + rows[width + f];
    take_blank(kind, 2 * node, height - 1, lane);
    take_blank(kind, 2 * node + 1, height - 1, lane);
  }

  const Model& model_;
  const Shape& shape_;
  const Forest& forest_;
  const BuildTape& tape_;
  bool taped_;
  const Occupied& occupied_;
  const Stock& stock_;
  const float* const* inputs_;
  const int64_t* lengths_;
  float runs_;
  BuildScratch scratch_{};
  int64_t next_slot_ = 0;
};

}  // namespace ham
