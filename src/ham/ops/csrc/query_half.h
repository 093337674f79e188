// SEARCH and WRITE read [node; query]. Where many nodes meet one query, the query's half of the first
// layer, bias included, is computed once, and so are its gradients, from the sum over the nodes.
#pragma once

#include "model.h"

namespace ham {

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
  outer(gradients + first.at, first.in, d_first, panel_floats(first.out), first.out, node,
        panel_floats(model.shape.width), model.shape.width, panels);
}

inline void query_gradient(const Model& model, const Layer& first, float* gradients,
                           const float* d_half, const float* query, int64_t query_features,
                           int64_t panels) {
  float* dw = gradients + first.at;
  outer(dw + model.shape.width, first.in, d_half, panel_floats(first.out), first.out, query,
        panel_floats(query_features), model.shape.query, panels);
  add_lane_sums(dw + first.out * first.in, d_half, panel_floats(first.out), first.out, panels);
}

}  // namespace ham
