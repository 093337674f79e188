// Single accesses as operations of PyTorch (namespace ham), with their gradients.
//
// attend_ and update_ work on one tree in place, and backward on one gradient tree in place, so an access costs
// Θ(log n) both ways. What backward needs are ordinary saved tensors. A gradient tree is changed in place only if
// nobody else holds it: autograd's own rule for adding up gradients.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "api.h"
#include "buffers.h"
#include "step.h"

namespace ham {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The binding turns what begins like this into an InputError.
#define HAM_CHECK(right, ...) TORCH_CHECK_VALUE(right, "ham: ", __VA_ARGS__)

void check(const Tensor& tensor, at::IntArrayRef shape, const char* name, at::ScalarType type = at::kFloat) {
  HAM_CHECK(tensor.sizes() == shape, name, " must have shape ", shape, ", got ", tensor.sizes());
  HAM_CHECK(tensor.scalar_type() == type, name, " must be ", type, ", got ", tensor.scalar_type());
  HAM_CHECK(tensor.is_contiguous(), name, " must be contiguous; call .contiguous() on it");
  // An emptied storage, as sharding leaves them, still has a shape.
  size_t bytes = (tensor.storage_offset() + tensor.numel()) * tensor.element_size();
  HAM_CHECK(!tensor.numel() || tensor.storage().nbytes() >= bytes, name, " has no storage");
}

void check_tree(const Tensor& tree, const char* name) {
  HAM_CHECK(tree.dim() == 3 && tree.size(0) > 0 && tree.size(1) > 1 && !(tree.size(1) & (tree.size(1) - 1)) &&
                tree.size(2) > 0,
            name, " must be [batch, 2 * leaves, size], leaves a power of two, got ", tree.sizes());
  check(tree, tree.sizes(), name);
}

void check_finite(const Tensor& tensor, const char* name) {
  int64_t bad = ham_first_not_finite(tensor.const_data_ptr<float>(), tensor.numel());
  HAM_CHECK(bad < 0, name, " must be finite, got ", tensor.const_data_ptr<float>()[bad], " at flat index ", bad);
}

Tensor of_type(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions().dtype(type).device(at::kCPU));
}

Tensor buffer_beside(const Tensor&, int64_t floats) { return buffer(floats); }

// A negated view, say, is contiguous and yet not what its memory holds.
Tensor dense(const Tensor& tensor) { return tensor.resolve_neg().contiguous(); }

// Vectors are loaded at multiples of their size: torch allocates so, but a view may begin anywhere.
Tensor aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 ? tensor.clone() : tensor;
}

using Gradients = std::tuple<Tensor, std::vector<Tensor>>;

// What an update has to know of JOIN beside its weights; as in HamEpisode.
struct JoinForm {
  int64_t form = kRectified;
  double top = 0, grid = 0;
};

// An access as its tree, its query's width and its networks' tensors tell.
struct Given {
  Access access;
  int64_t batch;
  std::vector<const float*> parameters;
  std::vector<int64_t> taking_part;

  Given(Kind kind, const Tensor& tree, int64_t query, TensorList networks, const JoinForm& join = {})
      : batch(tree.size(0)) {
    int64_t joins = join.form == kHighway ? 3 : 1, of_a_layer = kind == Kind::attend ? 2 : 4 + 2 * joins, tensors = static_cast<int64_t>(networks.size());
    int64_t layers = tensors / of_a_layer;
    HAM_CHECK(tensors == layers * of_a_layer && (layers == 1 || layers == 2), "networks of ", tensors, " tensors");
    access = {kind, batch, tree.size(1) / 2, tree.size(2), query, layers == 2 ? networks[0].size(0) : 0, layers,
              at::get_num_threads()};
    access.join = join.form;
    access.top = static_cast<float>(join.top);
    access.grid = static_cast<float>(join.grid);
    for (const Tensor& tensor : networks) parameters.push_back(tensor.const_data_ptr<float>());
    access.parameters = parameters.data();
    size_t at = 0;
    auto network = [&](int64_t in, int64_t out) {
      for (int64_t layer = 0; layer < layers; ++layer) {
        int64_t rows = layer + 1 == layers ? out : access.hidden;
        check(networks[at++], {rows, layer ? access.hidden : in}, "a weight");
        check(networks[at++], {rows}, "a bias");
      }
    };
    int64_t width = access.width;
    if (kind == Kind::attend) {
      network(width + query, 1);
    } else {
      network(width + query, width);
      network(width + query, width);
      for (int64_t i = 0; i < joins; ++i) network(2 * width, width);
    }
  }

  void only(const std::optional<Tensor>& active) {
    if (!active) return;
    Tensor flags = dense(*active);
    check(flags, {batch}, "active", at::kBool);
    for (int64_t i = 0; i < batch; ++i)
      if (flags.const_data_ptr<bool>()[i]) taking_part.push_back(i);
    access.count = static_cast<int64_t>(taking_part.size());
    access.examples = taking_part.data();
  }

  // For all of the batch, however few take part: a shape should not depend on values.
  std::vector<int64_t> tape_shape(const AccessSizes& sizes, bool taped) const {
    return {taped ? (batch + sizes.lanes - 1) / sizes.lanes : 0, sizes.tape};
  }

  Tensor forward(bool taped) {
    AccessSizes sizes = sizes_of(access);
    std::vector<int64_t> shape = tape_shape(sizes, taped);
    Tensor tape = buffer(shape[0] * shape[1]).view(shape);
    Tensor scratch = buffer(sizes.forward);
    access.tape = taped ? tape.mutable_data_ptr<float>() : nullptr;
    access.scratch = scratch.mutable_data_ptr<float>();
    if (access.count) run_forward(access);
    return tape;
  }

  // The query's gradient, and those of the networks' tensors.
  Gradients backward(Tensor& d_tree, const Tensor& saved, TensorList networks) {
    AccessSizes sizes = sizes_of(access);
    Tensor tape = aligned(dense(saved));
    check(tape, tape_shape(sizes, true), "what was saved for backward");
    Tensor scratch = buffer(sizes.backward);
    Tensor d_query = of_type({batch, access.query}, at::kFloat);
    if (access.count < batch) d_query.zero_();
    std::vector<Tensor> d_networks;
    std::vector<float*> starts;
    for (const Tensor& tensor : networks) {
      d_networks.push_back(of_type(tensor.sizes(), at::kFloat));
      starts.push_back(d_networks.back().mutable_data_ptr<float>());
    }
    access.tape = tape.mutable_data_ptr<float>();
    access.scratch = scratch.mutable_data_ptr<float>();
    access.d_tree = d_tree.mutable_data_ptr<float>();
    access.d_queries = d_query.mutable_data_ptr<float>();
    access.d_parameters = starts.data();
    if (access.count) {
      HAM_CHECK(run_backward(access), "what was saved for backward has been changed");
    } else {
      for (Tensor& gradient : d_networks) gradient.zero_();
    }
    return {d_query, d_networks};
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> attend_forward(const Tensor& tree, const Tensor& query,
                                                                  const Tensor& uniforms, TensorList search,
                                                                  bool taped) {
  check_tree(tree, "tree");
  HAM_CHECK(query.dim() == 2, "query must be [batch, query], got ", query.sizes());
  Given given(Kind::attend, tree, query.size(1), search);
  Access& access = given.access;
  int64_t batch = given.batch, levels = access.levels();
  Tensor queries = dense(query), thresholds = dense(uniforms);
  check(queries, {batch, access.query}, "query");
  check(thresholds, {batch, levels}, "uniforms");
  check_finite(thresholds, "uniforms");
  Tensor logits = of_type({batch, levels}, at::kFloat), turns = of_type({batch, levels}, at::kBool);
  Tensor leaf = of_type({batch}, at::kLong), value = of_type({batch, access.width}, at::kFloat);
  access.tree = const_cast<float*>(tree.const_data_ptr<float>());
  access.queries = queries.const_data_ptr<float>();
  access.uniforms = thresholds.const_data_ptr<float>();
  access.turn_logits = logits.mutable_data_ptr<float>();
  access.turns = turns.mutable_data_ptr<bool>();
  access.leaf = leaf.mutable_data_ptr<int64_t>();
  access.value = value.mutable_data_ptr<float>();
  Tensor tape = given.forward(taped);
  return {logits, turns, leaf, value, tape};
}

Tensor update_forward(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                      TensorList networks, int64_t join, double top, double grid, bool taped) {
  check_tree(tree, "tree");
  HAM_CHECK(query.dim() == 2, "query must be [batch, query], got ", query.sizes());
  Given given(Kind::update, tree, query.size(1), networks, {join, top, grid});
  Access& access = given.access;
  given.only(active);
  Tensor queries = dense(query), leaves = dense(leaf);
  check(queries, {given.batch, access.query}, "query");
  check(leaves, {given.batch}, "leaf", at::kLong);
  access.to_leaf = leaves.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < access.count; ++i) {
    int64_t to = access.to_leaf[access.examples ? access.examples[i] : i];
    HAM_CHECK(0 <= to && to < access.leaves, "leaf must be between 0 and ", access.leaves - 1, ", got ", to);
  }
  access.tree = tree.mutable_data_ptr<float>();
  access.queries = queries.const_data_ptr<float>();
  return given.forward(taped);
}

Gradients attend_gradients(Tensor& d_tree, const std::optional<Tensor>& d_logits,
                            const std::optional<Tensor>& d_value, const Tensor& tape, TensorList search,
                            int64_t query) {
  check_tree(d_tree, "the tree's gradient");
  Given given(Kind::attend, d_tree, query, search);
  Access& access = given.access;
  Tensor of_logits, of_value;
  if (d_logits) {
    of_logits = dense(*d_logits);
    check(of_logits, {given.batch, access.levels()}, "the logits' gradient");
    access.d_turn_logits = of_logits.const_data_ptr<float>();
  }
  if (d_value) {
    of_value = dense(*d_value);
    check(of_value, {given.batch, access.width}, "the value's gradient");
    access.d_value = of_value.const_data_ptr<float>();
  }
  return given.backward(d_tree, tape, search);
}

Gradients update_gradients(Tensor& d_tree, const Tensor& tape, const std::optional<Tensor>& active,
                           TensorList networks, int64_t query, int64_t join, double top,
                           double grid) {
  check_tree(d_tree, "the tree's gradient");
  Given given(Kind::update, d_tree, query, networks, {join, top, grid});
  given.only(active);
  return given.backward(d_tree, tape, networks);
}

// As operations they give the networks' gradients in one vector: the list of a schema cannot be functionalised.
using Flat = std::tuple<Tensor, Tensor>;

Flat flat(const Gradients& gradients) {
  std::vector<Tensor> parts;
  for (const Tensor& gradient : std::get<1>(gradients)) parts.push_back(gradient.flatten());
  return {std::get<0>(gradients), at::cat(parts)};
}

Flat attend_backward(Tensor& d_tree, const std::optional<Tensor>& d_logits, const std::optional<Tensor>& d_value,
                     const Tensor& tape, TensorList search, int64_t query) {
  return flat(attend_gradients(d_tree, d_logits, d_value, tape, search, query));
}

Flat update_backward(Tensor& d_tree, const Tensor& tape, const std::optional<Tensor>& active, TensorList networks,
                     int64_t query, int64_t join, double top, double grid) {
  return flat(update_gradients(d_tree, tape, active, networks, query, join, top, grid));
}

Gradients parts(const Flat& flat, TensorList networks) {
  std::vector<Tensor> gradients;
  int64_t start = 0;
  for (const Tensor& tensor : networks) {
    gradients.push_back(std::get<1>(flat).narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
  return {std::get<0>(flat), gradients};
}

// Real memory, and nobody who watches what is called: then a kernel may be called without the dispatcher.
bool is_plain(const Tensor& tensor) {
  return !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_neg() && tensor.is_cpu() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

template <class Signature>
c10::TypedOperatorHandle<Signature> operation(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// What may be changed in place: memory that nobody else holds. Anything else is copied once.
Tensor own(const Tensor& gradient) {
  bool ours = is_plain(gradient) && gradient.use_count() == 1 && gradient.storage().use_count() == 1 &&
              gradient.is_contiguous();
  return ours ? gradient : gradient.clone(at::MemoryFormat::Contiguous);
}

void once_only() {
  HAM_CHECK(!at::GradMode::is_enabled(),
            "a gradient through the memory has no gradient of its own; leave out create_graph, or use torch.func");
}

bool needs_gradient(const Tensor& tree, const Tensor& query, TensorList networks) {
  if (!at::GradMode::is_enabled()) return false;
  if (tree.requires_grad() || query.requires_grad()) return true;
  return std::any_of(networks.begin(), networks.end(), [](const Tensor& t) { return t.requires_grad(); });
}

// The tree goes through unchanged, so that every access has one successor in the graph.
struct Attend : torch::autograd::Function<Attend> {
  static variable_list forward(AutogradContext* context, Tensor tree, Tensor query, Tensor uniforms,
                               TensorList search) {
    static auto run = operation<decltype(attend_forward)>("ham::attend_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [logits, turns, leaf, value, tape] = run.call(tree, query, uniforms, search, true);
    context->mark_dirty({tree});
    context->mark_non_differentiable({turns, leaf});
    context->set_materialize_grads(false);
    variable_list saved{tape};
    saved.insert(saved.end(), search.begin(), search.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["tree"] = tree.sym_sizes();
    context->saved_data["query"] = query.sym_size(1);
    return {tree, logits, turns, leaf, value};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    once_only();
    static auto run = operation<decltype(attend_backward)>("ham::attend_backward");
    variable_list saved = context->get_saved_variables();
    TensorList search = TensorList(saved).slice(1);
    variable_list results(3 + search.size());
    const Tensor &d_logits = gradients[1], &d_value = gradients[4];
    if (!gradients[0].defined() && !d_logits.defined() && !d_value.defined()) return results;
    Tensor d_tree = gradients[0].defined()
                        ? own(gradients[0])
                        : at::zeros_symint(context->saved_data["tree"].toSymIntVector(), saved[0].options());
    auto given = [](const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; };
    int64_t query = context->saved_data["query"].toInt();
    auto [d_query, d_search] =
        is_plain(d_tree) ? attend_gradients(d_tree, given(d_logits), given(d_value), saved[0], search, query)
                         : parts(run.call(d_tree, given(d_logits), given(d_value), saved[0], search, query), search);
    results[0] = d_tree;
    // What took no part in the loss has no gradient, which is not the same as one of zeros.
    if (d_logits.defined()) {
      results[1] = d_query;
      std::copy(d_search.begin(), d_search.end(), results.begin() + 3);
    }
    return results;
  }
};

struct Update : torch::autograd::Function<Update> {
  static variable_list forward(AutogradContext* context, Tensor tree, Tensor query, const Tensor& leaf,
                               const std::optional<Tensor>& active, TensorList networks, int64_t join,
                               double top, double grid) {
    static auto run = operation<decltype(update_forward)>("ham::update_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor tape = run.call(tree, leaf, query, active, networks, join, top, grid, true);
    context->mark_dirty({tree});
    context->set_materialize_grads(false);
    variable_list saved{tape, active.value_or(Tensor())};
    saved.insert(saved.end(), networks.begin(), networks.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["query"] = query.sym_size(1);
    context->saved_data["join"] = c10::List<double>({static_cast<double>(join), top, grid});
    return {tree};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    once_only();
    static auto run = operation<decltype(update_backward)>("ham::update_backward");
    variable_list saved = context->get_saved_variables();
    TensorList networks = TensorList(saved).slice(2);
    // tree, query, leaf, active, the networks, and the three of JOIN's form
    size_t before = 4, after = 3;
    variable_list results(before + networks.size() + after);
    if (!gradients[0].defined()) return results;
    Tensor d_tree = own(gradients[0]);
    std::optional<Tensor> active;
    if (saved[1].defined()) active = saved[1];
    int64_t query = context->saved_data["query"].toInt();
    std::vector<double> form = context->saved_data["join"].toDoubleVector();
    int64_t join = static_cast<int64_t>(form[0]);
    auto [d_query, d_networks] =
        is_plain(d_tree)
            ? update_gradients(d_tree, saved[0], active, networks, query, join, form[1], form[2])
            : parts(run.call(d_tree, saved[0], active, networks, query, join, form[1], form[2]), networks);
    results[0] = d_tree;
    results[1] = d_query;
    std::copy(d_networks.begin(), d_networks.end(), results.begin() + before);
    return results;
  }
};

using Reading = std::tuple<Tensor, Tensor, Tensor, Tensor>;

Reading attend_untaped(Tensor& tree, const Tensor& query, const Tensor& uniforms, TensorList search) {
  static auto run = operation<decltype(attend_forward)>("ham::attend_forward");
  at::AutoDispatchBelowADInplaceOrView guard;
  auto [logits, turns, leaf, value, tape] = run.call(tree, query, uniforms, search, false);
  return {logits, turns, leaf, value};
}

Reading attend_autograd(Tensor& tree, const Tensor& query, const Tensor& uniforms, TensorList search) {
  if (!needs_gradient(tree, query, search)) return attend_untaped(tree, query, uniforms, search);
  variable_list results = Attend::apply(tree, query, uniforms, search);
  return {results[1], results[2], results[3], results[4]};
}

void update_untaped(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                    TensorList networks, int64_t join, double top, double grid) {
  static auto run = operation<decltype(update_forward)>("ham::update_forward");
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    run.call(tree, leaf, query, active, networks, join, top, grid, false);
  }
  if (!tree.is_inference()) tree.unsafeGetTensorImpl()->bump_version();
}

void update_autograd(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                     TensorList networks, int64_t join, double top, double grid) {
  if (!needs_gradient(tree, query, networks))
    return update_untaped(tree, leaf, query, active, networks, join, top, grid);
  Update::apply(tree, query, leaf, active, networks, join, top, grid);
}

}  // namespace
}  // namespace ham

TORCH_LIBRARY(ham, library) {
  library.def("buffer(Tensor beside, int floats) -> Tensor");
  library.def("attend_(Tensor(a!) tree, Tensor query, Tensor uniforms, Tensor[] search) -> "
              "(Tensor logits, Tensor turns, Tensor leaf, Tensor value)");
  library.def("update_(Tensor(a!) tree, Tensor leaf, Tensor query, Tensor? active, Tensor[] networks, int join, "
              "float top, float grid) -> ()");
  library.def("attend_forward(Tensor tree, Tensor query, Tensor uniforms, Tensor[] search, bool taped) -> "
              "(Tensor logits, Tensor turns, Tensor leaf, Tensor value, Tensor tape)");
  library.def("update_forward(Tensor(a!) tree, Tensor leaf, Tensor query, Tensor? active, Tensor[] networks, "
              "int join, float top, float grid, bool taped) -> Tensor tape");
  library.def("attend_backward(Tensor(a!) d_tree, Tensor? d_logits, Tensor? d_value, Tensor tape, Tensor[] search, "
              "int query) -> (Tensor d_query, Tensor d_search)");
  library.def("update_backward(Tensor(a!) d_tree, Tensor tape, Tensor? active, Tensor[] networks, int query, "
              "int join, float top, float grid) -> (Tensor d_query, Tensor d_networks)");
}

TORCH_LIBRARY_IMPL(ham, CPU, library) {
  library.impl("buffer", TORCH_FN(ham::buffer_beside));
  library.impl("attend_", TORCH_FN(ham::attend_untaped));
  library.impl("update_", TORCH_FN(ham::update_untaped));
  library.impl("attend_forward", TORCH_FN(ham::attend_forward));
  library.impl("update_forward", TORCH_FN(ham::update_forward));
  library.impl("attend_backward", TORCH_FN(ham::attend_backward));
  library.impl("update_backward", TORCH_FN(ham::update_backward));
}

TORCH_LIBRARY_IMPL(ham, Autograd, library) {
  library.impl("attend_", TORCH_FN(ham::attend_autograd));
  library.impl("update_", TORCH_FN(ham::update_autograd));
}
