// The usual access from Python in one call: what the table would ask and answer, without the detours.
//
// Each function gives None, before anything has changed, for whatever is not usual: then the table is asked. Modules
// are usual that were looked over before (`know`) and are what they were then.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/DistributionsHelper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string_view>

#include "access.h"
#include "buffers.h"
#include "python.h"

namespace ham {
namespace {

// A reference that is given back.
struct Held {
  PyObject* object;
  explicit Held(PyObject* taken) : object(taken) {}
  Held(const Held&) = delete;
  ~Held() {
    if (object) Py_DecRef(object);
  }
};

// Lets other threads run while this one does work that is long enough for it.
struct Unlocked {
  void* thread;
  explicit Unlocked(int64_t decisions) : thread(decisions < 512 ? nullptr : PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  ~Unlocked() {
    if (thread) PyEval_RestoreThread(thread);
  }
};

enum class Allowed : long long { never, always, as_environment_says };

// Python's objects that are needed again and again; they stay for ever.
struct {
  PyObject *none, *no, *yes, *nothing, *tensor, *parameter;
  PyObject *tree, *pull, *spent, *leaf, *value, *turns, *turn_logits, *log_probs;
  intptr_t place;  // where a tensor's object has the tensor
  Allowed allowed = Allowed::as_environment_says;
} python;

PyObject* none() {
  PyErr_Clear();
  Py_IncRef(python.none);
  return python.none;
}

bool is_of(PyObject* object, PyObject* type) {
  Held found(PyObject_Type(object));
  return found.object == type;
}

const Tensor* tensor_of(PyObject* object) {
  if (!is_of(object, python.tensor) && !is_of(object, python.parameter)) return nullptr;
  return reinterpret_cast<const Tensor*>(reinterpret_cast<const char*>(object) + python.place);
}

const Tensor* usual(PyObject* object, at::ScalarType type, int64_t dimensions) {
  const Tensor* tensor = object ? tensor_of(object) : nullptr;
  bool is_usual = tensor && tensor->defined() && is_plain(*tensor) && tensor->layout() == at::kStrided &&
                  tensor->scalar_type() == type && tensor->dim() == dimensions;
  return is_usual ? tensor : nullptr;
}

int64_t levels_of(const Tensor& tree) {
  int64_t levels = 0;
  while ((int64_t{2} << levels) < tree.size(1)) ++levels;
  return levels;
}

// Modules that were found to compute just their classes' equations, and how to tell that they still do. It holds
// what they consist of, but not themselves: it goes when one of them does.
struct Known {
  struct Attribute {
    intptr_t module;
    PyObject *name, *value;
  };
  struct Members {
    PyObject* dictionary;
    std::vector<PyObject*> values;  // null: any

    bool hold() const {
      PyObject *key, *value;
      intptr_t position = 0;
      size_t i = 0;
      for (; PyDict_Next(dictionary, &position, &key, &value); ++i)
        if (i == values.size() || (values[i] && value != values[i])) return false;
      return i == values.size();
    }
  };

  Held held;  // all that is named below
  std::vector<PyObject*> classes, parts, part_classes, empty;
  std::vector<Members> members;
  std::vector<Attribute> attributes;
  std::vector<PyObject*> tensors;
  JoinForm join;
  int64_t query;  // its width
  KnownNetworks networks;

  Known(PyObject* facts, bool attends, bool highway) : held(facts), networks(attends, highway) { Py_IncRef(facts); }

  bool hold(PyObject* const* modules) const {
    for (size_t i = 0; i < classes.size(); ++i)
      if (!is_of(modules[i], classes[i])) return false;
    for (size_t i = 0; i < parts.size(); ++i)
      if (!is_of(parts[i], part_classes[i])) return false;
    for (PyObject* dictionary : empty)
      if (PyDict_Size(dictionary)) return false;
    for (const Members& its : members)
      if (!its.hold()) return false;
    for (const auto& [module, name, value] : attributes) {
      Held found(PyObject_GetAttr(modules[module], name));
      if (found.object != value) return false;
    }
    return true;
  }

  // Tensors with numbers that are none of a graph's; an empty list if there are others.
  c10::SmallVector<Tensor, 16> parameters() const {
    c10::SmallVector<Tensor, 16> found;
    for (PyObject* object : tensors) {
      const Tensor* tensor = tensor_of(object);
      if (!tensor || !is_plain(*tensor)) return {};
      found.push_back(*tensor);
    }
    return found;
  }
};

// By the modules that are given together.
using Modules = std::pair<PyObject*, PyObject*>;
std::map<Modules, std::unique_ptr<Known>>& known() {
  static auto* known = new std::map<Modules, std::unique_ptr<Known>>;
  return *known;
}

Known* known_and_as_they_were(PyObject* const* modules, size_t count) {
  auto found = known().find({modules[0], count > 1 ? modules[1] : nullptr});
  return found != known().end() && found->second->hold(modules) ? found->second.get() : nullptr;
}

bool is_allowed() {
  if (python.allowed != Allowed::as_environment_says) return python.allowed == Allowed::always;
  const char* asked = std::getenv("HAM_BACKEND");
  return !asked || !*asked || std::string_view(asked) == "auto" || std::string_view(asked) == "native";
}

// As `why_not_here` in forms.py; beside it nobody who traces or watches.
bool is_usual_here() {
  constexpr c10::DispatchKeySet kTransforms{
      c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode,
      c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize,
      c10::DispatchKey::Tracer, c10::DispatchKey::Python};
  return !(c10::impl::tls_local_dispatch_key_set().included_ & kTransforms).raw_repr() &&
         !at::autocast::is_autocast_enabled(at::kCPU) && !at::impl::PythonTorchFunctionTLS::stack_len() &&
         !torch::autograd::ForwardADLevel::try_get_by_idx(0);
}

Tensor uniforms_for(int64_t batch, int64_t levels, bool greedy) {
  Tensor uniforms = result({batch, levels}, at::kFloat);
  float* numbers = uniforms.mutable_data_ptr<float>();
  if (greedy) {
    std::fill_n(numbers, batch * levels, 0.5f);
    return uniforms;
  }
  // The numbers of torch.rand.
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  std::lock_guard<std::mutex> lock(generator->mutex_);
  at::uniform_real_distribution<float> uniform(0, 1);
  for (int64_t i = 0; i < batch * levels; ++i) numbers[i] = uniform(generator);
  return uniforms;
}

// Made without its __init__, which for a frozen dataclass takes longer than finding a leaf.
template <size_t fields>
PyObject* make(PyObject* type, PyObject* const (&names)[fields], PyObject* const (&values)[fields]) {
  PyObject* made = PyType_GenericNew(type, python.nothing, nullptr);
  for (size_t i = 0; made && i < fields; ++i)
    if (PyObject_GenericSetAttr(made, names[i], values[i])) {
      Py_DecRef(made);
      return nullptr;
    }
  return made;
}

template <class Access>
PyObject* guarded(const Access& access) {
  try {
    return access();
  } catch (const c10::Error&) {
    return none();  // the table's way says what is wrong, in the caller's words
  } catch (const std::exception& error) {
    // A hook of the caller's has set Python's error itself.
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

// search, state, query, uniforms or None, greedy, the class of what was read
PyObject* attend_at_once(PyObject*, PyObject* const* given, intptr_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 6 || !is_allowed() || !is_usual_here()) return none();
    Known* networks = known_and_as_they_were(given, 1);
    if (!networks) return none();
    Held spent(PyObject_GetAttr(given[1], python.spent)), tree_object(PyObject_GetAttr(given[1], python.tree));
    const Tensor* tree = usual(tree_object.object, at::kFloat, 3);
    const Tensor* query = usual(given[2], at::kFloat, 2);
    const Tensor* uniforms = given[3] == python.none ? nullptr : usual(given[3], at::kFloat, 2);
    if (spent.object != python.no || !tree || !query || (given[3] != python.none && !uniforms)) return none();
    if (given[4] != python.yes && given[4] != python.no) return none();
    int64_t levels = levels_of(*tree);
    auto parameters = networks->parameters();
    if (parameters.empty()) return none();
    Packed packed = networks->networks.packed(parameters);
    if (query->size(0) != tree->size(0) || query->size(1) != networks->query) return none();
    if (query->size(1) + tree->size(2) != parameters[0].size(1)) return none();
    Tensor thresholds = uniforms ? *uniforms : uniforms_for(tree->size(0), levels, given[4] == python.yes);
    Reading reading;
    {
      Tensor same_tree = *tree, same_query = *query;
      Unlocked others_may_run(thresholds.numel());
      reading = attend(same_tree, same_query, thresholds, packed.weights, packed.transposed, packed.hidden);
    }
    const auto& [logits, turns, leaf, value, log_probs] = reading;
    Held results[5] = {Held(THPVariable_Wrap(leaf)), Held(THPVariable_Wrap(value)), Held(THPVariable_Wrap(turns)),
                       Held(THPVariable_Wrap(logits)), Held(THPVariable_Wrap(log_probs))};
    for (const Held& result : results)
      if (!result.object) return nullptr;
    return make(given[5], {python.leaf, python.value, python.turns, python.turn_logits, python.log_probs},
                {results[0].object, results[1].object, results[2].object, results[3].object, results[4].object});
  });
}

// write, join, state, read, query, active or None, the class of the state
PyObject* update_at_once(PyObject*, PyObject* const* given, intptr_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 7 || !is_allowed() || !is_usual_here()) return none();
    Known* networks = known_and_as_they_were(given, 2);
    if (!networks) return none();
    PyObject* state = given[2];
    Held spent(PyObject_GetAttr(state, python.spent)), tree_object(PyObject_GetAttr(state, python.tree));
    Held pull(PyObject_GetAttr(state, python.pull)), leaf_object(PyObject_GetAttr(given[3], python.leaf));
    const Tensor* tree = usual(tree_object.object, at::kFloat, 3);
    const Tensor* leaf = usual(leaf_object.object, at::kLong, 1);
    const Tensor* query = usual(given[4], at::kFloat, 2);
    const Tensor* active = given[5] == python.none ? nullptr : usual(given[5], at::kBool, 1);
    if (spent.object != python.no || !pull.object || !tree || !leaf || !query) return none();
    if (given[5] != python.none && !active) return none();
    auto parameters = networks->parameters();
    if (parameters.empty()) return none();
    Packed packed = networks->networks.packed(parameters);
    if (query->size(0) != tree->size(0) || query->size(1) != networks->query) return none();
    if (query->size(1) + tree->size(2) != parameters[0].size(1)) return none();
    auto [form, top, grid] = networks->join;
    {
      Tensor same_tree = *tree, same_leaf = *leaf, same_query = *query;
      std::optional<Tensor> those = active ? std::optional(*active) : std::nullopt;
      Unlocked others_may_run(tree->size(0) * levels_of(*tree));
      update(same_tree, same_leaf, same_query, those, packed.weights, packed.transposed, packed.hidden, form, top,
             grid);
    }
    if (PyObject_SetAttr(state, python.spent, python.yes)) return nullptr;
    return make(given[6], {python.tree, python.pull, python.spent}, {tree_object.object, pull.object, python.no});
  });
}

template <class Take>
void each(PyObject* tuple, const Take& take) {
  for (intptr_t i = 0; i < PyTuple_Size(tuple); ++i) take(PyTuple_GetItem(tuple, i));
}

Modules key_of(PyObject* first, PyObject* second) {
  return {static_cast<PyObject*>(PyLong_AsVoidPtr(first)), static_cast<PyObject*>(PyLong_AsVoidPtr(second))};
}

// Two numbers of modules, the second 0 where there is one; then the facts, in the order of `Facts` in engine.py.
PyObject* know(PyObject*, PyObject* const* given, intptr_t) {
  PyObject* facts = given[2];
  auto fact = [&](intptr_t i) { return PyTuple_GetItem(facts, i); };
  bool attends = PyLong_AsVoidPtr(given[1]) == nullptr;
  JoinForm join{PyLong_AsLongLong(fact(8)), PyFloat_AsDouble(fact(9)), PyFloat_AsDouble(fact(10))};
  auto fresh = std::make_unique<Known>(facts, attends, PyLong_AsLongLong(fact(11)) != 0);
  fresh->join = join;
  fresh->query = PyLong_AsLongLong(fact(12));
  auto into = [](std::vector<PyObject*>& list) { return [&](PyObject* item) { list.push_back(item); }; };
  each(fact(0), into(fresh->classes));
  each(fact(1), into(fresh->parts));
  each(fact(2), into(fresh->part_classes));
  each(fact(3), into(fresh->empty));
  for (intptr_t kind : {4, 5})
    each(fact(kind), [&](PyObject* of) {
      Known::Members members{PyTuple_GetItem(of, 0), {}};
      each(PyTuple_GetItem(of, 1), [&](PyObject* value) {
        members.values.push_back(kind == 4 && value == python.none ? nullptr : value);
      });
      fresh->members.push_back(std::move(members));
    });
  each(fact(6), [&](PyObject* of) {
    fresh->attributes.push_back(
        {PyLong_AsLongLong(PyTuple_GetItem(of, 0)), PyTuple_GetItem(of, 1), PyTuple_GetItem(of, 2)});
  });
  each(fact(7), into(fresh->tensors));
  if (PyErr_Occurred()) return nullptr;
  // What was known before goes after the map is whole again: it may be the last to hold something.
  std::swap(known()[key_of(given[0], given[1])], fresh);
  return none();
}

PyObject* forget(PyObject*, PyObject* const* given, intptr_t) {
  auto gone = known().extract(key_of(given[0], given[1]));
  return none();
}

PyObject* allow(PyObject*, PyObject* const* given, intptr_t) {
  python.allowed = static_cast<Allowed>(PyLong_AsLongLong(given[0]));
  return none();
}

PyMethodDef functions[] = {{"attend", attend_at_once, METH_FASTCALL, nullptr},
                           {"update", update_at_once, METH_FASTCALL, nullptr},
                           {"know", know, METH_FASTCALL, nullptr},
                           {"forget", forget, METH_FASTCALL, nullptr},
                           {"allow", allow, METH_FASTCALL, nullptr}};

}  // namespace
}  // namespace ham

// The functions as a tuple, or None if a tensor cannot be found in its object; `place` is its `_cdata`.
extern "C" PyObject* ham_quick(PyObject* example, PyObject* place, PyObject* tensor, PyObject* parameter,
                               PyObject* none) {
  using ham::python;
  python.none = none;
  python.tensor = tensor;
  python.parameter = parameter;
  for (PyObject* kept : {none, tensor, parameter}) Py_IncRef(kept);
  python.no = PyBool_FromLong(0);
  python.yes = PyBool_FromLong(1);
  python.nothing = PyTuple_New(0);
  auto name = [](const char* text) { return PyUnicode_InternFromString(text); };
  python.tree = name("tree");
  python.pull = name("pull");
  python.spent = name("spent");
  python.leaf = name("leaf");
  python.value = name("value");
  python.turns = name("turns");
  python.turn_logits = name("turn_logits");
  python.log_probs = name("log_probs");
  // Behind Python's own two words; PyTorch tells the place only to who has Python's headers.
  void* implementation = PyLong_AsVoidPtr(place);
  python.place = 0;
  for (intptr_t at : {16, 24})
    if (*reinterpret_cast<void**>(reinterpret_cast<char*>(example) + at) == implementation) python.place = at;
  if (!python.place) return ham::none();
  intptr_t count = std::size(ham::functions);
  PyObject* tuple = PyTuple_New(count);
  for (intptr_t i = 0; tuple && i < count; ++i)
    PyTuple_SetItem(tuple, i, PyCFunction_NewEx(&ham::functions[i], nullptr, nullptr));
  return tuple;
}
