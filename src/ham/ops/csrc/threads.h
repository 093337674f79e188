// A few threads that live for one call and run its tasks, taken in order by whoever is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace ham {

// The calling thread is worker 0. Between two rounds of tasks the others wait awake: a round follows
// within microseconds, and waking a sleeper would take longer than that. Nothing outlives the call,
// so there is nothing that a fork could break.
class Team {
 public:
  using Task = std::function<void(int64_t task, int64_t worker)>;

  explicit Team(int64_t workers) {
    for (int64_t worker = 1; worker < workers; ++worker) {
      try {
        others_.emplace_back([this, worker] { follow(worker); });
      } catch (const std::system_error&) {
        break;  // no thread to be had: the ones there are do all the tasks
      }
    }
  }
  Team(const Team&) = delete;
  ~Team() {
    ended_.store(true, std::memory_order_release);
    for (std::thread& other : others_) other.join();
  }

  // Runs task(0) … task(tasks - 1) and returns when all are done.
  void run(int64_t tasks, const Task& task) {
    task_ = &task;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int64_t>(others_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    work(0);
    while (busy_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }

 private:
  void work(int64_t worker) {
    for (int64_t i = next_++; i < tasks_; i = next_++) (*task_)(i, worker);
  }
  void follow(int64_t worker) {
    for (int64_t seen = 0;;) {
      int64_t now = round_.load(std::memory_order_acquire);
      if (now != seen) {
        seen = now;
        work(worker);
        busy_.fetch_sub(1, std::memory_order_release);
      } else if (ended_.load(std::memory_order_acquire)) {
        return;
      } else {
        std::this_thread::yield();
      }
    }
  }

  std::vector<std::thread> others_;
  const Task* task_ = nullptr;
  int64_t tasks_ = 0;
  std::atomic<int64_t> next_{0}, busy_{0}, round_{0};
  std::atomic<bool> ended_{false};
};

}  // namespace ham
