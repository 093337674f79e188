// An LSTM: one step, forward and backward, and the tape of a whole sequence of them.
#pragma once

#include "arena.h"
#include "lanes.h"
#include "layer.h"

namespace ham {

// An LSTM's step: `input` is [state; what it reads], `gates` receives input, forget, candidate, output.
// Cells are clipped to [-bound, bound], unless that is 0.
inline void lstm_forward(const Layer& lstm, float* new_state, float* new_cell, float* gates,
                         float* tanh_cell, const float* input, const float* cell, float bound = 0.f) {
  int64_t cells = lstm.out / 4, l = panel_floats(cells);
  forward<Finish::none>(lstm, gates, input);
  each_vector(cells, [&](int64_t at) {
    Vec i = sigmoid(load(gates + at)), f = sigmoid(load(gates + l + at));
    Vec g = tanh(load(gates + 2 * l + at)), o = sigmoid(load(gates + 3 * l + at));
    Vec c = multiply_add(f, load(cell + at), i * g);
    if (bound > 0.f) c = clamp(c, -bound, bound);
    Vec tanh_c = tanh(c);
    store(gates + at, i);
    store(gates + l + at, f);
    store(gates + 2 * l + at, g);
    store(gates + 3 * l + at, o);
    store(new_cell + at, c);
    store(tanh_cell + at, tanh_c);
    store(new_state + at, o * tanh_c);
  });
}

// Gradients at the gates' pre-activations. d_cell: of the cell after, in; of the cell before, out.
// `new_cell` is only looked at with a bound: where it was clipped, no gradient passes.
inline void lstm_backward(const Layer& lstm, float* d_gates, float* d_cell, const float* d_state,
                          const float* gates, const float* tanh_cell, const float* cell,
                          const float* new_cell = nullptr, float bound = 0.f) {
  int64_t cells = lstm.out / 4, l = panel_floats(cells);
  each_vector(cells, [&](int64_t at) {
    Vec i = load(gates + at), f = load(gates + l + at);
    Vec g = load(gates + 2 * l + at), o = load(gates + 3 * l + at);
    Vec dh = load(d_state + at), tanh_c = load(tanh_cell + at);
    Vec dc = load(d_cell + at) + dh * o * (1.f - tanh_c * tanh_c);
    if (bound > 0.f) {
      Vec c = load(new_cell + at);
      dc = where_positive(bound - c, where_positive(bound + c, dc));
    }
    store(d_gates + at, dc * g * i * (1.f - i));
    store(d_gates + l + at, dc * load(cell + at) * f * (1.f - f));
    store(d_gates + 2 * l + at, dc * i * (1.f - g * g));
    store(d_gates + 3 * l + at, dh * tanh_c * o * (1.f - o));
    store(d_cell + at, dc * f);
  });
}

// An LSTM's steps. A step reads [state | input]; its new state is the next one's, so a step's output is
// the start of its neighbour. Without a tape two places take turns.
struct LstmTape {
  bool taped;
  int64_t cells, inputs;
  float *state, *cell, *gates, *tanh_cell;

  void lay_out(Arena& arena, const Layer& lstm, int64_t steps, bool keep) {
    taped = keep;
    cells = lstm.out / 4;
    inputs = lstm.in - cells;
    if (!keep) steps = 1;
    state = arena.panels(steps + 1, cells + inputs);
    cell = arena.panels(steps + 1, cells);
    gates = arena.panels(steps, 4 * cells);
    tanh_cell = arena.panels(steps, cells);
  }
  float* state_at(int64_t t) const { return state + (taped ? t : t % 2) * panel_floats(cells + inputs); }
  float* input_at(int64_t t) const { return state_at(t) + panel_floats(cells); }
  float* cell_at(int64_t t) const { return cell + (taped ? t : t % 2) * panel_floats(cells); }
  float* gates_at(int64_t t) const { return gates + (taped ? t : 0) * panel_floats(4 * cells); }
  float* tanh_cell_at(int64_t t) const { return tanh_cell + (taped ? t : 0) * panel_floats(cells); }

  void forward(const Layer& lstm, int64_t t) const {
    lstm_forward(lstm, state_at(t + 1), cell_at(t + 1), gates_at(t), tanh_cell_at(t), state_at(t),
                 cell_at(t));
  }
};

// What goes back through an LSTM's steps, and the gates' gradients that wait for their reduction.
struct LstmGradient {
  float *state, *cell, *gates;

  void lay_out(Arena& arena, int64_t cells) {
    state = arena.panels(1, cells);
    cell = arena.panels(1, cells);
    gates = arena.panels(kStepBlock, 4 * cells);
  }
  // From the gradient of the new state and cell to that of the old ones.
  const float* backward(const Layer& lstm, const LstmTape& tape, int64_t t) const {
    float* d_gates = gates + t % kStepBlock * panel_floats(lstm.out);
    lstm_backward(lstm, d_gates, cell, state, tape.gates_at(t), tape.tanh_cell_at(t), tape.cell_at(t));
    product<Start::zero, Finish::none>(state, tape.cells, lstm.w, lstm.in, d_gates, lstm.out);
    return d_gates;
  }
  void reduce(const Layer& lstm, const LstmTape& tape, int64_t first, int64_t steps, float* gradients) const {
    add_gradient(lstm, gradients, gates, lstm.out, tape.state_at(first), lstm.in, steps);
  }
};

}  // namespace ham
