// The caller's tensors, each with its name, packed into layers; and gradients unpacked into the like.
#pragma once

#include <vector>

#include "arena.h"
#include "layer.h"

namespace ham {

// A tensor of the caller's, called network.tensor, and where it lives inside a packed layer.
struct Place {
  const char *network, *tensor;
  Layer* layer;
  int64_t row, column, rows, columns;  // columns = 0: a bias
};

// What PyTorch calls the tensors of a linear layer: by itself, or in an MLP.
struct LinearNames {
  const char *weight, *bias;
};
constexpr LinearNames kAlone = {"weight", "bias"}, kFirst = {"0.weight", "0.bias"}, kSecond = {"2.weight", "2.bias"};

// Likewise of an LSTM: of a cell, or of either direction of a whole one.
struct LstmNames {
  const char *weight_ih, *weight_hh, *bias_ih, *bias_hh;
};
constexpr LstmNames kCell = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
constexpr LstmNames kDirections[2] = {
    {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"},
    {"weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"}};

// The tensors are passed in the order of `places`.
struct Parameters {
  std::vector<Place> places;
  std::vector<Layer*> layers;
  int64_t gradient_floats = 0, packed_floats = 0;

  Parameters() = default;
  Parameters(const Parameters&) = delete;  // places point to layers beside it

  void layer(Layer& layer, int64_t in, int64_t out) {
    layer.in = in;
    layer.out = out;
    layer.at = gradient_floats;
    gradient_floats += layer.floats();
    packed_floats += (layer.floats() + 15) / 16 * 16 + (in * out + 15) / 16 * 16;
    layers.push_back(&layer);
  }

  void weight(Layer& layer, const char* network, const char* tensor, int64_t row, int64_t rows, int64_t column,
              int64_t columns) {
    places.push_back({network, tensor, &layer, row, column, rows, columns});
  }
  void bias(Layer& layer, const char* network, const char* tensor, int64_t row, int64_t rows) {
    weight(layer, network, tensor, row, rows, 0, 0);
  }
  // Some rows of a layer.
  void linear(Layer& layer, const char* network, const LinearNames& names, int64_t row, int64_t rows) {
    weight(layer, network, names.weight, row, rows, 0, layer.in);
    bias(layer, network, names.bias, row, rows);
  }
  void linear(Layer& layer, const char* network, const LinearNames& names = kAlone) {
    linear(layer, network, names, 0, layer.out);
  }
  // Its input is [state; what it reads].
  void lstm_layer(Layer& lstm, const char* network, const LstmNames& names, int64_t cells, int64_t inputs) {
    layer(lstm, cells + inputs, 4 * cells);
    weight(lstm, network, names.weight_ih, 0, 4 * cells, cells, inputs);
    weight(lstm, network, names.weight_hh, 0, 4 * cells, 0, cells);
    bias(lstm, network, names.bias_ih, 0, 4 * cells);
    bias(lstm, network, names.bias_hh, 0, 4 * cells);
  }

  void pack(const float* const* tensors, float* buffer) {
    Arena arena(buffer);
    for (Layer* layer : layers) {
      layer->w = arena.take(layer->floats());
      layer->b = layer->w + layer->out * layer->in;
      layer->wt = arena.take(layer->in * layer->out);
    }
    fill(tensors);
  }

  // Weights that are packed already, in two pieces: laid out as a gradient is, and transposed.
  void lie_in(const float* weights, const float* transposed) {
    float *w = const_cast<float*>(weights), *wt = const_cast<float*>(transposed);
    for (Layer* layer : layers) {
      layer->w = w + layer->at;
      layer->b = layer->w + layer->out * layer->in;
      layer->wt = wt;
      if (wt) wt += layer->in * layer->out;
    }
  }
  int64_t transposed_floats() const {
    int64_t floats = 0;
    for (const Layer* layer : layers) floats += layer->in * layer->out;
    return floats;
  }

  void fill(const float* const* tensors) {
    for (Layer* layer : layers) std::memset(layer->w, 0, sizeof(float) * layer->floats());
    for (size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      Layer& to = *place.layer;
      if (place.columns == 0)  // the LSTM has two biases: they add
        for (int64_t r = 0; r < place.rows; ++r) to.b[place.row + r] += tensors[i][r];
      else
        for (int64_t r = 0; r < place.rows; ++r)
          for (int64_t c = 0; c < place.columns; ++c)
            to.w[(place.row + r) * to.in + place.column + c] = tensors[i][r * place.columns + c];
    }
    for (Layer* layer : layers)
      for (int64_t r = 0; r < layer->out; ++r)
        for (int64_t c = 0; c < layer->in; ++c)
          layer->wt[c * layer->out + r] = layer->w[r * layer->in + c];
  }

  void unpack(const float* gradients, float* const* tensor_gradients) const {
    for (size_t i = 0; i < places.size(); ++i) {
      const Place& place = places[i];
      const Layer& layer = *place.layer;
      const float* w = gradients + layer.at;
      const float* b = w + layer.out * layer.in;
      if (place.columns == 0)
        std::memcpy(tensor_gradients[i], b + place.row, sizeof(float) * place.rows);
      else
        for (int64_t r = 0; r < place.rows; ++r)
          std::memcpy(tensor_gradients[i] + r * place.columns, w + (place.row + r) * layer.in + place.column,
                      sizeof(float) * place.columns);
    }
  }
};

}  // namespace ham
