// The model's transformations as packed layers, forward and backward, on panels.
#pragma once

#include <vector>

#include "arena.h"
#include "panel.h"

namespace ham {

// y = w x + b. `w` is [out][in] (what backward broadcasts), `wt` its transpose (forward's).
// `w` and `b` lie at `at` and `at + out * in` of the packed parameters and of a gradient.
struct Layer {
  int64_t in = 0, out = 0, at = 0;
  float *w = nullptr, *b = nullptr, *wt = nullptr;

  int64_t floats() const { return out * in + out; }
};

template <Finish finish>
HAM_INLINE void forward(const Layer& layer, float* y, const float* x) {
  product<Start::bias, finish>(y, layer.out, layer.wt, layer.out, x, layer.in, layer.b);
}

template <Finish finish>
HAM_INLINE void backward(const Layer& layer, float* dx, const float* dy, const float* gate = nullptr) {
  product<Start::zero, finish>(dx, layer.in, layer.w, layer.in, dy, layer.out, nullptr, gate);
}

HAM_INLINE void add_backward(const Layer& layer, float* dx, const float* dy) {
  product<Start::panel, Finish::none>(dx, layer.in, layer.w, layer.in, dy, layer.out, dx);
}

// dy and x: `panels` panels, their strides in features.
inline void add_gradient(const Layer& layer, float* gradients, const float* dy, int64_t dy_features,
                         const float* x, int64_t x_features, int64_t panels) {
  float* dw = gradients + layer.at;
  if (layer.out == 1)  // the wide side must be the rows of the tile
    outer(dw, 1, 1, x, panel_floats(x_features), layer.in, dy, panel_floats(dy_features), 1, panels);
  else
    outer(dw, layer.in, 1, dy, panel_floats(dy_features), layer.out, x, panel_floats(x_features),
          layer.in, panels);
  add_lane_sums(dw + layer.out * layer.in, dy, panel_floats(dy_features), layer.out, panels);
}

// Widths as in the paper; `query` is the controller's state (LSTM+HAM) or the input (raw HAM).
struct Shape {
  int64_t leaves, levels, bits, width, query, hidden, outputs, depth;
  bool has_lstm;
};

// What keeps values from growing with height and time; all off is the paper's model.
struct Bounds {
  bool normalised = false;  // JOIN's output is divided by its root mean square
  bool highway = false;     // JOIN copies up what it does not change, as WRITE does
  float top = 0.f;          // ceiling of what EMBED and the plain JOIN give; 0: none
  float grid = 0.f;         // a power of two: values are multiples of 1 / grid; 0: any
  float cell = 0.f;         // the LSTM's cells lie in [-cell, cell]; 0: anywhere
};

HAM_INLINE Vec below_ceiling(const Bounds& bounds, Vec x) {
  return bounds.top > 0.f ? (x > bounds.top ? splat(bounds.top) : x) : x;
}

// ReLU's gradient below the ceiling: `made` is what came out of both.
HAM_INLINE Vec where_inside(const Bounds& bounds, Vec made, Vec gradient) {
  gradient = where_positive(made, gradient);
  return bounds.top > 0.f ? where_positive(bounds.top - made, gradient) : gradient;
}

HAM_INLINE Vec on_grid(const Bounds& bounds, Vec x) {
  if (bounds.grid <= 0.f) return x;
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  return (multiply_add(x, splat(bounds.grid), splat(kRound)) - kRound) / bounds.grid;
}

// Where a parameter tensor lives inside a packed layer.
struct Place {
  int64_t parameter;
  Layer* layer;
  int64_t row, column, rows, columns;  // columns = 0: a bias
};

struct Model {
  Shape shape;
  Bounds bounds;
  Layer embed[2], join[2], search[2], lstm, output[2];
  // A highway JOIN's three MLPs read the same input: one first layer, candidate above gate above side.
  Layer join_first, join_rest[3];
  // WRITE's two MLPs read the same input: their first layers are one, candidate above gate.
  Layer write, candidate, gate;
  std::vector<Place> places;
  std::vector<Layer*> layers;
  int64_t gradient_floats = 0, packed_floats = 0;
  float pull = 0.f;  // weight of h^2 / 2 in the objective, for every value h that JOIN makes

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

  explicit Model(const Shape& s, const Bounds& b = {}) : shape(s), bounds(b) {}
  Model(const Model&) = delete;

  void layer(Layer& layer, int64_t in, int64_t out) {
    layer.in = in;
    layer.out = out;
    layer.at = gradient_floats;
    gradient_floats += layer.floats();
    packed_floats += (layer.floats() + 15) / 16 * 16 + (in * out + 15) / 16 * 16;
    layers.push_back(&layer);
  }

  void linear(Layer& layer, int64_t row, int64_t rows, int64_t column = 0, int64_t columns = -1) {
    weight(layer, row, rows, column, columns < 0 ? layer.in : columns);
    bias(layer, row, rows);
  }
  void weight(Layer& layer, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    places.push_back({static_cast<int64_t>(places.size()), &layer, row, column, rows, columns});
  }
  void bias(Layer& layer, int64_t row, int64_t rows) { weight(layer, row, rows, 0, 0); }

  void mlp(Layer (&pair)[2], int64_t in, int64_t out) {
    layer(pair[0], in, deep() ? shape.hidden : out);
    linear(pair[0], 0, pair[0].out);
    if (!deep()) return;
    layer(pair[1], shape.hidden, out);
    linear(pair[1], 0, out);
  }

  void write_layers() {
    int64_t first = deep() ? shape.hidden : shape.width;
    layer(write, shape.width + shape.query, 2 * first);
    if (deep()) {
      layer(candidate, shape.hidden, shape.width);
      layer(gate, shape.hidden, shape.width);
    }
    linear(write, 0, first);
    if (deep()) linear(candidate, 0, shape.width);
    linear(write, first, first);
    if (deep()) linear(gate, 0, shape.width);
  }

  void join_layers() {
    if (!bounds.highway) return mlp(join, 2 * shape.width, shape.width);
    int64_t first = deep() ? shape.hidden : shape.width;
    layer(join_first, 2 * shape.width, 3 * first);
    for (int64_t i = 0; i < 3; ++i) {
      linear(join_first, i * first, first);
      if (!deep()) continue;
      layer(join_rest[i], shape.hidden, shape.width);
      linear(join_rest[i], 0, shape.width);
    }
  }

  void lstm_layer(Layer& lstm, int64_t cells, int64_t inputs) {
    layer(lstm, cells + inputs, 4 * cells);  // its input is [state; what it reads]
    weight(lstm, 0, 4 * cells, cells, inputs);
    weight(lstm, 0, 4 * cells, 0, cells);
    bias(lstm, 0, 4 * cells);
    bias(lstm, 0, 4 * cells);
  }

  void pack(const float* const* parameters, float* buffer) {
    Arena arena(buffer);
    for (Layer* layer : layers) {
      layer->w = arena.take(layer->floats());
      layer->b = layer->w + layer->out * layer->in;
      layer->wt = arena.take(layer->in * layer->out);
    }
    fill(parameters);
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

  void fill(const float* const* parameters) {
    for (Layer* layer : layers) std::memset(layer->w, 0, sizeof(float) * layer->floats());
    for (const Place& place : places) {
      const float* from = parameters[place.parameter];
      Layer& to = *place.layer;
      if (place.columns == 0)  // the LSTM has two biases: they add
        for (int64_t r = 0; r < place.rows; ++r) to.b[place.row + r] += from[r];
      else
        for (int64_t r = 0; r < place.rows; ++r)
          for (int64_t c = 0; c < place.columns; ++c)
            to.w[(place.row + r) * to.in + place.column + c] = from[r * place.columns + c];
    }
    for (Layer* layer : layers)
      for (int64_t r = 0; r < layer->out; ++r)
        for (int64_t c = 0; c < layer->in; ++c)
          layer->wt[c * layer->out + r] = layer->w[r * layer->in + c];
  }

  void unpack(const float* gradients, float* const* parameter_gradients) const {
    for (const Place& place : places) {
      float* to = parameter_gradients[place.parameter];
      const Layer& layer = *place.layer;
      const float* w = gradients + layer.at;
      const float* b = w + layer.out * layer.in;
      if (place.columns == 0)
        std::memcpy(to, b + place.row, sizeof(float) * place.rows);
      else
        for (int64_t r = 0; r < place.rows; ++r)
          std::memcpy(to + r * place.columns, w + (place.row + r) * layer.in + place.column,
                      sizeof(float) * place.columns);
    }
  }
};

// A depth-2 MLP without its output's activation, or a depth-1 one (no hidden panel then).
template <Finish finish>
HAM_INLINE void mlp_forward(const Layer (&mlp)[2], bool deep, float* y, float* hidden, const float* x) {
  if (deep) {
    forward<Finish::relu>(mlp[0], hidden, x);
    forward<finish>(mlp[1], y, hidden);
  } else {
    forward<finish>(mlp[0], y, x);
  }
}

// dy is the gradient at the pre-activation of the output; d_hidden at that of the hidden layer.
template <bool add = false>
HAM_INLINE void mlp_backward(const Layer (&mlp)[2], bool deep, float* dx, float* d_hidden,
                             const float* dy, const float* hidden) {
  if (deep) backward<Finish::where_positive>(mlp[1], d_hidden, dy, hidden);
  const float* d_first = deep ? d_hidden : dy;
  if (add)
    add_backward(mlp[0], dx, d_first);
  else
    backward<Finish::none>(mlp[0], dx, d_first);
}

inline void mlp_gradient(const Layer (&mlp)[2], bool deep, float* gradients, const float* dy,
                         const float* d_hidden, const float* hidden, const float* x,
                         int64_t x_features, int64_t panels) {
  if (deep) {
    add_gradient(mlp[1], gradients, dy, mlp[1].out, hidden, mlp[1].in, panels);
    add_gradient(mlp[0], gradients, d_hidden, mlp[0].out, x, x_features, panels);
  } else {
    add_gradient(mlp[0], gradients, dy, mlp[0].out, x, x_features, panels);
  }
}

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

// SEARCH and WRITE read [node; query]. Where many nodes meet one query, the query's half of the first
// layer, bias included, is computed once, and so are its gradients, from the sum over the nodes.
HAM_INLINE void query_half(const Model& model, const Layer& first, float* half, const float* query) {
  product<Start::bias, Finish::none>(half, first.out, first.wt + model.shape.width * first.out,
                                     first.out, query, model.shape.query, first.b);
}

template <Finish finish>
HAM_INLINE void node_forward(const Model& model, const Layer& first, float* y, const float* node,
                             const float* half) {
  product<Start::panel, finish>(y, first.out, first.wt, first.out, node, model.shape.width, half);
}

template <Start start>
HAM_INLINE void node_backward(const Model& model, const Layer& first, float* d_node, const float* d_first) {
  product<start, Finish::none>(d_node, model.shape.width, first.w, first.in, d_first, first.out, d_node);
}

// d_query += the query half's gradient, from d_first summed over the nodes.
HAM_INLINE void add_query_backward(const Model& model, const Layer& first, float* d_query,
                                   const float* d_half) {
  product<Start::panel, Finish::none>(d_query, model.shape.query, first.w + model.shape.width,
                                      first.in, d_half, first.out, d_query);
}

inline void node_gradient(const Model& model, const Layer& first, float* gradients,
                          const float* d_first, const float* node, int64_t panels) {
  outer(gradients + first.at, first.in, 1, d_first, panel_floats(first.out), first.out, node,
        panel_floats(model.shape.width), model.shape.width, panels);
}

inline void query_gradient(const Model& model, const Layer& first, float* gradients,
                           const float* d_half, const float* query, int64_t query_features,
                           int64_t panels) {
  float* dw = gradients + first.at;
  outer(dw + model.shape.width, first.in, 1, d_half, panel_floats(first.out), first.out, query,
        panel_floats(query_features), model.shape.query, panels);
  add_lane_sums(dw + first.out * first.in, d_half, panel_floats(first.out), first.out, panels);
}

HAM_INLINE void search_forward(const Model& model, float* logit, float* hidden, const float* node,
                               const float* half) {
  const Layer& first = model.search[0];
  if (model.deep()) {
    node_forward<Finish::relu>(model, first, hidden, node, half);
    dot_product(logit, model.search[1].w, hidden, first.out, model.search[1].b[0]);
  } else {
    node_forward<Finish::none>(model, first, logit, node, half);
  }
}

// d_first: gradient at the first layer's pre-activation, [search_width].
HAM_INLINE void search_backward(const Model& model, float* d_first, float* d_node,
                                const float* d_logit, const float* hidden) {
  const Layer& first = model.search[0];
  if (model.deep()) {
    const float* w = model.search[1].w;
    for (int64_t j = 0; j < first.out; ++j)
      for (int v = 0; v < kLanes; v += kWidth)
        store(d_first + j * kLanes + v,
              where_positive(load(hidden + j * kLanes + v), splat(w[j]) * load(d_logit + v)));
  } else {
    copy_panel(d_first, d_logit, 1);
  }
  node_backward<Start::zero>(model, first, d_node, d_first);
}

inline void search_gradient(const Model& model, float* gradients, const float* d_first,
                            const float* d_logit, const float* hidden, const float* node,
                            int64_t panels) {
  node_gradient(model, model.search[0], gradients, d_first, node, panels);
  if (model.deep())
    add_gradient(model.search[1], gradients, d_logit, 1, hidden, model.search_width(), panels);
}

// WRITE after its first layer, whose result is in `hidden`, or in `mix` if that is the only one;
// `mix` becomes [candidate; gate].
HAM_INLINE void write_rest(const Model& model, float* written, float* mix, const float* hidden,
                           const float* value) {
  int64_t width = model.shape.width;
  float* candidate = mix;
  float* gate = mix + panel_floats(width);
  if (model.deep()) {
    forward<Finish::none>(model.candidate, candidate, hidden);
    forward<Finish::none>(model.gate, gate, hidden + panel_floats(model.shape.hidden));
  }
  each_vector(width, [&](int64_t i) {
    Vec h = sigmoid(load(candidate + i)), t = sigmoid(load(gate + i));
    store(candidate + i, h);
    store(gate + i, t);
    store(written + i, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * load(value + i))));
  });
}

// `input` is [value; query].
HAM_INLINE void write_forward(const Model& model, float* written, float* mix, float* hidden,
                              const float* input) {
  if (model.deep())
    forward<Finish::relu>(model.write, hidden, input);
  else
    forward<Finish::none>(model.write, mix, input);
  write_rest(model, written, mix, hidden, input);
}

// Gradients at pre-activations, up to the first layer's, which it returns.
HAM_INLINE float* write_rest_backward(const Model& model, float* d_mix, float* d_hidden,
                                      const float* d_written, const float* mix, const float* hidden,
                                      const float* value) {
  int64_t width = model.shape.width;
  int64_t gates = panel_floats(width);
  each_vector(width, [&](int64_t i) {
    Vec g = load(d_written + i), h = load(mix + i), t = load(mix + gates + i);
    store(d_mix + i, g * t * h * (1.f - h));
    store(d_mix + gates + i, g * (h - load(value + i)) * t * (1.f - t));
  });
  if (!model.deep()) return d_mix;
  int64_t half = panel_floats(model.shape.hidden);
  backward<Finish::where_positive>(model.candidate, d_hidden, d_mix, hidden);
  backward<Finish::where_positive>(model.gate, d_hidden + half, d_mix + gates, hidden + half);
  return d_hidden;
}

// d_input receives the gradient of [value; query]; d_mix and d_hidden those at pre-activations.
HAM_INLINE void write_backward(const Model& model, float* d_input, float* d_mix, float* d_hidden,
                               const float* d_written, const float* mix, const float* hidden,
                               const float* input) {
  int64_t width = model.shape.width;
  int64_t gates = panel_floats(width);
  backward<Finish::none>(model.write, d_input,
                         write_rest_backward(model, d_mix, d_hidden, d_written, mix, hidden, input));
  each_vector(width, [&](int64_t i) {
    Vec kept = (1.f - load(mix + gates + i)) * load(d_written + i);
    store(d_input + i, load(d_input + i) + kept);
  });
}

inline void write_rest_gradient(const Model& model, float* gradients, const float* d_mix,
                                const float* hidden, int64_t panels) {
  if (!model.deep()) return;
  const Shape& shape = model.shape;
  add_gradient(model.candidate, gradients, d_mix, 2 * shape.width, hidden, 2 * shape.hidden, panels);
  add_gradient(model.gate, gradients, d_mix + panel_floats(shape.width), 2 * shape.width,
               hidden + panel_floats(shape.hidden), 2 * shape.hidden, panels);
}

inline void write_gradient(const Model& model, float* gradients, const float* d_mix,
                           const float* d_hidden, const float* hidden, const float* input,
                           int64_t input_features, int64_t panels) {
  add_gradient(model.write, gradients, model.deep() ? d_hidden : d_mix, model.write.out, input,
               input_features, panels);
  write_rest_gradient(model, gradients, d_mix, hidden, panels);
}

// Added to the mean square of what JOIN made before it is divided by the root.
constexpr float kLeastMeanSquare = 1e-5f;

// What the values of each lane are multiplied by: [kLanes].
HAM_INLINE void inverse_rms(float* inverse, const float* made, int64_t width) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec squares = Vec{};
    for (int64_t f = 0; f < width; ++f) {
      Vec x = load(made + f * kLanes + v);
      squares = multiply_add(x, x, squares);
    }
    store(inverse + v, 1.f / root(squares / static_cast<float>(width) + kLeastMeanSquare));
  }
}

HAM_INLINE void highway_forward(const Model& model, float* joined, float* made, float* hidden,
                                const float* pair) {
  int64_t width = panel_floats(model.shape.width);
  if (model.deep()) {
    forward<Finish::relu>(model.join_first, hidden, pair);
    for (int64_t i = 0; i < 3; ++i)
      forward<Finish::none>(model.join_rest[i], made + i * width,
                            hidden + i * panel_floats(model.shape.hidden));
  } else {
    forward<Finish::none>(model.join_first, made, pair);
  }
  each_vector(model.shape.width, [&](int64_t i) {
    Vec h = sigmoid(load(made + i)), t = sigmoid(load(made + width + i));
    Vec s = sigmoid(load(made + 2 * width + i));
    store(made + i, h);
    store(made + width + i, t);
    store(made + 2 * width + i, s);
    Vec carried = multiply_add(s, load(pair + i), (1.f - s) * load(pair + width + i));
    store(joined + i, on_grid(model.bounds, multiply_add(t, h, (1.f - t) * carried)));
  });
}

template <bool add>
HAM_INLINE void highway_backward(const Model& model, float* d_pair, float* d_made, float* d_hidden,
                                 const float* gradient, const float* made, const float* hidden,
                                 const float* pair) {
  int64_t width = panel_floats(model.shape.width);
  each_vector(model.shape.width, [&](int64_t i) {
    Vec g = load(gradient + i), h = load(made + i), t = load(made + width + i);
    Vec s = load(made + 2 * width + i), left = load(pair + i), right = load(pair + width + i);
    Vec carried = multiply_add(s, left, (1.f - s) * right);
    store(d_made + i, g * t * h * (1.f - h));
    store(d_made + width + i, g * (h - carried) * t * (1.f - t));
    store(d_made + 2 * width + i, g * (1.f - t) * (left - right) * s * (1.f - s));
  });
  const float* d_first = d_made;
  if (model.deep()) {
    for (int64_t i = 0; i < 3; ++i) {
      int64_t at = i * panel_floats(model.shape.hidden);
      backward<Finish::where_positive>(model.join_rest[i], d_hidden + at, d_made + i * width, hidden + at);
    }
    d_first = d_hidden;
  }
  if (add)
    add_backward(model.join_first, d_pair, d_first);
  else
    backward<Finish::none>(model.join_first, d_pair, d_first);
  each_vector(model.shape.width, [&](int64_t i) {
    Vec kept = (1.f - load(made + width + i)) * load(gradient + i), s = load(made + 2 * width + i);
    store(d_pair + i, multiply_add(kept, s, load(d_pair + i)));
    store(d_pair + width + i, multiply_add(kept, 1.f - s, load(d_pair + width + i)));
  });
}

// JOIN: `pair` is [left; right]; `made` has join_made() features.
HAM_INLINE void join_forward(const Model& model, float* joined, float* made, float* hidden,
                             const float* pair) {
  const Bounds& bounds = model.bounds;
  int64_t width = model.shape.width;
  if (bounds.highway) return highway_forward(model, joined, made, hidden, pair);
  if (model.join_made() == 0) {
    mlp_forward<Finish::relu>(model.join, model.deep(), joined, hidden, pair);
    if (bounds.top > 0.f)
      each_vector(width, [&](int64_t i) { store(joined + i, below_ceiling(bounds, load(joined + i))); });
    return;
  }
  mlp_forward<Finish::relu>(model.join, model.deep(), made, hidden, pair);
  if (!bounds.normalised) {
    each_vector(width, [&](int64_t i) {
      Vec x = below_ceiling(bounds, load(made + i));
      store(made + i, x);
      store(joined + i, on_grid(bounds, x));
    });
    return;
  }
  alignas(64) float scale[kLanes];
  inverse_rms(scale, made, width);
  for (int64_t f = 0; f < width; ++f)
    for (int v = 0; v < kLanes; v += kWidth) {
      int64_t i = f * kLanes + v;
      store(joined + i, on_grid(bounds, load(made + i) * load(scale + v)));
    }
}

// Gradients at the last pre-activations, from those at what came out.
HAM_INLINE void unbounded(const Model& model, float* d_joined, const float* gradient, const float* joined,
                          const float* made) {
  const Bounds& bounds = model.bounds;
  int64_t width = model.shape.width;
  if (!bounds.normalised) {
    const float* before = model.join_made() > 0 ? made : joined;
    each_vector(width, [&](int64_t i) {
      store(d_joined + i, where_inside(bounds, load(before + i), load(gradient + i)));
    });
    return;
  }
  alignas(64) float scale[kLanes];
  inverse_rms(scale, made, width);
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec inverse = load(scale + v), along = Vec{};
    for (int64_t f = 0; f < width; ++f) {
      int64_t i = f * kLanes + v;
      along = multiply_add(load(gradient + i), load(made + i) * inverse, along);
    }
    along = along / static_cast<float>(width);
    for (int64_t f = 0; f < width; ++f) {
      int64_t i = f * kLanes + v;
      Vec x = load(made + i);
      store(d_joined + i, where_positive(x, inverse * (load(gradient + i) - x * inverse * along)));
    }
  }
}

// `gradient` at `joined`; d_joined and d_hidden are those at the pre-activations.
template <bool add = false>
HAM_INLINE void join_backward(const Model& model, float* d_pair, float* d_joined, float* d_hidden,
                              const float* gradient, const float* joined, const float* made,
                              const float* hidden, const float* pair) {
  if (model.bounds.highway)
    return highway_backward<add>(model, d_pair, d_joined, d_hidden, gradient, made, hidden, pair);
  unbounded(model, d_joined, gradient, joined, made);
  mlp_backward<add>(model.join, model.deep(), d_pair, d_hidden, d_joined, hidden);
}

// `times` the gradient of the pull at `joined`, in the first lanes only.
HAM_INLINE void add_pull(const Model& model, float* gradient, const float* joined, int64_t lanes, float times = 1.f) {
  if (model.pull == 0.f) return;
  alignas(64) float weight[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) weight[lane] = lane < lanes ? times * model.pull : 0.f;
  add_scaled(gradient, weight, joined, model.shape.width);
}

inline void join_gradient(const Model& model, float* gradients, const float* d_joined,
                          const float* d_hidden, const float* hidden, const float* pair,
                          int64_t panels) {
  const Shape& shape = model.shape;
  if (!model.bounds.highway)
    return mlp_gradient(model.join, model.deep(), gradients, d_joined, d_hidden, hidden, pair,
                        2 * shape.width, panels);
  add_gradient(model.join_first, gradients, model.deep() ? d_hidden : d_joined, model.join_first.out, pair,
               2 * shape.width, panels);
  if (!model.deep()) return;
  for (int64_t i = 0; i < 3; ++i)
    add_gradient(model.join_rest[i], gradients, d_joined + i * panel_floats(shape.width), 3 * shape.width,
                 hidden + i * panel_floats(shape.hidden), 3 * shape.hidden, panels);
}

}  // namespace ham
