// The training objective and its gradients in one pass over an episode's results: what
// ham/train/objective.py defines, whose sixty small tensor operations would take as long as
// half an episode.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "arena.h"
#include "decision.h"

namespace ham {
namespace {

// Calls body(offset, count) on consecutive stretches of a vector, the count being a constant of
// the type there, and on what remains.
template <class Body>
HAM_INLINE void stretches(int64_t size, const Body& body) {
  int64_t i = 0;
  for (; i + kWidth <= size; i += kWidth) body(i, std::integral_constant<int64_t, kWidth>());
  if (i < size) body(i, size - i);
}

using Bytes = uint8_t __attribute__((vector_size(kWidth)));
using Doubles = double __attribute__((vector_size(kWidth * 8)));

// A vector that is put together in memory cannot be loaded before all of it has arrived there: where the machine
// can, only so many are loaded and stored.
#if defined(__AVX512F__)
HAM_INLINE __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
HAM_INLINE Vec load_some(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
HAM_INLINE void store_some(float* p, Vec v, int64_t count) { _mm512_mask_storeu_ps(p, first_lanes(count), v); }
#else
HAM_INLINE Vec load_some(const float* p, int64_t count) {
  Vec v{};
  std::memcpy(&v, p, count * sizeof(float));
  return v;
}
HAM_INLINE void store_some(float* p, Vec v, int64_t count) { std::memcpy(p, &v, count * sizeof(float)); }
#endif

HAM_INLINE Vec load_some(const uint8_t* p, int64_t count) {
  Bytes v{};
  std::memcpy(&v, p, count);
  return __builtin_convertvector(v, Vec);
}

HAM_INLINE double total(const Doubles& v) {
  double sum = 0;
  for (int lane = 0; lane < kWidth; ++lane) sum += v[lane];
  return sum;
}

HAM_INLINE float dot(const float* a, const float* b, int64_t size) {
  Vec products{};
  stretches(size,
            [&](int64_t i, auto count) { products += load_some(a + i, count) * load_some(b + i, count); });
  return sum(products);
}

// For every bit its loss; for every symbol log-probability and share of right bits; for every timestep
// of every example the return, which becomes the advantage; for a timestep its mean square; for one
// example's decisions the pull on each; for the baseline one example's gradient.
struct Scratch {
  float *loss_of_bit, *log_prob, *hits, *returns, *square, *pulls, *d_head;

  void lay_out(Arena& arena, const HamObjective& o) {
    loss_of_bit = arena.take(o.batch * o.symbols * o.bits);
    log_prob = arena.take(o.batch * o.symbols);
    hits = arena.take(o.batch * o.symbols);
    returns = arena.take(o.batch * o.timesteps);
    square = arena.take(o.timesteps);
    pulls = arena.take(o.timesteps * o.levels);
    d_head = arena.take(o.query + 1);
  }
};

// Cross-entropy: its gradient, and every symbol's log-probability and share of right bits.
void outputs_pass(const HamObjective& o, const Scratch& scratch) {
  const float share = 1.f / static_cast<float>(o.batch);
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t first = b * o.symbols, ran = std::min(o.durations[b] / o.every, o.symbols);
    const int64_t bit = first * o.bits;
    stretches(ran * o.bits, [&](int64_t i, auto count) {
      Vec x = load_some(o.outputs + bit + i, count), y = load_some(o.targets + bit + i, count);
      Logit l = of_logit(x);
      store_some(scratch.loss_of_bit + bit + i, relu(x) - x * y + l.log1p, count);
      store_some(o.d_outputs + bit + i, (l.probability - y) * share, count);
    });
    std::fill(o.d_outputs + bit + ran * o.bits, o.d_outputs + bit + o.symbols * o.bits, 0.f);
    for (int64_t s = first; s < first + o.symbols; ++s) {
      scratch.log_prob[s] = scratch.hits[s] = 0.f;
      if (s >= first + ran) continue;
      if (!o.counted[s]) {
        std::fill_n(o.d_outputs + s * o.bits, o.bits, 0.f);
        continue;
      }
      float loss = 0.f;
      int64_t right = 0;
      for (int64_t i = s * o.bits; i < (s + 1) * o.bits; ++i) {
        loss += scratch.loss_of_bit[i];
        right += (o.outputs[i] > 0.f) == (o.targets[i] > 0.5f);
      }
      scratch.log_prob[s] = -loss;
      scratch.hits[s] = static_cast<float>(right) / static_cast<float>(o.bits);
    }
  }
}

bool all_right(const HamObjective& o, const float* hits, int64_t b) {
  for (int64_t s = b * o.symbols; s < (b + 1) * o.symbols; ++s)
    if (o.counted[s] && hits[s] != 1.f) return false;
  return true;
}

// Whether an access lies to the right of the one before it: where their turns first differ, it went right.
bool moved_right(const HamObjective& o, int64_t b, int64_t t) {
  const uint8_t* now = o.turns + (b * o.timesteps + t) * o.levels;
  const uint8_t* before = now - o.levels;
  for (int64_t level = 0; level < o.levels; ++level)
    if (now[level] != before[level]) return now[level] > before[level];
  return false;
}

// Discounted returns, example by example from the last timestep to the first.
void returns_pass(const HamObjective& o, const float* rewards, const float* hits, float* returns) {
  for (int64_t b = 0; b < o.batch; ++b) {
    const bool in_order = o.rightward > 0.f && all_right(o, hits, b);
    float later = 0.f;
    for (int64_t t = o.timesteps - 1; t >= 0; --t) {
      later *= o.discount;
      if (in_order && t % o.every > 0 && t < o.durations[b] && moved_right(o, b, t)) later += o.rightward;
      if ((t + 1) % o.every == 0) later += rewards[b * o.symbols + t / o.every];
      returns[b * o.timesteps + t] = later;
    }
  }
}

// The learned baseline: returns become advantages; its own loss and gradient.
double baseline_pass(const HamObjective& o, const Scratch& scratch) {
  int64_t ran = 0;
  for (int64_t b = 0; b < o.batch; ++b) ran += o.durations[b];
  const float share = 1.f / static_cast<float>(std::max<int64_t>(ran, 1));
  double loss = 0;
  std::fill_n(o.d_head, o.query + 1, 0.f);
  for (int64_t b = 0; b < o.batch; ++b) {
    // An example's sum first: long chains of additions would lose digits.
    std::fill_n(scratch.d_head, o.query + 1, 0.f);
    for (int64_t i = b * o.timesteps; i < b * o.timesteps + o.durations[b]; ++i) {
      const float* query = o.queries + i * o.query;
      const float error = dot(query, o.head, o.query) + o.head[o.query] - scratch.returns[i];
      const float gradient = 2.f * error * share;
      loss += static_cast<double>(error) * error * share;
      for (int64_t f = 0; f < o.query; ++f) scratch.d_head[f] += gradient * query[f];
      scratch.d_head[o.query] += gradient;
      scratch.returns[i] = -error;
    }
    for (int64_t f = 0; f <= o.query; ++f) o.d_head[f] += scratch.d_head[f];
  }
  return loss;
}

void leave_one_out_pass(const HamObjective& o, float* returns) {
  for (int64_t first = 0; first < o.batch; first += o.runs)
    for (int64_t t = 0; t < o.timesteps; ++t) {
      float total = 0.f;
      for (int64_t r = 0; r < o.runs; ++r) total += returns[(first + r) * o.timesteps + t];
      for (int64_t r = 0; r < o.runs; ++r) {
        float& own = returns[(first + r) * o.timesteps + t];
        own -= (total - own) / static_cast<float>(o.runs - 1);
      }
    }
}

// Divides advantages by their root mean square at each timestep. `square` has room for a timestep each.
void normalise_pass(const HamObjective& o, float* advantages, float* square) {
  std::fill_n(square, o.timesteps, 0.f);
  int64_t longest = 0;
  for (int64_t b = 0; b < o.batch; ++b) {
    const float* row = advantages + b * o.timesteps;
    for (int64_t t = 0; t < o.durations[b]; ++t) square[t] += row[t] * row[t];
    longest = std::max(longest, o.durations[b]);
  }
  for (int64_t t = 0; t < longest; ++t) {
    int64_t ran = 0;
    for (int64_t b = 0; b < o.batch; ++b) ran += t < o.durations[b];
    const float mean = square[t] / static_cast<float>(std::max<int64_t>(ran, 1));
    square[t] = mean > o.least_square ? 1.f / std::sqrt(mean) : 0.f;
  }
  for (int64_t b = 0; b < o.batch; ++b) {
    float* row = advantages + b * o.timesteps;
    for (int64_t t = 0; t < o.durations[b]; ++t) row[t] *= square[t];
  }
}

struct Decisions {
  double reinforce = 0, exploration = 0, entropy = 0;
};

// REINFORCE and exploration: the gradient on the decisions' logits. `pulls` is scratch, one for
// each decision: rows of a few levels would leave most of a vector empty.
Decisions decisions_pass(const HamObjective& o, const float* advantages, float* pulls) {
  const float share = 1.f / static_cast<float>(o.batch), explore = o.exploration * share;
  const int64_t row = o.timesteps * o.levels;
  Doubles reinforce{}, exploration{}, entropies{};
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t ran = std::min(o.durations[b], o.timesteps) * o.levels, first = b * row;
    for (int64_t t = 0; t * o.levels < ran; ++t)
      std::fill_n(pulls + t * o.levels, o.levels, o.reinforce * advantages[b * o.timesteps + t] * share);
    stretches(ran, [&](int64_t i, auto count) {
      Vec z = load_some(o.turn_logits + first + i, count), turn = load_some(o.turns + first + i, count);
      Vec pull = load_some(pulls + i, count);
      Logit l = of_logit(z);
      auto [entropy, slope] = entropy_of(z, l);
      Vec against = turn > 0.5f ? z : -z;
      Vec log_prob = (against < 0.f ? against : Vec{}) - l.log1p;
      auto [term, towards] = exploration_of(o.entropy, entropy, o.least_entropy);
      store_some(o.d_turn_logits + first + i, -pull * (turn - l.probability) - explore * towards * slope,
                 count);
      for (int64_t lane = count; lane < kWidth; ++lane) entropy[lane] = term[lane] = 0.f;
      reinforce -= __builtin_convertvector(pull * log_prob, Doubles);
      exploration += __builtin_convertvector(term, Doubles);
      entropies += __builtin_convertvector(entropy, Doubles);
    });
    std::fill(o.d_turn_logits + first + ran, o.d_turn_logits + first + row, 0.f);
  }
  return {total(reinforce), total(exploration) * static_cast<double>(o.exploration) * share,
          total(entropies)};
}

}  // namespace
}  // namespace ham

int64_t ham_objective_floats(const HamObjective* objective) {
  ham::Arena arena(nullptr);
  ham::Scratch{}.lay_out(arena, *objective);
  return arena.used();
}

void ham_objective(const HamObjective* objective) {
  using namespace ham;
  const HamObjective& o = *objective;
  Arena arena(o.scratch);
  Scratch scratch;
  scratch.lay_out(arena, o);
  outputs_pass(o, scratch);

  double cross_entropy = 0;
  int64_t wrong = 0;
  for (int64_t b = 0; b < o.batch; ++b) {
    for (int64_t s = b * o.symbols; s < (b + 1) * o.symbols; ++s) cross_entropy -= scratch.log_prob[s];
    wrong += !all_right(o, scratch.hits, b);
  }
  cross_entropy /= static_cast<double>(o.batch);

  returns_pass(o, o.reward == kHamming ? scratch.hits : scratch.log_prob, scratch.hits, scratch.returns);
  double baseline_loss = 0;
  if (o.baseline == kLearned) baseline_loss = baseline_pass(o, scratch);
  if (o.baseline == kLeaveOneOut) leave_one_out_pass(o, scratch.returns);
  if (o.normalise) normalise_pass(o, scratch.returns, scratch.square);
  const Decisions decisions = decisions_pass(o, scratch.returns, scratch.pulls);
  int64_t ran = 0;
  for (int64_t b = 0; b < o.batch; ++b) ran += o.durations[b];
  o.terms[kCrossEntropy] = cross_entropy;
  o.terms[kBaselineLoss] = baseline_loss;
  o.terms[kReinforce] = decisions.reinforce;
  o.terms[kExploration] = decisions.exploration;
  o.terms[kPull] = 0;
  o.terms[kMeanEntropy] = decisions.entropy / static_cast<double>(std::max<int64_t>(ran * o.levels, 1));
  o.terms[kWrong] = static_cast<double>(wrong) / static_cast<double>(o.batch);
}
