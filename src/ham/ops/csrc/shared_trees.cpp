// Runs of one input start from the same tree: it is built once, every run copies what it comes by, and the gradients of
// the copies are summed before they go through JOIN and EMBED. Chunks of inputs build, and come before those of runs.

#include "hard.h"

namespace ham {
namespace {

// What is closed counts as zero.
void add_tree(float* to, const OpenNodes& opened, const float* from, const OpenNodes& added, int64_t width) {
  added.each([&](int64_t node) {
    int64_t at = 2 * node * width;
    if (opened.open(node))
      std::memcpy(to + at, from + at, sizeof(float) * 2 * width);
    else
      add_floats(to + at, from + at, 2 * width);
  });
}

}  // namespace

// Runs of an input end together, so sorting keeps them side by side, and inputs in the order of their runs: lane
// for lane of the chunks, `runs` lanes belong to one input.
void HardEpisode::share_trees() {
  std::vector<int64_t> durations;
  for (int64_t example = 0; example < a.batch; example += a.runs) durations.push_back(a.durations[example]);
  auto inputs = chunks_of<EpisodeChunk>(static_cast<int64_t>(durations.size()), durations.data());
  for (EpisodeChunk& chunk : inputs) {
    for (int64_t lane = 0; lane < chunk.lanes; ++lane) chunk.example[lane] *= a.runs;
    chunk.steps = 0;
    take_inputs(chunk);
  }
  for (EpisodeChunk& chunk : chunks) chunk.builds = false;
  builders = static_cast<int64_t>(inputs.size());
  chunks.insert(chunks.begin(), inputs.begin(), inputs.end());
}

void HardEpisode::build_shared(int64_t task, const Tape& tape, const Forward& scratch) const {
  const EpisodeChunk& chunk = chunks[task];
  Forest forest = Forest::of_lanes(Lanes(chunk, scratch.spare), shared_tree(task * kLanes), a.leaves, a.width);
  Build(model, forest, tape.build, true, chunk.occupied, chunk.stock, inputs_of(a, chunk).row, chunk.length).forward();
}

// A run's children of a node that was closed so far.
void HardEpisode::open_shared(int64_t task, const Forest& forest, int64_t lane, int64_t node) const {
  const float* from = shared_tree(input_of(task, lane)) + 2 * node * a.width;
  std::memcpy(forest.children(lane, node), from, sizeof(float) * 2 * a.width);
}

// An input's runs may lie in several chunks, which work at the same time: each chunk has a sum of its own, the
// number of input plus chunk being another one for each that an input has.
void HardEpisode::give_shared(int64_t task, const Forest& forest, const float* root) const {
  scatter<false>(rows_to_write(forest, same_node(1).of), root, a.width);
  for (int64_t lane = 0; lane < forest.active; ++lane) {
    int64_t input = input_of(task, lane), sum = input + task - builders;
    OpenNodes opened = shared_opened(sum);
    if (lane == 0 || input_of(task, lane - 1) != input) opened.close_all();
    add_tree(shared_tree(sum), opened, forest.tree[lane], forest.opened[lane], a.width);
  }
}

void HardEpisode::build_shared_backward(int64_t task, const Tape& tape, const Backward& scratch,
                                        float* gradients) const {
  const EpisodeChunk& chunk = chunks[task];
  Forest forest(Lanes(chunk, scratch.spare), a.leaves, a.width);
  for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
    int64_t input = task * kLanes + lane;
    int64_t first = input * a.runs / kLanes, last = ((input + 1) * a.runs - 1) / kLanes;
    forest.tree[lane] = shared_tree(input + first);
    forest.opened[lane] = shared_opened(input + first);
    for (int64_t other = first + 1; other <= last; ++other)
      add_tree(forest.tree[lane], forest.opened[lane], shared_tree(input + other), shared_opened(input + other),
               a.width);
  }
  gather(scratch.root, opened_rows(forest, 1), a.width);
  Build(model, forest, tape.build, true, chunk.occupied, chunk.stock, nullptr, chunk.length, a.runs)
      .backward(scratch.build, scratch.root, gradients);
}

}  // namespace ham
