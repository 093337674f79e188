// Memory for calls, as tensors: large buffers come from a pool, since fresh pages cost milliseconds a training step.
#pragma once

#include <ATen/core/Tensor.h>

namespace ham {

// Uninitialised, float32, aligned to 64 bytes.
at::Tensor buffer(at::IntArrayRef shape);
// Likewise, small and of any type: what a call gives to its caller.
at::Tensor result(at::IntArrayRef shape, at::ScalarType type);
// As a buffer, for one call of this thread: the next one gets the same, which is still in the cache.
at::Tensor scratch_of_thread(int64_t floats);

}  // namespace ham
