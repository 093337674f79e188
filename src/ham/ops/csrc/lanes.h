// Which examples run side by side, for how long, and the rows of tensors that they read and write.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "arena.h"
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

// What lanes without an example read and write.
struct SpareRows {
  float *zeros = nullptr, *trash = nullptr;
  int64_t longest = 0;

  void lay_out(Arena& arena, int64_t longest_row) {
    longest = longest_row;
    zeros = arena.take(longest);
    trash = arena.take(longest);
  }
  void clear() const {
    std::memset(zeros, 0, sizeof(float) * longest);
    std::memset(trash, 0, sizeof(float) * longest);
  }
};

// The lanes at or beyond `active` have finished or do not exist: they read zeros and write where nobody looks,
// so no kernel needs a mask.
struct Lanes {
  int64_t example[kLanes] = {};
  int64_t active = 0;
  SpareRows spare;

  Lanes() = default;
  Lanes(const Chunk& chunk, const SpareRows& rows) : active(chunk.lanes), spare(rows) {
    std::copy_n(chunk.example, chunk.lanes, example);
  }

  // Rows of a tensor [batch][steps][features], every lane's at its own step.
  template <class StepOf>
  Rows rows(const float* tensor, int64_t steps, int64_t features, float* otherwise, const StepOf& step_of) const {
    Rows rows;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      rows.row[lane] = lane < active ? const_cast<float*>(tensor) + (example[lane] * steps + step_of(lane)) * features
                                     : otherwise;
    return rows;
  }
  template <class StepOf>
  void gather_at(const StepOf& step_of, float* panel, const float* tensor, int64_t steps, int64_t features) const {
    ham::gather(panel, rows(tensor, steps, features, spare.zeros, step_of), features);
  }
  template <class StepOf>
  void scatter_at(const StepOf& step_of, float* tensor, int64_t steps, int64_t features, const float* panel) const {
    ham::scatter<false>(rows(tensor, steps, features, spare.trash, step_of), panel, features);
  }

  // All lanes' at the same step.
  void gather(float* panel, const float* tensor, int64_t steps, int64_t step, int64_t features) const {
    gather_at([&](int64_t) { return step; }, panel, tensor, steps, features);
  }
  void scatter(float* tensor, int64_t steps, int64_t step, int64_t features, const float* panel) const {
    scatter_at([&](int64_t) { return step; }, tensor, steps, features, panel);
  }
};

}  // namespace ham
