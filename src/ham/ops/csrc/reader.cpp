// Reading rows, forward and backward. Lanes are sorted by length; one that has ended reads zeros.

#include "reader.h"

namespace ham {
namespace {

// The second direction starts at an example's own last row.
auto row_at(const Chunk& chunk, int64_t direction, int64_t t) {
  return [&chunk, direction, t](int64_t lane) { return direction ? chunk.duration[lane] - 1 - t : t; };
}

// Calls function(lane, its row of [batch][directions][cells]) for the lanes that have exactly `t` steps.
template <class Function>
void each_ended(const HamReader& a, const Chunk& chunk, int64_t direction, int64_t t, const Function& function) {
  for (int64_t lane = chunk.active(t); lane < chunk.lanes && chunk.duration[lane] == t; ++lane)
    function(lane, (chunk.example[lane] * a.directions + direction) * a.cells);
}

// States beyond an example's rows.
void clear_rest(const HamReader& a, const Chunk& chunk, int64_t direction) {
  for (int64_t lane = 0; lane < chunk.lanes; ++lane)
    for (int64_t slot = chunk.duration[lane]; slot < a.slots; ++slot) {
      int64_t row = (chunk.example[lane] * a.slots + slot) * a.directions + direction;
      std::memset(a.states + row * a.cells, 0, sizeof(float) * a.cells);
    }
}

}  // namespace

void Reader::forward(int64_t task, const Tape& tape, const Forward& scratch) const {
  const Chunk& chunk = chunk_of(task);
  int64_t direction = direction_of(task), stride = a.directions * a.cells;
  Lanes lanes(chunk, scratch.spare);
  auto keep_ended = [&](int64_t t) {
    each_ended(a, chunk, direction, t, [&](int64_t lane, int64_t row) {
      for (int64_t f = 0; f < a.cells; ++f) {
        a.last_state[row + f] = tape.state_at(t)[f * kLanes + lane];
        a.last_cell[row + f] = tape.cell_at(t)[f * kLanes + lane];
      }
    });
  };
  zero_panel(tape.state_at(0), a.cells);
  zero_panel(tape.cell_at(0), a.cells);
  keep_ended(0);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    auto row = row_at(chunk, direction, t);
    lanes.active = chunk.active(t);
    lanes.gather_at(row, tape.input_at(t), a.rows, a.slots, a.features);
    tape.forward(lstm[direction], t);
    ham::scatter<false>(lanes.rows(a.states + direction * a.cells, a.slots, stride, scratch.spare.trash, row),
                        tape.state_at(t + 1), a.cells);
    keep_ended(t + 1);
  }
  clear_rest(a, chunk, direction);
}

void Reader::backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const {
  const Chunk& chunk = chunk_of(task);
  int64_t direction = direction_of(task), stride = a.directions * a.cells;
  const LstmGradient& d = scratch.lstm;
  Lanes lanes(chunk, scratch.spare);
  // A lane beyond its end has a gradient of zeros, and steps keep it one.
  zero_panel(d.state, a.cells);
  zero_panel(d.cell, a.cells);
  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    each_ended(a, chunk, direction, t + 1, [&](int64_t lane, int64_t row) {
      for (int64_t f = 0; f < a.cells; ++f) {
        if (a.d_last_state) d.state[f * kLanes + lane] = a.d_last_state[row + f];
        if (a.d_last_cell) d.cell[f * kLanes + lane] = a.d_last_cell[row + f];
      }
    });
    if (a.d_states) {
      lanes.active = chunk.active(t);
      ham::gather(scratch.d_states,
                  lanes.rows(a.d_states + direction * a.cells, a.slots, stride, scratch.spare.zeros,
                             row_at(chunk, direction, t)),
                  a.cells);
      add_panel(d.state, scratch.d_states, a.cells);
    }
    d.backward(lstm[direction], tape, t);
    if (t % kStepBlock == 0)
      d.reduce(lstm[direction], tape, t, std::min(kStepBlock, chunk.steps - t), gradients);
  }
}

}  // namespace ham
