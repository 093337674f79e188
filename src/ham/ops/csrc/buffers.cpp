#include "buffers.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <limits>
#include <map>
#include <mutex>

#include "api.h"

namespace ham {
namespace {

constexpr int64_t kSmall = 1 << 15;   // below, torch's own allocator is as good
constexpr int64_t kLarge = 1 << 26;   // a very large one is for a very large memory: worth giving back
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

}  // namespace

at::Tensor buffer(at::IntArrayRef shape) {
  int64_t floats = c10::multiply_integers(shape);
  if (fill) {
    at::Tensor memory = fresh(shape);
    std::fill_n(memory.mutable_data_ptr<float>(), floats, std::numeric_limits<float>::quiet_NaN());
    return memory;
  }
  if (floats <= kSmall || floats > kLarge) return fresh(shape);
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

}  // namespace ham

void ham_release_buffers() { ham::pool().clear(); }

// Tests set this: what nobody has written is NaN then, and a buffer is exactly as large as asked for.
void ham_fill_with_nan(int64_t fill) { ham::fill = fill != 0; }
