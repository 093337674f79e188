// A few threads that run a call's tasks, taken in order by whoever is free.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

namespace ham {

using Task = std::function<void(int64_t task, int64_t worker)>;

// Threads that stay from call to call: one that is started anew waits on its parent's core until the
// parent is done, if the other cores have anything else to do; one that is woken does not. The pool
// belongs to one call at a time and is never destroyed: its threads end with the process.
class Pool {
 public:
  // The process's pool, or null if another call has it. Threads do not survive a fork: a child gets its own.
  static Pool* take() {
    static std::atomic<Pool*> current{nullptr};
    Pool* pool = current.load(std::memory_order_acquire);
    if (!pool || pool->process_ != getpid()) {
      Pool* fresh = new Pool;
      if (current.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel))
        pool = fresh;
      else
        delete fresh;  // another thread was faster; `pool` is its pool now
    }
    return pool->taken_.exchange(true, std::memory_order_acquire) ? nullptr : pool;
  }
  void give_back() { taken_.store(false, std::memory_order_release); }

  void grow(int64_t workers) {
    for (; threads_ + 1 < workers; ++threads_) {
      try {
        std::thread([this, worker = threads_ + 1] { follow(worker); }).detach();
      } catch (const std::system_error&) {
        return;  // no thread to be had: the ones there are do all the tasks
      }
    }
  }

  // Runs task(0) … task(tasks - 1) on so many workers, the caller being number 0; returns when all are done.
  void run(int64_t workers, int64_t tasks, const Task& task) {
    task_.store(&task, std::memory_order_relaxed);
    tasks_.store(tasks, std::memory_order_relaxed);
    workers_.store(workers, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    uint64_t round = (left_.load(std::memory_order_relaxed) >> 32) + 1;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      left_.store(round << 32 | static_cast<uint64_t>(tasks), std::memory_order_release);
    }
    if (workers > 1) posted_.notify_all();
    work(round, 0);
    while (done_.load(std::memory_order_acquire) < tasks) std::this_thread::yield();
  }

 private:
  // `left_` holds the round and how many of its tasks nobody has taken yet, in one word: whoever comes late
  // to a round finds another number there, or none left. A task that was taken keeps its round alive until
  // it is done, so what it needs is read only then.
  void work(uint64_t round, int64_t worker) {
    uint64_t left = left_.load(std::memory_order_acquire);
    while (left >> 32 == round && (left & 0xFFFFFFFF) && worker < workers_.load(std::memory_order_relaxed)) {
      if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      int64_t index = tasks_.load(std::memory_order_relaxed) - static_cast<int64_t>(left & 0xFFFFFFFF);
      (*task_.load(std::memory_order_relaxed))(index, worker);
      done_.fetch_add(1, std::memory_order_release);
      left = left_.load(std::memory_order_acquire);
    }
  }

  void follow(int64_t worker) {
    for (uint64_t seen = 0;;) {
      uint64_t round = wait_beyond(seen);
      work(round, worker);
      seen = round;
    }
  }

  // Backward follows forward within microseconds: not worth a sleep.
  uint64_t wait_beyond(uint64_t seen) {
    using Clock = std::chrono::steady_clock;
    auto awake_until = Clock::now() + std::chrono::microseconds(200);
    do {
      uint64_t round = left_.load(std::memory_order_acquire) >> 32;
      if (round != seen) return round;
      std::this_thread::yield();
    } while (Clock::now() < awake_until);
    std::unique_lock<std::mutex> lock(mutex_);
    posted_.wait(lock, [&] { return left_.load(std::memory_order_acquire) >> 32 != seen; });
    return left_.load(std::memory_order_acquire) >> 32;
  }

  const pid_t process_ = getpid();
  std::atomic<bool> taken_{false};
  int64_t threads_ = 0;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::atomic<const Task*> task_{nullptr};
  std::atomic<int64_t> tasks_{0}, workers_{0}, done_{0};
  std::atomic<uint64_t> left_{0};
};

// The pool for one call; a call that finds it taken does its tasks by itself.
class Team {
 public:
  explicit Team(int64_t workers) : workers_(workers), pool_(workers > 1 ? Pool::take() : nullptr) {
    if (pool_) pool_->grow(workers);
  }
  Team(const Team&) = delete;
  ~Team() {
    if (pool_) pool_->give_back();
  }

  void run(int64_t tasks, const Task& task) {
    if (pool_) return pool_->run(workers_, tasks, task);
    for (int64_t i = 0; i < tasks; ++i) task(i, 0);
  }

 private:
  int64_t workers_;
  Pool* pool_;
};

}  // namespace ham
