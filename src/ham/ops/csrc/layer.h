// One linear layer, and MLPs of one or two of them: forward, backward and weight gradients, on panels.
#pragma once

#include "panel.h"

namespace ham {

// y = w x + b. `w` is [out][in] (what backward broadcasts), `wt` its transpose (forward's).
// `w` and `b` lie at `at` and `at + out * in` of the packed parameters and of a gradient.
struct Layer {
  int64_t in = 0, out = 0, at = 0;
  float *w = nullptr, *b = nullptr, *wt = nullptr;

  int64_t floats() const { return out * in + out; }
};

template <Finish finish>
HAM_INLINE void forward(const Layer& layer, float* y, const float* x) {
  product<Start::bias, finish>(y, layer.out, layer.wt, layer.out, x, layer.in, layer.b);
}

template <Finish finish>
HAM_INLINE void backward(const Layer& layer, float* dx, const float* dy, const float* gate = nullptr) {
  product<Start::zero, finish>(dx, layer.in, layer.w, layer.in, dy, layer.out, nullptr, gate);
}

HAM_INLINE void add_backward(const Layer& layer, float* dx, const float* dy) {
  product<Start::panel, Finish::none>(dx, layer.in, layer.w, layer.in, dy, layer.out, dx);
}

// dy and x: `panels` panels, their strides in features, all of them or those that are `used`.
inline void add_gradient(const Layer& layer, float* gradients, const float* dy, int64_t dy_features,
                         const float* x, int64_t x_features, int64_t panels, const uint8_t* used = nullptr) {
  float* dw = gradients + layer.at;
  if (layer.out == 1)  // the wide side must be the rows of the tile
    outer(dw, 1, x, panel_floats(x_features), layer.in, dy, panel_floats(dy_features), 1, panels, used);
  else
    outer(dw, layer.in, dy, panel_floats(dy_features), layer.out, x, panel_floats(x_features),
          layer.in, panels, used);
  add_lane_sums(dw + layer.out * layer.in, dy, panel_floats(dy_features), layer.out, panels, used);
}

// A depth-2 MLP without its output's activation, or a depth-1 one (no hidden panel then).
template <Finish finish>
HAM_INLINE void mlp_forward(const Layer (&mlp)[2], bool deep, float* y, float* hidden, const float* x) {
  if (deep) {
    forward<Finish::relu>(mlp[0], hidden, x);
    forward<finish>(mlp[1], y, hidden);
  } else {
    forward<finish>(mlp[0], y, x);
  }
}

// dy is the gradient at the pre-activation of the output; d_hidden at that of the hidden layer.
template <bool add = false>
HAM_INLINE void mlp_backward(const Layer (&mlp)[2], bool deep, float* dx, float* d_hidden,
                             const float* dy, const float* hidden) {
  if (deep) backward<Finish::where_positive>(mlp[1], d_hidden, dy, hidden);
  const float* d_first = deep ? d_hidden : dy;
  if (add)
    add_backward(mlp[0], dx, d_first);
  else
    backward<Finish::none>(mlp[0], dx, d_first);
}

inline void mlp_gradient(const Layer (&mlp)[2], bool deep, float* gradients, const float* dy,
                         const float* d_hidden, const float* hidden, const float* x,
                         int64_t x_features, int64_t panels, const uint8_t* used = nullptr) {
  if (deep) {
    add_gradient(mlp[1], gradients, dy, mlp[1].out, hidden, mlp[1].in, panels, used);
    add_gradient(mlp[0], gradients, d_hidden, mlp[0].out, x, x_features, panels, used);
  } else {
    add_gradient(mlp[0], gradients, dy, mlp[0].out, x, x_features, panels, used);
  }
}

}  // namespace ham
