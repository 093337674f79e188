// What an episode is whichever way its memory attends: its model, its chunks of lanes, the trees they work on.
#pragma once

#include <algorithm>
#include <vector>

#include "api.h"
#include "build.h"
#include "call.h"

namespace ham {

struct EpisodeChunk : Chunk {
  int64_t length[kLanes];
  int64_t updates = 0, filled = 0;  // filled: rows of the input in the longest lane
  bool builds = true;               // its trees, rather than find them built
  Occupied occupied;
  Stock stock;

  // How many examples' values the update at timestep t makes that count: their last ones nobody reads, unless the
  // final tree is asked for.
  int64_t updated(const HamEpisode& e, int64_t t) const { return active(e.tree ? t : t + 1); }
};

// What a chunk costs beside its outputs, but for the weights.
struct Penalties {
  double pull = 0, exploration = 0;
};

struct Episode {
  using Arguments = HamEpisode;
  using Weights = OfTensors;

  const HamEpisode& a;
  Model model;
  std::vector<EpisodeChunk> chunks;
  int64_t filled = 0;  // of the chunk with most

  explicit Episode(const HamEpisode& e)
      : a(e),
        model({e.leaves, levels_of(e.leaves), e.has_lstm ? e.bits : 0, e.width, e.query,
               e.depth == 2 ? e.hidden : 0, e.outputs, e.depth, e.has_lstm != 0},
              {e.join == kNormalised, e.join == kHighway, e.top, e.grid, e.cell_bound}),
        chunks(chunks_of<EpisodeChunk>(e.batch, e.durations)) {
    model.add_networks();
    model.pull = e.pull;
    for (EpisodeChunk& chunk : chunks) {
      take_inputs(chunk);
      // Nobody sees what the last timestep writes, unless the final tree is asked for.
      chunk.updates = e.tree ? chunk.steps : std::max<int64_t>(chunk.steps - 1, 0);
      filled = std::max(filled, chunk.filled);
    }
  }

  int64_t tasks() const { return static_cast<int64_t>(chunks.size()); }
  int64_t first_tasks() const { return 0; }
  bool taped() const { return a.taped; }

 protected:
  // What the memories of a chunk's lanes hold at first.
  void take_inputs(EpisodeChunk& chunk) const {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
      chunk.length[lane] = a.has_lstm ? a.lengths[chunk.example[lane]] : 0;
      chunk.filled = std::max(chunk.filled, chunk.length[lane]);
    }
    chunk.occupied = {chunk.filled, a.places};
    chunk.stock = {a.kinds, a.stock, a.stock_ends};
  }
  template <class Tape>
  Tape tape_of(Arena& arena, int64_t task) const {
    Tape tape;
    tape.lay_out(arena, model, chunks[task], a.every, true);
    return tape;
  }
  template <class Scratch, class... Known>
  Scratch scratch_of(Arena& arena, const Known&... known) const {
    Scratch scratch;
    scratch.spare.lay_out(arena, std::max({a.width, a.bits, a.query, a.outputs, model.shape.levels, int64_t{1}}));
    scratch.lay_out(arena, known...);
    return scratch;
  }
};

// LSTM+HAM: where each lane's inputs start.
struct LaneInputs {
  const float* row[kLanes] = {};
};
inline LaneInputs inputs_of(const HamEpisode& e, const EpisodeChunk& chunk) {
  LaneInputs inputs;
  if (e.has_lstm)
    for (int64_t lane = 0; lane < chunk.lanes; ++lane)
      inputs.row[lane] = e.inputs + chunk.example[lane] * e.rows * e.bits;
  return inputs;
}

// What no timestep reached.
inline void clear_rest(const HamEpisode& e, const EpisodeChunk& chunk, int64_t levels) {
  auto clear = [](auto* tensor, int64_t example, int64_t steps, int64_t first, int64_t features, int byte) {
    if (tensor)
      std::memset(tensor + (example * steps + first) * features, byte,
                  sizeof *tensor * (steps - first) * features);
  };
  for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
    int64_t example = chunk.example[lane], first = chunk.duration[lane];
    clear(e.output_logits, example, e.timesteps / e.every, first / e.every, e.outputs, 0);
    clear(e.turn_logits, example, e.timesteps, first, levels, 0);
    clear(e.turns, example, e.timesteps, first, levels, 0);
    clear(e.leaf, example, e.timesteps, first, 1, 0xFF);
    clear(e.queries, example, e.timesteps, first, e.query, 0);
  }
}

// From the tapes of a call, in the order of the chunks.
template <class Call>
void add_penalties(const Call& call) {
  const HamEpisode& e = call.work().a;
  if (!e.penalties || !e.taped) return;
  e.penalties[0] = e.penalties[1] = 0;
  if (e.pull == 0.f && e.exploration == 0.f) return;
  for (int64_t task = 0; task < call.work().tasks(); ++task) {
    Penalties penalties = call.work().penalties(task, call.tape_of(task));
    e.penalties[0] += e.pull * penalties.pull;
    e.penalties[1] += e.exploration * penalties.exploration;
  }
}

}  // namespace ham
