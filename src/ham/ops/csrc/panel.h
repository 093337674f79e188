// Panels: matrices [features][lanes], and everything that is done to whole panels.
// A layer is a small matrix product whose weights are broadcast and whose lanes are SIMD.
#pragma once

#include <type_traits>

#include "vec.h"

namespace ham {

HAM_INLINE int64_t panel_floats(int64_t features) { return features * kLanes; }

HAM_INLINE void copy_panel(float* to, const float* from, int64_t features) {
  std::memcpy(to, from, sizeof(float) * panel_floats(features));
}
HAM_INLINE void zero_panel(float* to, int64_t features) {
  std::memset(to, 0, sizeof(float) * panel_floats(features));
}

template <class Function>
HAM_INLINE void each_vector(int64_t features, Function&& function) {
  for (int64_t i = 0; i < features * kLanes; i += kWidth) function(i);
}

HAM_INLINE void add_panel(float* to, const float* from, int64_t features) {
  each_vector(features, [&](int64_t i) { store(to + i, load(to + i) + load(from + i)); });
}

// Of no panel: the numbers need not be aligned.
inline void add_floats(float* __restrict to, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// to += factor * panel, with a factor for every lane.
HAM_INLINE void add_scaled(float* to, const float* factor, const float* panel, int64_t features) {
  for (int v = 0; v < kLanes; v += kWidth) {
    Vec scale = load(factor + v);
    for (int64_t i = v; i < panel_floats(features); i += kLanes)
      store(to + i, multiply_add(scale, load(panel + i), load(to + i)));
  }
}

enum class Start { zero, bias, panel };
enum class Finish { none, relu, where_positive };

// A tile's accumulators stay in registers: 6 outputs x 2 vectors is 12 of AVX2's 16.
constexpr int kTile = kVectors == 1 ? 12 : kVectors == 2 ? 6 : 3;
// Where there are registers for it, most outputs go by larger tiles, each of which passes once over the inputs.
constexpr int kLargeTile = kVectors == 1 && kRegisters == 32 ? 20 : 0;

template <int M, Start start, Finish finish>
HAM_INLINE void product_tile(float* y, const float* a, int64_t a_stride, const float* x,
                             int64_t depth, const float* initial, const float* gate) {
  Vec sum[M][kVectors];
#pragma GCC unroll 32
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < kVectors; ++v) {
      if (start == Start::zero) sum[m][v] = Vec{};
      if (start == Start::bias) sum[m][v] = splat(initial[m]);
      if (start == Start::panel) sum[m][v] = load(initial + m * kLanes + v * kWidth);
    }
  for (int64_t k = 0; k < depth; ++k) {
    Vec column[kVectors];
    for (int v = 0; v < kVectors; ++v) column[v] = load(x + k * kLanes + v * kWidth);
#pragma GCC unroll 32
    for (int m = 0; m < M; ++m) {
      Vec weight = splat(a[k * a_stride + m]);
      for (int v = 0; v < kVectors; ++v) sum[m][v] = multiply_add(weight, column[v], sum[m][v]);
    }
  }
#pragma GCC unroll 32
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < kVectors; ++v) {
      Vec result = sum[m][v];
      if (finish == Finish::relu) result = relu(result);
      if (finish == Finish::where_positive)
        result = where_positive(load(gate + m * kLanes + v * kWidth), result);
      store(y + m * kLanes + v * kWidth, result);
    }
}

// y[m] = finish(start + sum over k of a[k * a_stride + m] * x[k]), for `rows` outputs m.
// `initial` is a bias vector or a panel (it may be y itself), `gate` a panel.
template <Start start, Finish finish>
void product(float* y, int64_t rows, const float* a, int64_t a_stride, const float* x,
             int64_t depth, const float* initial = nullptr, const float* gate = nullptr) {
  int64_t done = 0;
  auto tile_of = [&](auto size) {
    const float* from = start == Start::panel ? initial + done * kLanes
                        : start == Start::bias ? initial + done
                                               : nullptr;
    const float* mask = finish == Finish::where_positive ? gate + done * kLanes : nullptr;
    product_tile<size, start, finish>(y + done * kLanes, a + done, a_stride, x, depth, from, mask);
    done += size;
  };
  if constexpr (kLargeTile > 0)
    while (rows - done == kLargeTile || rows - done >= kLargeTile + kTile)
      tile_of(std::integral_constant<int, kLargeTile>());
  for (int64_t tiles = (rows - done + kTile - 1) / kTile; tiles > 0; --tiles) {
    switch ((rows - done) / tiles) {
#define HAM_CASE(M)                                                              \
  case M:                                                                        \
    if constexpr (M <= kTile) tile_of(std::integral_constant<int, M>());         \
    break;
      HAM_CASE(1) HAM_CASE(2) HAM_CASE(3) HAM_CASE(4) HAM_CASE(5) HAM_CASE(6)
      HAM_CASE(7) HAM_CASE(8) HAM_CASE(9) HAM_CASE(10) HAM_CASE(11) HAM_CASE(12)
#undef HAM_CASE
    }
  }
}

// One output only: four partial sums hide the latency of the multiply-add.
HAM_INLINE void dot_product(float* y, const float* a, const float* x, int64_t depth, float bias) {
  for (int v = 0; v < kVectors; ++v) {
    Vec sum[4] = {splat(bias), Vec{}, Vec{}, Vec{}};
    const float* column = x + v * kWidth;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4)
      for (int j = 0; j < 4; ++j)
        sum[j] = multiply_add(splat(a[k + j]), load(column + (k + j) * kLanes), sum[j]);
    for (; k < depth; ++k) sum[0] = multiply_add(splat(a[k]), load(column + k * kLanes), sum[0]);
    store(y + v * kWidth, (sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

// A tile's columns: 6 x 4 sums are 24 of AVX-512's 32 registers, 6 x 2 are 12 of AVX2's 16.
constexpr int kColumns = kVectors == 1 && kRegisters == 32 ? 4 : 2;

template <int Rows, int Columns>
HAM_INLINE void outer_tile(float* gradient, int64_t row_stride, const float* dy, int64_t dy_stride,
                           const float* x, int64_t x_stride, int64_t panels, const uint8_t* used) {
  Vec total[Rows][Columns];
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Columns; ++c) total[r][c] = Vec{};
  for (int64_t p = 0; p < panels; ++p) {
    if (used && !used[p]) continue;
    for (int v = 0; v < kVectors; ++v) {
      Vec column[Columns];
      for (int c = 0; c < Columns; ++c)
        column[c] = load(x + p * x_stride + c * kLanes + v * kWidth);
      for (int r = 0; r < Rows; ++r) {
        Vec row = load(dy + p * dy_stride + r * kLanes + v * kWidth);
        keep_in_register(row);
        for (int c = 0; c < Columns; ++c) total[r][c] = multiply_add(row, column[c], total[r][c]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    float* to = gradient + r * row_stride;
    if constexpr (Columns == 4)
      store4(to, load4(to) + sums(total[r][0], total[r][1], total[r][2], total[r][3]));
    else
      for (int c = 0; c < Columns; ++c) to[c] += sum(total[r][c]);
  }
}

// gradient[r][c] += sum over panels and lanes of dy[r] * x[c]: a layer's weight gradient
// as one long reduction; the panels lie dy_stride and x_stride floats apart. Those that are not
// `used` hold anything and are passed over; without `used` all count.
inline void outer(float* gradient, int64_t row_stride, const float* dy, int64_t dy_stride, int64_t rows,
                  const float* x, int64_t x_stride, int64_t columns, int64_t panels,
                  const uint8_t* used = nullptr) {
  // So many panels that one tile's rows of dy stay in L1 while x streams past them.
  constexpr int64_t kBlock = 48;
  constexpr int64_t kRows = 6;
  for (int64_t first = 0; first < panels; first += kBlock) {
    int64_t count = panels - first < kBlock ? panels - first : kBlock;
    const uint8_t* of_block = used ? used + first : nullptr;
    int64_t tiles = (rows + kRows - 1) / kRows;
    int64_t r = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t size = (rows - r) / (tiles - tile);
      const float* dy_rows = dy + first * dy_stride + r * kLanes;
      auto tiles_of = [&](auto wide, int64_t c) {
        for (; c + wide <= columns; c += wide) {
          const float* x_columns = x + first * x_stride + c * kLanes;
          float* to = gradient + r * row_stride + c;
          switch (size) {
#define HAM_CASE(R)                                                                              \
  case R:                                                                                        \
    outer_tile<R, wide>(to, row_stride, dy_rows, dy_stride, x_columns, x_stride, count, of_block); \
    break;
            HAM_CASE(1) HAM_CASE(2) HAM_CASE(3) HAM_CASE(4) HAM_CASE(5) HAM_CASE(6)
#undef HAM_CASE
          }
        }
        return c;
      };
      int64_t c = tiles_of(std::integral_constant<int, kColumns>(), 0);
      if constexpr (kColumns > 2) c = tiles_of(std::integral_constant<int, 2>(), c);
      tiles_of(std::integral_constant<int, 1>(), c);
      r += size;
    }
  }
}

inline void add_lane_sums(float* gradient, const float* dy, int64_t dy_stride, int64_t rows,
                          int64_t panels, const uint8_t* used = nullptr) {
  int64_t r = 0;
  // Several rows at once: one addition would wait for the one before.
  auto of_rows = [&](auto count) {
    Vec total[count][kVectors] = {};
    for (int64_t p = 0; p < panels; ++p) {
      if (used && !used[p]) continue;
      for (int i = 0; i < count; ++i)
        for (int v = 0; v < kVectors; ++v)
          total[i][v] += load(dy + p * dy_stride + (r + i) * kLanes + v * kWidth);
    }
    for (int i = 0; i < count; ++i) {
      for (int v = 1; v < kVectors; ++v) total[i][0] += total[i][v];
      gradient[r + i] += sum(total[i][0]);
    }
    r += count;
  };
  while (r + 4 <= rows) of_rows(std::integral_constant<int, 4>());
  while (r < rows) of_rows(std::integral_constant<int, 1>());
}

#if HAM_WIDTH == 16
// Eight features of every fourth lane: in quarters, the first four and the last four of them.
HAM_INLINE void take_eight(Vec& low, Vec& high, const float* const* rows, int64_t f) {
  auto two = [&](int lane) {
    return __builtin_shufflevector(load8(rows[lane] + f), load8(rows[lane + 4] + f), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                   10, 11, 12, 13, 14, 15);
  };
  Vec a = two(0), b = two(8);
  low = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  high = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

template <bool add>
HAM_INLINE void put_eight(float* const* rows, int64_t f, Vec low, Vec high) {
  auto put = [&](int lane, Vec8 values) {
    float* to = rows[lane] + f;
    store8(to, add ? load8(to) + values : values);
  };
  auto put_two = [&](int lane, Vec both) {
    put(lane, __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7));
    put(lane + 4, __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15));
  };
  put_two(0, __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
  put_two(8, __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31));
}
#endif

// Rows of the tree are contiguous per lane; a panel is made of kLanes of them, transposed.
inline void gather(float* panel, const float* const* rows, int64_t features) {
  int64_t f = 0;
#if HAM_WIDTH == 16
  for (; f + 8 <= features; f += 8) {
    Vec low[4], high[4];
    for (int j = 0; j < 4; ++j) take_eight(low[j], high[j], rows + j, f);
    transpose_quarters(low[0], low[1], low[2], low[3]);
    transpose_quarters(high[0], high[1], high[2], high[3]);
    for (int j = 0; j < 4; ++j) {
      store(panel + (f + j) * kLanes, low[j]);
      store(panel + (f + 4 + j) * kLanes, high[j]);
    }
  }
#endif
  for (; f + 4 <= features; f += 4)
    for (int v = 0; v < kVectors; ++v) {
      const float* const* lanes = rows + v * kWidth;
      Vec a = join_quarters(lanes, f), b = join_quarters(lanes + 1, f);
      Vec c = join_quarters(lanes + 2, f), d = join_quarters(lanes + 3, f);
      transpose_quarters(a, b, c, d);
      float* to = panel + f * kLanes + v * kWidth;
      store(to, a);
      store(to + kLanes, b);
      store(to + 2 * kLanes, c);
      store(to + 3 * kLanes, d);
    }
  for (; f < features; ++f)
    for (int lane = 0; lane < kLanes; ++lane) panel[f * kLanes + lane] = rows[lane][f];
}

template <bool add, int Quarter>
HAM_INLINE void put_quarter(float* const* lanes, int64_t f, Vec a, Vec b, Vec c, Vec d) {
  Vec4 values[4] = {quarter<Quarter>(a), quarter<Quarter>(b), quarter<Quarter>(c),
                    quarter<Quarter>(d)};
  for (int j = 0; j < 4; ++j) {
    float* to = lanes[Quarter * 4 + j] + f;
    store4(to, add ? load4(to) + values[j] : values[j]);
  }
}

template <bool add>
void scatter(float* const* rows, const float* panel, int64_t features) {
  int64_t f = 0;
#if HAM_WIDTH == 16
  for (; f + 8 <= features; f += 8) {
    Vec low[4], high[4];
    for (int j = 0; j < 4; ++j) {
      low[j] = load(panel + (f + j) * kLanes);
      high[j] = load(panel + (f + 4 + j) * kLanes);
    }
    transpose_quarters(low[0], low[1], low[2], low[3]);
    transpose_quarters(high[0], high[1], high[2], high[3]);
    for (int j = 0; j < 4; ++j) put_eight<add>(rows + j, f, low[j], high[j]);
  }
#endif
  for (; f + 4 <= features; f += 4)
    for (int v = 0; v < kVectors; ++v) {
      const float* from = panel + f * kLanes + v * kWidth;
      Vec a = load(from), b = load(from + kLanes);
      Vec c = load(from + 2 * kLanes), d = load(from + 3 * kLanes);
      transpose_quarters(a, b, c, d);
      float* const* lanes = rows + v * kWidth;
      put_quarter<add, 0>(lanes, f, a, b, c, d);
      if constexpr (kWidth > 4) put_quarter<add, 1 % (kWidth / 4)>(lanes, f, a, b, c, d);
      if constexpr (kWidth > 8) {
        put_quarter<add, 2 % (kWidth / 4)>(lanes, f, a, b, c, d);
        put_quarter<add, 3 % (kWidth / 4)>(lanes, f, a, b, c, d);
      }
    }
  for (; f < features; ++f)
    for (int lane = 0; lane < kLanes; ++lane) {
      float value = panel[f * kLanes + lane];
      rows[lane][f] = add ? rows[lane][f] + value : value;
    }
}

}  // namespace ham
