// Memory for calls, as tensors: large buffers come from a pool, since fresh pages cost milliseconds a training step.
#pragma once

#include <ATen/core/Tensor.h>

namespace ham {

// Uninitialised, float32, aligned to 64 bytes.
at::Tensor buffer(at::IntArrayRef shape);

}  // namespace ham
