// WRITE: what becomes of a leaf's value.
#pragma once

#include "model.h"

namespace ham {

// WRITE after its first layer, whose result is in `hidden`, or in `mix` if that is the only one;
// `mix` becomes [candidate; gate].
HAM_INLINE void write_rest(const Model& model, float* written, float* mix, const float* hidden,
                           const float* value) {
  int64_t width = model.shape.width;
  float* candidate = mix;
  float* gate = mix + panel_floats(width);
  if (model.deep()) {
    forward<Finish::none>(model.candidate, candidate, hidden);
    forward<Finish::none>(model.gate, gate, hidden + panel_floats(model.shape.hidden));
  }
  each_vector(width, [&](int64_t i) {
    Vec h = sigmoid(load(candidate + i)), t = sigmoid(load(gate + i));
    store(candidate + i, h);
    store(gate + i, t);
    store(written + i, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * load(value + i))));
  });
}

// `input` is [value; query].
HAM_INLINE void write_forward(const Model& model, float* written, float* mix, float* hidden,
                              const float* input) {
  if (model.deep())
    forward<Finish::relu>(model.write, hidden, input);
  else
    forward<Finish::none>(model.write, mix, input);
  write_rest(model, written, mix, hidden, input);
}

// Gradients at pre-activations, up to the first layer's, which it returns.
HAM_INLINE float* write_rest_backward(const Model& model, float* d_mix, float* d_hidden,
                                      const float* d_written, const float* mix, const float* hidden,
                                      const float* value) {
  int64_t width = model.shape.width;
  int64_t gates = panel_floats(width);
  each_vector(width, [&](int64_t i) {
    Vec g = load(d_written + i), h = load(mix + i), t = load(mix + gates + i);
    store(d_mix + i, g * t * h * (1.f - h));
    store(d_mix + gates + i, g * (h - load(value + i)) * t * (1.f - t));
  });
  if (!model.deep()) return d_mix;
  int64_t half = panel_floats(model.shape.hidden);
  backward<Finish::where_positive>(model.candidate, d_hidden, d_mix, hidden);
  backward<Finish::where_positive>(model.gate, d_hidden + half, d_mix + gates, hidden + half);
  return d_hidden;
}

// d_input receives the gradient of [value; query]; d_mix and d_hidden those at pre-activations.
HAM_INLINE void write_backward(const Model& model, float* d_input, float* d_mix, float* d_hidden,
                               const float* d_written, const float* mix, const float* hidden,
                               const float* input) {
  int64_t width = model.shape.width;
  int64_t gates = panel_floats(width);
  backward<Finish::none>(model.write, d_input,
                         write_rest_backward(model, d_mix, d_hidden, d_written, mix, hidden, input));
  each_vector(width, [&](int64_t i) {
    Vec kept = (1.f - load(mix + gates + i)) * load(d_written + i);
    store(d_input + i, load(d_input + i) + kept);
  });
}

inline void write_rest_gradient(const Model& model, float* gradients, const float* d_mix,
                                const float* hidden, int64_t panels) {
  if (!model.deep()) return;
  const Shape& shape = model.shape;
  add_gradient(model.candidate, gradients, d_mix, 2 * shape.width, hidden, 2 * shape.hidden, panels);
  add_gradient(model.gate, gradients, d_mix + panel_floats(shape.width), 2 * shape.width,
               hidden + panel_floats(shape.hidden), 2 * shape.hidden, panels);
}

inline void write_gradient(const Model& model, float* gradients, const float* d_mix,
                           const float* d_hidden, const float* hidden, const float* input,
                           int64_t input_features, int64_t panels) {
  add_gradient(model.write, gradients, model.deep() ? d_hidden : d_mix, model.write.out, input,
               input_features, panels);
  write_rest_gradient(model, gradients, d_mix, hidden, panels);
}

}  // namespace ham
