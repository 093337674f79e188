// What the compiler made of the structures of the C interface. Python makes its own from this, so that a field has
// one place only; one that is left out here leaves a gap, which Python refuses.

#include <cstddef>
#include <sstream>
#include <string>
#include <type_traits>

#include "api.h"

namespace {

template <class Type>
const char* type_name() {
  if constexpr (std::is_pointer_v<Type>) return "pointer";
  if constexpr (std::is_same_v<Type, int64_t>) return "int64";
  if constexpr (std::is_same_v<Type, float>) return "float32";
  if constexpr (std::is_same_v<Type, double>) return "float64";
  if constexpr (std::is_same_v<Type, double[kTerms]>) return "terms";
  if constexpr (std::is_same_v<Type, HamEpisode>) return "HamEpisode";
  if constexpr (std::is_same_v<Type, HamObjective>) return "HamObjective";
  if constexpr (std::is_same_v<Type, HamReader>) return "HamReader";
  if constexpr (std::is_same_v<Type, HamDecoder>) return "HamDecoder";
  if constexpr (std::is_same_v<Type, HamBatch>) return "HamBatch";
}

std::string described() {
  std::ostringstream lines;
#define FIELD(name)                                                                                     \
  lines << kName << ' ' << sizeof(S) << ' ' << #name << ' ' << type_name<decltype(S::name)>() << ' ' \
        << offsetof(S, name) << ' ' << sizeof(S::name) << '\n';
#define STRUCTURE(Structure, fields)            \
  {                                             \
    using S = Structure;                        \
    constexpr const char* kName = #Structure;   \
    fields                                      \
  }
  STRUCTURE(HamEpisode,
    FIELD(batch) FIELD(leaves) FIELD(rows) FIELD(timesteps) FIELD(every)
    FIELD(bits) FIELD(width) FIELD(query) FIELD(hidden) FIELD(outputs) FIELD(depth)
    FIELD(has_lstm) FIELD(taped) FIELD(threads) FIELD(join) FIELD(kinds) FIELD(runs) FIELD(entropy)
    FIELD(exploration) FIELD(least_entropy) FIELD(pull) FIELD(tree_clip) FIELD(top) FIELD(grid) FIELD(cell_bound)
    FIELD(parameters) FIELD(inputs) FIELD(lengths) FIELD(places) FIELD(first_state) FIELD(first_cell)
    FIELD(stock) FIELD(stock_ends)
    FIELD(durations) FIELD(uniforms) FIELD(output_logits) FIELD(turn_logits) FIELD(turns) FIELD(leaf) FIELD(queries)
    FIELD(tree) FIELD(penalties) FIELD(shared_trees) FIELD(tape) FIELD(scratch)
    FIELD(d_output_logits) FIELD(d_turn_logits) FIELD(d_parameters))
  STRUCTURE(HamObjective,
    FIELD(batch) FIELD(symbols) FIELD(bits) FIELD(timesteps) FIELD(levels) FIELD(query) FIELD(every) FIELD(runs)
    FIELD(reward) FIELD(baseline) FIELD(normalise) FIELD(entropy)
    FIELD(discount) FIELD(rightward) FIELD(reinforce) FIELD(exploration) FIELD(least_entropy) FIELD(least_square)
    FIELD(outputs) FIELD(targets) FIELD(counted) FIELD(durations) FIELD(turn_logits) FIELD(turns) FIELD(queries)
    FIELD(head) FIELD(d_outputs) FIELD(d_turn_logits) FIELD(d_head) FIELD(scratch) FIELD(terms))
  STRUCTURE(HamReader,
    FIELD(batch) FIELD(slots) FIELD(features) FIELD(cells) FIELD(directions) FIELD(taped) FIELD(threads)
    FIELD(parameters) FIELD(rows) FIELD(lengths) FIELD(states) FIELD(last_state) FIELD(last_cell)
    FIELD(tape) FIELD(scratch) FIELD(d_states) FIELD(d_last_state) FIELD(d_last_cell) FIELD(d_parameters))
  STRUCTURE(HamDecoder,
    FIELD(batch) FIELD(symbols) FIELD(bits) FIELD(cells) FIELD(directions) FIELD(items) FIELD(item) FIELD(width)
    FIELD(taped) FIELD(threads) FIELD(parameters) FIELD(state) FIELD(cell) FIELD(asked) FIELD(targets)
    FIELD(memory) FIELD(lengths) FIELD(outputs) FIELD(tape) FIELD(scratch) FIELD(d_outputs) FIELD(d_state)
    FIELD(d_cell) FIELD(d_memory) FIELD(d_parameters))
  STRUCTURE(HamBatch,
    FIELD(workspace) FIELD(floats) FIELD(gradient) FIELD(weights) FIELD(terms) FIELD(norm))
  STRUCTURE(HamGradient, FIELD(episode) FIELD(objective) FIELD(batch))
  STRUCTURE(HamSequence, FIELD(reader) FIELD(decoder) FIELD(objective) FIELD(batch))
  STRUCTURE(HamAdam,
    FIELD(weights) FIELD(weight) FIELD(gradient) FIELD(mean) FIELD(square) FIELD(mean_rate) FIELD(square_rate)
    FIELD(square_decay) FIELD(epsilon) FIELD(scale) FIELD(rate) FIELD(unbiased_root))
  STRUCTURE(HamParameter, FIELD(network) FIELD(tensor) FIELD(rows) FIELD(columns))
#undef STRUCTURE
#undef FIELD
  return lines.str();
}

}  // namespace

const char* ham_structures() {
  static const std::string text = described();
  return text.c_str();
}
