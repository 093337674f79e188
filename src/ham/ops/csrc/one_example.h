// One example by itself, without a tape: its features, not its neighbours, fill the vectors, and the tree's
// rows are read where they lie. Every sum is taken in the order of panel.h and layer.h, so the bits are
// those of the same example in a chunk of many.
#pragma once

#include "memory.h"

namespace ham {
namespace one_example {

using LooseVec = float __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));

HAM_INLINE Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
HAM_INLINE void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }

// A vector may reach beyond the last feature: buffers have room for that, and nobody looks at it.
HAM_INLINE float* take(Arena& arena, int64_t features) { return arena.take(features + kWidth); }

template <int Vectors, Start start, Finish finish>
HAM_INLINE void product_tile(float* y, const float* a, int64_t a_stride, const float* x, int64_t depth,
                             const float* initial) {
  Vec sum[Vectors];
  for (int v = 0; v < Vectors; ++v) sum[v] = start == Start::zero ? Vec{} : load(initial + v * kWidth);
  for (int64_t k = 0; k < depth; ++k) {
    Vec feature = splat(x[k]);
    for (int v = 0; v < Vectors; ++v)
      sum[v] = multiply_add(load(a + k * a_stride + v * kWidth), feature, sum[v]);
  }
  for (int v = 0; v < Vectors; ++v) store(y + v * kWidth, finish == Finish::relu ? relu(sum[v]) : sum[v]);
}

// As product() of panel.h; here a bias and a panel are the same thing, a vector of initial values.
template <Start start, Finish finish>
void product(float* y, int64_t rows, const float* a, int64_t a_stride, const float* x, int64_t depth,
             const float* initial) {
  for (int64_t row = 0; row < rows;) {
    int64_t vectors = (rows - row + kWidth - 1) / kWidth;
    switch (vectors) {
#define HAM_CASE(V)                                                                               \
  case V:                                                                                         \
    product_tile<V, start, finish>(y + row, a + row, a_stride, x, depth, initial + row);          \
    row += V * kWidth;                                                                            \
    break;
      HAM_CASE(1) HAM_CASE(2) HAM_CASE(3) HAM_CASE(4)
      default:
      HAM_CASE(5)
#undef HAM_CASE
    }
  }
}

template <Finish finish>
HAM_INLINE void apply(const Layer& layer, float* y, const float* x) {
  product<Start::bias, finish>(y, layer.out, layer.wt, layer.out, x, layer.in, layer.b);
}

// The four partial sums of dot_product() in panel.h.
HAM_INLINE float dot_product(const float* a, const float* x, int64_t depth, float bias) {
  Vec4 sum = {bias, 0.f, 0.f, 0.f};
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) sum = multiply_add(load4(a + k), load4(x + k), sum);
  for (; k < depth; ++k) sum[0] = multiply_add(a[k], x[k], sum[0]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

struct Scratch {
  float *query_half, *hidden, *mix, *written, *joined, *pair, *gates, *state, *cell, *output;

  void lay_out(Arena& arena, const Model& model) {
    const Shape& shape = model.shape;
    query_half = take(arena, model.search_width());
    hidden = take(arena, std::max<int64_t>(3 * shape.hidden, model.search_width()));
    mix = take(arena, 3 * shape.width);
    written = take(arena, shape.width);
    joined = take(arena, shape.width);
    pair = take(arena, 2 * shape.width);
    gates = take(arena, 4 * shape.query);
    state = take(arena, 2 * shape.query + shape.width);
    cell = take(arena, shape.query);
    output = take(arena, shape.outputs);
  }
};

// The four nodes two levels below lie side by side: wherever the descent goes, they are there in time.
HAM_INLINE void prefetch_grandchildren(const float* tree, int64_t width, int64_t node) {
  constexpr int64_t kLine = 16;
  const float* nodes = tree + 4 * node * width;
  for (int64_t f = 0; f < 4 * width + kLine; f += kLine) __builtin_prefetch(nodes + f);
}

// The leaf's node; a level's logit goes to `logits`, where that is given. Null uniforms: one half.
inline int64_t attend(const Model& model, const Scratch& scratch, const float* tree, bool large,
                      const float* query, const float* uniforms, float* logits) {
  const Layer& first = model.search[0];
  int64_t width = model.shape.width, levels = model.shape.levels, node = 1;
  product<Start::bias, Finish::none>(scratch.query_half, first.out, first.wt + width * first.out, first.out,
                                     query, model.shape.query, first.b);
  for (int64_t level = 0; level < levels; ++level) {
    const float* row = tree + node * width;
    float logit;
    if (large && level + 1 < levels) prefetch_grandchildren(tree, width, node);
    if (model.deep()) {
      product<Start::panel, Finish::relu>(scratch.hidden, first.out, first.wt, first.out, row, width,
                                          scratch.query_half);
      logit = dot_product(model.search[1].w, scratch.hidden, first.out, model.search[1].b[0]);
    } else {
      product<Start::panel, Finish::none>(scratch.hidden, 1, first.wt, 1, row, width, scratch.query_half);
      logit = scratch.hidden[0];
    }
    if (logits) logits[level] = logit;
    float threshold = uniforms ? uniforms[level] : 0.5f;
    node = 2 * node + (threshold < sigmoid(splat(logit))[0]);
  }
  return node;
}

// A highway JOIN.
inline void join_highway(const Model& model, const Scratch& scratch, const float* pair) {
  int64_t width = model.shape.width;
  std::memcpy(scratch.pair, pair, sizeof(float) * 2 * width);
  if (model.deep()) {
    apply<Finish::relu>(model.join_first, scratch.hidden, pair);
    for (int64_t i = 0; i < 3; ++i)
      apply<Finish::none>(model.join_rest[i], scratch.mix + i * width, scratch.hidden + i * model.shape.hidden);
  } else {
    apply<Finish::none>(model.join_first, scratch.mix, pair);
  }
  for (int64_t f = 0; f < width; f += kWidth) {
    Vec h = sigmoid(load(scratch.mix + f)), t = sigmoid(load(scratch.mix + width + f));
    Vec s = sigmoid(load(scratch.mix + 2 * width + f));
    Vec carried = multiply_add(s, load(scratch.pair + f), (1.f - s) * load(scratch.pair + width + f));
    store(scratch.joined + f, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * carried)));
  }
}

// JOIN of two children, into scratch.joined.
inline void join(const Model& model, const Scratch& scratch, const float* pair) {
  const Bounds& bounds = model.bounds;
  int64_t width = model.shape.width;
  if (bounds.highway) return join_highway(model, scratch, pair);
  if (model.deep()) {
    apply<Finish::relu>(model.join[0], scratch.hidden, pair);
    apply<Finish::relu>(model.join[1], scratch.joined, scratch.hidden);
  } else {
    apply<Finish::relu>(model.join[0], scratch.joined, pair);
  }
  float scale = 1.f;
  if (bounds.normalised) {
    float squares = 0.f;
    for (int64_t f = 0; f < width; ++f) squares = multiply_add(scratch.joined[f], scratch.joined[f], squares);
    scale = 1.f / std::sqrt(squares / static_cast<float>(width) + kLeastMeanSquare);
  }
  if (!bounds.normalised && bounds.top <= 0.f && bounds.grid <= 0.f) return;
  for (int64_t f = 0; f < width; f += kWidth) {
    Vec x = load(scratch.joined + f);
    x = bounds.normalised ? x * scale : below_ceiling(bounds, x);
    store(scratch.joined + f, on_grid(bounds, x));
  }
}

// `input` is [value; query]. Both children of a node are one row after the other: JOIN's input as it is.
inline void update(const Model& model, const Scratch& scratch, float* tree, int64_t leaf,
                   const float* input) {
  int64_t width = model.shape.width;
  if (model.deep()) {
    apply<Finish::relu>(model.write, scratch.hidden, input);
    apply<Finish::none>(model.candidate, scratch.mix, scratch.hidden);
    apply<Finish::none>(model.gate, scratch.mix + width, scratch.hidden + model.shape.hidden);
  } else {
    apply<Finish::none>(model.write, scratch.mix, input);
  }
  for (int64_t f = 0; f < width; f += kWidth) {
    Vec h = sigmoid(load(scratch.mix + f)), t = sigmoid(load(scratch.mix + width + f));
    store(scratch.written + f, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * load(input + f))));
  }
  std::memcpy(tree + leaf * width, scratch.written, sizeof(float) * width);
  for (int64_t node = leaf / 2; node >= 1; node /= 2) {
    join(model, scratch, tree + 2 * node * width);
    std::memcpy(tree + node * width, scratch.joined, sizeof(float) * width);
  }
}

// `input` is [state; value]; the cell is changed in place.
inline void lstm(const Model& model, const Scratch& scratch, float* new_state, const float* input) {
  int64_t l = model.shape.query;
  apply<Finish::none>(model.lstm, scratch.gates, input);
  for (int64_t at = 0; at < l; at += kWidth) {
    const float* gates = scratch.gates + at;
    Vec i = sigmoid(load(gates)), f = sigmoid(load(gates + l));
    Vec g = tanh(load(gates + 2 * l)), o = sigmoid(load(gates + 3 * l));
    Vec c = multiply_add(f, load(scratch.cell + at), i * g);
    if (model.bounds.cell > 0.f) c = clamp(c, -model.bounds.cell, model.bounds.cell);
    store(scratch.cell + at, c);
    store(new_state + at, o * tanh(c));
  }
}

}  // namespace one_example
}  // namespace ham
