// One call of the engine: its tasks over threads, their tapes, the workers' scratch, the sum of gradients.
#pragma once

#include <algorithm>
#include <vector>

#include "arena.h"
#include "threads.h"

namespace ham {

// Parameters are the caller's tensors, packed into the scratch for every call.
struct OfTensors {
  template <class Work>
  static int64_t floats(const Work& work) { return work.model.packed_floats; }
  template <class Work>
  static void take(Work& work) { work.model.pack(work.a.parameters, work.a.scratch); }
  template <class Work>
  static void give_back(const Work& work, const float* gradients) { work.model.unpack(gradients, work.a.d_parameters); }
};

// `Work` is what is to be computed. It has
//   a, model              the call's arguments and its parameters
//   Weights               `OfTensors`, or how else it comes by packed parameters and gives gradients back
//   tasks(), taped()      pieces that may run side by side, and whether backward will come
//   first_tasks()         so many of them, which the others stand on: before them, and on the way back after them
//   tape(arena, task), forward_scratch(arena), backward_scratch(arena)
//                         memory, laid out in an arena; scratch has `spare` rows, forward's an `untaped` tape
//   is_intact(task, tape) whether a tape is one that forward wrote: it may have been stored and brought back
//   forward(task, tape, scratch), backward(task, tape, scratch, gradients)
template <class Work>
class Call {
  using Weights = typename Work::Weights;

 public:
  explicit Call(const typename Work::Arguments& arguments) : work_(arguments) {
    forward_floats_ = floats_of([&](Arena& arena) { work_.forward_scratch(arena); });
    backward_floats_ = floats_of([&](Arena& arena) { work_.backward_scratch(arena); });
    workers_ = std::max<int64_t>(1, std::min<int64_t>(work_.a.threads, work_.tasks()));
    if (!work_.taped()) return;
    for (int64_t task = 0; task < work_.tasks(); ++task) {
      starts_.push_back(tape_floats_);
      tape_floats_ += floats_of([&](Arena& arena) { work_.tape(arena, task); });
    }
  }

  const Work& work() const { return work_; }

  // Floats of tape, of forward's scratch, of backward's scratch.
  void sizes(int64_t* sizes) const {
    sizes[0] = tape_floats_;
    sizes[1] = Weights::floats(work_) + workers_ * forward_floats_;
    sizes[2] = Weights::floats(work_) + workers_ * backward_floats_ + work_.tasks() * gradient_floats();
  }

  void forward() {
    Weights::take(work_);
    Team team(workers_);
    forward(team);
  }

  // False, and nothing done, if a tape is not intact.
  bool backward() {
    for (int64_t task = 0; task < work_.tasks(); ++task)
      if (!work_.is_intact(task, tape_of(task))) return false;
    Weights::take(work_);
    Team team(workers_);
    backward(team);
    return true;
  }

  // Both on one team, with what turns results into gradients in between.
  template <class Between>
  void forward_and_backward(const Between& between) {
    Weights::take(work_);
    Team team(workers_);
    forward(team);
    between();
    backward(team);
  }

  auto tape_of(int64_t task) const {
    Arena arena(work_.a.tape + starts_[task]);
    return work_.tape(arena, task);
  }

 private:
  void forward(Team& team) {
    auto forward = [&](int64_t task, int64_t worker) {
      Arena arena(of_worker(worker, forward_floats_));
      auto scratch = work_.forward_scratch(arena);
      scratch.spare.clear();
      work_.forward(task, work_.taped() ? tape_of(task) : scratch.untaped, scratch);
    };
    run(team, 0, work_.first_tasks(), forward);
    run(team, work_.first_tasks(), work_.tasks(), forward);
  }

  void backward(Team& team) {
    float* gradients = of_worker(workers_, backward_floats_);
    int64_t floats = gradient_floats(), tasks = work_.tasks();
    auto backward = [&](int64_t task, int64_t worker) {
      Arena arena(of_worker(worker, backward_floats_));
      auto scratch = work_.backward_scratch(arena);
      scratch.spare.clear();
      std::memset(gradients + task * floats, 0, sizeof(float) * floats);
      work_.backward(task, tape_of(task), scratch, gradients + task * floats);
    };
    run(team, work_.first_tasks(), tasks, backward);
    run(team, 0, work_.first_tasks(), backward);
    // In the order of the tasks, whoever computed them: the sum does not depend on threads.
    for (int64_t task = 1; task < tasks; ++task)
      for (int64_t i = 0; i < floats; ++i) gradients[i] += gradients[task * floats + i];
    if (tasks > 0) Weights::give_back(work_, gradients);
  }

  template <class Body>
  static void run(Team& team, int64_t first, int64_t end, const Body& body) {
    if (first < end) team.run(end - first, [&](int64_t task, int64_t worker) { body(first + task, worker); });
  }

  template <class LayOut>
  static int64_t floats_of(const LayOut& lay_out) {
    Arena arena(nullptr);
    lay_out(arena);
    return arena.used();
  }
  int64_t gradient_floats() const { return (work_.model.gradient_floats + 15) / 16 * 16; }
  float* of_worker(int64_t worker, int64_t floats) const {
    return work_.a.scratch + Weights::floats(work_) + worker * floats;
  }
  Work work_;
  std::vector<int64_t> starts_;
  int64_t tape_floats_ = 0, forward_floats_ = 0, backward_floats_ = 0, workers_ = 1;
};

}  // namespace ham
