// The gradient of a whole training batch: forward, the objective, backward, in one workspace.

#include <cmath>
#include <optional>

#include "call.h"
#include "decoder.h"
#include "hard.h"
#include "reader.h"

namespace ham {
namespace {

// What lies between the objective and a model: its results, and their gradients.
struct Results {
  float *outputs, *turn_logits, *queries, *d_outputs, *d_turn_logits;
  uint8_t* turns;

  void lay_out(Arena& arena, HamObjective& o) {
    int64_t bits = o.batch * o.symbols * o.bits, steps = o.batch * o.timesteps;
    outputs = arena.take(bits);
    turn_logits = arena.take(steps * o.levels);
    turns = reinterpret_cast<uint8_t*>(arena.take((steps * o.levels + 3) / 4));
    queries = arena.take(steps * o.query);
    d_outputs = arena.take(bits);
    d_turn_logits = arena.take(steps * o.levels);
    o.outputs = outputs;
    o.turn_logits = turn_logits;
    o.turns = turns;
    o.queries = queries;
    o.d_outputs = d_outputs;
    o.d_turn_logits = d_turn_logits;
    o.scratch = arena.take(ham_objective_floats(&o));
  }
};

// `Model` has is_valid(), describe(objective), lay_out(arena, results), run(between), where it calls `between` when
// the results are there, and pull(), what that cost.
template <class Model>
int64_t gradient_of(Model&& model, HamObjective& objective, HamBatch& batch) {
  if (!model.is_valid()) return -1;
  model.describe(objective);
  objective.terms = batch.terms;
  Arena arena(batch.workspace);
  Results results;
  results.lay_out(arena, objective);
  model.lay_out(arena, results);
  if (arena.used() > batch.floats) return arena.used();
  model.run([&] { ham_objective(&objective); });
  batch.terms[kPull] = model.pull();
  double squares = 0;
  for (int64_t i = 0; i < batch.weights; ++i)
    squares += static_cast<double>(batch.gradient[i]) * batch.gradient[i];
  batch.norm = std::sqrt(squares);
  return 0;
}

class EpisodeBatch {
 public:
  EpisodeBatch(HamEpisode& e, int64_t runs) : e_(e) { e_.runs = e_.has_lstm && runs > 1 ? runs : 0; }

  bool is_valid() const {
    int64_t rows = e_.has_lstm ? e_.rows : e_.timesteps, decisions = e_.timesteps * levels_of(e_.leaves);
    return ham_range(e_.durations, e_.batch, 0, e_.timesteps) < 0 &&
           (!e_.has_lstm || ham_range(e_.lengths, e_.batch, 0, e_.rows) < 0) &&
           ham_first_not_finite(e_.inputs, e_.batch * rows * e_.bits) < 0 &&
           ham_first_not_finite(e_.uniforms, e_.batch * decisions) < 0 &&
           (!e_.first_cell || (ham_first_not_finite(e_.first_state, e_.batch * e_.query) < 0 &&
                               ham_first_not_finite(e_.first_cell, e_.batch * e_.query) < 0)) &&
           (!e_.runs || runs_are_of_one_input());
  }
  void describe(HamObjective& o) const {
    o.batch = e_.batch;
    o.symbols = e_.timesteps / e_.every;
    o.bits = e_.outputs;
    o.timesteps = e_.timesteps;
    o.levels = levels_of(e_.leaves);
    o.query = e_.query;
    o.every = e_.every;
    o.durations = e_.durations;
  }
  void lay_out(Arena& arena, const Results& results) {
    e_.taped = 1;
    e_.output_logits = results.outputs;
    e_.turn_logits = results.turn_logits;
    e_.turns = results.turns;
    e_.queries = results.queries;
    e_.d_output_logits = results.d_outputs;
    e_.d_turn_logits = results.d_turn_logits;
    e_.shared_trees = e_.runs ? arena.take(HardEpisode::shared_floats(e_)) : nullptr;
    int64_t sizes[3];
    call_.emplace(e_).sizes(sizes);
    e_.tape = arena.take(sizes[0]);
    e_.scratch = arena.take(std::max(sizes[1], sizes[2]));
  }
  template <class Between>
  void run(const Between& between) {
    double penalties[2] = {};
    e_.penalties = penalties;
    call_->forward_and_backward([&] {
      between();
      add_penalties(*call_);
    });
    e_.penalties = nullptr;
    pull_ = penalties[0];
  }
  double pull() const { return pull_; }

 private:
  bool runs_are_of_one_input() const {
    if (e_.batch % e_.runs) return false;
    for (int64_t example = 0; example < e_.batch; ++example) {
      int64_t first = example - example % e_.runs, rows = e_.rows * e_.bits;
      const float *own = e_.inputs + example * rows, *firsts = e_.inputs + first * rows;
      if (e_.lengths[example] != e_.lengths[first] || e_.durations[example] != e_.durations[first] ||
          !std::equal(own, own + e_.lengths[first] * e_.bits, firsts))
        return false;
    }
    return true;
  }

  HamEpisode& e_;
  double pull_ = 0;
  std::optional<Call<HardEpisode>> call_;
};

class SequenceBatch {
 public:
  SequenceBatch(HamReader& reader, HamDecoder& decoder) : r_(reader), d_(decoder) {}

  bool is_valid() const {
    return ham_range(r_.lengths, r_.batch, d_.width ? 1 : 0, r_.slots) < 0 &&
           ham_range(d_.asked, r_.batch, 0, d_.symbols) < 0 &&
           ham_first_not_finite(r_.rows, r_.batch * r_.slots * r_.features) < 0 &&
           ham_first_not_finite(d_.targets, r_.batch * d_.symbols * d_.bits) < 0;
  }
  void describe(HamObjective& o) const {
    o.batch = r_.batch;
    o.symbols = o.timesteps = d_.symbols;
    o.bits = d_.bits;
    o.levels = o.query = 0;
    o.every = 1;
    o.targets = d_.targets;
    o.durations = d_.asked;
  }
  void lay_out(Arena& arena, const Results& results) {
    bool attentive = d_.width > 0;
    d_.batch = r_.batch;
    d_.cells = r_.cells;
    d_.directions = r_.directions;
    d_.items = attentive ? r_.slots : 0;
    d_.item = attentive ? r_.directions * r_.cells : 0;
    d_.threads = r_.threads;
    d_.lengths = r_.lengths;
    r_.taped = d_.taped = 1;
    int64_t states = r_.batch * r_.directions * r_.cells;
    r_.states = arena.take(states * r_.slots);
    r_.last_state = arena.take(states);
    r_.last_cell = arena.take(states);
    d_.d_memory = arena.take(attentive ? states * r_.slots : 0);
    d_.d_state = arena.take(states);
    d_.d_cell = arena.take(states);
    d_.outputs = results.outputs;
    d_.d_outputs = results.d_outputs;
    d_.state = r_.last_state;
    d_.cell = attentive ? nullptr : r_.last_cell;
    d_.memory = attentive ? r_.states : nullptr;
    r_.d_states = attentive ? d_.d_memory : nullptr;
    r_.d_last_state = d_.d_state;
    r_.d_last_cell = attentive ? nullptr : d_.d_cell;
    int64_t reading[3], decoding[3];
    reader_.emplace(r_).sizes(reading);
    decoder_.emplace(d_).sizes(decoding);
    r_.tape = arena.take(reading[0]);
    d_.tape = arena.take(decoding[0]);
    r_.scratch = d_.scratch = arena.take(std::max({reading[1], reading[2], decoding[1], decoding[2]}));
  }
  template <class Between>
  void run(const Between& between) {
    reader_->forward();
    decoder_->forward();
    between();
    decoder_->backward();
    reader_->backward();
  }
  double pull() const { return 0; }

 private:
  HamReader& r_;
  HamDecoder& d_;
  std::optional<Call<Reader>> reader_;
  std::optional<Call<Decoder>> decoder_;
};

}  // namespace
}  // namespace ham

int64_t ham_gradient(HamGradient* g) {
  return ham::gradient_of(ham::EpisodeBatch(g->episode, g->objective.runs), g->objective, g->batch);
}

int64_t ham_sequence_gradient(HamSequence* g) {
  return ham::gradient_of(ham::SequenceBatch(g->reader, g->decoder), g->objective, g->batch);
}
