// Which examples run side by side, and for how long.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "panel.h"

namespace ham {

// Timesteps whose pre-activation gradients wait for one weight-gradient reduction.
constexpr int64_t kStepBlock = 32;

struct Chunk {
  int64_t lanes = 0;
  int64_t example[kLanes];
  int64_t duration[kLanes];  // descending: the lanes still running are a prefix
  int64_t steps = 0;

  int64_t active(int64_t t) const {
    int64_t count = 0;
    while (count < lanes && duration[count] > t) ++count;
    return count;
  }
};

// Longest first, so that a chunk's lanes end together and the last chunks are the cheap ones.
template <class Kind>
std::vector<Kind> chunks_of(int64_t batch, const int64_t* durations) {
  std::vector<int64_t> order(batch);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return durations[a] > durations[b]; });
  std::vector<Kind> chunks((batch + kLanes - 1) / kLanes);
  for (int64_t i = 0; i < batch; ++i) {
    Kind& chunk = chunks[i / kLanes];
    int64_t lane = chunk.lanes++;
    chunk.example[lane] = order[i];
    chunk.duration[lane] = durations[order[i]];
    chunk.steps = std::max(chunk.steps, chunk.duration[lane]);
  }
  return chunks;
}

// A row of memory for every lane.
struct Rows {
  float* row[kLanes];
};

HAM_INLINE void gather(float* panel, const Rows& rows, int64_t features) {
  gather(panel, const_cast<const float* const*>(rows.row), features);
}

template <bool add>
HAM_INLINE void scatter(const Rows& rows, const float* panel, int64_t features) {
  scatter<add>(rows.row, panel, features);
}

}  // namespace ham
