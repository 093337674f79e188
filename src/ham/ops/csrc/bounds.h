// What keeps values from growing with height and time, as vectors see it.
#pragma once

#include "vec.h"

namespace ham {

// What keeps values from growing with height and time; all off is the paper's model.
struct Bounds {
  bool normalised = false;  // JOIN's output is divided by its root mean square
  bool highway = false;     // JOIN copies up what it does not change, as WRITE does
  float top = 0.f;          // ceiling of what EMBED and the plain JOIN give; 0: none
  float grid = 0.f;         // a power of two: values are multiples of 1 / grid; 0: any
  float cell = 0.f;         // the LSTM's cells lie in [-cell, cell]; 0: anywhere
};

HAM_INLINE Vec below_ceiling(const Bounds& bounds, Vec x) {
  return bounds.top > 0.f ? (x > bounds.top ? splat(bounds.top) : x) : x;
}

// ReLU's gradient below the ceiling: `made` is what came out of both.
HAM_INLINE Vec where_inside(const Bounds& bounds, Vec made, Vec gradient) {
  gradient = where_positive(made, gradient);
  return bounds.top > 0.f ? where_positive(bounds.top - made, gradient) : gradient;
}

HAM_INLINE Vec on_grid(const Bounds& bounds, Vec x) {
  if (bounds.grid <= 0.f) return x;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  return (multiply_add(x, splat(bounds.grid), splat(kRound)) - kRound) / bounds.grid;
}

}  // namespace ham
