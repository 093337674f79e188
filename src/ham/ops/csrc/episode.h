// One call of the engine: a batch cut into chunks, their tapes, the workers' scratch, the sum of gradients.
#pragma once

#include <vector>

#include "build.h"
#include "controller.h"
#include "threads.h"

namespace ham {

// The whole call: chunks, packed parameters, where each chunk's tape and each worker's scratch is.
// `Way` is how the memory attends, with a chunk's tape, scratch, forward and backward.
template <class Way>
class Episode {
  using Tape = typename Way::Tape;
  using ForwardScratch = typename Way::ForwardScratch;
  using BackwardScratch = typename Way::BackwardScratch;

 public:
  explicit Episode(const HamEpisode& e) : e_(e), model_(shape_of(e), bounds_of(e)), chunks_(make_chunks(e)) {
    add_layers(model_);
    model_.pull = e.pull;
    for (const EpisodeChunk& chunk : chunks_) {
      filled_ = std::max(filled_, chunk.filled);
      joins_ = std::max(joins_, BuildTape::slots(model_.shape, chunk.occupied, chunk.stock, true));
      starts_.push_back(tape_floats_);
      if (!e.taped) continue;
      Arena arena(nullptr);
      Tape{}.lay_out(arena, model_, chunk, e.every, true);
      tape_floats_ += arena.used();
    }
    workers_ = std::max<int64_t>(1, std::min<int64_t>(e.threads, chunks_.size()));
  }

  void sizes(int64_t* sizes) const {
    sizes[0] = tape_floats_;
    sizes[1] = packed_floats() + workers_ * worker_floats<ForwardScratch>();
    sizes[2] = packed_floats() + workers_ * worker_floats<BackwardScratch>() +
               static_cast<int64_t>(chunks_.size()) * gradient_floats();
  }

  void forward() {
    model_.pack(e_.parameters, e_.scratch);
    Team team(workers_);
    forward(team);
  }

  // False, and nothing done, if the tape is not one that forward wrote: it may have been stored and brought back.
  bool backward() {
    for (size_t i = 0; i < chunks_.size(); ++i)
      if (!tape(i).is_intact(e_.leaves, chunks_[i].steps)) return false;
    model_.pack(e_.parameters, e_.scratch);
    Team team(workers_);
    backward(team);
    return true;
  }

  // Both on one team, with what turns results into gradients in between.
  template <class Between>
  void forward_and_backward(const Between& between) {
    Team team(workers_);
    model_.pack(e_.parameters, e_.scratch);
    forward(team);
    between();
    backward(team);
  }

 private:
  void forward(Team& team) {
    std::vector<ForwardScratch> scratch(workers_);
    lay_out_workers(scratch);
    team.run(chunks_.size(), [&](int64_t i, int64_t worker) {
      if (!e_.taped)
        Way::forward_chunk(e_, model_, chunks_[i], scratch[worker].untaped, scratch[worker]);
      else
        Way::forward_chunk(e_, model_, chunks_[i], tape(i), scratch[worker]);
    });
  }

  void backward(Team& team) {
    std::vector<BackwardScratch> scratch(workers_);
    lay_out_workers(scratch);
    float* gradients = e_.scratch + packed_floats() + workers_ * worker_floats<BackwardScratch>();
    int64_t floats = gradient_floats(), count = static_cast<int64_t>(chunks_.size());
    team.run(count, [&](int64_t i, int64_t worker) {
      std::memset(gradients + i * floats, 0, sizeof(float) * floats);
      Way::backward_chunk(e_, model_, chunks_[i], tape(i), scratch[worker], gradients + i * floats);
    });
    // In the order of the chunks, whoever computed them: the sum does not depend on threads.
    for (int64_t i = 1; i < count; ++i)
      for (int64_t j = 0; j < floats; ++j) gradients[j] += gradients[i * floats + j];
    model_.unpack(gradients, e_.d_parameters);
  }

  int64_t packed_floats() const { return model_.packed_floats; }
  int64_t gradient_floats() const { return (model_.gradient_floats + 15) / 16 * 16; }

  void measure(ForwardScratch& scratch, Arena& arena) const { scratch.lay_out(arena, e_, model_); }
  void measure(BackwardScratch& scratch, Arena& arena) const {
    scratch.lay_out(arena, e_, model_, joins_, filled_);
  }
  template <class Scratch>
  int64_t worker_floats() const {
    Arena arena(nullptr);
    Scratch scratch;
    measure(scratch, arena);
    return arena.used();
  }
  template <class Scratch>
  void lay_out_workers(std::vector<Scratch>& scratch) const {
    int64_t floats = worker_floats<Scratch>();
    for (int64_t worker = 0; worker < workers_; ++worker) {
      Arena arena(e_.scratch + packed_floats() + worker * floats);
      measure(scratch[worker], arena);
    }
  }
  Tape tape(int64_t i) const {
    Arena arena(e_.tape + starts_[i]);
    Tape tape;
    tape.lay_out(arena, model_, chunks_[i], e_.every, true);
    return tape;
  }

  const HamEpisode& e_;
  Model model_;
  std::vector<EpisodeChunk> chunks_;
  std::vector<int64_t> starts_;
  int64_t tape_floats_ = 0, joins_ = 0, filled_ = 0, workers_ = 1;
};

}  // namespace ham
