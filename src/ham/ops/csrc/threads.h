// Runs independent tasks on a few threads, taken in order by whoever is free.
#pragma once

#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace ham {

template <class Task>
void run_tasks(int64_t tasks, int64_t threads, const Task& task) {
  std::atomic<int64_t> next{0};
  auto work = [&](int64_t worker) {
    for (int64_t i = next++; i < tasks; i = next++) task(i, worker);
  };
  std::vector<std::thread> others;
  for (int64_t worker = 1; worker < threads && worker < tasks; ++worker) {
    try {
      others.emplace_back(work, worker);
    } catch (const std::system_error&) {
      break;  // no thread to be had: the ones there are do all the tasks
    }
  }
  work(0);
  for (std::thread& other : others) other.join();
}

}  // namespace ham
