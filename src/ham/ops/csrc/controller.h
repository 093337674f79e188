// What drives an episode: the LSTM, or the rows of the input; its outputs; and the backward of both.
#pragma once

#include "episode.h"
#include "lstm.h"

namespace ham {

// What the controller leaves for backward; without a tape, room for one timestep.
struct ControllerTape {
  bool taped;
  Shape shape;
  float *state, *cell, *gates, *tanh_cell, *output_hidden;

  void lay_out(Arena& arena, const Shape& of, int64_t most, int64_t every, bool keep) {
    taped = keep;
    shape = of;
    int64_t steps = keep ? most : 1, l = shape.has_lstm ? shape.query : 0;
    state = arena.panels(steps, state_width());
    cell = arena.panels(steps + 1, l);
    gates = arena.panels(steps, 4 * l);
    tanh_cell = arena.panels(steps, l);
    output_hidden = arena.panels(keep ? steps / every : 1, shape.has_lstm ? 0 : shape.hidden);
  }

  // query | value | new query: adjacent, so the LSTM reads [query; value] and WRITE
  // [value; new query] as one panel each.
  int64_t state_width() const { return 2 * shape.query + shape.width; }
  int64_t at(int64_t t) const { return taped ? t : 0; }
  float* query(int64_t t) const { return state + at(t) * panel_floats(state_width()); }
  float* value(int64_t t) const { return query(t) + panel_floats(shape.query); }
  float* new_query(int64_t t) const { return value(t) + panel_floats(shape.width); }
  float* cell_before(int64_t t) const { return cell + at(t) * panel_floats(shape.query); }
  float* gates_at(int64_t t) const { return gates + at(t) * panel_floats(4 * shape.query); }
  float* tanh_cell_at(int64_t t) const { return tanh_cell + at(t) * panel_floats(shape.query); }
  float* output_hidden_at(int64_t symbol) const {
    return output_hidden + at(symbol) * panel_floats(shape.hidden);
  }
};

// From the states given, or from zeros.
inline void start_controller(const HamEpisode& e, const Lanes& lanes, const ControllerTape& tape) {
  if (!tape.shape.has_lstm) return;
  if (e.first_cell == nullptr) {
    zero_panel(tape.query(0), tape.shape.query);
    zero_panel(tape.cell_before(0), tape.shape.query);
    return;
  }
  lanes.gather(tape.query(0), e.first_state, 1, 0, tape.shape.query);
  lanes.gather(tape.cell_before(0), e.first_cell, 1, 0, tape.shape.query);
}

// The query of timestep t.
inline void take_query(const HamEpisode& e, const Lanes& lanes, const ControllerTape& tape, int64_t t) {
  const Shape& shape = tape.shape;
  float *query = tape.query(t), *new_query = tape.new_query(t);
  if (!shape.has_lstm) {
    lanes.gather(query, e.inputs, e.timesteps, t, shape.query);
    copy_panel(new_query, query, shape.query);
  } else if (t > 0) {
    copy_panel(query, tape.new_query(t - 1), shape.query);
  }
  if (e.queries) lanes.scatter(e.queries, e.timesteps, t, shape.query, query);
}

// What the value that was read does to the controller, and the output, if one is due.
inline void controller_forward(const HamEpisode& e, const Model& model, const Lanes& lanes,
                               const ControllerTape& tape, int64_t t, float* output) {
  const Shape& shape = tape.shape;
  float* new_query = tape.new_query(t);
  if (shape.has_lstm)
    lstm_forward(model.lstm, new_query, tape.cell_before(t + 1), tape.gates_at(t), tape.tanh_cell_at(t),
                 tape.query(t), tape.cell_before(t), model.bounds.cell);
  if ((t + 1) % e.every != 0) return;
  int64_t symbol = (t + 1) / e.every - 1;
  if (shape.has_lstm)
    forward<Finish::none>(model.output[0], output, new_query);
  else
    mlp_forward<Finish::none>(model.output, model.deep(), output, tape.output_hidden_at(symbol),
                              tape.value(t));
  lanes.scatter(e.output_logits, e.timesteps / e.every, symbol, shape.outputs, output);
}

struct ControllerScratch {
  float *d_state, *d_query, *d_cell, *d_value, *d_read;
  // Rings of gradients at pre-activations: per timestep, per symbol.
  float *gates, *output, *output_hidden;

  void lay_out(Arena& arena, const Shape& shape) {
    int64_t d = shape.width, q = shape.query;
    d_state = arena.panels(1, q + d);
    d_query = arena.panels(1, q);
    d_cell = arena.panels(1, q);
    d_value = arena.panels(1, d);
    d_read = arena.panels(1, d);
    gates = arena.panels(kStepBlock, shape.has_lstm ? 4 * q : 0);
    output = arena.panels(kStepBlock, shape.outputs);
    output_hidden = arena.panels(kStepBlock, shape.has_lstm ? 0 : shape.hidden);
  }
  void start(const Shape& shape) const {
    zero_panel(d_query, shape.query);
    zero_panel(d_cell, shape.query);
  }
};

// d_query: of the new query, in; of the query, out. d_value: the read's share is added to it.
inline void controller_backward(const HamEpisode& e, const Model& model, const Lanes& lanes,
                                const ControllerTape& tape, const ControllerScratch& scratch, int64_t t) {
  const Shape& shape = model.shape;
  int64_t width = shape.width, step_at = t % kStepBlock;
  if ((t + 1) % e.every == 0) {
    int64_t symbol = (t + 1) / e.every - 1;
    int64_t at = symbol - (t - step_at) / e.every;
    float* d_output = scratch.output + at * panel_floats(shape.outputs);
    if (e.d_output_logits)
      lanes.gather(d_output, e.d_output_logits, e.timesteps / e.every, symbol, shape.outputs);
    else
      zero_panel(d_output, shape.outputs);
    if (shape.has_lstm) {
      add_backward(model.output[0], scratch.d_query, d_output);
    } else {
      float* d_hidden = scratch.output_hidden + at * panel_floats(shape.hidden);
      mlp_backward(model.output, model.deep(), scratch.d_read, d_hidden, d_output,
                   tape.output_hidden_at(symbol));
      add_panel(scratch.d_value, scratch.d_read, width);
    }
  }
  if (!shape.has_lstm) return;
  float* d_gates = scratch.gates + step_at * panel_floats(4 * shape.query);
  lstm_backward(model.lstm, d_gates, scratch.d_cell, scratch.d_query, tape.gates_at(t),
                tape.tanh_cell_at(t), tape.cell_before(t), tape.cell_before(t + 1), model.bounds.cell);
  backward<Finish::none>(model.lstm, scratch.d_state, d_gates);
  copy_panel(scratch.d_query, scratch.d_state, shape.query);
  add_panel(scratch.d_value, scratch.d_state + panel_floats(shape.query), width);
}

// The controller's weight gradients over the timesteps [first, end), which start a ring.
inline void controller_gradient(const HamEpisode& e, const Model& model, const ControllerTape& tape,
                                const ControllerScratch& scratch, int64_t first, int64_t end,
                                float* gradients) {
  const Shape& shape = model.shape;
  int64_t stride = tape.state_width();
  if (shape.has_lstm)
    add_gradient(model.lstm, gradients, scratch.gates, 4 * shape.query, tape.query(first), stride,
                 end - first);
  int64_t symbol = first / e.every, symbols = end / e.every - symbol;
  if (symbols <= 0) return;
  int64_t t = (symbol + 1) * e.every - 1;
  if (shape.has_lstm)
    add_gradient(model.output[0], gradients, scratch.output, shape.outputs, tape.new_query(t),
                 stride * e.every, symbols);
  else
    mlp_gradient(model.output, model.deep(), gradients, scratch.output, scratch.output_hidden,
                 tape.output_hidden_at(symbol), tape.value(t), stride * e.every, symbols);
}

}  // namespace ham
