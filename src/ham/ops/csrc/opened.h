// Which nodes of a tree are open: only their children's rows hold anything. An episode comes by few nodes of a tall
// tree, and the others need neither be filled nor cleared nor summed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "vec.h"

namespace ham {

// Node 0 stands above the root, so that rows come in pairs of children everywhere.
class OpenNodes {
 public:
  OpenNodes() = default;  // of a tree that is not kept track of
  OpenNodes(float* memory, int64_t leaves) : bits_(reinterpret_cast<uint64_t*>(memory)), words_(words(leaves)) {}

  static int64_t floats(int64_t leaves) { return 2 * words(leaves); }

  bool tracked() const { return bits_ != nullptr; }
  void close_all() const { std::fill_n(bits_, words_, uint64_t{0}); }
  HAM_INLINE bool has(int64_t node) const { return bits_[node / 64] >> (node % 64) & 1; }
  // Whether it was closed.
  HAM_INLINE bool open(int64_t node) const {
    uint64_t bit = uint64_t{1} << (node % 64), before = bits_[node / 64];
    bits_[node / 64] = before | bit;
    return !(before & bit);
  }
  template <class Function>
  void each(const Function& function) const {
    for (int64_t word = 0; word < words_; ++word)
      for (uint64_t left = bits_[word]; left; left &= left - 1) function(word * 64 + __builtin_ctzll(left));
  }

 private:
  static int64_t words(int64_t leaves) { return (leaves + 63) / 64; }

  uint64_t* bits_ = nullptr;
  int64_t words_ = 0;
};

}  // namespace ham
