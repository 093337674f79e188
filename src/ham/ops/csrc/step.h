// One access by a controller of the user's own: attend, or update.
#pragma once

#include <cstdint>
#include <tuple>

namespace ham {

enum class Kind { attend, update };

// Tensors are contiguous, row-major, float32 unless said otherwise; example first.
struct Access {
  Kind kind;
  int64_t count, leaves, width, query, hidden, depth, threads;
  int64_t join = 0;                          // update: as in HamEpisode, and so are the next two
  float top = 0.f, grid = 0.f;
  const int64_t* examples = nullptr;         // which `count` examples take part, or null: all
  const float* weights = nullptr;            // packed: SEARCH to attend; candidate, gate and JOIN to update
  const float* transposed = nullptr;         // forward alone reads them
  float* tree = nullptr;                     // [2 leaves][width]; attend only reads it
  const float* queries = nullptr;            // [query]
  const float* uniforms = nullptr;           // attend: [levels]
  const int64_t* to_leaf = nullptr;          // update
  int64_t* leaf = nullptr;                   // attend: where it came to
  float* turn_logits = nullptr;              // [levels]
  bool* turns = nullptr;                     // [levels]
  float* log_probs = nullptr;                // [levels]: of the turns taken
  float* value = nullptr;                    // [width]
  float* tape = nullptr;                     // null: no backward will come
  float* scratch = nullptr;
  // Backward: d_tree is changed in place; any of the next three may be null.
  float* d_tree = nullptr;
  const float* d_turn_logits = nullptr;
  const float* d_log_probs = nullptr;
  const float* d_value = nullptr;
  float* d_queries = nullptr;
  float* d_weights = nullptr;
  bool adds_weights = false;                 // to what d_weights holds

  // Whether only addresses differ.
  bool is_like(const Access& other) const {
    auto of = [](const Access& a) {
      return std::tie(a.kind, a.count, a.leaves, a.width, a.query, a.hidden, a.depth, a.threads, a.join, a.top, a.grid);
    };
    return of(*this) == of(other);
  }
  int64_t levels() const {
    int64_t levels = 0;
    while ((int64_t{1} << levels) < leaves) ++levels;
    return levels;
  }
};

// In floats: a chunk's tape and both kinds of scratch, which begin at a multiple of 64 bytes; packed weights.
struct AccessSizes {
  int64_t lanes, tape, forward, backward, weights, transposed;
};

AccessSizes sizes_of(const Access&);
// The networks' tensors, one after the other, into the engine's layout; and gradients back out of it.
void pack(const Access&, const float* const* parameters, float* weights, float* transposed);
void unpack(const Access&, const float* d_weights, float* const* d_parameters);
void run_forward(const Access&);
// False, and nothing done, if the tape is not one that forward wrote.
bool run_backward(const Access&);

// Likewise, for at most eight examples: the same numbers, and half the work and memory.
namespace of_eight {
void run_forward(const Access&);
bool run_backward(const Access&);
}  // namespace of_eight

}  // namespace ham
