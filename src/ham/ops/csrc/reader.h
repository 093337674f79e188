// A baseline's LSTM over an example's rows, in one direction or both.
#pragma once

#include "api.h"
#include "call.h"
#include "lstm.h"
#include "parameters.h"

namespace ham {

// A task is one direction of one chunk.
struct Reader {
  using Arguments = HamReader;
  using Weights = OfTensors;
  using Tape = LstmTape;

  struct Forward {
    SpareRows spare;
    LstmTape untaped;
  };
  struct Backward {
    SpareRows spare;
    LstmGradient lstm;
    float* d_states;
  };

  const HamReader& a;
  Parameters model;
  Layer lstm[2];
  std::vector<Chunk> chunks;

  explicit Reader(const HamReader& arguments) : a(arguments), chunks(chunks_of<Chunk>(a.batch, a.lengths)) {
    for (int64_t direction = 0; direction < a.directions; ++direction)
      model.lstm_layer(lstm[direction], "", kDirections[direction], a.cells, a.features);
  }

  int64_t tasks() const { return a.directions * static_cast<int64_t>(chunks.size()); }
  int64_t first_tasks() const { return 0; }
  int64_t direction_of(int64_t task) const { return task / static_cast<int64_t>(chunks.size()); }
  const Chunk& chunk_of(int64_t task) const { return chunks[task % chunks.size()]; }
  int64_t longest_row() const { return std::max(a.features, a.cells); }
  bool taped() const { return a.taped; }
  bool is_intact(int64_t, const Tape&) const { return true; }  // numbers only, no places

  Tape tape(Arena& arena, int64_t task) const {
    Tape tape;
    tape.lay_out(arena, lstm[direction_of(task)], chunk_of(task).steps, true);
    return tape;
  }
  Forward forward_scratch(Arena& arena) const {
    Forward scratch;
    scratch.spare.lay_out(arena, longest_row());
    if (!a.taped) scratch.untaped.lay_out(arena, lstm[0], 1, false);
    return scratch;
  }
  Backward backward_scratch(Arena& arena) const {
    Backward scratch;
    scratch.spare.lay_out(arena, longest_row());
    scratch.lstm.lay_out(arena, a.cells);
    scratch.d_states = arena.panels(1, a.cells);
    return scratch;
  }

  void forward(int64_t task, const Tape& tape, const Forward& scratch) const;
  void backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const;
};

}  // namespace ham
