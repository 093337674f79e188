// Adam (Kingma & Ba, 2015) in one pass; ham/train/adam.py defines it.

#include <cmath>

#include "api.h"

void ham_adam(const HamAdam* adam) {
  const HamAdam a = *adam;
  float* __restrict weights = a.weight;
  float* __restrict means = a.mean;
  float* __restrict squares = a.square;
  for (int64_t i = 0; i < a.weights; ++i) {
    const float gradient = a.gradient[i] * a.scale;
    const float mean = means[i] + a.mean_rate * (gradient - means[i]);
    const float square = a.square_decay * squares[i] + a.square_rate * (gradient * gradient);
    means[i] = mean;
    squares[i] = square;
    weights[i] -= a.rate * (mean / (std::sqrt(square) / a.unbiased_root + a.epsilon));
  }
}
