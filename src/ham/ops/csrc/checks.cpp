// What the binding asks before it trusts a tensor, or uses a buffer.

#include <sys/mman.h>

#include <cmath>

#include "api.h"
#include "vec.h"

int64_t ham_first_not_finite(const float* values, int64_t count) {
  // Infinities and NaN have all exponent bits set; one sweep without branches tells if any is there.
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    found |= (bits & kExponent) == kExponent;
  }
  if (!found) return -1;
  int64_t i = 0;
  while (std::isfinite(values[i])) ++i;
  return i;
}

int64_t ham_range(const int64_t* values, int64_t count, int64_t low, int64_t high) {
  for (int64_t i = 0; i < count; ++i)
    if (values[i] < low || values[i] > high) return i;
  return -1;
}

void ham_use_huge_pages(void* buffer, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 1 << 21;
  uintptr_t first = (reinterpret_cast<uintptr_t>(buffer) + kPage - 1) / kPage * kPage;
  uintptr_t end = (reinterpret_cast<uintptr_t>(buffer) + static_cast<uintptr_t>(bytes)) / kPage * kPage;
  // Only a wish: where it is not granted, small pages serve as well.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}
