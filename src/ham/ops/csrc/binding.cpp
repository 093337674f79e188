// Single accesses as operations of PyTorch (namespace ham), with their gradients.
//
// attend_ and update_ work on one tree in place, and backward on one gradient tree in place, so an access costs
// Θ(log n) both ways. What backward needs are ordinary saved tensors. A gradient tree is changed in place only if
// nobody else holds it: autograd's own rule for adding up gradients.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

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

Tensor of_type(at::IntArrayRef shape, at::ScalarType type) { return at::detail::empty_cpu(shape, type); }

Tensor buffer_beside(const Tensor&, int64_t floats) { return buffer({floats}); }

// A negated view, say, is contiguous and yet not what its memory holds.
Tensor dense(const Tensor& tensor) { return tensor.resolve_neg().contiguous(); }

// Vectors are loaded at multiples of their size: torch allocates so, but a view may begin anywhere.
Tensor aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 ? tensor.clone() : tensor;
}

// What an update has to know of JOIN beside its weights; as in HamEpisode.
struct JoinForm {
  int64_t form = kRectified;
  double top = 0, grid = 0;
};

// Weights as the engine reads them. `weights` are laid out as their gradient is; only forward reads `transposed`.
struct Packed {
  Tensor weights, transposed;
};

// An access as its tree and the widths of its query and hidden layers tell; 0 is none.
struct Call {
  Access access;
  int64_t batch;
  AccessSizes sizes{};
  std::vector<int64_t> taking_part;

  Call(Kind kind, const Tensor& tree, int64_t query, int64_t hidden, const JoinForm& join = {})
      : Call(kind, tree.size(0), tree.size(1) / 2, tree.size(2), query, hidden, join) {}

  Call(Kind kind, int64_t examples, int64_t leaves, int64_t width, int64_t query, int64_t hidden,
       const JoinForm& join)
      : batch(examples) {
    HAM_CHECK(hidden >= 0 && hidden < int64_t{1} << 31, "a hidden layer of width ", hidden);
    access = {kind, batch, leaves, width, query, hidden, hidden ? 2 : 1, at::get_num_threads()};
    access.join = join.form;
    access.top = static_cast<float>(join.top);
    access.grid = static_cast<float>(join.grid);
    sizes = sizes_of(access);
  }

  void only(const std::optional<Tensor>& active) {
    if (!active) return;
    Tensor flags = dense(*active);
    check(flags, {batch}, "active", at::kBool);
    for (int64_t i = 0; i < batch; ++i)
      if (flags.const_data_ptr<bool>()[i]) taking_part.push_back(i);
    access.count = static_cast<int64_t>(taking_part.size());
    access.examples = taking_part.data();
    sizes = sizes_of(access);
  }

  // For all of the batch, however few take part: a shape should not depend on values.
  std::array<int64_t, 2> tape_shape(bool taped) const {
    return {taped ? (batch + sizes.lanes - 1) / sizes.lanes : 0, sizes.tape};
  }

  Tensor forward(const Packed& packed, bool taped) {
    check(packed.weights, {sizes.weights}, "weights");
    check(packed.transposed, {sizes.transposed}, "transposed weights");
    access.weights = packed.weights.const_data_ptr<float>();
    access.transposed = packed.transposed.const_data_ptr<float>();
    auto shape = tape_shape(taped);
    Tensor tape = buffer(shape), scratch = buffer({sizes.forward});
    access.tape = taped ? tape.mutable_data_ptr<float>() : nullptr;
    access.scratch = scratch.mutable_data_ptr<float>();
    if (access.count) run_forward(access);
    return tape;
  }

  // The gradients of the query and of the weights.
  std::tuple<Tensor, Tensor> backward(Tensor& d_tree, const Tensor& saved, const Tensor& saved_weights) {
    Tensor tape = aligned(dense(saved)), weights = dense(saved_weights);
    check(tape, tape_shape(true), "what was saved for backward");
    check(weights, {sizes.weights}, "weights");
    Tensor scratch = buffer({sizes.backward});
    Tensor d_query = of_type({batch, access.query}, at::kFloat), d_weights = of_type({sizes.weights}, at::kFloat);
    if (access.count < batch) d_query.zero_();
    access.weights = weights.const_data_ptr<float>();
    access.tape = tape.mutable_data_ptr<float>();
    access.scratch = scratch.mutable_data_ptr<float>();
    access.d_tree = d_tree.mutable_data_ptr<float>();
    access.d_queries = d_query.mutable_data_ptr<float>();
    access.d_weights = d_weights.mutable_data_ptr<float>();
    if (access.count) {
      HAM_CHECK(run_backward(access), "what was saved for backward has been changed");
    } else {
      d_weights.zero_();
    }
    return {d_query, d_weights};
  }
};

using Reading = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using TapedReading = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

TapedReading attend_forward(const Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
                            const Tensor& transposed, int64_t hidden, bool taped) {
  check_tree(tree, "tree");
  HAM_CHECK(query.dim() == 2, "query must be [batch, query], got ", query.sizes());
  Call call(Kind::attend, tree, query.size(1), hidden);
  Access& access = call.access;
  int64_t batch = call.batch, levels = access.levels();
  Tensor queries = dense(query), thresholds = dense(uniforms);
  check(queries, {batch, access.query}, "query");
  check(thresholds, {batch, levels}, "uniforms");
  check_finite(thresholds, "uniforms");
  Tensor logits = of_type({batch, levels}, at::kFloat), log_probs = of_type({batch, levels}, at::kFloat);
  Tensor turns = of_type({batch, levels}, at::kBool), leaf = of_type({batch}, at::kLong);
  Tensor value = of_type({batch, access.width}, at::kFloat);
  access.tree = const_cast<float*>(tree.const_data_ptr<float>());
  access.queries = queries.const_data_ptr<float>();
  access.uniforms = thresholds.const_data_ptr<float>();
  access.turn_logits = logits.mutable_data_ptr<float>();
  access.log_probs = log_probs.mutable_data_ptr<float>();
  access.turns = turns.mutable_data_ptr<bool>();
  access.leaf = leaf.mutable_data_ptr<int64_t>();
  access.value = value.mutable_data_ptr<float>();
  Tensor tape = call.forward({weights, transposed}, taped);
  return {logits, turns, leaf, value, log_probs, tape};
}

Tensor update_forward(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                      const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join,
                      double top, double grid, bool taped) {
  check_tree(tree, "tree");
  HAM_CHECK(query.dim() == 2, "query must be [batch, query], got ", query.sizes());
  Call call(Kind::update, tree, query.size(1), hidden, {join, top, grid});
  Access& access = call.access;
  call.only(active);
  Tensor queries = dense(query), leaves = dense(leaf);
  check(queries, {call.batch, access.query}, "query");
  check(leaves, {call.batch}, "leaf", at::kLong);
  access.to_leaf = leaves.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < access.count; ++i) {
    int64_t to = access.to_leaf[access.examples ? access.examples[i] : i];
    HAM_CHECK(0 <= to && to < access.leaves, "leaf must be between 0 and ", access.leaves - 1, ", got ", to);
  }
  access.tree = tree.mutable_data_ptr<float>();
  access.queries = queries.const_data_ptr<float>();
  return call.forward({weights, transposed}, taped);
}

std::tuple<Tensor, Tensor> attend_backward(Tensor& d_tree, const std::optional<Tensor>& d_logits,
                                           const std::optional<Tensor>& d_log_probs,
                                           const std::optional<Tensor>& d_value, const Tensor& tape,
                                           const Tensor& weights, int64_t query, int64_t hidden) {
  check_tree(d_tree, "the tree's gradient");
  Call call(Kind::attend, d_tree, query, hidden);
  Access& access = call.access;
  Tensor held[3];
  auto numbers = [&](Tensor& hold, const std::optional<Tensor>& given, int64_t columns, const char* name) {
    if (!given) return static_cast<const float*>(nullptr);
    hold = dense(*given);
    check(hold, {call.batch, columns}, name);
    return hold.const_data_ptr<float>();
  };
  access.d_turn_logits = numbers(held[0], d_logits, access.levels(), "the logits' gradient");
  access.d_log_probs = numbers(held[1], d_log_probs, access.levels(), "the log-probabilities' gradient");
  access.d_value = numbers(held[2], d_value, access.width, "the value's gradient");
  return call.backward(d_tree, tape, weights);
}

std::tuple<Tensor, Tensor> update_backward(Tensor& d_tree, const Tensor& tape, const std::optional<Tensor>& active,
                                           const Tensor& weights, int64_t query, int64_t hidden, int64_t join,
                                           double top, double grid) {
  check_tree(d_tree, "the tree's gradient");
  Call call(Kind::update, d_tree, query, hidden, {join, top, grid});
  call.only(active);
  return call.backward(d_tree, tape, weights);
}

// The networks of an access: SEARCH, or WRITE's two and JOIN's one or three (highway).
struct Networks {
  bool attends, highway;
  int64_t inputs, outputs, hidden;

  static Networks of(TensorList tensors, bool attends, bool highway) {
    int64_t of_a_layer = attends ? 2 : highway ? 10 : 6, count = static_cast<int64_t>(tensors.size());
    int64_t layers = count / of_a_layer;
    HAM_CHECK(count == layers * of_a_layer && (layers == 1 || layers == 2), "networks of ", count, " tensors");
    HAM_CHECK(tensors[0].dim() == 2, "a weight must be a matrix, got ", tensors[0].sizes());
    int64_t outputs = tensors[2 * layers - 1].numel();
    return {attends, highway, tensors[0].size(1), outputs, layers == 2 ? tensors[0].size(0) : 0};
  }

  // Of their tensors, in order.
  std::vector<std::vector<int64_t>> shapes() const {
    std::vector<std::vector<int64_t>> shapes;
    auto network = [&](int64_t in) {
      if (hidden) shapes.insert(shapes.end(), {{hidden, in}, {hidden}});
      shapes.insert(shapes.end(), {{outputs, hidden ? hidden : in}, {outputs}});
    };
    network(inputs);
    if (!attends) network(inputs);
    for (int64_t i = 0; i < (attends ? 0 : highway ? 3 : 1); ++i) network(2 * outputs);
    return shapes;
  }

  // Some access with networks of these widths.
  Call call() const {
    HAM_CHECK(outputs > 0 && inputs >= outputs, "networks from ", inputs, " to ", outputs);
    return {attends ? Kind::attend : Kind::update, 1, 1, outputs, inputs - outputs, hidden, {highway ? kHighway : kRectified}};
  }
};

std::tuple<Tensor, Tensor> pack_forward(TensorList tensors, bool attends, bool highway) {
  Networks networks = Networks::of(tensors, attends, highway);
  Call call = networks.call();
  std::vector<std::vector<int64_t>> shapes = networks.shapes();
  std::vector<Tensor> held;
  std::vector<const float*> starts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    held.push_back(dense(tensors[i]));
    check(held.back(), shapes[i], shapes[i].size() == 2 ? "a weight" : "a bias");
    starts.push_back(held.back().const_data_ptr<float>());
  }
  Tensor weights = of_type({call.sizes.weights}, at::kFloat), transposed = of_type({call.sizes.transposed}, at::kFloat);
  pack(call.access, starts.data(), weights.mutable_data_ptr<float>(), transposed.mutable_data_ptr<float>());
  return {weights, transposed};
}

// The tensors' gradients one after the other: the list of a schema cannot be functionalised.
Tensor pack_backward(const Tensor& gradient, bool attends, bool highway, int64_t inputs, int64_t outputs,
                     int64_t hidden) {
  Networks networks{attends, highway, inputs, outputs, hidden};
  Call call = networks.call();
  Tensor d_weights = dense(gradient), flat = of_type({call.sizes.weights}, at::kFloat);
  check(d_weights, {call.sizes.weights}, "the weights' gradient");
  std::vector<float*> starts;
  float* start = flat.mutable_data_ptr<float>();
  for (const std::vector<int64_t>& shape : networks.shapes()) {
    starts.push_back(start);
    start += c10::multiply_integers(shape);
  }
  unpack(call.access, d_weights.const_data_ptr<float>(), starts.data());
  return flat;
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

bool needs_gradient(const Tensor& tree, const Tensor& query, const Tensor& weights) {
  return at::GradMode::is_enabled() && (tree.requires_grad() || query.requires_grad() || weights.requires_grad());
}

// Saves nothing, so it may be gone through any number of times.
struct Pack : torch::autograd::Function<Pack> {
  static variable_list forward(AutogradContext* context, TensorList tensors, bool attends, bool highway) {
    static auto run = operation<decltype(pack_forward)>("ham::pack_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    auto [weights, transposed] = run.call(tensors, attends, highway);
    context->mark_non_differentiable({transposed});
    context->set_materialize_grads(false);
    Networks networks = Networks::of(tensors, attends, highway);
    context->saved_data["networks"] =
        std::vector<int64_t>{attends, highway, networks.inputs, networks.outputs, networks.hidden};
    return {weights, transposed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static auto run = operation<decltype(pack_backward)>("ham::pack_backward");
    std::vector<int64_t> given = context->saved_data["networks"].toIntVector();
    Networks networks{given[0] != 0, given[1] != 0, given[2], given[3], given[4]};
    std::vector<std::vector<int64_t>> shapes = networks.shapes();
    variable_list results(shapes.size() + 2);
    if (!gradients[0].defined()) return results;
    Tensor flat = run.call(gradients[0], networks.attends, networks.highway, given[2], given[3], given[4]);
    int64_t start = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      int64_t numbers = c10::multiply_integers(shapes[i]);
      // A copy: gradients are given away, each for itself.
      results[i] = flat.narrow(0, start, numbers).clone().view(shapes[i]);
      start += numbers;
    }
    return results;
  }
};

std::tuple<Tensor, Tensor> pack_autograd(TensorList tensors, bool attends, bool highway) {
  variable_list results = Pack::apply(tensors, attends, highway);
  return {results[0], results[1]};
}

// Arguments of the accesses that have no gradient.
struct AttendWith {
  const Tensor &uniforms, &transposed;
  int64_t hidden;
};

struct UpdateWith {
  const Tensor &leaf, &transposed;
  const std::optional<Tensor>& active;
  int64_t hidden;
  JoinForm join;
};

// The tree goes through unchanged, so that every access has one successor in the graph.
struct Attend : torch::autograd::Function<Attend> {
  static TapedReading run(const Tensor& tree, const Tensor& query, const Tensor& weights, const AttendWith& with,
                          bool taped) {
    if (is_plain(tree)) return attend_forward(tree, query, with.uniforms, weights, with.transposed, with.hidden, taped);
    static auto run = operation<decltype(attend_forward)>("ham::attend_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    return run.call(tree, query, with.uniforms, weights, with.transposed, with.hidden, taped);
  }

  static variable_list forward(AutogradContext* context, const Tensor& tree, const Tensor& query,
                               const Tensor& weights, const AttendWith& with) {
    auto [logits, turns, leaf, value, log_probs, tape] = run(tree, query, weights, with, true);
    context->mark_dirty({tree});
    context->mark_non_differentiable({turns, leaf});
    context->set_materialize_grads(false);
    context->save_for_backward({tape, weights});
    context->saved_data["widths"] = std::vector<int64_t>{query.size(1), with.hidden};
    context->saved_data["tree"] = tree.sym_sizes();
    return {tree, logits, turns, leaf, value, log_probs};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    once_only();
    variable_list saved = context->get_saved_variables();
    auto given = [&](int i) { return gradients[i].defined() ? std::optional(gradients[i]) : std::nullopt; };
    auto d_logits = given(1), d_value = given(4), d_log_probs = given(5);
    if (!gradients[0].defined() && !d_logits && !d_value && !d_log_probs) return variable_list(4);
    Tensor d_tree = gradients[0].defined()
                        ? own(gradients[0])
                        : at::zeros_symint(context->saved_data["tree"].toSymIntVector(), saved[0].options());
    std::vector<int64_t> widths = context->saved_data["widths"].toIntVector();
    static auto run = operation<decltype(attend_backward)>("ham::attend_backward");
    auto [d_query, d_weights] =
        is_plain(d_tree)
            ? attend_backward(d_tree, d_logits, d_log_probs, d_value, saved[0], saved[1], widths[0], widths[1])
            : run.call(d_tree, d_logits, d_log_probs, d_value, saved[0], saved[1], widths[0], widths[1]);
    // What took no part in the loss has no gradient, which is not the same as one of zeros.
    bool decided = d_logits || d_log_probs;
    return {d_tree, decided ? d_query : Tensor(), decided ? d_weights : Tensor(), Tensor()};
  }
};

struct Update : torch::autograd::Function<Update> {
  static Tensor run(Tensor& tree, const Tensor& query, const Tensor& weights, const UpdateWith& with, bool taped) {
    auto [form, top, grid] = with.join;
    if (is_plain(tree))
      return update_forward(tree, with.leaf, query, with.active, weights, with.transposed, with.hidden, form, top,
                            grid, taped);
    static auto run = operation<decltype(update_forward)>("ham::update_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    return run.call(tree, with.leaf, query, with.active, weights, with.transposed, with.hidden, form, top, grid,
                    taped);
  }

  static variable_list forward(AutogradContext* context, Tensor tree, const Tensor& query, const Tensor& weights,
                               const UpdateWith& with) {
    Tensor tape = run(tree, query, weights, with, true);
    auto [form, top, grid] = with.join;
    context->mark_dirty({tree});
    context->set_materialize_grads(false);
    context->save_for_backward({tape, weights, with.active.value_or(Tensor())});
    context->saved_data["widths"] = std::vector<int64_t>{query.size(1), with.hidden, form};
    context->saved_data["bounds"] = std::vector<double>{top, grid};
    return {tree};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    once_only();
    variable_list saved = context->get_saved_variables();
    if (!gradients[0].defined()) return variable_list(4);
    Tensor d_tree = own(gradients[0]);
    std::optional<Tensor> active;
    if (saved[2].defined()) active = saved[2];
    std::vector<int64_t> widths = context->saved_data["widths"].toIntVector();
    std::vector<double> bounds = context->saved_data["bounds"].toDoubleVector();
    static auto run = operation<decltype(update_backward)>("ham::update_backward");
    auto [d_query, d_weights] = is_plain(d_tree)
                                    ? update_backward(d_tree, saved[0], active, saved[1], widths[0], widths[1],
                                                      widths[2], bounds[0], bounds[1])
                                    : run.call(d_tree, saved[0], active, saved[1], widths[0], widths[1], widths[2],
                                               bounds[0], bounds[1]);
    return {d_tree, d_query, d_weights, Tensor()};
  }
};

Reading attend_untaped(Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
                       const Tensor& transposed, int64_t hidden) {
  auto [logits, turns, leaf, value, log_probs, tape] =
      Attend::run(tree, query, weights, {uniforms, transposed, hidden}, false);
  return {logits, turns, leaf, value, log_probs};
}

Reading attend(Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
               const Tensor& transposed, int64_t hidden) {
  if (!needs_gradient(tree, query, weights)) return attend_untaped(tree, query, uniforms, weights, transposed, hidden);
  AttendWith with{uniforms, transposed, hidden};
  variable_list results = Attend::apply(tree, query, weights, with);
  return {results[1], results[2], results[3], results[4], results[5]};
}

void update_untaped(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                    const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join,
                    double top, double grid) {
  Update::run(tree, query, weights, {leaf, transposed, active, hidden, {join, top, grid}}, false);
  if (!tree.is_inference()) tree.unsafeGetTensorImpl()->bump_version();
}

void update(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
            const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join, double top,
            double grid) {
  if (!needs_gradient(tree, query, weights))
    return update_untaped(tree, leaf, query, active, weights, transposed, hidden, join, top, grid);
  UpdateWith with{leaf, transposed, active, hidden, {join, top, grid}};
  Update::apply(tree, query, weights, with);
}

// The networks of a module, packed when their numbers have changed: these are compared, since a version is not told
// of changes by way of `data`. The tensors are given each time, as whoever holds one keeps it from being swapped.
// For programs that run as they are written; those that are traced pack every time.
class KnownNetworks : public torch::CustomClassHolder {
 public:
  KnownNetworks(bool attends, bool highway) : attends_(attends), highway_(highway) {}

  // A list: PyTorch looks at the tensors of a tuple once more to find out what kind of tuple it is.
  variable_list attend(Tensor tree, const Tensor& query, const Tensor& uniforms, const variable_list& tensors) {
    static auto run = operation<decltype(ham::attend)>("ham::attend_");
    auto [weights, transposed, hidden] = packed(tensors);
    auto [logits, turns, leaf, value, log_probs] =
        is_plain(tree) ? ham::attend(tree, query, uniforms, weights, transposed, hidden)
                       : run.call(tree, query, uniforms, weights, transposed, hidden);
    return {logits, turns, leaf, value, log_probs};
  }

  void update(Tensor tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active, int64_t join,
              double top, double grid, const variable_list& tensors) {
    static auto run = operation<decltype(ham::update)>("ham::update_");
    auto [weights, transposed, hidden] = packed(tensors);
    if (is_plain(tree))
      ham::update(tree, leaf, query, active, weights, transposed, hidden, join, top, grid);
    else
      run.call(tree, leaf, query, active, weights, transposed, hidden, join, top, grid);
  }

 private:
  struct Result {
    Tensor weights, transposed;
    int64_t hidden;
  };

  Result packed(const variable_list& tensors) {
    if (!std::all_of(tensors.begin(), tensors.end(), is_plain)) return packed_anew(tensors);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!are_the_same_numbers(tensors)) repack(tensors);
    bool asks = std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.requires_grad(); });
    if (!asks || !at::GradMode::is_enabled()) return {plain_.weights, plain_.transposed, hidden_};
    if (differentiable_.defined() && are_the_same_leaves(tensors)) return {differentiable_, plain_.transposed, hidden_};
    Tensor weights = std::get<0>(pack_autograd(tensors, attends_, highway_));
    // What was computed belongs to a graph, which should not be kept alive.
    bool keep = std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.is_leaf(); });
    differentiable_ = keep ? weights : Tensor();
    leaves_.clear();
    for (const Tensor& tensor : tensors) leaves_.emplace_back(tensor.unsafeGetTensorImpl(), tensor.requires_grad());
    return {weights, plain_.transposed, hidden_};
  }

  // Where somebody watches what is called, or the tensors only stand for numbers.
  Result packed_anew(const variable_list& tensors) const {
    static auto run = operation<decltype(pack_autograd)>("ham::pack");
    auto [weights, transposed] = run.call(tensors, attends_, highway_);
    return {weights, transposed, Networks::of(tensors, attends_, highway_).hidden};
  }

  // Those that ask for gradients are kept alive by the graph, so an address tells one from another.
  bool are_the_same_leaves(const variable_list& tensors) const {
    return std::equal(tensors.begin(), tensors.end(), leaves_.begin(), leaves_.end(), [](const Tensor& t, auto& leaf) {
      return t.requires_grad() == leaf.second && (!leaf.second || t.unsafeGetTensorImpl() == leaf.first);
    });
  }

  bool are_the_same_numbers(const variable_list& tensors) const {
    return std::equal(tensors.begin(), tensors.end(), numbers_.begin(), numbers_.end(),
                      [](const Tensor& t, const std::vector<float>& numbers) {
                        return is_dense(t) && t.numel() == static_cast<int64_t>(numbers.size()) &&
                               !std::memcmp(t.const_data_ptr<float>(), numbers.data(), sizeof(float) * numbers.size());
                      });
  }

  static bool is_dense(const Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat && tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_neg() &&
           tensor.storage().nbytes() >= (tensor.storage_offset() + tensor.numel()) * sizeof(float);
  }

  void repack(const variable_list& tensors) {
    // Kept for calls in any mode.
    c10::InferenceMode any_mode(false);
    at::NoGradGuard no_gradient;
    numbers_.clear();
    differentiable_.reset();
    std::tie(plain_.weights, plain_.transposed) = pack_forward(tensors, attends_, highway_);
    hidden_ = Networks::of(tensors, attends_, highway_).hidden;
    for (const Tensor& tensor : tensors) {
      Tensor numbers = dense(tensor);
      const float* start = numbers.const_data_ptr<float>();
      numbers_.emplace_back(start, start + numbers.numel());
    }
  }

  std::mutex mutex_;
  bool attends_, highway_;
  Packed plain_;
  Tensor differentiable_;
  int64_t hidden_ = 0;
  std::vector<std::pair<const void*, bool>> leaves_;
  std::vector<std::vector<float>> numbers_;
};

}  // namespace
}  // namespace ham

TORCH_LIBRARY(ham, library) {
  library.def("buffer(Tensor beside, int floats) -> Tensor");
  library.def("pack(Tensor[] networks, bool attends, bool highway) -> (Tensor weights, Tensor transposed)");
  library.def("pack_forward(Tensor[] networks, bool attends, bool highway) -> (Tensor weights, Tensor transposed)");
  library.def("pack_backward(Tensor gradient, bool attends, bool highway, int inputs, int outputs, int hidden) -> "
              "Tensor flat");
  library.def("attend_(Tensor(a!) tree, Tensor query, Tensor uniforms, Tensor weights, Tensor transposed, int hidden) "
              "-> (Tensor logits, Tensor turns, Tensor leaf, Tensor value, Tensor log_probs)");
  library.def("update_(Tensor(a!) tree, Tensor leaf, Tensor query, Tensor? active, Tensor weights, Tensor transposed, "
              "int hidden, int join, float top, float grid) -> ()");
  library.def("attend_forward(Tensor tree, Tensor query, Tensor uniforms, Tensor weights, Tensor transposed, "
              "int hidden, bool taped) -> "
              "(Tensor logits, Tensor turns, Tensor leaf, Tensor value, Tensor log_probs, Tensor tape)");
  library.def("update_forward(Tensor(a!) tree, Tensor leaf, Tensor query, Tensor? active, Tensor weights, "
              "Tensor transposed, int hidden, int join, float top, float grid, bool taped) -> Tensor tape");
  library.def("attend_backward(Tensor(a!) d_tree, Tensor? d_logits, Tensor? d_log_probs, Tensor? d_value, Tensor tape, "
              "Tensor weights, int query, int hidden) -> (Tensor d_query, Tensor d_weights)");
  library.def("update_backward(Tensor(a!) d_tree, Tensor tape, Tensor? active, Tensor weights, int query, int hidden, "
              "int join, float top, float grid) -> (Tensor d_query, Tensor d_weights)");
  library.class_<ham::KnownNetworks>("Networks")
      .def(torch::init<bool, bool>())
      .def("attend", &ham::KnownNetworks::attend)
      .def("update", &ham::KnownNetworks::update);
}

TORCH_LIBRARY_IMPL(ham, CPU, library) {
  library.impl("buffer", TORCH_FN(ham::buffer_beside));
  library.impl("pack", TORCH_FN(ham::pack_forward));
  library.impl("attend_", TORCH_FN(ham::attend_untaped));
  library.impl("update_", TORCH_FN(ham::update_untaped));
  library.impl("pack_forward", TORCH_FN(ham::pack_forward));
  library.impl("pack_backward", TORCH_FN(ham::pack_backward));
  library.impl("attend_forward", TORCH_FN(ham::attend_forward));
  library.impl("update_forward", TORCH_FN(ham::update_forward));
  library.impl("attend_backward", TORCH_FN(ham::attend_backward));
  library.impl("update_backward", TORCH_FN(ham::update_backward));
}

TORCH_LIBRARY_IMPL(ham, Autograd, library) {
  library.impl("pack", TORCH_FN(ham::pack_autograd));
  library.impl("attend_", TORCH_FN(ham::attend));
  library.impl("update_", TORCH_FN(ham::update));
}
