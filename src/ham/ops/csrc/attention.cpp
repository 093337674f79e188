// Additive attention of a decoder's step over what was read.

#include <limits>

#include "decoder.h"

namespace ham {
namespace {

// Lane by lane, the sum over features of a[f] * b[f]; two partial sums hide the latency.
HAM_INLINE void lane_dot(float* y, const float* a, const float* b, int64_t features) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec even{}, odd{};
    int64_t at = v, end = v + panel_floats(features);
    for (; at + kLanes < end; at += 2 * kLanes) {
      even = multiply_add(load(a + at), load(b + at), even);
      odd = multiply_add(load(a + at + kLanes), load(b + at + kLanes), odd);
    }
    if (at < end) even = multiply_add(load(a + at), load(b + at), even);
    store(y + v, even + odd);
  }
}

}  // namespace

// The weights are softmax of score · tanh(query + key) over a lane's own items; the context is their mean.
void Decoder::attend(const DecoderChunk& chunk, const Tape& tape, int64_t t) const {
  float *query = tape.query_at(t), *weights = tape.weights_at(t), *context = tape.context_at(t);
  ham::forward<Finish::none>(of_query, query, tape.lstm.state_at(t));
  alignas(64) int32_t lengths[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) lengths[lane] = static_cast<int32_t>(chunk.length[lane]);
  for (int v = 0; v < kLanes; v += kWidth) {
    Bits length = load_bits(lengths + v);
    Vec most = splat(-std::numeric_limits<float>::infinity()), total{};
    for (int64_t i = 0; i < chunk.items; ++i) {
      const float* key = tape.key_of(i) + v;
      Vec sum{};
      for (int64_t f = 0; f < a.width; ++f) {
        Vec both = load(query + f * kLanes + v) + load(key + f * kLanes);
        sum = multiply_add(splat(score.w[f]), tanh(both), sum);
      }
      store(weights + i * kLanes + v, sum);
      Bits usable = length > static_cast<int32_t>(i);
      most = (usable & (sum > most)) ? sum : most;
    }
    for (int64_t i = 0; i < chunk.items; ++i) {
      float* at = weights + i * kLanes + v;
      Bits usable = length > static_cast<int32_t>(i);
      Vec weight = usable ? exp(load(at) - most) : Vec{};
      total += weight;
      store(at, weight);
    }
    Vec share = 1.f / total;
    for (int64_t i = 0; i < chunk.items; ++i) {
      float* at = weights + i * kLanes + v;
      store(at, load(at) * share);
    }
  }
  zero_panel(context, a.item);
  for (int64_t i = 0; i < chunk.items; ++i)
    add_scaled(context, weights + i * kLanes, tape.memory_of(i), a.item);
}

// From the context's gradient to those of items, keys, scores and the query. tanh is computed once more:
// a tape of it would be by far the largest piece of all.
void Decoder::attend_backward(const DecoderChunk& chunk, const Tape& tape, int64_t t,
                              const Backward& scratch) const {
  const float *query = tape.query_at(t), *weights = tape.weights_at(t);
  float* d_query = scratch.query + t % kStepBlock * panel_floats(a.width);
  zero_panel(d_query, a.width);
  lane_dot(scratch.mean, scratch.context, tape.context_at(t), a.item);
  for (int64_t i = 0; i < chunk.items; ++i) {
    lane_dot(scratch.weights, scratch.context, tape.memory_of(i), a.item);
    add_scaled(scratch.memory + i * panel_floats(a.item), weights + i * kLanes, scratch.context, a.item);
    const float* key = tape.key_of(i);
    float* d_key = scratch.keys + i * panel_floats(a.width);
    for (int v = 0; v < kLanes; v += kWidth) {
      Vec d_score = load(weights + i * kLanes + v) * (load(scratch.weights + v) - load(scratch.mean + v));
      for (int64_t f = 0; f < a.width; ++f) {
        int64_t at = f * kLanes + v;
        Vec y = tanh(load(query + at) + load(key + at));
        Vec d_sum = d_score * score.w[f] * (1.f - y * y);
        store(scratch.score + at, multiply_add(d_score, y, load(scratch.score + at)));
        store(d_query + at, load(d_query + at) + d_sum);
        store(d_key + at, load(d_key + at) + d_sum);
      }
    }
  }
  add_backward(of_query, scratch.lstm.state, d_query);
}

}  // namespace ham
