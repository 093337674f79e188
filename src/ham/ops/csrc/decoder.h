// A baseline's LSTM that writes symbols, and may look at what was read before each of them.
#pragma once

#include "api.h"
#include "call.h"
#include "lstm.h"
#include "parameters.h"

namespace ham {

struct DecoderChunk : Chunk {
  int64_t length[kLanes];
  int64_t items = 0;
};

// A task is a chunk.
struct Decoder {
  using Arguments = HamDecoder;
  using Weights = OfTensors;

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
  };
  struct Backward {
    SpareRows spare;
    LstmGradient lstm;
    float *context, *mean, *weights, *score, *memory, *keys;
    float *output, *query;  // rings, as the gates
  };

  const HamDecoder& a;
  Parameters model;
  Layer of_query, of_state, score, start, lstm, output;
  std::vector<DecoderChunk> chunks;

  explicit Decoder(const HamDecoder& arguments)
      : a(arguments), chunks(chunks_of<DecoderChunk>(a.batch, a.asked)) {
    if (a.items) {
      model.layer(of_query, a.cells, a.width);
      model.linear(of_query, "attention.of_query");
      model.layer(of_state, a.item, a.width);
      model.weight(of_state, "attention.of_state", "weight", 0, a.width, 0, a.item);
      model.layer(score, a.width, 1);
      model.weight(score, "attention.score", "weight", 0, 1, 0, a.width);
      model.layer(start, a.cells, a.cells);
      model.linear(start, "start");
    }
    model.lstm_layer(lstm, "decoder", kCell, a.cells, a.bits + a.item);
    model.layer(output, a.cells + a.item, a.bits);
    model.linear(output, "output");
    for (DecoderChunk& chunk : chunks)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        // A lane without an example has an item of zeros: no mean is over nothing.
        chunk.length[lane] = !a.items ? 0 : lane < chunk.lanes ? a.lengths[chunk.example[lane]] : 1;
        chunk.items = std::max(chunk.items, chunk.length[lane]);
      }
  }

  int64_t tasks() const { return static_cast<int64_t>(chunks.size()); }
  int64_t first_tasks() const { return 0; }
  int64_t longest_row() const { return std::max({a.bits, a.cells, a.item}); }
  bool taped() const { return a.taped; }
  bool is_intact(int64_t, const Tape&) const { return true; }  // numbers only, no places

  Tape tape(Arena& arena, int64_t task) const {
    Tape tape;
    tape.lay_out(arena, *this, chunks[task].steps, chunks[task].items, true);
    return tape;
  }
  Forward forward_scratch(Arena& arena) const {
    Forward scratch;
    scratch.spare.lay_out(arena, longest_row());
    scratch.output = arena.panels(1, a.bits);
    if (!a.taped) scratch.untaped.lay_out(arena, *this, 1, a.items, false);
    return scratch;
  }
  Backward backward_scratch(Arena& arena) const {
    Backward scratch;
    scratch.spare.lay_out(arena, longest_row());
    scratch.lstm.lay_out(arena, a.cells);
    scratch.context = arena.panels(1, a.item);
    scratch.mean = arena.panels(1, 1);
    scratch.weights = arena.panels(1, 1);
    scratch.score = arena.panels(1, a.width);
    scratch.memory = arena.panels(a.items, a.item);
    scratch.keys = arena.panels(a.items, a.width);
    scratch.output = arena.panels(kStepBlock, a.bits);
    scratch.query = arena.panels(kStepBlock, a.items ? a.width : 0);
    return scratch;
  }

  void forward(int64_t task, const Tape& tape, const Forward& scratch) const;
  void backward(int64_t task, const Tape& tape, const Backward& scratch, float* gradients) const;

  // attention.cpp: with items, a step's context, and what goes back from its gradient.
  void attend(const DecoderChunk& chunk, const Tape& tape, int64_t t) const;
  void attend_backward(const DecoderChunk& chunk, const Tape& tape, int64_t t, const Backward& scratch) const;

 private:
  Rows states_of(const Lanes& lanes, const float* states, float* otherwise) const;
  Rows items_at(const Lanes& lanes, const DecoderChunk& chunk, int64_t i, const float* memory,
                float* otherwise) const;
  void first_state(const Lanes& lanes, const DecoderChunk& chunk, const Tape& tape) const;
  void feed(const Lanes& lanes, const Tape& tape, int64_t t, const float* output) const;
  void first_state_backward(const Lanes& lanes, const DecoderChunk& chunk, const Tape& tape, const Backward& scratch,
                            float* gradients) const;
  void reduce(const Tape& tape, int64_t first, int64_t symbols, const Backward& scratch, float* gradients) const;
};

}  // namespace ham
