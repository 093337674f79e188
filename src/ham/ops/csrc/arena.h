// Pieces of one buffer.
#pragma once

#include <cstdint>

#include "vec.h"

namespace ham {

// Hands out 64-byte aligned pieces of one buffer; with a null base it only measures.
class Arena {
 public:
  explicit Arena(float* base) : base_(base) {}
  float* take(int64_t floats) {
    float* piece = base_ ? base_ + used_ : nullptr;
    used_ += (floats + 15) / 16 * 16;
    return piece;
  }
  float* panels(int64_t count, int64_t features) { return take(count * features * kLanes); }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

}  // namespace ham
