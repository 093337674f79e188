// The networks of a model with a memory: how wide, how bounded, and which layers they are packed into.
#pragma once

#include "bounds.h"
#include "parameters.h"

namespace ham {

// Widths as in the paper; `query` is the controller's state (LSTM+HAM) or the input (raw HAM).
struct Shape {
  int64_t leaves, levels, bits, width, query, hidden, outputs, depth;
  bool has_lstm;
};

inline int64_t levels_of(int64_t leaves) {
  int64_t levels = 0;
  while ((int64_t{1} << levels) < leaves) ++levels;
  return levels;
}

struct Model : Parameters {
  Shape shape;
  Bounds bounds;
  Layer embed[2], join[2], search[2], lstm, output[2];
  // A highway JOIN's three MLPs read the same input: one first layer, candidate above gate above side.
  Layer join_first, join_rest[3];
  // WRITE's two MLPs read the same input: their first layers are one, candidate above gate.
  Layer write, candidate, gate;
  float pull = 0.f;  // weight of h^2 / 2 in the objective, for every value h that JOIN makes

  Model(const Shape& s, const Bounds& b) : shape(s), bounds(b) {}

  int64_t search_width() const { return search[0].out; }
  bool deep() const { return shape.depth == 2; }

  // Features of what JOIN leaves for backward: its hidden layer, what it made before bounds (highway: its
  // networks' outputs), and the gradients at its last pre-activations.
  int64_t join_hidden() const { return bounds.highway ? 3 * shape.hidden : shape.hidden; }
  int64_t join_made() const {
    return bounds.highway ? 3 * shape.width : bounds.normalised || bounds.grid > 0.f ? shape.width : 0;
  }
  int64_t join_outputs() const { return bounds.highway ? 3 * shape.width : shape.width; }
  // EMBED's before rounding, which hides what ReLU and ceiling did.
  int64_t embed_made() const { return bounds.grid > 0.f ? shape.width : 0; }

  // All networks of an episode.
  void add_networks() {
    if (shape.has_lstm) add_mlp(embed, "embed", shape.bits, shape.width);
    add_join();
    add_search();
    add_write();
    if (shape.has_lstm) {
      lstm_layer(lstm, "controller", kCell, shape.query, shape.width);
      layer(output[0], shape.query, shape.outputs);
      linear(output[0], "output");
    } else {
      add_mlp(output, "output", shape.width, shape.outputs);
    }
  }

  void add_search() { add_mlp(search, "search", shape.width + shape.query, 1); }

  void add_write() {
    int64_t first = deep() ? shape.hidden : shape.width;
    layer(write, shape.width + shape.query, 2 * first);
    if (deep()) {
      layer(candidate, shape.hidden, shape.width);
      layer(gate, shape.hidden, shape.width);
    }
    linear(write, "write.candidate", kFirst, 0, first);
    if (deep()) linear(candidate, "write.candidate", kSecond);
    linear(write, "write.gate", kFirst, first, first);
    if (deep()) linear(gate, "write.gate", kSecond);
  }

  void add_join() {
    if (!bounds.highway) return add_mlp(join, "join", 2 * shape.width, shape.width);
    constexpr const char* kNetworks[3] = {"join.candidate", "join.gate", "join.side"};
    int64_t first = deep() ? shape.hidden : shape.width;
    layer(join_first, 2 * shape.width, 3 * first);
    for (int64_t i = 0; i < 3; ++i) {
      linear(join_first, kNetworks[i], kFirst, i * first, first);
      if (!deep()) continue;
      layer(join_rest[i], shape.hidden, shape.width);
      linear(join_rest[i], kNetworks[i], kSecond);
    }
  }

 private:
  void add_mlp(Layer (&pair)[2], const char* network, int64_t in, int64_t out) {
    layer(pair[0], in, deep() ? shape.hidden : out);
    linear(pair[0], network, kFirst);
    if (!deep()) return;
    layer(pair[1], shape.hidden, out);
    linear(pair[1], network, kSecond);
  }
};

}  // namespace ham
