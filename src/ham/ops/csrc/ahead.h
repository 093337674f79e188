// Asks for the next record of a tape while the present one is worked on.
#pragma once

#include <algorithm>

#include "panel.h"

namespace ham {

// Some lines at every call. Asked for all at once, a record would fill the queue of what memory is to bring, and
// every other load would wait behind it.
class Ahead {
 public:
  void add(const float* from, int64_t panels, int64_t features) {
    if (panels * features > 0) pieces_[count_++] = {from, panels * features};
    lines_ += panels * features;
  }
  void spread(int64_t calls) { share_ = (lines_ + calls - 1) / std::max<int64_t>(calls, 1); }

  HAM_INLINE void operator()() {
    for (int64_t left = share_; left > 0 && at_ < count_;) {
      Piece& piece = pieces_[at_];
      int64_t lines = std::min(left, piece.lines);
      for (int64_t line = 0; line < lines; ++line) __builtin_prefetch(piece.from + line * kLanes, 0, 2);
      piece.from += lines * kLanes;
      piece.lines -= lines;
      left -= lines;
      if (piece.lines == 0) ++at_;
    }
  }

 private:
  struct Piece {
    const float* from;
    int64_t lines;
  };
  Piece pieces_[16];
  int64_t count_ = 0, at_ = 0, lines_ = 0, share_ = 0;
};

}  // namespace ham
