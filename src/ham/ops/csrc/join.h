// JOIN in its forms: rectified, normalised by its root mean square, or a highway; and the pull on what it makes.
#pragma once

#include "model.h"

namespace ham {

// Added to the mean square of what JOIN made before it is divided by the root.
constexpr float kLeastMeanSquare = 1e-5f;

// What the values of each lane are multiplied by: [kLanes].
HAM_INLINE void inverse_rms(float* inverse, const float* made, int64_t width) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec squares = Vec{};
    for (int64_t f = 0; f < width; ++f) {
      Vec x = load(made + f * kLanes + v);
      squares = multiply_add(x, x, squares);
    }
    store(inverse + v, 1.f / root(squares / static_cast<float>(width) + kLeastMeanSquare));
  }
}

HAM_INLINE void highway_forward(const Model& model, float* joined, float* made, float* hidden,
                                const float* pair) {
  int64_t width = panel_floats(model.shape.width);
  if (model.deep()) {
    forward<Finish::relu>(model.join_first, hidden, pair);
    for (int64_t i = 0; i < 3; ++i)
      forward<Finish::none>(model.join_rest[i], made + i * width,
                            hidden + i * panel_floats(model.shape.hidden));
  } else {
    forward<Finish::none>(model.join_first, made, pair);
  }
  each_vector(model.shape.width, [&](int64_t i) {
    Vec h = sigmoid(load(made + i)), t = sigmoid(load(made + width + i));
    Vec s = sigmoid(load(made + 2 * width + i));
    store(made + i, h);
    store(made + width + i, t);
    store(made + 2 * width + i, s);
    Vec carried = multiply_add(s, load(pair + i), (1.f - s) * load(pair + width + i));
    store(joined + i, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * carried)));
  });
}

template <bool add>
HAM_INLINE void highway_backward(const Model& model, float* d_pair, float* d_made, float* d_hidden,
                                 const float* gradient, const float* made, const float* hidden,
                                 const float* pair) {
  int64_t width = panel_floats(model.shape.width);
  each_vector(model.shape.width, [&](int64_t i) {
    Vec g = load(gradient + i), h = load(made + i), t = load(made + width + i);
    Vec s = load(made + 2 * width + i), left = load(pair + i), right = load(pair + width + i);
    Vec carried = multiply_add(s, left, (1.f - s) * right);
    store(d_made + i, g * t * h * (1.f - h));
    store(d_made + width + i, g * (h - carried) * t * (1.f - t));
    store(d_made + 2 * width + i, g * (1.f - t) * (left - right) * s * (1.f - s));
  });
  const float* d_first = d_made;
  if (model.deep()) {
    for (int64_t i = 0; i < 3; ++i) {
      int64_t at = i * panel_floats(model.shape.hidden);
      backward<Finish::where_positive>(model.join_rest[i], d_hidden + at, d_made + i * width, hidden + at);
    }
    d_first = d_hidden;
  }
  if (add)
    add_backward(model.join_first, d_pair, d_first);
  else
    backward<Finish::none>(model.join_first, d_pair, d_first);
  each_vector(model.shape.width, [&](int64_t i) {
    Vec kept = (1.f - load(made + width + i)) * load(gradient + i), s = load(made + 2 * width + i);
    store(d_pair + i, multiply_add(kept, s, load(d_pair + i)));
    store(d_pair + width + i, multiply_add(kept, 1.f - s, load(d_pair + width + i)));
  });
}

// JOIN: `pair` is [left; right]; `made` has join_made() features.
HAM_INLINE void join_forward(const Model& model, float* joined, float* made, float* hidden,
                             const float* pair) {
  const Bounds& bounds = model.bounds;
  int64_t width = model.shape.width;
  if (bounds.highway) return highway_forward(model, joined, made, hidden, pair);
  if (model.join_made() == 0) {
    mlp_forward<Finish::relu>(model.join, model.deep(), joined, hidden, pair);
    if (bounds.top > 0.f)
      each_vector(width, [&](int64_t i) { store(joined + i, below_ceiling(bounds, load(joined + i))); });
    return;
  }
  mlp_forward<Finish::relu>(model.join, model.deep(), made, hidden, pair);
  if (!bounds.normalised) {
    each_vector(width, [&](int64_t i) {
      Vec x = below_ceiling(bounds, load(made + i));
      store(made + i, x);
      store(joined + i, on_grid(bounds, x));
    });
    return;
  }
  alignas(64) float scale[kLanes];
  inverse_rms(scale, made, width);
  for (int64_t f = 0; f < width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      int64_t i = f * kLanes + v;
      store(joined + i, on_grid(bounds, load(made + i) * load(scale + v)));
    }
}

// Gradients at the last pre-activations, from those at what came out.
HAM_INLINE void unbounded(const Model& model, float* d_joined, const float* gradient, const float* joined,
                          const float* made) {
  const Bounds& bounds = model.bounds;
  int64_t width = model.shape.width;
  if (!bounds.normalised) {
    const float* before = model.join_made() > 0 ? made : joined;
    each_vector(width, [&](int64_t i) {
      store(d_joined + i, where_inside(bounds, load(before + i), load(gradient + i)));
    });
    return;
  }
  alignas(64) float scale[kLanes];
  inverse_rms(scale, made, width);
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec inverse = load(scale + v), along = Vec{};
    for (int64_t f = 0; f < width; ++f) {
      int64_t i = f * kLanes + v;
      along = multiply_add(load(gradient + i), load(made + i) * inverse, along);
    }
    along = along / static_cast<float>(width);
    for (int64_t f = 0; f < width; ++f) {
      int64_t i = f * kLanes + v;
      Vec x = load(made + i);
      store(d_joined + i, where_positive(x, inverse * (load(gradient + i) - x * inverse * along)));
    }
  }
}

// `gradient` at `joined`; d_joined and d_hidden are those at the pre-activations.
template <bool add = false>
HAM_INLINE void join_backward(const Model& model, float* d_pair, float* d_joined, float* d_hidden,
                              const float* gradient, const float* joined, const float* made,
                              const float* hidden, const float* pair) {
  if (model.bounds.highway)
    return highway_backward<add>(model, d_pair, d_joined, d_hidden, gradient, made, hidden, pair);
  unbounded(model, d_joined, gradient, joined, made);
  mlp_backward<add>(model.join, model.deep(), d_pair, d_hidden, d_joined, hidden);
}

// `times` the gradient of the pull at `joined`, in the first lanes only.
HAM_INLINE void add_pull(const Model& model, float* gradient, const float* joined, int64_t lanes, float times = 1.f) {
  if (model.pull == 0.f) return;
  alignas(64) float weight[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) weight[lane] = lane < lanes ? times * model.pull : 0.f;
  add_scaled(gradient, weight, joined, model.shape.width);
}

// The sum of h^2 / 2 over the values of a panel, in the first lanes only.
inline double half_squares(const Model& model, const float* joined, int64_t lanes) {
  double sum = 0;
  for (int v = 0; v < lanes; v += kWidth) {
    Vec squares{};
    for (int64_t f = 0; f < model.shape.width; ++f) {
      Vec value = load(joined + f * kLanes + v);
      squares += value * value;
    }
    for (int64_t lane = 0; lane < kWidth && v + lane < lanes; ++lane) sum += squares[lane];
  }
  return sum / 2;
}

inline void join_gradient(const Model& model, float* gradients, const float* d_joined,
                          const float* d_hidden, const float* hidden, const float* pair,
                          int64_t panels, const uint8_t* used = nullptr) {
  const Shape& shape = model.shape;
  if (!model.bounds.highway)
    return mlp_gradient(model.join, model.deep(), gradients, d_joined, d_hidden, hidden, pair,
                        2 * shape.width, panels, used);
  add_gradient(model.join_first, gradients, model.deep() ? d_hidden : d_joined, model.join_first.out, pair,
               2 * shape.width, panels, used);
  if (!model.deep()) return;
  for (int64_t i = 0; i < 3; ++i)
    add_gradient(model.join_rest[i], gradients, d_joined + i * panel_floats(shape.width), 3 * shape.width,
                 hidden + i * panel_floats(shape.hidden), 3 * shape.hidden, panels, used);
}

}  // namespace ham
