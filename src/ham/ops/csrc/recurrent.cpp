// The baselines' LSTMs, forward and backward: one that reads rows, and one that writes symbols, which may
// look at what was read. As in an episode, chunks of lanes are tasks, and a tape waits for backward.

#include <cmath>
#include <limits>

#include "api.h"
#include "lanes.h"
#include "layers.h"
#include "threads.h"

namespace ham {
namespace {

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

// Rows that lanes without an example read and write.
struct SpareRows {
  float *zeros, *trash;

  void lay_out(Arena& arena, int64_t longest) {
    zeros = arena.take(longest);
    trash = arena.take(longest);
  }
  void start(int64_t longest) const {
    std::memset(zeros, 0, sizeof(float) * longest);
    std::memset(trash, 0, sizeof(float) * longest);
  }
};

// Rows of a tensor [batch][steps][features] for the first `active` lanes, each at its own step.
template <class StepOf>
Rows rows_of(const Chunk& chunk, int64_t active, const float* tensor, int64_t steps, int64_t features,
             float* otherwise, const StepOf& step_of) {
  Rows rows;
  for (int64_t lane = 0; lane < kLanes; ++lane)
    rows.row[lane] = lane < active ? const_cast<float*>(tensor) +
                                         (chunk.example[lane] * steps + step_of(lane)) * features
                                   : otherwise;
  return rows;
}
Rows rows_of(const Chunk& chunk, int64_t active, const float* tensor, int64_t steps, int64_t features,
             float* otherwise, int64_t step = 0) {
  return rows_of(chunk, active, tensor, steps, features, otherwise, [&](int64_t) { return step; });
}

// The call of one `Kind`: where each task's tape and each worker's scratch is, and the sum of gradients.
template <class Kind>
class Call {
 public:
  explicit Call(const typename Kind::Arguments& arguments) : kind_(arguments) {
    Arena forward(nullptr), backward(nullptr);
    typename Kind::Forward{}.lay_out(forward, kind_);
    typename Kind::Backward{}.lay_out(backward, kind_);
    forward_floats_ = forward.used();
    backward_floats_ = backward.used();
    for (int64_t task = 0; task < kind_.tasks(); ++task) {
      starts_.push_back(tape_floats_);
      if (!kind_.a.taped) continue;
      Arena tape(nullptr);
      kind_.lay_out(tape, task);
      tape_floats_ += tape.used();
    }
    workers_ = std::max<int64_t>(1, std::min(kind_.a.threads, kind_.tasks()));
  }

  void sizes(int64_t* sizes) const {
    sizes[0] = tape_floats_;
    sizes[1] = kind_.model.packed_floats + workers_ * forward_floats_;
    sizes[2] = kind_.model.packed_floats + workers_ * backward_floats_ + chunks() * gradient_floats();
  }

  void forward() {
    kind_.model.pack(kind_.a.parameters, kind_.a.scratch);
    Team(workers_).run(kind_.tasks(), [&](int64_t task, int64_t worker) {
      auto scratch = scratch_of<typename Kind::Forward>(worker, forward_floats_);
      kind_.forward(task, kind_.a.taped ? tape_of(task) : scratch.untaped, scratch);
    });
  }

  void backward() {
    kind_.model.pack(kind_.a.parameters, kind_.a.scratch);
    int64_t floats = gradient_floats();
    float* gradients = kind_.a.scratch + kind_.model.packed_floats + workers_ * backward_floats_;
    std::memset(gradients, 0, sizeof(float) * chunks() * floats);
    Team(workers_).run(kind_.tasks(), [&](int64_t task, int64_t worker) {
      auto scratch = scratch_of<typename Kind::Backward>(worker, backward_floats_);
      kind_.backward(task, tape_of(task), scratch, gradients + task % chunks() * floats);
    });
    // In the order of the chunks, whoever computed them: the sum does not depend on threads.
    for (int64_t i = 1; i < chunks(); ++i)
      for (int64_t j = 0; j < floats; ++j) gradients[j] += gradients[i * floats + j];
    kind_.model.unpack(gradients, kind_.a.d_parameters);
  }

 private:
  int64_t chunks() const { return static_cast<int64_t>(kind_.chunks.size()); }
  int64_t gradient_floats() const { return (kind_.model.gradient_floats + 15) / 16 * 16; }
  typename Kind::Tape tape_of(int64_t task) const {
    Arena arena(kind_.a.tape + starts_[task]);
    return kind_.lay_out(arena, task);
  }
  template <class Scratch>
  Scratch scratch_of(int64_t worker, int64_t floats) const {
    Arena arena(kind_.a.scratch + kind_.model.packed_floats + worker * floats);
    Scratch scratch;
    scratch.lay_out(arena, kind_);
    scratch.spare.start(kind_.longest_row());
    return scratch;
  }

  Kind kind_;
  std::vector<int64_t> starts_;
  int64_t tape_floats_ = 0, forward_floats_ = 0, backward_floats_ = 0, workers_ = 1;
};

// A task is one direction of one chunk.
struct Reader {
  using Arguments = HamReader;
  using Tape = LstmTape;

  const HamReader& a;
  Model model{Shape{}};
  Layer lstm[2];
  std::vector<Chunk> chunks;

  explicit Reader(const HamReader& arguments) : a(arguments), chunks(chunks_of<Chunk>(a.batch, a.lengths)) {
    for (int64_t direction = 0; direction < a.directions; ++direction)
      model.lstm_layer(lstm[direction], a.cells, a.features);
  }

  struct Forward {
    SpareRows spare;
    LstmTape untaped;

    void lay_out(Arena& arena, const Reader& reader) {
      spare.lay_out(arena, reader.longest_row());
      if (!reader.a.taped) untaped.lay_out(arena, reader.lstm[0], 1, false);
    }
  };

  struct Backward {
    SpareRows spare;
    LstmGradient lstm;
    float* d_states;

    void lay_out(Arena& arena, const Reader& reader) {
      spare.lay_out(arena, reader.longest_row());
      lstm.lay_out(arena, reader.a.cells);
      d_states = arena.panels(1, reader.a.cells);
    }
  };

  int64_t tasks() const { return a.directions * static_cast<int64_t>(chunks.size()); }
  int64_t direction_of(int64_t task) const { return task / static_cast<int64_t>(chunks.size()); }
  const Chunk& chunk_of(int64_t task) const { return chunks[task % chunks.size()]; }
  int64_t longest_row() const { return std::max(a.features, a.cells); }

  LstmTape lay_out(Arena& arena, int64_t task) const {
    LstmTape tape;
    tape.lay_out(arena, lstm[direction_of(task)], chunk_of(task).steps, true);
    return tape;
  }

  // The second direction starts at an example's own last row.
  static int64_t row_of(const Chunk& chunk, int64_t direction, int64_t lane, int64_t t) {
    return direction ? chunk.duration[lane] - 1 - t : t;
  }
  Rows states_at(const Chunk& chunk, int64_t direction, int64_t t, const float* tensor,
                 float* otherwise) const {
    int64_t features = a.directions * a.cells;
    return rows_of(chunk, chunk.active(t), tensor + direction * a.cells, a.slots, features, otherwise,
                   [&](int64_t lane) { return row_of(chunk, direction, lane, t); });
  }
  // Calls function(lane, its row of [batch][directions][cells]) for the lanes that have exactly `t` steps.
  template <class Function>
  void each_ended(const Chunk& chunk, int64_t direction, int64_t t, const Function& function) const {
    for (int64_t lane = chunk.active(t); lane < chunk.lanes && chunk.duration[lane] == t; ++lane)
      function(lane, (chunk.example[lane] * a.directions + direction) * a.cells);
  }

  void forward(int64_t task, const LstmTape& tape, const Forward& scratch) const {
    const Chunk& chunk = chunk_of(task);
    int64_t direction = direction_of(task);
    auto keep_ended = [&](int64_t t) {
      each_ended(chunk, direction, t, [&](int64_t lane, int64_t row) {
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
      gather(tape.input_at(t),
             rows_of(chunk, chunk.active(t), a.rows, a.slots, a.features, scratch.spare.zeros,
                     [&](int64_t lane) { return row_of(chunk, direction, lane, t); }),
             a.features);
      tape.forward(lstm[direction], t);
      scatter<false>(states_at(chunk, direction, t, a.states, scratch.spare.trash), tape.state_at(t + 1),
                     a.cells);
      keep_ended(t + 1);
    }
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      for (int64_t slot = chunk.duration[lane]; slot < a.slots; ++slot) {
        int64_t row = (chunk.example[lane] * a.slots + slot) * a.directions + direction;
        std::memset(a.states + row * a.cells, 0, sizeof(float) * a.cells);
      }
  }

  void backward(int64_t task, const LstmTape& tape, const Backward& scratch, float* gradients) const {
    const Chunk& chunk = chunk_of(task);
    int64_t direction = direction_of(task);
    const LstmGradient& d = scratch.lstm;
    // A lane beyond its end has a gradient of zeros, and steps keep it one.
    zero_panel(d.state, a.cells);
    zero_panel(d.cell, a.cells);
    for (int64_t t = chunk.steps - 1; t >= 0; --t) {
      each_ended(chunk, direction, t + 1, [&](int64_t lane, int64_t row) {
        for (int64_t f = 0; f < a.cells; ++f) {
          if (a.d_last_state) d.state[f * kLanes + lane] = a.d_last_state[row + f];
          if (a.d_last_cell) d.cell[f * kLanes + lane] = a.d_last_cell[row + f];
        }
      });
      if (a.d_states) {
        gather(scratch.d_states, states_at(chunk, direction, t, a.d_states, scratch.spare.zeros), a.cells);
        add_panel(d.state, scratch.d_states, a.cells);
      }
      d.backward(lstm[direction], tape, t);
      if (t % kStepBlock == 0)
        d.reduce(lstm[direction], tape, t, std::min(kStepBlock, chunk.steps - t), gradients);
    }
  }
};

// Lane by lane, for all features: to[f] += weight * from[f].
HAM_INLINE void add_scaled(float* to, const float* weight, const float* from, int64_t features) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec scale = load(weight + v);
    for (int64_t f = v; f < features * kLanes; f += kLanes)
      store(to + f, multiply_add(scale, load(from + f), load(to + f)));
  }
}

// Lane by lane, the sum over features of a[f] * b[f]; two partial sums hide the latency.
HAM_INLINE void lane_dot(float* y, const float* a, const float* b, int64_t features) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec even{}, odd{};
    int64_t at = v, end = v + panel_floats(features);
    for (; at + kLanes < end; at += 2 * kLanes) {
      even = multiply_add(load(a + at), load(b + at), even);
      odd = multiply_add(load(a + at + kLanes), load(b + at + kLanes), odd);
    }
    if (at < end) even = multiply_add(load(a + at), load(b + at), even);
    store(y + v, even + odd);
  }
}

struct DecoderChunk : Chunk {
  int64_t length[kLanes];
  int64_t items = 0;
};

// A task is a chunk.
struct Decoder {
  using Arguments = HamDecoder;

  const HamDecoder& a;
  Model model{Shape{}};
  Layer of_query, of_item, score, start, lstm, output;
  std::vector<DecoderChunk> chunks;

  explicit Decoder(const HamDecoder& arguments)
      : a(arguments), chunks(chunks_of<DecoderChunk>(a.batch, a.asked)) {
    if (a.items) {
      model.layer(of_query, a.cells, a.width);
      model.linear(of_query, 0, a.width);
      model.layer(of_item, a.item, a.width);
      model.weight(of_item, 0, a.width, 0, a.item);
      model.layer(score, a.width, 1);
      model.weight(score, 0, 1, 0, a.width);
      model.layer(start, a.cells, a.cells);
      model.linear(start, 0, a.cells);
    }
    model.lstm_layer(lstm, a.cells, a.bits + a.item);
    model.layer(output, a.cells + a.item, a.bits);
    model.linear(output, 0, a.bits);
    for (DecoderChunk& chunk : chunks)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        // A lane without an example has an item of zeros: no mean is over nothing.
        chunk.length[lane] = !a.items ? 0 : lane < chunk.lanes ? a.lengths[chunk.example[lane]] : 1;
        chunk.items = std::max(chunk.items, chunk.length[lane]);
      }
  }

  struct Tape {
    LstmTape lstm;  // its input is [symbol before | context]
    int64_t item, width, items;
    float *given, *memory, *keys, *query, *weights;

    void lay_out(Arena& arena, const Decoder& decoder, int64_t steps, int64_t most_items, bool keep) {
      item = decoder.a.item;
      width = decoder.a.width;
      items = most_items;
      lstm.lay_out(arena, decoder.lstm, steps, keep);
      given = arena.panels(1, lstm.cells);
      memory = arena.panels(items, item);
      keys = arena.panels(items, width);
      query = arena.panels(items ? (keep ? steps : 1) : 0, width);
      weights = arena.panels(keep ? steps : 1, items);
    }
    float* symbol_at(int64_t t) const { return lstm.input_at(t); }
    float* context_at(int64_t t) const { return lstm.input_at(t) + panel_floats(lstm.inputs - item); }
    float* memory_of(int64_t i) const { return memory + i * panel_floats(item); }
    float* key_of(int64_t i) const { return keys + i * panel_floats(width); }
    float* query_at(int64_t t) const { return query + (lstm.taped ? t : 0) * panel_floats(width); }
    float* weights_at(int64_t t) const { return weights + (lstm.taped ? t : 0) * panel_floats(items); }
  };

  struct Forward {
    SpareRows spare;
    Tape untaped;
    float* output;

    void lay_out(Arena& arena, const Decoder& decoder) {
      spare.lay_out(arena, decoder.longest_row());
      output = arena.panels(1, decoder.a.bits);
      if (!decoder.a.taped) untaped.lay_out(arena, decoder, 1, decoder.a.items, false);
    }
  };

  struct Backward {
    SpareRows spare;
    LstmGradient lstm;
    float *context, *mean, *weights, *score, *memory, *keys;
    float *output, *query;  // rings, as the gates

    void lay_out(Arena& arena, const Decoder& decoder) {
      const HamDecoder& a = decoder.a;
      spare.lay_out(arena, decoder.longest_row());
      lstm.lay_out(arena, a.cells);
      context = arena.panels(1, a.item);
      mean = arena.panels(1, 1);
      weights = arena.panels(1, 1);
      score = arena.panels(1, a.width);
      memory = arena.panels(a.items, a.item);
      keys = arena.panels(a.items, a.width);
      output = arena.panels(kStepBlock, a.bits);
      query = arena.panels(kStepBlock, a.items ? a.width : 0);
    }
  };

  int64_t tasks() const { return static_cast<int64_t>(chunks.size()); }
  int64_t longest_row() const { return std::max({a.bits, a.cells, a.item}); }

  Tape lay_out(Arena& arena, int64_t task) const {
    Tape tape;
    tape.lay_out(arena, *this, chunks[task].steps, chunks[task].items, true);
    return tape;
  }

  Rows states_of(const Chunk& chunk, const float* states, float* otherwise) const {
    return rows_of(chunk, chunk.lanes, states, a.directions, a.cells, otherwise, a.directions - 1);
  }
  void scatter_state(const Chunk& chunk, float* states, const float* panel, const Backward& scratch) const {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      std::memset(states + chunk.example[lane] * a.directions * a.cells, 0,
                  sizeof(float) * (a.directions - 1) * a.cells);
    scatter<false>(states_of(chunk, states, scratch.spare.trash), panel, a.cells);
  }
  Rows items_at(const DecoderChunk& chunk, int64_t i, const float* memory, float* otherwise) const {
    Rows rows = rows_of(chunk, chunk.lanes, memory, a.items, a.item, otherwise, i);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      if (i >= chunk.length[lane]) rows.row[lane] = otherwise;
    return rows;
  }

  void forward(int64_t task, const Tape& tape, const Forward& scratch) const {
    const DecoderChunk& chunk = chunks[task];
    const LstmTape& steps = tape.lstm;
    const SpareRows& spare = scratch.spare;
    gather(tape.given, states_of(chunk, a.state, spare.zeros), a.cells);
    if (a.items) {
      float* state = steps.state_at(0);
      ham::forward<Finish::none>(start, state, tape.given);
      each_vector(a.cells, [&](int64_t i) { store(state + i, tanh(load(state + i))); });
      zero_panel(steps.cell_at(0), a.cells);
    } else {
      copy_panel(steps.state_at(0), tape.given, a.cells);
      gather(steps.cell_at(0), states_of(chunk, a.cell, spare.zeros), a.cells);
    }
    for (int64_t i = 0; i < chunk.items; ++i) {
      gather(tape.memory_of(i), items_at(chunk, i, a.memory, spare.zeros), a.item);
      ham::forward<Finish::none>(of_item, tape.key_of(i), tape.memory_of(i));
    }
    for (int64_t t = 0; t < chunk.steps; ++t) {
      int64_t active = chunk.active(t);
      if (t == 0)
        zero_panel(tape.symbol_at(0), a.bits);
      else if (a.targets)
        gather(tape.symbol_at(t),
               rows_of(chunk, active, a.targets, a.symbols, a.bits, spare.zeros, t - 1), a.bits);
      else
        each_vector(a.bits, [&](int64_t i) {
          store(tape.symbol_at(t) + i, load(scratch.output + i) > 0.f ? splat(1.f) : Vec{});
        });
      if (a.items) attend(chunk, tape, t);
      steps.forward(lstm, t);
      product<Start::bias, Finish::none>(scratch.output, a.bits, output.wt, a.bits, steps.state_at(t + 1),
                                         a.cells, output.b);
      product<Start::panel, Finish::none>(scratch.output, a.bits, output.wt + a.cells * a.bits, a.bits,
                                          tape.context_at(t), a.item, scratch.output);
      scatter<false>(rows_of(chunk, active, a.outputs, a.symbols, a.bits, spare.trash, t), scratch.output,
                     a.bits);
    }
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
      int64_t first = chunk.duration[lane];
      std::memset(a.outputs + (chunk.example[lane] * a.symbols + first) * a.bits, 0,
                  sizeof(float) * (a.symbols - first) * a.bits);
    }
  }

  // The weights are softmax of score · tanh(query + key) over a lane's own items; the context is their mean.
  void attend(const DecoderChunk& chunk, const Tape& tape, int64_t t) const {
    float *query = tape.query_at(t), *weights = tape.weights_at(t), *context = tape.context_at(t);
    ham::forward<Finish::none>(of_query, query, tape.lstm.state_at(t));
    alignas(64) int32_t lengths[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) lengths[lane] = static_cast<int32_t>(chunk.length[lane]);
    for (int v = 0; v < kLanes; v += kWidth) {
      Bits length = load_bits(lengths + v);
      Vec most = splat(-std::numeric_limits<float>::infinity()), total{};
      for (int64_t i = 0; i < chunk.items; ++i) {
        const float* key = tape.key_of(i) + v;
        Vec sum{};
        for (int64_t f = 0; f < a.width; ++f) {
          Vec both = load(query + f * kLanes + v) + load(key + f * kLanes);
          sum = multiply_add(splat(score.w[f]), tanh(both), sum);
        }
        store(weights + i * kLanes + v, sum);
        Bits usable = length > static_cast<int32_t>(i);
        most = (usable & (sum > most)) ? sum : most;
      }
      for (int64_t i = 0; i < chunk.items; ++i) {
        float* at = weights + i * kLanes + v;
        Bits usable = length > static_cast<int32_t>(i);
        Vec weight = usable ? exp(load(at) - most) : Vec{};
        total += weight;
        store(at, weight);
      }
      Vec share = 1.f / total;
      for (int64_t i = 0; i < chunk.items; ++i) {
        float* at = weights + i * kLanes + v;
        store(at, load(at) * share);
      }
    }
    zero_panel(context, a.item);
    for (int64_t i = 0; i < chunk.items; ++i)
      add_scaled(context, weights + i * kLanes, tape.memory_of(i), a.item);
  }

  void backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const {
    const DecoderChunk& chunk = chunks[task];
    const LstmTape& steps = tape.lstm;
    const LstmGradient& d = scratch.lstm;
    zero_panel(d.state, a.cells);
    zero_panel(d.cell, a.cells);
    zero_panel(scratch.memory, chunk.items * a.item);
    zero_panel(scratch.keys, chunk.items * a.width);
    zero_panel(scratch.score, a.width);
    for (int64_t t = chunk.steps - 1; t >= 0; --t) {
      float* d_output = scratch.output + t % kStepBlock * panel_floats(a.bits);
      gather(d_output,
             rows_of(chunk, chunk.active(t), a.d_outputs, a.symbols, a.bits, scratch.spare.zeros, t), a.bits);
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
    for (int64_t i = 0; i < chunk.items; ++i) {
      float* d_item = scratch.memory + i * panel_floats(a.item);
      add_backward(of_item, d_item, scratch.keys + i * panel_floats(a.width));
      scatter<false>(items_at(chunk, i, a.d_memory, scratch.spare.trash), d_item, a.item);
    }
    if (a.items) {
      each_vector(a.cells, [&](int64_t i) {
        Vec y = load(steps.state_at(0) + i);
        store(d.cell + i, load(d.state + i) * (1.f - y * y));
      });
      add_gradient(start, gradients, d.cell, a.cells, tape.given, a.cells, 1);
      ham::backward<Finish::none>(start, d.state, d.cell);
      add_gradient(of_item, gradients, scratch.keys, a.width, tape.memory, a.item, chunk.items);
      add_lane_sums(gradients + score.at, scratch.score, 0, a.width, 1);
      for (int64_t lane = 0; lane < chunk.lanes; ++lane)
        std::memset(a.d_memory + (chunk.example[lane] * a.items + chunk.length[lane]) * a.item, 0,
                    sizeof(float) * (a.items - chunk.length[lane]) * a.item);
    }
    scatter_state(chunk, a.d_state, d.state, scratch);
    if (!a.items) scatter_state(chunk, a.d_cell, d.cell, scratch);
  }

  // From the context's gradient to those of items, keys, scores and the query. tanh is computed once more:
  // a tape of it would be by far the largest piece of all.
  void attend_backward(const DecoderChunk& chunk, const Tape& tape, int64_t t,
                       const Backward& scratch) const {
    const float *query = tape.query_at(t), *weights = tape.weights_at(t);
    float* d_query = scratch.query + t % kStepBlock * panel_floats(a.width);
    zero_panel(d_query, a.width);
    lane_dot(scratch.mean, scratch.context, tape.context_at(t), a.item);
    for (int64_t i = 0; i < chunk.items; ++i) {
      lane_dot(scratch.weights, scratch.context, tape.memory_of(i), a.item);
      add_scaled(scratch.memory + i * panel_floats(a.item), weights + i * kLanes, scratch.context, a.item);
      const float* key = tape.key_of(i);
      float* d_key = scratch.keys + i * panel_floats(a.width);
      for (int v = 0; v < kLanes; v += kWidth) {
        Vec d_score = load(weights + i * kLanes + v) * (load(scratch.weights + v) - load(scratch.mean + v));
        for (int64_t f = 0; f < a.width; ++f) {
          int64_t at = f * kLanes + v;
          Vec y = tanh(load(query + at) + load(key + at));
          Vec d_sum = d_score * score.w[f] * (1.f - y * y);
          store(scratch.score + at, multiply_add(d_score, y, load(scratch.score + at)));
          store(d_query + at, load(d_query + at) + d_sum);
          store(d_key + at, load(d_key + at) + d_sum);
        }
      }
    }
    add_backward(of_query, scratch.lstm.state, d_query);
  }

  // Weight gradients of what runs once a symbol, over so many of them.
  void reduce(const Tape& tape, int64_t first, int64_t symbols, const Backward& scratch,
              float* gradients) const {
    const LstmTape& steps = tape.lstm;
    int64_t bits = panel_floats(a.bits), stride = panel_floats(lstm.in);
    float* d_output = gradients + output.at;
    scratch.lstm.reduce(lstm, steps, first, symbols, gradients);
    outer(d_output, output.in, 1, scratch.output, bits, a.bits, steps.state_at(first + 1), stride, a.cells,
          symbols);
    add_lane_sums(d_output + a.bits * output.in, scratch.output, bits, a.bits, symbols);
    if (!a.items) return;
    outer(d_output + a.cells, output.in, 1, scratch.output, bits, a.bits, tape.context_at(first), stride,
          a.item, symbols);
    add_gradient(of_query, gradients, scratch.query, a.width, steps.state_at(first), lstm.in, symbols);
  }
};

}  // namespace
}  // namespace ham

void ham_reader_sizes(const HamReader* a, int64_t* sizes) { ham::Call<ham::Reader>(*a).sizes(sizes); }
void ham_reader_forward(const HamReader* a) { ham::Call<ham::Reader>(*a).forward(); }
void ham_reader_backward(const HamReader* a) { ham::Call<ham::Reader>(*a).backward(); }
void ham_decoder_sizes(const HamDecoder* a, int64_t* sizes) { ham::Call<ham::Decoder>(*a).sizes(sizes); }
void ham_decoder_forward(const HamDecoder* a) { ham::Call<ham::Decoder>(*a).forward(); }
void ham_decoder_backward(const HamDecoder* a) { ham::Call<ham::Decoder>(*a).backward(); }

int64_t ham_sequence_gradient(HamSequence* g) {
  using ham::Arena;
  HamReader& r = g->reader;
  HamDecoder& d = g->decoder;
  HamObjective& o = g->objective;
  if (ham_range(r.lengths, r.batch, d.width ? 1 : 0, r.slots) >= 0 ||
      ham_range(d.asked, r.batch, 0, d.symbols) >= 0 ||
      ham_first_not_finite(r.rows, r.batch * r.slots * r.features) >= 0 ||
      ham_first_not_finite(d.targets, r.batch * d.symbols * d.bits) >= 0)
    return -1;

  d.batch = o.batch = r.batch;
  d.cells = r.cells;
  d.directions = r.directions;
  d.items = d.width ? r.slots : 0;
  d.item = d.width ? r.directions * r.cells : 0;
  d.threads = r.threads;
  d.lengths = r.lengths;
  r.taped = d.taped = 1;
  o.symbols = o.timesteps = d.symbols;
  o.bits = d.bits;
  o.every = 1;
  o.targets = d.targets;
  o.durations = d.asked;
  ham::Call<ham::Reader> reader(r);
  ham::Call<ham::Decoder> decoder(d);
  int64_t reading[3], decoding[3];
  reader.sizes(reading);
  decoder.sizes(decoding);
  int64_t states = r.batch * r.directions * r.cells;
  Arena arena(g->workspace);
  r.states = arena.take(states * r.slots);
  r.last_state = arena.take(states);
  r.last_cell = arena.take(states);
  d.outputs = arena.take(r.batch * d.symbols * d.bits);
  o.d_outputs = arena.take(r.batch * d.symbols * d.bits);
  d.d_memory = arena.take(d.items ? states * r.slots : 0);
  d.d_state = arena.take(states);
  d.d_cell = arena.take(states);
  o.scratch = arena.take(ham_objective_floats(&o));
  r.tape = arena.take(reading[0]);
  d.tape = arena.take(decoding[0]);
  r.scratch = d.scratch = arena.take(std::max({reading[1], reading[2], decoding[1], decoding[2]}));
  if (arena.used() > g->floats) return arena.used();

  d.state = r.last_state;
  d.cell = d.items ? nullptr : r.last_cell;
  d.memory = d.items ? r.states : nullptr;
  o.outputs = d.outputs;
  o.terms = g->terms;
  d.d_outputs = o.d_outputs;
  r.d_states = d.items ? d.d_memory : nullptr;
  r.d_last_state = d.d_state;
  r.d_last_cell = d.items ? nullptr : d.d_cell;
  reader.forward();
  decoder.forward();
  ham_objective(&o);
  decoder.backward();
  reader.backward();
  double squares = 0;
  for (int64_t i = 0; i < g->weights; ++i) squares += static_cast<double>(g->gradient[i]) * g->gradient[i];
  g->norm = std::sqrt(squares);
  return 0;
}
