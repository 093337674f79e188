#include "buffers.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/accumulate.h>

#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "api.h"

namespace ham {
namespace {

constexpr int64_t kSmall = 1 << 15;   // up to here, blocks
constexpr int64_t kLarge = 1 << 26;   // a very large one is for a very large memory: worth giving back
constexpr int64_t kScratch = 1 << 18;  // a thread keeps no more
constexpr size_t kKept = 6;

bool fill = false;

at::Tensor fresh(at::IntArrayRef shape) { return at::detail::empty_cpu(shape, at::kFloat); }

// Free buffers by their size. Whoever holds one alone may write to it, which keeps calls apart that are alive at
// the same time. Never destroyed: tensors may outlive everything else.
class Pool {
 public:
  at::Tensor take(int64_t floats) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = free_.lower_bound(floats);
    if (found == free_.end()) return {};
    at::Tensor memory = std::move(found->second);
    free_.erase(found);
    return memory;
  }
  void give(at::Tensor memory) {
    at::Tensor smallest;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    free_.emplace(memory.numel(), std::move(memory));
    if (free_.size() > kKept) {
      smallest = std::move(free_.begin()->second);
      free_.erase(free_.begin());
    }
  }
  void clear() {
    std::multimap<int64_t, at::Tensor> old;
    std::lock_guard<std::mutex> lock(mutex_);
    old.swap(free_);
  }

 private:
  std::mutex mutex_;
  std::multimap<int64_t, at::Tensor> free_;
};

Pool& pool() {
  static Pool* pool = new Pool;
  return *pool;
}

// Small buffers, of which every access of a graph has some: what malloc does to find an aligned one, and to join it with
// its neighbours again, takes as long as the access. Free ones by their size. Never destroyed either.
class Blocks final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    size_t steps = (bytes + kStep - 1) / kStep;
    if (steps >= free_.size()) return c10::GetDefaultCPUAllocator()->allocate(bytes);  // large, or resized
    void* start = take(steps);
    if (!start) {
      start = c10::alloc_cpu(kHeader + steps * kStep);
      *static_cast<size_t*>(start) = steps;
    }
    tell_profiler(start, steps * kStep);
    return {static_cast<char*>(start) + kHeader, start, &give, at::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  static Blocks& all() {
    static Blocks* all = new Blocks;
    return *all;
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (std::vector<void*>& blocks : free_) {
      for (void* start : blocks) c10::free_cpu(start);
      blocks.clear();
    }
    kept_ = 0;
  }

 private:
  static constexpr size_t kStep = 256, kHeader = 64, kMost = size_t{64} << 20;

  // As PyTorch's own allocator does.
  static void tell_profiler(void* start, int64_t bytes) {
    if (c10::memoryProfilingEnabled()) c10::reportMemoryUsageToProfiler(start, bytes, 0, 0, at::kCPU);
  }
  void* take(size_t steps) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_[steps].empty()) return nullptr;
    void* start = free_[steps].back();
    free_[steps].pop_back();
    kept_ -= steps * kStep;
    return start;
  }
  static void give(void* start) {
    Blocks& blocks = all();
    size_t steps = *static_cast<size_t*>(start);
    tell_profiler(start, -static_cast<int64_t>(steps * kStep));
    {
      std::lock_guard<std::mutex> lock(blocks.mutex_);
      if (blocks.kept_ + steps * kStep <= kMost) {
        blocks.kept_ += steps * kStep;
        return blocks.free_[steps].push_back(start);
      }
    }
    c10::free_cpu(start);
  }

  std::mutex mutex_;
  size_t kept_ = 0;
  std::array<std::vector<void*>, kSmall * sizeof(float) / kStep + 1> free_;
};

// A sanitizer sees the bounds of what is allocated for itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

}  // namespace

at::Tensor result(at::IntArrayRef shape, at::ScalarType type) {
  constexpr c10::DispatchKeySet kOnCpu(c10::DispatchKey::CPU);
  if (fill || !kReuse) return at::detail::empty_cpu(shape, type);
  return at::detail::empty_generic(shape, &Blocks::all(), kOnCpu, type, std::nullopt);
}

at::Tensor buffer(at::IntArrayRef shape) {
  int64_t floats = c10::multiply_integers(shape);
  if (fill) {
    at::Tensor memory = fresh(shape);
    std::fill_n(memory.mutable_data_ptr<float>(), floats, std::numeric_limits<float>::quiet_NaN());
    return memory;
  }
  if (floats > kLarge) return fresh(shape);
  if (floats <= kSmall) return result(shape, at::kFloat);
  at::Tensor memory = pool().take(floats);
  if (!memory.defined()) {
    // Durations differ from batch to batch; some room to spare serves the next one too.
    memory = fresh({floats + floats / 4});
    ham_use_huge_pages(memory.mutable_data_ptr(), static_cast<int64_t>(memory.nbytes()));
  }
  float* start = memory.mutable_data_ptr<float>();
  return at::from_blob(start, shape, [memory](void*) mutable { pool().give(std::move(memory)); },
                       at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
}

at::Tensor scratch_of_thread(int64_t floats) {
  thread_local at::Tensor kept;
  if (fill || !kReuse || floats > kScratch) return buffer({floats});
  if (!kept.defined() || kept.numel() < floats) kept = fresh({floats});
  return kept;
}

}  // namespace ham

void ham_release_buffers() {
  ham::pool().clear();
  ham::Blocks::all().clear();
}

// Tests set this: what nobody has written is NaN then, and a buffer is exactly as large as asked for.
void ham_fill_with_nan(int64_t fill) { ham::fill = fill != 0; }
