// Writing symbols, forward and backward.

#include "decoder.h"

namespace ham {

Rows Decoder::states_of(const Lanes& lanes, const float* states, float* otherwise) const {
  return lanes.rows(states, a.directions, a.cells, otherwise, [&](int64_t) { return a.directions - 1; });
}

Rows Decoder::items_at(const Lanes& lanes, const DecoderChunk& chunk, int64_t i, const float* memory,
                       float* otherwise) const {
  Rows rows = lanes.rows(memory, a.items, a.item, otherwise, [&](int64_t) { return i; });
  for (int64_t lane = 0; lane < kLanes; ++lane)
    if (i >= chunk.length[lane]) rows.row[lane] = otherwise;
  return rows;
}

// What the first symbol starts from, and the items with their keys.
void Decoder::first_state(const Lanes& lanes, const DecoderChunk& chunk, const Tape& tape) const {
  const LstmTape& steps = tape.lstm;
  float* zeros = lanes.spare.zeros;
  gather(tape.given, states_of(lanes, a.state, zeros), a.cells);
  if (a.items) {
    float* state = steps.state_at(0);
    ham::forward<Finish::none>(start, state, tape.given);
    each_vector(a.cells, [&](int64_t i) { store(state + i, tanh(load(state + i))); });
    zero_panel(steps.cell_at(0), a.cells);
  } else {
    copy_panel(steps.state_at(0), tape.given, a.cells);
    gather(steps.cell_at(0), states_of(lanes, a.cell, zeros), a.cells);
  }
  for (int64_t i = 0; i < chunk.items; ++i) {
    gather(tape.memory_of(i), items_at(lanes, chunk, i, a.memory, zeros), a.item);
    ham::forward<Finish::none>(of_state, tape.key_of(i), tape.memory_of(i));
  }
}

// The symbol before: the right one, or its own, whose logits are in `output`.
void Decoder::feed(const Lanes& lanes, const Tape& tape, int64_t t, const float* output) const {
  float* symbol = tape.symbol_at(t);
  if (t == 0)
    zero_panel(symbol, a.bits);
  else if (a.targets)
    lanes.gather(symbol, a.targets, a.symbols, t - 1, a.bits);
  else
    each_vector(a.bits, [&](int64_t i) { store(symbol + i, load(output + i) > 0.f ? splat(1.f) : Vec{}); });
}

void Decoder::forward(int64_t task, const Tape& tape, const Forward& scratch) const {
  const DecoderChunk& chunk = chunks[task];
  const LstmTape& steps = tape.lstm;
  Lanes lanes(chunk, scratch.spare);
  first_state(lanes, chunk, tape);
  for (int64_t t = 0; t < chunk.steps; ++t) {
    lanes.active = chunk.active(t);
    feed(lanes, tape, t, scratch.output);
    if (a.items) attend(chunk, tape, t);
    steps.forward(lstm, t);
    product<Start::bias, Finish::none>(scratch.output, a.bits, output.wt, a.bits, steps.state_at(t + 1),
                                       a.cells, output.b);
    product<Start::panel, Finish::none>(scratch.output, a.bits, output.wt + a.cells * a.bits, a.bits,
                                        tape.context_at(t), a.item, scratch.output);
    lanes.scatter(a.outputs, a.symbols, t, a.bits, scratch.output);
  }
  for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
    int64_t first = chunk.duration[lane];
    std::memset(a.outputs + (chunk.example[lane] * a.symbols + first) * a.bits, 0,
                sizeof(float) * (a.symbols - first) * a.bits);
  }
}

void Decoder::backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const {
  const DecoderChunk& chunk = chunks[task];
  const LstmTape& steps = tape.lstm;
  const LstmGradient& d = scratch.lstm;
  Lanes lanes(chunk, scratch.spare);
  zero_panel(d.state, a.cells);
  zero_panel(d.cell, a.cells);
  zero_panel(scratch.memory, chunk.items * a.item);
  zero_panel(scratch.keys, chunk.items * a.width);
  zero_panel(scratch.score, a.width);
  for (int64_t t = chunk.steps - 1; t >= 0; --t) {
    float* d_output = scratch.output + t % kStepBlock * panel_floats(a.bits);
    lanes.active = chunk.active(t);
    lanes.gather(d_output, a.d_outputs, a.symbols, t, a.bits);
    product<Start::panel, Finish::none>(d.state, a.cells, output.w, output.in, d_output, a.bits, d.state);
    const float* d_gates = d.backward(lstm, steps, t);
    if (a.items) {
      product<Start::zero, Finish::none>(scratch.context, a.item, output.w + a.cells, output.in, d_output,
                                         a.bits);
      product<Start::panel, Finish::none>(scratch.context, a.item, lstm.w + a.cells + a.bits, lstm.in,
                                          d_gates, lstm.out, scratch.context);
      attend_backward(chunk, tape, t, scratch);
    }
    if (t % kStepBlock == 0) reduce(tape, t, std::min(kStepBlock, chunk.steps - t), scratch, gradients);
  }
  lanes.active = chunk.lanes;
  first_state_backward(lanes, chunk, tape, scratch, gradients);
}

void Decoder::first_state_backward(const Lanes& lanes, const DecoderChunk& chunk, const Tape& tape,
                                   const Backward& scratch, float* gradients) const {
  const LstmGradient& d = scratch.lstm;
  for (int64_t i = 0; i < chunk.items; ++i) {
    float* d_item = scratch.memory + i * panel_floats(a.item);
    add_backward(of_state, d_item, scratch.keys + i * panel_floats(a.width));
    scatter<false>(items_at(lanes, chunk, i, a.d_memory, lanes.spare.trash), d_item, a.item);
  }
  if (a.items) {
    each_vector(a.cells, [&](int64_t i) {
      Vec y = load(tape.lstm.state_at(0) + i);
      store(d.cell + i, load(d.state + i) * (1.f - y * y));
    });
    add_gradient(start, gradients, d.cell, a.cells, tape.given, a.cells, 1);
    ham::backward<Finish::none>(start, d.state, d.cell);
    add_gradient(of_state, gradients, scratch.keys, a.width, tape.memory, a.item, chunk.items);
    add_lane_sums(gradients + score.at, scratch.score, 0, a.width, 1);
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      std::memset(a.d_memory + (chunk.example[lane] * a.items + chunk.length[lane]) * a.item, 0,
                  sizeof(float) * (a.items - chunk.length[lane]) * a.item);
  }
  auto scatter_state = [&](float* states, const float* panel) {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      std::memset(states + chunk.example[lane] * a.directions * a.cells, 0,
                  sizeof(float) * (a.directions - 1) * a.cells);
    scatter<false>(states_of(lanes, states, lanes.spare.trash), panel, a.cells);
  };
  scatter_state(a.d_state, d.state);
  if (!a.items) scatter_state(a.d_cell, d.cell);
}

// Weight gradients of what runs once a symbol, over so many of them.
void Decoder::reduce(const Tape& tape, int64_t first, int64_t symbols, const Backward& scratch,
                     float* gradients) const {
  const LstmTape& steps = tape.lstm;
  int64_t bits = panel_floats(a.bits), stride = panel_floats(lstm.in);
  float* d_output = gradients + output.at;
  scratch.lstm.reduce(lstm, steps, first, symbols, gradients);
  outer(d_output, output.in, scratch.output, bits, a.bits, steps.state_at(first + 1), stride, a.cells,
        symbols);
  add_lane_sums(d_output + a.bits * output.in, scratch.output, bits, a.bits, symbols);
  if (!a.items) return;
  outer(d_output + a.cells, output.in, scratch.output, bits, a.bits, tape.context_at(first), stride,
        a.item, symbols);
  add_gradient(of_query, gradients, scratch.query, a.width, steps.state_at(first), lstm.in, symbols);
}

}  // namespace ham
