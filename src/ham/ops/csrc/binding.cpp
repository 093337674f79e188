// Single accesses as operations of PyTorch (namespace ham), with their gradients.
//
// attend_ and update_ work on one tree in place, and backward on one gradient tree in place, so an access costs
// Θ(log n) both ways. What backward needs are ordinary saved tensors. A gradient tree is changed in place only if
// nobody else holds it: autograd's own rule for adding up gradients.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "access.h"
#include "api.h"
#include "buffers.h"
#include "step.h"

namespace ham {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::isFwGradDefined;
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

Tensor buffer_beside(const Tensor&, int64_t floats) { return buffer({floats}); }

// A negated view, say, is contiguous and yet not what its memory holds.
Tensor dense(const Tensor& tensor) { return (tensor.is_neg() ? tensor.resolve_neg() : tensor).contiguous(); }

// Vectors are loaded at multiples of their size: torch allocates so, but a view may begin anywhere.
Tensor aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 64 ? tensor.clone() : tensor;
}

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

  // Forward and backward must agree on it, however many take part.
  bool is_small() const { return batch <= 8; }

  // For all of the batch, however few take part: a shape should not depend on values.
  std::array<int64_t, 2> tape_shape(bool taped) const {
    return {taped ? (batch + sizes.lanes - 1) / sizes.lanes : 0, sizes.tape};
  }

  Tensor forward(const Tensor& weights, const Tensor& transposed, bool taped) {
    check(weights, {sizes.weights}, "weights");
    check(transposed, {sizes.transposed}, "transposed weights");
    access.weights = weights.const_data_ptr<float>();
    access.transposed = transposed.const_data_ptr<float>();
    auto shape = tape_shape(taped);
    Tensor tape = buffer(shape), scratch = scratch_of_thread(sizes.forward);
    access.tape = taped ? tape.mutable_data_ptr<float>() : nullptr;
    access.scratch = scratch.mutable_data_ptr<float>();
    if (access.count) (is_small() ? of_eight::run_forward : run_forward)(access);
    return tape;
  }

  // The gradient of the query; that of the weights is added to `d_weights`, or becomes it.
  Tensor backward(Tensor& d_tree, const Tensor& saved, const Tensor& saved_weights, Tensor& d_weights) {
    Tensor tape = aligned(dense(saved)), weights = dense(saved_weights);
    check(tape, tape_shape(true), "what was saved for backward");
    check(weights, {sizes.weights}, "weights");
    Tensor scratch = scratch_of_thread(sizes.backward), d_query = result({batch, access.query}, at::kFloat);
    access.adds_weights = d_weights.defined();
    if (d_weights.defined())
      check(d_weights, {sizes.weights}, "the weights' gradient");
    else
      d_weights = buffer({sizes.weights});
    if (access.count < batch) d_query.zero_();
    access.weights = weights.const_data_ptr<float>();
    access.tape = tape.mutable_data_ptr<float>();
    access.scratch = scratch.mutable_data_ptr<float>();
    access.d_tree = d_tree.mutable_data_ptr<float>();
    access.d_queries = d_query.mutable_data_ptr<float>();
    access.d_weights = d_weights.mutable_data_ptr<float>();
    if (access.count) {
      bool done = (is_small() ? of_eight::run_backward : run_backward)(access);
      HAM_CHECK(done, "what was saved for backward has been changed");
    } else if (!access.adds_weights) {
      d_weights.zero_();
    }
    return d_query;
  }
};

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
  Tensor logits = result({batch, levels}, at::kFloat), log_probs = result({batch, levels}, at::kFloat);
  Tensor turns = result({batch, levels}, at::kBool), leaf = result({batch}, at::kLong);
  Tensor value = result({batch, access.width}, at::kFloat);
  access.tree = const_cast<float*>(tree.const_data_ptr<float>());
  access.queries = queries.const_data_ptr<float>();
  access.uniforms = thresholds.const_data_ptr<float>();
  access.turn_logits = logits.mutable_data_ptr<float>();
  access.log_probs = log_probs.mutable_data_ptr<float>();
  access.turns = turns.mutable_data_ptr<bool>();
  access.leaf = leaf.mutable_data_ptr<int64_t>();
  access.value = value.mutable_data_ptr<float>();
  Tensor tape = call.forward(weights, transposed, taped);
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
  return call.forward(weights, transposed, taped);
}

using Incoming = std::optional<Tensor>;

Tensor attend_back(Tensor& d_tree, const Incoming& d_logits, const Incoming& d_log_probs, const Incoming& d_value,
                   const Tensor& tape, const Tensor& weights, int64_t query, int64_t hidden, Tensor& d_weights) {
  check_tree(d_tree, "the tree's gradient");
  Call call(Kind::attend, d_tree, query, hidden);
  Access& access = call.access;
  Tensor held[3];
  auto numbers = [&](Tensor& hold, const Incoming& given, int64_t columns, const char* name) {
    if (!given) return static_cast<const float*>(nullptr);
    hold = dense(*given);
    check(hold, {call.batch, columns}, name);
    return hold.const_data_ptr<float>();
  };
  access.d_turn_logits = numbers(held[0], d_logits, access.levels(), "the logits' gradient");
  access.d_log_probs = numbers(held[1], d_log_probs, access.levels(), "the log-probabilities' gradient");
  access.d_value = numbers(held[2], d_value, access.width, "the value's gradient");
  return call.backward(d_tree, tape, weights, d_weights);
}

Tensor update_back(Tensor& d_tree, const Tensor& tape, const std::optional<Tensor>& active, const Tensor& weights,
                   int64_t query, int64_t hidden, const JoinForm& join, Tensor& d_weights) {
  check_tree(d_tree, "the tree's gradient");
  Call call(Kind::update, d_tree, query, hidden, join);
  call.only(active);
  return call.backward(d_tree, tape, weights, d_weights);
}

std::tuple<Tensor, Tensor> attend_backward(Tensor& d_tree, const Incoming& d_logits, const Incoming& d_log_probs,
                                           const Incoming& d_value, const Tensor& tape, const Tensor& weights,
                                           int64_t query, int64_t hidden) {
  Tensor d_weights;
  Tensor d_query = attend_back(d_tree, d_logits, d_log_probs, d_value, tape, weights, query, hidden, d_weights);
  return {d_query, d_weights};
}

std::tuple<Tensor, Tensor> update_backward(Tensor& d_tree, const Tensor& tape, const std::optional<Tensor>& active,
                                           const Tensor& weights, int64_t query, int64_t hidden, int64_t join,
                                           double top, double grid) {
  Tensor d_weights;
  Tensor d_query = update_back(d_tree, tape, active, weights, query, hidden, {join, top, grid}, d_weights);
  return {d_query, d_weights};
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
  Tensor weights = result({call.sizes.weights}, at::kFloat), transposed = result({call.sizes.transposed}, at::kFloat);
  pack(call.access, starts.data(), weights.mutable_data_ptr<float>(), transposed.mutable_data_ptr<float>());
  return {weights, transposed};
}

// The tensors' gradients one after the other: the list of a schema cannot be functionalised.
Tensor pack_backward(const Tensor& gradient, bool attends, bool highway, int64_t inputs, int64_t outputs,
                     int64_t hidden) {
  Networks networks{attends, highway, inputs, outputs, hidden};
  Call call = networks.call();
  Tensor d_weights = dense(gradient), flat = result({call.sizes.weights}, at::kFloat);
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

}  // namespace

bool is_plain(const Tensor& tensor) {
  return !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_neg() && tensor.is_cpu() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set();
}

namespace {

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

// Kernels called as they are where that is possible, else by way of the dispatcher.
TapedReading attended(const Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
                      const Tensor& transposed, int64_t hidden, bool taped) {
  at::AutoDispatchBelowADInplaceOrView guard;
  if (is_plain(tree)) return attend_forward(tree, query, uniforms, weights, transposed, hidden, taped);
  static auto run = operation<decltype(attend_forward)>("ham::attend_forward");
  return run.call(tree, query, uniforms, weights, transposed, hidden, taped);
}

Tensor updated(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
               const Tensor& weights, const Tensor& transposed, int64_t hidden, const JoinForm& join, bool taped) {
  at::AutoDispatchBelowADInplaceOrView guard;
  auto [form, top, grid] = join;
  if (is_plain(tree))
    return update_forward(tree, leaf, query, active, weights, transposed, hidden, form, top, grid, taped);
  static auto run = operation<decltype(update_forward)>("ham::update_forward");
  return run.call(tree, leaf, query, active, weights, transposed, hidden, form, top, grid, taped);
}

// An access in autograd's graph: what its gradient needs. The tree goes through, so accesses form one chain, and one
// gradient tree goes back along it. So do the gradients of the weights of either kind of access: every access adds
// its own, and the first one of the chain gives them to whoever packed the weights.
struct AccessNode : Node {
  enum Input { kTree, kQuery, kWeights };                      // of the access, and two kinds of weights
  enum Result { kSameTree, kSameWeights, kLogits = 3, kValue, kLogProbs };

  SavedVariable tape, weights, active;
  std::array<Tensor, 2> passing;  // the weights whose gradients go through: to attend, to update
  int64_t query = 0, hidden = 0;
  JoinForm join;

  void enter(Kind kind, const Tensor& tree, const Tensor& of_query, const Tensor& of_weights, int64_t of_hidden) {
    HAM_CHECK(!torch::autograd::impl::get_view_autograd_meta(tree),
              "the tree is a part of another tensor, whose gradient would be lost; clone() it");
    HAM_CHECK(!isFwGradDefined(tree) && !isFwGradDefined(of_query) && !isFwGradDefined(of_weights),
              "an access has no forward-mode derivative");
    torch::autograd::check_inplace(tree, true);
    auto edges = torch::autograd::collect_next_edges(tree, of_query);
    const auto* before = dynamic_cast<const AccessNode*>(edges[kTree].function.get());
    for (int i = 0; i < 2; ++i) {
      bool ours = i == static_cast<int>(kind);
      if (ours && of_weights.requires_grad()) passing[i] = of_weights;
      if (!ours && before) passing[i] = before->passing[i];
      if (before && passing[i].defined() && passing[i].is_same(before->passing[i]))
        edges.emplace_back(edges[kTree].function, kSameWeights + i);
      else
        edges.push_back(passing[i].defined() ? torch::autograd::impl::gradient_edge(passing[i]) : torch::autograd::Edge());
    }
    set_next_edges(std::move(edges));
    query = of_query.size(1);
    hidden = of_hidden;
  }

  // The tree and what else was computed belong to this access from now on.
  template <class Self>
  static void leave(const Self& node, const Tensor& tree, std::initializer_list<Tensor> results) {
    node->input_metadata_.reserve(kLogits + results.size());
    const auto* meta = torch::autograd::impl::get_autograd_meta(tree);
    if (meta && (!meta->hooks_.empty() || meta->cpp_hooks_list_ || meta->retains_grad_))
      torch::autograd::rebase_history(tree, node);
    else  // the same for what is no view; to have Python forget hooks takes long, even if there are none
      torch::autograd::set_history(tree, node);
    for (const Tensor& weights : node->passing)
      weights.defined() ? node->add_input_metadata(weights) : node->add_input_metadata(Node::undefined_input());
    for (const Tensor& result : results) torch::autograd::set_history(result, node);
  }

  void save(const Tensor& of_tape, const Tensor& of_weights) {
    tape = SavedVariable(of_tape, false);
    weights = SavedVariable(of_weights, false);
  }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    tape.reset_data();
    weights.reset_data();
    active.reset_data();
  }
  // Several threads may go through one graph, while one of them lets it go.
  std::array<Tensor, 3> saved() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {tape.unpack(), weights.unpack(), active.unpack()};
  }
  void compiled_args(torch::autograd::CompiledNodeArgs&) const override {
    HAM_CHECK(false, "compiled autograd does not know the memory; turn it off, or compile the loss with its backward");
  }
};

// The first may be none.
Tensor sum(const Tensor& gradient, const Tensor& other) { return gradient.defined() ? gradient.add(other) : other; }

struct AttendNode : AccessNode {
  std::string name() const override { return "HamAttendBackward"; }

  variable_list apply(variable_list&& gradients) override {
    once_only();
    auto [of_tape, of_weights, none] = saved();
    auto given = [&](int i) { return gradients[i].defined() ? std::optional(gradients[i]) : std::nullopt; };
    auto d_logits = given(kLogits), d_value = given(kValue), d_log_probs = given(kLogProbs);
    Tensor d_weights = std::move(gradients[kSameWeights]), &d_others = gradients[kSameWeights + 1];
    if (!gradients[kSameTree].defined() && !d_logits && !d_value && !d_log_probs) return {{}, {}, d_weights, d_others};
    Tensor d_tree = gradients[kSameTree].defined() ? own(gradients[kSameTree]) : input_metadata(kSameTree).zeros_like();
    // What took no part in the loss has no gradient, which is not the same as one of zeros.
    bool decided = d_logits || d_log_probs;
    Tensor d_query, d_ours;
    if (is_plain(d_tree)) {
      if (decided && d_weights.defined()) d_ours = own(std::exchange(d_weights, Tensor()));
      d_query = attend_back(d_tree, d_logits, d_log_probs, d_value, of_tape, of_weights, query, hidden, d_ours);
    } else {
      static auto run = operation<decltype(attend_backward)>("ham::attend_backward");
      std::tie(d_query, d_ours) =
          run.call(d_tree, d_logits, d_log_probs, d_value, of_tape, of_weights, query, hidden);
    }
    if (!decided) return {d_tree, {}, d_weights, d_others};
    return {d_tree, d_query, sum(d_weights, d_ours), d_others};
  }
};

struct UpdateNode : AccessNode {
  std::string name() const override { return "HamUpdateBackward"; }

  variable_list apply(variable_list&& gradients) override {
    once_only();
    auto [of_tape, of_weights, taking_part] = saved();
    Tensor d_weights = std::move(gradients[kSameWeights + 1]), &d_others = gradients[kSameWeights];
    if (!gradients[kSameTree].defined()) return {{}, {}, d_others, d_weights};
    Tensor d_tree = own(gradients[kSameTree]), d_query, d_ours;
    auto those = taking_part.defined() ? std::optional(taking_part) : std::nullopt;
    if (is_plain(d_tree)) {
      if (d_weights.defined()) d_ours = own(std::exchange(d_weights, Tensor()));
      d_query = update_back(d_tree, of_tape, those, of_weights, query, hidden, join, d_ours);
    } else {
      static auto run = operation<decltype(update_backward)>("ham::update_backward");
      std::tie(d_query, d_ours) =
          run.call(d_tree, of_tape, those, of_weights, query, hidden, join.form, join.top, join.grid);
    }
    return {d_tree, d_query, d_others, sum(d_weights, d_ours)};
  }
};

Reading attend_untaped(Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
                       const Tensor& transposed, int64_t hidden) {
  auto [logits, turns, leaf, value, log_probs, tape] =
      attended(tree, query, uniforms, weights, transposed, hidden, false);
  return {logits, turns, leaf, value, log_probs};
}

}  // namespace

Reading attend(Tensor& tree, const Tensor& query, const Tensor& uniforms, const Tensor& weights,
               const Tensor& transposed, int64_t hidden) {
  if (!needs_gradient(tree, query, weights)) return attend_untaped(tree, query, uniforms, weights, transposed, hidden);
  auto node = c10::make_intrusive<AttendNode>();
  node->enter(Kind::attend, tree, query, weights, hidden);
  auto [logits, turns, leaf, value, log_probs, tape] =
      attended(tree, query, uniforms, weights, transposed, hidden, true);
  node->save(tape, weights);
  torch::autograd::increment_version(tree);
  AccessNode::leave(node, tree, {logits, value, log_probs});
  return {logits, turns, leaf, value, log_probs};
}

namespace {

void update_untaped(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
                    const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join,
                    double top, double grid) {
  updated(tree, leaf, query, active, weights, transposed, hidden, {join, top, grid}, false);
  if (!tree.is_inference()) torch::autograd::increment_version(tree);
}

}  // namespace

void update(Tensor& tree, const Tensor& leaf, const Tensor& query, const std::optional<Tensor>& active,
            const Tensor& weights, const Tensor& transposed, int64_t hidden, int64_t join, double top,
            double grid) {
  if (!needs_gradient(tree, query, weights))
    return update_untaped(tree, leaf, query, active, weights, transposed, hidden, join, top, grid);
  auto node = c10::make_intrusive<UpdateNode>();
  node->enter(Kind::update, tree, query, weights, hidden);
  node->join = {join, top, grid};
  torch::autograd::increment_version(tree);
  Tensor tape = updated(tree, leaf, query, active, weights, transposed, hidden, node->join, true);
  node->save(tape, weights);
  if (active) node->active = SavedVariable(*active, false);
  AccessNode::leave(node, tree, {});
}

Packed KnownNetworks::packed(TensorList tensors) {
  if (!are_the_same_numbers(tensors)) repack(tensors);
  bool asks = std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.requires_grad(); });
  if (!asks || !at::GradMode::is_enabled()) return plain_;
  if (!differentiable_.defined() || !are_the_same_leaves(tensors)) {
    differentiable_ = std::get<0>(pack_autograd(tensors, attends_, highway_));
    leaves_.clear();
    for (const Tensor& tensor : tensors) leaves_.emplace_back(tensor.unsafeGetTensorImpl(), tensor.requires_grad());
  }
  return {differentiable_, plain_.transposed, plain_.hidden};
}

// Those that ask for gradients are kept alive by the graph, so an address tells one from another.
bool KnownNetworks::are_the_same_leaves(TensorList tensors) const {
  return std::equal(tensors.begin(), tensors.end(), leaves_.begin(), leaves_.end(), [](const Tensor& t, auto& leaf) {
    return t.requires_grad() == leaf.second && (!leaf.second || t.unsafeGetTensorImpl() == leaf.first);
  });
}

bool KnownNetworks::are_the_same_numbers(TensorList tensors) const {
  auto same = [](const Tensor& t, const Numbers& numbers) {
    return t.scalar_type() == at::kFloat && t.is_contiguous() && t.sizes() == at::IntArrayRef(numbers.shape) &&
           t.storage().nbytes() >= (t.storage_offset() + t.numel()) * sizeof(float) &&
           !std::memcmp(t.const_data_ptr<float>(), numbers.values.data(), sizeof(float) * numbers.values.size());
  };
  return std::equal(tensors.begin(), tensors.end(), numbers_.begin(), numbers_.end(), same);
}

void KnownNetworks::repack(TensorList tensors) {
  // Kept for calls in any mode.
  c10::InferenceMode any_mode(false);
  at::NoGradGuard no_gradient;
  numbers_.clear();
  differentiable_.reset();
  std::tie(plain_.weights, plain_.transposed) = pack_forward(tensors, attends_, highway_);
  plain_.hidden = Networks::of(tensors, attends_, highway_).hidden;
  for (const Tensor& tensor : tensors) {
    Tensor numbers = dense(tensor);
    const float* start = numbers.const_data_ptr<float>();
    numbers_.push_back({tensor.sizes().vec(), {start, start + numbers.numel()}});
  }
}

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
