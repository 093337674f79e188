// SEARCH: the logit of going right at a node.
#pragma once

#include "query_half.h"

namespace ham {

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

}  // namespace ham
