// Single accesses, for controllers that live in Python: attend and update, forward and backward.

#include "step.h"

#include <cmath>
#include <memory>

#include "api.h"
#include "call.h"
#include "memory.h"

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
  SpareRows spare;
  StepTape untaped;
  float *query_half, *logits, *uniforms, *child, *sibling;
  float *gradient, *taken, *d_pair, *d_input, *search_first;
  AscentGradient ascent;

  void lay_out(Arena& arena, const Model& model, Kind kind) {
    const Shape& shape = model.shape;
    int64_t levels = shape.levels, first = kind == Kind::attend ? model.search_width() : 0;
    spare.lay_out(arena, std::max({shape.width, shape.query, levels, int64_t{1}}));
    untaped.lay_out(arena, model, kind);
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

// Parameters are packed already, since a caller's next access has the same; so is their gradient.
struct OfVectors {
  template <class Work>
  static int64_t floats(const Work&) { return 0; }
  template <class Work>
  static void take(Work& work) { work.model.lie_in(work.a.weights, work.a.transposed); }
  template <class Work>
  static void give_back(const Work& work, const float* gradients) {
    float* total = work.a.d_weights;
    if (!work.a.adds_weights)
      std::copy_n(gradients, work.model.gradient_floats, total);
    else
      for (int64_t i = 0; i < work.model.gradient_floats; ++i) total[i] += gradients[i];
  }
};

// A task is a chunk; all of them have tapes of the same length.
class Step {
 public:
  using Arguments = Access;
  using Weights = OfVectors;

  const Access& a;
  Model model;

  explicit Step(const Access& access)
      : a(access),
        model({a.leaves, a.levels(), 0, a.width, a.query, a.depth == 2 ? a.hidden : 0, 0, a.depth, false},
              {a.join == kNormalised, a.join == kHighway, a.top, a.grid, 0.f}) {
    if (a.kind == Kind::attend) {
      model.add_search();
    } else {
      model.add_write();
      model.add_join();
    }
  }

  int64_t tasks() const { return (a.count + kLanes - 1) / kLanes; }
  int64_t first_tasks() const { return 0; }
  bool taped() const { return a.tape != nullptr; }

  StepTape tape(Arena& arena, int64_t) const {
    StepTape tape;
    tape.lay_out(arena, model, a.kind);
    return tape;
  }
  StepScratch forward_scratch(Arena& arena) const {
    StepScratch scratch;
    scratch.lay_out(arena, model, a.kind);
    return scratch;
  }
  StepScratch backward_scratch(Arena& arena) const { return forward_scratch(arena); }

  // A tape is an ordinary tensor, which hooks may have stored and brought back as they like.
  bool is_intact(int64_t, const StepTape& tape) const {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      if (tape.leaves()[lane] < a.leaves || tape.leaves()[lane] >= 2 * a.leaves) return false;
    return true;
  }

  void forward(int64_t task, const StepTape& tape, const StepScratch& scratch) const {
    if (a.kind == Kind::attend)
      attend(lanes_of(task, scratch.spare), tape, scratch);
    else
      update(lanes_of(task, scratch.spare), tape, scratch);
  }
  void backward(int64_t task, const StepTape& tape, const StepScratch& scratch, float* gradients) const {
    if (a.kind == Kind::attend)
      attend_back(lanes_of(task, scratch.spare), tape, scratch, gradients);
    else
      update_back(lanes_of(task, scratch.spare), tape, scratch, gradients);
  }

 private:
  Lanes lanes_of(int64_t task, const SpareRows& spare) const {
    Lanes lanes;
    lanes.spare = spare;
    lanes.active = std::min<int64_t>(kLanes, a.count - task * kLanes);
    for (int64_t lane = 0; lane < lanes.active; ++lane) {
      int64_t i = task * kLanes + lane;
      lanes.example[lane] = a.examples ? a.examples[i] : i;
    }
    return lanes;
  }

  bool turned_right(int64_t reached, int64_t level) const {
    return (reached >> (model.shape.levels - 1 - level)) & 1;
  }

  void attend(const Lanes& lanes, const StepTape& tape, const StepScratch& scratch) const {
    const Shape& shape = model.shape;
    Forest trees = Forest::of_examples(lanes, a.tree, a.leaves, a.width);
    float* value = tape.input;
    float* query = tape.input + panel_floats(shape.width);
    lanes.gather(query, a.queries, 1, 0, shape.query);
    if (a.uniforms)
      lanes.gather(scratch.uniforms, a.uniforms, 1, 0, shape.levels);
    attend_forward(model, trees, tape.descent(), value, scratch.logits, scratch.query_half, nullptr,
                   query, a.uniforms ? scratch.uniforms : nullptr);
    lanes.scatter(a.turn_logits, 1, 0, shape.levels, scratch.logits);
    lanes.scatter(a.value, 1, 0, shape.width, value);
    for (int64_t lane = 0; lane < lanes.active; ++lane) {
      int64_t reached = tape.leaves()[lane], row = lanes.example[lane];
      a.leaf[row] = reached - a.leaves;
      for (int64_t level = 0; level < shape.levels; ++level) {
        bool right = turned_right(reached, level);
        float logit = scratch.logits[level * kLanes + lane], sure = right ? logit : -logit;
        float log_prob = std::min(sure, 0.f) - std::log1p(std::exp(-std::abs(sure)));
        a.turns[row * shape.levels + level] = right;
        a.log_probs[row * shape.levels + level] = tape.log_probs[level * kLanes + lane] = log_prob;
      }
    }
  }

  void update(const Lanes& lanes, const StepTape& tape, const StepScratch& scratch) const {
    const Shape& shape = model.shape;
    Forest trees = Forest::of_examples(lanes, a.tree, a.leaves, a.width);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      tape.leaves()[lane] = a.leaves + (lane < lanes.active ? a.to_leaf[lanes.example[lane]] : 0);
    gather(tape.input, rows_to_read(trees, tape.leaves()), shape.width);
    lanes.gather(tape.input + panel_floats(shape.width), a.queries, 1, 0, shape.query);
    update_forward(model, trees, tape.ascent(), tape.input, tape.leaves(), scratch.child,
                   scratch.sibling, true);
  }

  void attend_back(const Lanes& lanes, const StepTape& tape, const StepScratch& scratch,
                   float* gradients) const {
    const Shape& shape = model.shape;
    Forest trees = Forest::of_examples(lanes, a.d_tree, a.leaves, a.width);
    float* d_query = scratch.d_input;
    zero_panel(d_query, shape.query);
    if (a.d_value) {
      lanes.gather(scratch.taken, a.d_value, 1, 0, shape.width);
      scatter<true>(rows_to_write(trees, tape.leaves()), scratch.taken, shape.width);
    }
    if ((a.d_turn_logits || a.d_log_probs) && shape.levels > 0) {
      const float* query = tape.input + panel_floats(shape.width);
      if (a.d_turn_logits)
        lanes.gather(scratch.logits, a.d_turn_logits, 1, 0, shape.levels);
      else
        zero_panel(scratch.logits, shape.levels);
      if (a.d_log_probs) add_log_prob_gradients(lanes, tape, scratch.logits);
      attend_backward<true>(model, trees, tape.descent(), scratch.search_first, scratch.query_half,
                            scratch.logits, scratch.gradient, nullptr);
      add_query_backward(model, model.search[0], d_query, scratch.query_half);
      search_gradient(model, gradients, scratch.search_first, scratch.logits, tape.search_hidden,
                      tape.nodes, shape.levels);
      query_gradient(model, model.search[0], gradients, scratch.query_half, query, shape.query, 1);
    }
    lanes.scatter(a.d_queries, 1, 0, shape.query, d_query);
  }

  // The slope of log p is the probability of the other turn, with the sign of this one.
  void add_log_prob_gradients(const Lanes& lanes, const StepTape& tape, float* d_logits) const {
    int64_t levels = model.shape.levels;
    for (int64_t lane = 0; lane < lanes.active; ++lane)
      for (int64_t level = 0; level < levels; ++level) {
        float other = -std::expm1(tape.log_probs[level * kLanes + lane]);
        float slope = turned_right(tape.leaves()[lane], level) ? other : -other;
        d_logits[level * kLanes + lane] += slope * a.d_log_probs[lanes.example[lane] * levels + level];
      }
  }

  void update_back(const Lanes& lanes, const StepTape& tape, const StepScratch& scratch,
                   float* gradients) const {
    const Shape& shape = model.shape;
    Forest trees = Forest::of_examples(lanes, a.d_tree, a.leaves, a.width);
    update_backward(model, trees, tape.ascent(), scratch.ascent, scratch.d_input, tape.input,
                    tape.leaves(), nullptr, scratch.gradient, scratch.taken, scratch.sibling,
                    scratch.d_pair, true, 0);
    scatter<true>(rows_to_write(trees, tape.leaves()), scratch.d_input, shape.width);
    lanes.scatter(a.d_queries, 1, 0, shape.query, scratch.d_input + panel_floats(shape.width));
    write_gradient(model, gradients, scratch.ascent.mix, scratch.ascent.write_hidden,
                   tape.write_hidden, tape.input, shape.width + shape.query, 1);
    join_gradient(model, gradients, scratch.ascent.joined, scratch.ascent.hidden, tape.join_hidden,
                  tape.pairs, shape.levels);
  }
};

// A thread's next access is mostly like its last one of that kind: then only the addresses are others.
Call<Step>& call_for(const Access& access) {
  struct Last {
    Access access;
    std::unique_ptr<Call<Step>> call;
  };
  thread_local Last kept[2][2];
  Last& last = kept[access.kind == Kind::attend][access.tape != nullptr];
  bool like_it = last.call && last.access.is_like(access);
  last.access = access;
  if (!like_it) last.call = std::make_unique<Call<Step>>(last.access);
  return *last.call;
}

}  // namespace

AccessSizes sizes_of(const Access& access) {
  Call<Step>& call = call_for(access);
  int64_t sizes[3];
  call.sizes(sizes);
  Arena tape(nullptr);
  call.work().tape(tape, 0);
  const Model& model = call.work().model;
  return {kLanes, tape.used(), sizes[1], sizes[2], model.gradient_floats, model.transposed_floats()};
}
void pack(const Access& access, const float* const* parameters, float* weights, float* transposed) {
  Step step(access);
  step.model.lie_in(weights, transposed);
  step.model.fill(parameters);
}
void unpack(const Access& access, const float* d_weights, float* const* d_parameters) {
  Step(access).model.unpack(d_weights, d_parameters);
}
void run_forward(const Access& access) { call_for(access).forward(); }
bool run_backward(const Access& access) { return call_for(access).backward(); }

}  // namespace ham
