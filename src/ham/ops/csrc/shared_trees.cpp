// Runs of one input start from the same tree: it is built once, every run works on a copy, and the gradients of the
// copies are summed before they go through JOIN and EMBED. Chunks of inputs build, and come before those of runs.

#include "hard.h"

namespace ham {

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

void HardEpisode::take_shared(int64_t task, const Forest& forest, float* root) const {
  for (int64_t lane = 0; lane < forest.active; ++lane)
    std::memcpy(forest.tree[lane], shared_tree(input_of(task, lane)), sizeof(float) * tree_floats(a));
  gather(root, rows_to_read(forest, same_node(1).of), a.width);
}

// An input's runs may lie in several chunks, which work at the same time: each chunk has a sum of its own, the
// number of input plus chunk being another one for each that an input has.
void HardEpisode::give_shared(int64_t task, const Forest& forest, const float* root) const {
  scatter<false>(rows_to_write(forest, same_node(1).of), root, a.width);
  for (int64_t lane = 0; lane < forest.active; ++lane) {
    int64_t input = input_of(task, lane);
    float* sum = shared_tree(input + task - builders);
    if (lane == 0 || input_of(task, lane - 1) != input)
      std::memcpy(sum, forest.tree[lane], sizeof(float) * tree_floats(a));
    else
      add_floats(sum, forest.tree[lane], tree_floats(a));
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
    for (int64_t other = first + 1; other <= last; ++other)
      add_floats(forest.tree[lane], shared_tree(input + other), tree_floats(a));
  }
  gather(scratch.root, rows_to_read(forest, same_node(1).of), a.width);
  Build(model, forest, tape.build, true, chunk.occupied, chunk.stock, nullptr, chunk.length, a.runs)
      .backward(scratch.build, scratch.root, gradients);
}

}  // namespace ham
