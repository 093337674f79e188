// SIMD vectors over lanes, written with the compiler's vector extensions so that
// one source serves AVX-512, AVX2 and NEON/SSE; a lane is one example of the batch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ham {

// Sixteen lanes are one cache line: a feature of a panel is exactly one line. Who has few examples asks for eight.
#if !defined(HAM_LANES)
#define HAM_LANES 16
#endif

#if defined(__AVX512F__) && HAM_LANES == 16
#define HAM_WIDTH 16
#elif defined(__AVX__)
#define HAM_WIDTH 8
#else
#define HAM_WIDTH 4
#endif

constexpr int kLanes = HAM_LANES, kWidth = HAM_WIDTH;
constexpr int kVectors = kLanes / kWidth;
#if HAM_WIDTH == 16 || defined(__AVX512VL__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif

using Vec = float __attribute__((vector_size(kWidth * 4)));
using Bits = int32_t __attribute__((vector_size(kWidth * 4)));
using Vec4 = float __attribute__((vector_size(16)));
using LooseVec4 = float __attribute__((vector_size(16), aligned(4), may_alias));

#define HAM_INLINE inline __attribute__((always_inline))

HAM_INLINE Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
HAM_INLINE void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
HAM_INLINE Bits load_bits(const int32_t* p) { return *reinterpret_cast<const Bits*>(p); }
HAM_INLINE Vec4 load4(const float* p) { return *reinterpret_cast<const LooseVec4*>(p); }
HAM_INLINE void store4(float* p, Vec4 v) { *reinterpret_cast<LooseVec4*>(p) = v; }
// x - 0 is x for every x, -0 included, so this is a bare broadcast; 0 + x would be an addition.
HAM_INLINE Vec splat(float x) { return x - Vec{}; }

// A value that the compiler must have in a register: it would rather load it again for each of its
// uses, where loads are scarce.
HAM_INLINE void keep_in_register(Vec& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

// a * b + c, rounded once wherever the machine can. Left to itself a compiler fuses the same expression
// here and not there, and an example's bits would depend on the code that computed them.
#if defined(__FMA__)
HAM_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
#if HAM_WIDTH == 16
  return _mm512_fmadd_ps(a, b, c);
#else
  return _mm256_fmadd_ps(a, b, c);
#endif
}
HAM_INLINE Vec4 multiply_add(Vec4 a, Vec4 b, Vec4 c) { return _mm_fmadd_ps(a, b, c); }
HAM_INLINE float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
#elif defined(__aarch64__)
HAM_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
HAM_INLINE float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
#else
HAM_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }
#if defined(__AVX__)
HAM_INLINE Vec4 multiply_add(Vec4 a, Vec4 b, Vec4 c) { return a * b + c; }
#endif
HAM_INLINE float multiply_add(float a, float b, float c) { return a * b + c; }
#endif

// Comparisons with NaN are false, so these two let a NaN through, as torch does.
HAM_INLINE Vec relu(Vec x) { return x < 0.f ? Vec{} : x; }
HAM_INLINE Vec clamp(Vec x, float low, float high) {
  x = x < low ? splat(low) : x;
  return x > high ? splat(high) : x;
}
HAM_INLINE Vec root(Vec x) {
  for (int i = 0; i < kWidth; ++i) x[i] = std::sqrt(x[i]);
  return x;
}
HAM_INLINE Vec where_positive(Vec gate, Vec x) { return gate > 0.f ? x : Vec{}; }

// Half by half, down to four sums.
HAM_INLINE Vec4 four_sums(Vec v) {
#if HAM_WIDTH == 16
  using Half = float __attribute__((vector_size(32)));
  Half lo, hi;
  std::memcpy(&lo, &v, 32);
  std::memcpy(&hi, reinterpret_cast<const char*>(&v) + 32, 32);
  Half w = lo + hi;
  return __builtin_shufflevector(w, w, 0, 1, 2, 3) + __builtin_shufflevector(w, w, 4, 5, 6, 7);
#elif HAM_WIDTH == 8
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  return v;
#endif
}

HAM_INLINE float sum(Vec v) {
  Vec4 q = four_sums(v);
  Vec4 r = q + __builtin_shufflevector(q, q, 2, 3, 2, 3);
  return r[0] + r[1];
}

// exp(x) = 2^power * (1 + rest): `rest` is accurate relative to itself, so that
// exp(x) - 1 loses nothing near zero.
struct SplitExp {
  Vec power;
  Vec rest;
};

HAM_INLINE SplitExp split_exp(Vec x) {
  constexpr float kRound = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  Vec shifted = multiply_add(x, splat(1.44269504088896341f), splat(kRound));
  Vec n = shifted - kRound;
  // ln 2 in two pieces: the first has few bits, so n * piece is exact.
  Vec r = multiply_add(n, splat(-0.693359375f), x);
  r = multiply_add(n, splat(2.12194440e-4f), r);
  Vec p = multiply_add(r, splat(1.f / 5040), splat(1.f / 720));
  p = multiply_add(p, r, splat(1.f / 120));
  p = multiply_add(p, r, splat(1.f / 24));
  p = multiply_add(p, r, splat(1.f / 6));
  p = multiply_add(p, r, splat(0.5f));
  p = multiply_add(p, r * r, r);
  Bits exponent = reinterpret_cast<Bits>(shifted) - 0x4B400000;
  Bits biased = (exponent + 127) << 23;
  return {reinterpret_cast<Vec>(biased), p};
}

HAM_INLINE Vec exp(Vec x) {
  SplitExp e = split_exp(clamp(x, -87.f, 87.f));
  return multiply_add(e.power, e.rest, e.power);
}

HAM_INLINE Vec sigmoid(Vec x) {
  SplitExp e = split_exp(clamp(-x, -87.f, 87.f));
  return 1.f / (1.f + multiply_add(e.power, e.rest, e.power));
}

HAM_INLINE Vec tanh(Vec x) {
  SplitExp e = split_exp(clamp(x + x, -20.f, 20.f));
  Vec minus_one = multiply_add(e.power, e.rest, e.power - 1.f);
  return minus_one / (minus_one + 2.f);
}

// Four rows of four features, for kWidth lanes at a time: each 128-bit quarter of a
// vector is transposed on its own, which needs no shuffle across quarters.
#if HAM_WIDTH == 16
using Vec8 = float __attribute__((vector_size(32)));
using LooseVec8 = float __attribute__((vector_size(32), aligned(4), may_alias));
HAM_INLINE Vec8 load8(const float* p) { return *reinterpret_cast<const LooseVec8*>(p); }
HAM_INLINE void store8(float* p, Vec8 v) { *reinterpret_cast<LooseVec8*>(p) = v; }
HAM_INLINE Vec join_quarters(const float* const* rows, int64_t f) {
  Vec8 lo = __builtin_shufflevector(load4(rows[0] + f), load4(rows[4] + f), 0, 1, 2, 3, 4, 5, 6, 7);
  Vec8 hi = __builtin_shufflevector(load4(rows[8] + f), load4(rows[12] + f), 0, 1, 2, 3, 4, 5, 6, 7);
  return __builtin_shufflevector(lo, hi, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
#define HAM_IN_QUARTERS(a, b, i, j, k, l)                                                     \
  __builtin_shufflevector(a, b, i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, \
                          l + 8, i + 12, j + 12, k + 12, l + 12)
constexpr int kOther = 16;
#elif HAM_WIDTH == 8
HAM_INLINE Vec join_quarters(const float* const* rows, int64_t f) {
  return __builtin_shufflevector(load4(rows[0] + f), load4(rows[4] + f), 0, 1, 2, 3, 4, 5, 6, 7);
}
#define HAM_IN_QUARTERS(a, b, i, j, k, l) \
  __builtin_shufflevector(a, b, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
constexpr int kOther = 8;
#else
HAM_INLINE Vec join_quarters(const float* const* rows, int64_t f) { return load4(rows[0] + f); }
#define HAM_IN_QUARTERS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
constexpr int kOther = 4;
#endif

HAM_INLINE void transpose_quarters(Vec& a, Vec& b, Vec& c, Vec& d) {
  Vec ab_lo = HAM_IN_QUARTERS(a, b, 0, kOther, 1, kOther + 1);
  Vec ab_hi = HAM_IN_QUARTERS(a, b, 2, kOther + 2, 3, kOther + 3);
  Vec cd_lo = HAM_IN_QUARTERS(c, d, 0, kOther, 1, kOther + 1);
  Vec cd_hi = HAM_IN_QUARTERS(c, d, 2, kOther + 2, 3, kOther + 3);
  a = HAM_IN_QUARTERS(ab_lo, cd_lo, 0, 1, kOther, kOther + 1);
  b = HAM_IN_QUARTERS(ab_lo, cd_lo, 2, 3, kOther + 2, kOther + 3);
  c = HAM_IN_QUARTERS(ab_hi, cd_hi, 0, 1, kOther, kOther + 1);
  d = HAM_IN_QUARTERS(ab_hi, cd_hi, 2, 3, kOther + 2, kOther + 3);
}

// The sums of four vectors, each added up in the order of `sum`.
HAM_INLINE Vec4 sums(Vec a, Vec b, Vec c, Vec d) {
#if HAM_WIDTH == 16
  auto halves = [](Vec x, Vec y) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  };
  Vec ab = halves(a, b), cd = halves(c, d);
  Vec q = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
          __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  Vec r = q + HAM_IN_QUARTERS(q, q, 2, 3, 2, 3);
  Vec s = r + HAM_IN_QUARTERS(r, r, 1, 1, 1, 1);
  return __builtin_shufflevector(s, s, 0, 4, 8, 12);
#else
  auto pairs = [](Vec4 x, Vec4 y) {
    return __builtin_shufflevector(x, y, 0, 1, 4, 5) + __builtin_shufflevector(x, y, 2, 3, 6, 7);
  };
  Vec4 ab = pairs(four_sums(a), four_sums(b)), cd = pairs(four_sums(c), four_sums(d));
  return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
#endif
}

template <int Quarter>
HAM_INLINE Vec4 quarter(Vec v) {
#if HAM_WIDTH > 4
  return __builtin_shufflevector(v, v, Quarter * 4, Quarter * 4 + 1, Quarter * 4 + 2, Quarter * 4 + 3);
#else
  return v;
#endif
}

}  // namespace ham
