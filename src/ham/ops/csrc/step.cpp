// Single accesses, for controllers that live in Python: attend and update, forward and backward.

#include "step.h"

#include <cmath>

#include "api.h"
#include "memory.h"
#include "threads.h"

namespace ham {
namespace {

// The access of one chunk of lanes: its tape, then what it needs while it runs.
struct StepTape {
  float *nodes, *search_hidden, *log_probs, *leaf, *input;
  float *write_hidden, *mix, *pairs, *join_hidden, *made, *joined;

  void lay_out(Arena& arena, const Model& model, Kind kind) {
    const Shape& shape = model.shape;
    bool attends = kind == Kind::attend;
    int64_t at_attend = attends ? 1 : 0, at_update = attends ? 0 : 1;
    leaf = arena.panels(1, 2);
    input = arena.panels(1, shape.width + shape.query);
    nodes = arena.panels(at_attend * shape.levels, shape.width);
    search_hidden = arena.panels(at_attend * shape.levels, model.deep() ? shape.hidden : 0);
    log_probs = arena.panels(at_attend * shape.levels, 1);
    write_hidden = arena.panels(at_update, 2 * shape.hidden);
    mix = arena.panels(at_update, 2 * shape.width);
    pairs = arena.panels(at_update * shape.levels, 2 * shape.width);
    join_hidden = arena.panels(at_update * shape.levels, model.join_hidden());
    made = arena.panels(at_update * shape.levels, model.join_made());
    joined = arena.panels(at_update * shape.levels, shape.width);
  }
  int64_t* leaves() const { return reinterpret_cast<int64_t*>(leaf); }
  Descent descent() const { return {nodes, search_hidden, leaves()}; }
  Ascent ascent() const { return {write_hidden, mix, pairs, join_hidden, made, joined}; }
};

struct StepScratch {
  StepTape untaped;
  float *zeros, *trash, *query_half, *logits, *uniforms, *child, *sibling;
  float *gradient, *taken, *d_pair, *d_input, *search_first;
  AscentGradient ascent;

  static int64_t longest_row(const Shape& shape) {
    return std::max({shape.width, shape.query, shape.levels, int64_t{1}});
  }
  void lay_out(Arena& arena, const Model& model, Kind kind, bool taped) {
    const Shape& shape = model.shape;
    int64_t levels = shape.levels, first = kind == Kind::attend ? model.search_width() : 0;
    if (!taped) untaped.lay_out(arena, model, kind);
    zeros = arena.take(longest_row(shape));
    trash = arena.take(longest_row(shape));
    query_half = arena.panels(1, first);
    logits = arena.panels(levels, 1);
    uniforms = arena.panels(levels, 1);
    child = arena.panels(1, shape.width);
    sibling = arena.panels(1, shape.width);
    gradient = arena.panels(1, shape.width);
    taken = arena.panels(1, shape.width);
    d_pair = arena.panels(1, 2 * shape.width);
    d_input = arena.panels(1, shape.width + shape.query);
    search_first = arena.panels(levels, first);
    ascent.write_hidden = arena.panels(1, 2 * shape.hidden);
    ascent.mix = arena.panels(1, 2 * shape.width);
    ascent.hidden = arena.panels(levels, model.join_hidden());
    ascent.joined = arena.panels(levels, model.join_outputs());
  }
};

Shape shape_of(const Access& s) {
  return {s.leaves, s.levels(), 0, s.width, s.query, s.depth == 2 ? s.hidden : 0, 0, s.depth, false};
}

Bounds bounds_of(const Access& s) {
  return {s.join == kNormalised, s.join == kHighway, s.top, s.grid, 0.f};
}

class Step {
 public:
  explicit Step(const Access& s) : s_(s), kind_(s.kind), model_(shape_of(s), bounds_of(s)) {
    if (kind_ == Kind::attend) {
      model_.mlp(model_.search, s.width + s.query, 1);
    } else {
      model_.write_layers();
      model_.join_layers();
      model_.pull = s.pull;
    }
    chunks_ = (s.count + kLanes - 1) / kLanes;
    workers_ = std::max<int64_t>(1, std::min(s.threads, chunks_));
    Arena tape(nullptr), scratch(nullptr);
    StepTape{}.lay_out(tape, model_, kind_);
    StepScratch{}.lay_out(scratch, model_, kind_, false);
    tape_floats_ = tape.used();
    scratch_floats_ = scratch.used();
    gradient_floats_ = (model_.gradient_floats + 15) / 16 * 16;
  }

  AccessSizes sizes() const {
    int64_t scratch = workers_ * scratch_floats_, more_gradients = std::max<int64_t>(0, chunks_ - 1) * gradient_floats_;
    return {kLanes, tape_floats_, scratch, scratch + more_gradients, model_.gradient_floats, model_.transposed_floats()};
  }

  // A tape is an ordinary tensor, which hooks may have stored and brought back as they like.
  bool leaves_are_intact() const {
    for (int64_t chunk = 0; chunk < chunks_; ++chunk)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        int64_t node = tape_of(chunk).leaves()[lane];
        if (node < s_.leaves || node >= 2 * s_.leaves) return false;
      }
    return true;
  }

  void pack(const float* const* parameters, float* weights, float* transposed) {
    model_.lie_in(weights, transposed);
    model_.fill(parameters);
  }
  void unpack(const float* d_weights, float* const* d_parameters) const { model_.unpack(d_weights, d_parameters); }

  void forward() {
    model_.lie_in(s_.weights, s_.transposed);
    Team(workers_).run(chunks_, [&](int64_t chunk, int64_t worker) {
      StepScratch scratch = scratch_of(worker);
      StepTape tape = s_.tape ? tape_of(chunk) : scratch.untaped;
      if (kind_ == Kind::attend)
        attend(chunk, tape, scratch);
      else
        update(chunk, tape, scratch);
    });
  }

  void backward() {
    model_.lie_in(s_.weights, nullptr);
    float* others = s_.scratch + workers_ * scratch_floats_;
    auto gradients_of = [&](int64_t chunk) { return chunk ? others + (chunk - 1) * gradient_floats_ : s_.d_weights; };
    for (int64_t chunk = 0; chunk < chunks_; ++chunk)
      std::memset(gradients_of(chunk), 0, sizeof(float) * model_.gradient_floats);
    Team(workers_).run(chunks_, [&](int64_t chunk, int64_t worker) {
      StepScratch scratch = scratch_of(worker);
      if (kind_ == Kind::attend)
        attend_back(chunk, tape_of(chunk), scratch, gradients_of(chunk));
      else
        update_back(chunk, tape_of(chunk), scratch, gradients_of(chunk));
    });
    for (int64_t chunk = 1; chunk < chunks_; ++chunk)
      for (int64_t j = 0; j < model_.gradient_floats; ++j) s_.d_weights[j] += gradients_of(chunk)[j];
  }

 private:
  StepTape tape_of(int64_t chunk) const {
    Arena arena(s_.tape + chunk * tape_floats_);
    StepTape tape;
    tape.lay_out(arena, model_, kind_);
    return tape;
  }
  StepScratch scratch_of(int64_t worker) const {
    Arena arena(s_.scratch + worker * scratch_floats_);
    StepScratch scratch;
    scratch.lay_out(arena, model_, kind_, false);
    std::memset(scratch.zeros, 0, sizeof(float) * StepScratch::longest_row(model_.shape));
    std::memset(scratch.trash, 0, sizeof(float) * StepScratch::longest_row(model_.shape));
    return scratch;
  }
  int64_t example(int64_t chunk, int64_t lane) const {
    int64_t i = chunk * kLanes + lane;
    return s_.examples ? s_.examples[i] : i;
  }
  Forest forest(int64_t chunk, const StepScratch& scratch, float* trees) const {
    Forest forest;
    forest.width = s_.width;
    forest.large = 2 * s_.leaves * s_.width > kLargeTree / static_cast<int64_t>(sizeof(float));
    forest.zeros = scratch.zeros;
    forest.trash = scratch.trash;
    forest.active = std::min<int64_t>(kLanes, s_.count - chunk * kLanes);
    for (int64_t lane = 0; lane < forest.active; ++lane)
      forest.tree[lane] = trees + example(chunk, lane) * 2 * s_.leaves * s_.width;
    return forest;
  }
  Rows rows(int64_t chunk, const Forest& forest, const float* tensor, int64_t features,
            float* otherwise) const {
    Rows rows;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      rows.row[lane] = lane < forest.active
                           ? const_cast<float*>(tensor) + example(chunk, lane) * features
                           : otherwise;
    return rows;
  }

  bool turned_right(int64_t reached, int64_t level) const {
    return (reached >> (model_.shape.levels - 1 - level)) & 1;
  }

  void attend(int64_t chunk, const StepTape& tape, const StepScratch& scratch) const {
    const Shape& shape = model_.shape;
    Forest trees = forest(chunk, scratch, s_.tree);
    float* value = tape.input;
    float* query = tape.input + panel_floats(shape.width);
    gather(query, rows(chunk, trees, s_.queries, shape.query, trees.zeros), shape.query);
    if (s_.uniforms)
      gather(scratch.uniforms, rows(chunk, trees, s_.uniforms, shape.levels, trees.zeros), shape.levels);
    attend_forward(model_, trees, tape.descent(), value, scratch.logits, scratch.query_half, nullptr,
                   query, s_.uniforms ? scratch.uniforms : nullptr);
    scatter<false>(rows(chunk, trees, s_.turn_logits, shape.levels, trees.trash), scratch.logits,
                   shape.levels);
    scatter<false>(rows(chunk, trees, s_.value, shape.width, trees.trash), value, shape.width);
    for (int64_t lane = 0; lane < trees.active; ++lane) {
      int64_t reached = tape.leaves()[lane], row = example(chunk, lane);
      s_.leaf[row] = reached - s_.leaves;
      for (int64_t level = 0; level < shape.levels; ++level) {
        bool right = turned_right(reached, level);
        float logit = scratch.logits[level * kLanes + lane], sure = right ? logit : -logit;
        float log_prob = std::min(sure, 0.f) - std::log1p(std::exp(-std::abs(sure)));
        s_.turns[row * shape.levels + level] = right;
        s_.log_probs[row * shape.levels + level] = tape.log_probs[level * kLanes + lane] = log_prob;
      }
    }
  }

  void update(int64_t chunk, const StepTape& tape, const StepScratch& scratch) const {
    const Shape& shape = model_.shape;
    Forest trees = forest(chunk, scratch, s_.tree);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      tape.leaves()[lane] = s_.leaves + (lane < trees.active ? s_.to_leaf[example(chunk, lane)] : 0);
    gather(tape.input, rows_to_read(trees, tape.leaves()), shape.width);
    gather(tape.input + panel_floats(shape.width),
           rows(chunk, trees, s_.queries, shape.query, trees.zeros), shape.query);
    update_forward(model_, trees, tape.ascent(), tape.input, tape.leaves(), scratch.child,
                   scratch.sibling, true);
  }

  void attend_back(int64_t chunk, const StepTape& tape, const StepScratch& scratch,
                   float* gradients) const {
    const Shape& shape = model_.shape;
    Forest trees = forest(chunk, scratch, s_.d_tree);
    float* d_query = scratch.d_input;
    zero_panel(d_query, shape.query);
    if (s_.d_value) {
      gather(scratch.taken, rows(chunk, trees, s_.d_value, shape.width, trees.zeros), shape.width);
      scatter<true>(rows_to_write(trees, tape.leaves()), scratch.taken, shape.width);
    }
    if ((s_.d_turn_logits || s_.d_log_probs) && shape.levels > 0) {
      const float* query = tape.input + panel_floats(shape.width);
      if (s_.d_turn_logits)
        gather(scratch.logits, rows(chunk, trees, s_.d_turn_logits, shape.levels, trees.zeros), shape.levels);
      else
        zero_panel(scratch.logits, shape.levels);
      if (s_.d_log_probs) add_log_prob_gradients(chunk, tape, trees.active, scratch.logits);
      attend_backward<true>(model_, trees, tape.descent(), scratch.search_first, scratch.query_half,
                            scratch.logits, scratch.gradient, nullptr);
      add_query_backward(model_, model_.search[0], d_query, scratch.query_half);
      search_gradient(model_, gradients, scratch.search_first, scratch.logits, tape.search_hidden,
                      tape.nodes, shape.levels);
      query_gradient(model_, model_.search[0], gradients, scratch.query_half, query, shape.query, 1);
    }
    scatter<false>(rows(chunk, trees, s_.d_queries, shape.query, trees.trash), d_query, shape.query);
  }

  // The slope of log p is the probability of the other turn, with the sign of this one.
  void add_log_prob_gradients(int64_t chunk, const StepTape& tape, int64_t active, float* d_logits) const {
    int64_t levels = model_.shape.levels;
    for (int64_t lane = 0; lane < active; ++lane)
      for (int64_t level = 0; level < levels; ++level) {
        float other = -std::expm1(tape.log_probs[level * kLanes + lane]);
        float slope = turned_right(tape.leaves()[lane], level) ? other : -other;
        d_logits[level * kLanes + lane] += slope * s_.d_log_probs[example(chunk, lane) * levels + level];
      }
  }

  void update_back(int64_t chunk, const StepTape& tape, const StepScratch& scratch,
                   float* gradients) const {
    const Shape& shape = model_.shape;
    Forest trees = forest(chunk, scratch, s_.d_tree);
    update_backward(model_, trees, tape.ascent(), scratch.ascent, scratch.d_input, tape.input,
                    tape.leaves(), nullptr, scratch.gradient, scratch.taken, scratch.sibling,
                    scratch.d_pair, true, trees.active);
    scatter<true>(rows_to_write(trees, tape.leaves()), scratch.d_input, shape.width);
    scatter<false>(rows(chunk, trees, s_.d_queries, shape.query, trees.trash),
                   scratch.d_input + panel_floats(shape.width), shape.query);
    write_gradient(model_, gradients, scratch.ascent.mix, scratch.ascent.write_hidden,
                   tape.write_hidden, tape.input, shape.width + shape.query, 1);
    join_gradient(model_, gradients, scratch.ascent.joined, scratch.ascent.hidden, tape.join_hidden,
                  tape.pairs, shape.levels);
  }

  const Access& s_;
  Kind kind_;
  Model model_;
  int64_t chunks_, workers_, tape_floats_, scratch_floats_, gradient_floats_;
};

}  // namespace

AccessSizes sizes_of(const Access& access) { return Step(access).sizes(); }
void pack(const Access& access, const float* const* parameters, float* weights, float* transposed) {
  Step(access).pack(parameters, weights, transposed);
}
void unpack(const Access& access, const float* d_weights, float* const* d_parameters) {
  Step(access).unpack(d_weights, d_parameters);
}
void run_forward(const Access& access) { Step(access).forward(); }
bool run_backward(const Access& access) {
  Step step(access);
  if (!step.leaves_are_intact()) return false;
  step.backward();
  return true;
}

}  // namespace ham
