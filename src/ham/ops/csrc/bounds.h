// What keeps values from growing with height and time, as vectors see it.
#pragma once

#include "vec.h"

namespace ham {

// What keeps values from growing with height and time; all off is the paper's model.
struct Bounds {
  bool normalised = false;  // JOIN's output is divided by its root mean square
  bool highway = false;     // JOIN copies up what it does not change, as WRITE does
  bool switched = false;    // a highway JOIN copies from one child or from the other, and never blends them
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

// What a highway JOIN copies up: `side` is the left child's share.
HAM_INLINE Vec carried(const Bounds& bounds, Vec side, Vec left, Vec right) {
  if (bounds.switched) return side > 0.5f ? left : right;
  return multiply_add(side, left, (1.f - side) * right);
}

// The left child's share of the gradient at what was carried.
HAM_INLINE Vec left_share(const Bounds& bounds, Vec side) {
  if (bounds.switched) return side > 0.5f ? splat(1.f) : Vec{};
  return side;
}

HAM_INLINE Vec on_grid(const Bounds& bounds, Vec x) {
  if (bounds.grid <= 0.f) return x;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  return (multiply_add(x, splat(bounds.grid), splat(kRound)) - kRound) / bounds.grid;
}

}  // namespace ham
