// Single accesses on tensors, with their gradients: binding.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace ham {

using at::Tensor;
using at::TensorList;

// Logits, turns, leaf, value, log-probabilities.
using Reading = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// What an update has to know of JOIN beside its weights; as in HamEpisode.
struct JoinForm {
  int64_t form = 0;
  double top = 0, grid = 0;
};

// Weights as the engine reads them. `weights` are laid out as their gradient is; only forward reads `transposed`.
struct Packed {
  Tensor weights, transposed;
  int64_t hidden = 0;
};

Reading attend(Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
               const Tensor& transposed, int64_t hidden);
void update(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
            const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join, double top, double grid);

// Real memory, and nobody who watches what is called: then a kernel may be called without the dispatcher.
bool is_plain(const Tensor& tensor);

// The networks of a module, packed when their numbers have changed: these are compared, since a version is not told
// of changes by way of `data`. The tensors are given each time, as whoever holds one keeps it from being swapped.
class KnownNetworks {
 public:
  KnownNetworks(bool attends, bool highway) : attends_(attends), highway_(highway) {}
  Packed packed(TensorList tensors);

 private:
  bool are_the_same_leaves(TensorList tensors) const;
  bool are_the_same_numbers(TensorList tensors) const;
  void repack(TensorList tensors);

  struct Numbers {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  bool attends_, highway_;
  Packed plain_;
  Tensor differentiable_;
  std::vector<std::pair<const void*, bool>> leaves_;
  std::vector<Numbers> numbers_;
};

}  // namespace ham
