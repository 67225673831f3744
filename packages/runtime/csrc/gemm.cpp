// The kernel of `gemm.hpp`: 12 rows by 32 lanes of the result at a time stay in 24 registers while the terms are added.
//
// Each term costs two loads of a vector and 12 broadcasts for 24 multiplications, which is what the units for those can
// take. Vectors come from panels that were packed so that they are read one after the other: a block of panels lies in
// the second-level cache and is used for all rows. Rows are read where they lie; those of the next tile are fetched
// while this one is computed, which hides the way from memory: no copy of a weight is made. Panels that were packed
// beforehand are fetched a block ahead.
#include "gemm.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

// GCC 12 warns of operands that its own header leaves undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f")
#include <immintrin.h>

namespace flambeau::gemm {
namespace {

constexpr int64_t kRows = 24 / kVectors, kVector = 16, kLine = 64, kFloats = kLine / sizeof(float);
// Terms that are added before a tile is stored: as many rows of them as a tile has fit the first-level cache beside a
// panel. A tile's loop is cut in four, so that it can fetch other rows in each.
constexpr int64_t kChunk = 384, kParts = 4, kStep = 4;
// Rows whose sums are kept before they are turned: whole lines of the result are written then.
constexpr int64_t kTurned = 48;
// Panels in a block.
constexpr int64_t kFewestPanels = 4, kMostPanels = 64, kMostTurned = 8;

__mmask16 first(int64_t count) {
  return count >= kVector ? 0xffff : static_cast<__mmask16>((1u << std::max<int64_t>(count, 0)) - 1);
}

// Sixteen vectors, turned in registers.
struct Square {
  __m512 line[16];

  // The first `columns` elements of some rows; zeros for rows that are not there.
  __attribute__((always_inline)) void load(const float* from, int64_t stride, int64_t rows, int64_t columns) {
    const __mmask16 mask = first(columns);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
      line[i] = i < rows ? _mm512_maskz_loadu_ps(mask, from + i * stride) : _mm512_setzero_ps();
  }

  __attribute__((always_inline)) void turn() {
    __m512 t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(line[i], line[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(line[i], line[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
      const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
      line[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
      line[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
      line[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
      line[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    // line[4 g + c] holds, in its p-th quarter, column 4 p + c of rows 4 g to 4 g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
      const __m512 even = _mm512_shuffle_f32x4(line[c], line[4 + c], 0x88),
                   odd = _mm512_shuffle_f32x4(line[c], line[4 + c], 0xdd);
      const __m512 even2 = _mm512_shuffle_f32x4(line[8 + c], line[12 + c], 0x88);
      const __m512 odd2 = _mm512_shuffle_f32x4(line[8 + c], line[12 + c], 0xdd);
      t[c] = _mm512_shuffle_f32x4(even, even2, 0x88);
      t[8 + c] = _mm512_shuffle_f32x4(even, even2, 0xdd);
      t[4 + c] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
      t[12 + c] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) line[i] = t[i];
  }
};

// One vector of lanes of a panel, from terms that lie side by side.
void pack_turned(const float* from, int64_t stride, int64_t lanes, int64_t terms, float* out) {
  for (int64_t k = 0; k < terms; k += kVector) {
    const int64_t some = std::min(terms - k, kVector);
    Square square;
    square.load(from + k, stride, lanes, some);
    square.turn();
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      if (i < some) _mm512_storeu_ps(out + (k + i) * kLanes, square.line[i]);
    }
  }
}

// Panels of the lanes and terms from the given ones on.
void pack_block(const Lanes& lanes, int64_t lane, int64_t count, int64_t term, int64_t terms, float* out) {
  for (int64_t l = lane; l < lane + count; l += kLanes, out += terms * kLanes) {
    for (int64_t v = 0; v < kLanes; v += kVector) {
      const int64_t have = lanes.count - l - v;
      const float* from = lanes.data + (l + v) * lanes.stride + term * lanes.term_stride;
      if (lanes.term_stride == 1) {
        pack_turned(from, lanes.stride, have, terms, out + v);
      } else if (lanes.stride == 1) {
        const __mmask16 mask = first(have);
        for (int64_t k = 0; k < terms; k++) {
          _mm512_storeu_ps(out + k * kLanes + v, _mm512_maskz_loadu_ps(mask, from + k * lanes.term_stride));
        }
      } else {
        for (int64_t k = 0; k < terms; k++) {
          for (int64_t i = 0; i < kVector; i++) {
            out[k * kLanes + v + i] = i < have ? from[i * lanes.stride + k * lanes.term_stride] : 0.0f;
          }
        }
      }
    }
  }
}

// What a tile begins with.
enum class Begin { Zero, Stored, BiasOfLanes, BiasOfRows };

struct Tile {
  const float* panel;
  const float* rows;
  int64_t row_stride, terms;
  float* out;
  int64_t out_stride;
  __mmask16 last;  // lanes of the last vector that are stored
  Begin begin;
  const float* bias;
  // What is fetched meanwhile: two rows in each part, and a run of lines of the next block, `next_step` bytes for every
  // `kStep` terms.
  const float* ahead[kParts][2];
  const char* next;
  int64_t next_step;
};

void fetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T1); }

template <int kCount, int kEach>
__attribute__((noinline)) void compute(const Tile& tile) {
  __m512 sum[kCount][kEach];
  // Kinds of beginnings are told apart once, not for each register.
  if (tile.begin == Begin::Stored || tile.begin == Begin::BiasOfLanes) {
    const float* from = tile.begin == Begin::Stored ? tile.out : tile.bias;
    const int64_t step = tile.begin == Begin::Stored ? tile.out_stride : 0;
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < kEach; j++) {
        const __mmask16 mask = j == kEach - 1 ? tile.last : 0xffff;
        sum[i][j] = _mm512_maskz_loadu_ps(mask, from + i * step + j * kVector);
      }
    }
  } else {
    const bool biased = tile.begin == Begin::BiasOfRows;
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i++) {
      const __m512 begin = biased ? _mm512_set1_ps(tile.bias[i]) : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int j = 0; j < kEach; j++) sum[i][j] = begin;
    }
  }
  const float* panel = tile.panel;
  // Three rows go by one pointer and the stride, so that addresses stay in registers; the compiler is kept from seeing
  // how pointers follow from each other, or it would keep twelve offsets in memory.
  constexpr int kPointers = (kCount + 2) / 3;
  const int64_t stride = tile.row_stride * static_cast<int64_t>(sizeof(float));
  const char* rows[kPointers];
#pragma GCC unroll 8
  for (int i = 0; i < kPointers; i++) {
    rows[i] = reinterpret_cast<const char*>(tile.rows + int64_t{3} * i * tile.row_stride);
    __asm__("" : "+r"(rows[i]));
  }
  const auto add = [&](int64_t k) __attribute__((always_inline, target("avx512f"))) {
    __m512 lanes[kEach];
#pragma GCC unroll 4
    for (int j = 0; j < kEach; j++) lanes[j] = _mm512_loadu_ps(panel + k * kLanes + j * kVector);
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i++) {
      const char* at = rows[i / 3] + (i % 3) * stride + k * static_cast<int64_t>(sizeof(float));
      const __m512 element = _mm512_set1_ps(*reinterpret_cast<const float*>(at));
#pragma GCC unroll 4
      for (int j = 0; j < kEach; j++) sum[i][j] = _mm512_fmadd_ps(lanes[j], element, sum[i][j]);
    }
  };
  const char* next = tile.next;
  const int64_t part = (tile.terms / kStep + kParts - 1) / kParts * kStep;
  for (int64_t n = 0, left = tile.terms / kStep * kStep; left > 0; n++) {
    const float* one = tile.ahead[n][0];
    const float* two = tile.ahead[n][1];
    const int64_t some = std::min(part, left);
    left -= some;
    for (const float* end = panel + some * kLanes; panel < end; panel += kStep * kLanes) {
      // The panel streams from the second-level cache; its end may be fetched beyond, which harms nobody.
#pragma GCC unroll 4
      for (int k = 0; k < kStep; k++) {
#pragma GCC unroll 4
        for (int j = 0; j < kEach; j++) {
          _mm_prefetch(reinterpret_cast<const char*>(panel + (k + 16) * kLanes + j * kVector), _MM_HINT_T0);
        }
      }
      fetch(one);
      fetch(two);
      fetch(next);
      fetch(next + kLine);
      one += kFloats;
      two += kFloats;
      next += tile.next_step;
      add(0);
      add(1);
      add(2);
      add(3);
#pragma GCC unroll 8
      for (int i = 0; i < kPointers; i++) rows[i] += kStep * sizeof(float);
    }
  }
  for (int64_t k = 0; k < tile.terms % kStep; k++) add(k);
#pragma GCC unroll 16
  for (int i = 0; i < kCount; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < kEach; j++) {
      const __mmask16 mask = j == kEach - 1 ? tile.last : 0xffff;
      _mm512_mask_storeu_ps(tile.out + i * tile.out_stride + j * kVector, mask, sum[i][j]);
    }
  }
}

using Compute = void (*)(const Tile&);

template <int... kCounts>
Compute compute_of(int64_t rows, int64_t vectors, std::integer_sequence<int, kCounts...>) {
  static constexpr Compute known[3][kRows] = {
      {compute<kCounts + 1, 1>...}, {compute<kCounts + 1, 2>...}, {compute<kCounts + 1, kVectors>...}};
  return known[vectors - 1][rows - 1];
}

// What part of the second-level cache a block takes.
constexpr int64_t kShare = 2;

// That part, in floats.
int64_t cache_floats() {
  static const int64_t found = [] {
    const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::max<int64_t>(bytes, int64_t{1} << 20) / kShare / static_cast<int64_t>(sizeof(float));
  }();
  return found;
}

// `total` in as few equal parts of at most `most` as there may be, each a multiple of `step`: the size of a part.
int64_t part_of(int64_t total, int64_t most, int64_t step) {
  const int64_t parts = (total + most - 1) / most;
  const int64_t each = (total + parts - 1) / parts;
  return (each + step - 1) / step * step;
}

// Memory of this thread for packed panels; it stays for the next product.
float* workspace(int64_t floats) {
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  static thread_local std::unique_ptr<float, Free> kept;
  static thread_local int64_t size = 0;
  if (floats > size) {
    kept.reset(static_cast<float*>(std::aligned_alloc(kLine, static_cast<size_t>(floats) * sizeof(float))));
    size = kept == nullptr ? 0 : floats;
    if (kept == nullptr) throw std::bad_alloc();
  }
  return kept.get();
}

// One block of panels by all rows.
struct Block {
  const Lanes& lanes;
  const Rows& rows;
  const Result& result;
  const float* bias;
  int64_t first_lane, panels, term, terms;
  const float* packed;  // of the first panel, at `term`
  int64_t panel_stride;  // from panel to panel
  int64_t next_lines;  // of packed panels that come after these

  void run() const {
    alignas(kLine) float scratch[kMostTurned * kTurned * kLanes];
    const int64_t together = result.turned ? kTurned : kRows;
    for (int64_t r = 0; r < rows.count; r += together) {
      const int64_t end = std::min(rows.count, r + together);
      for (int64_t each = r; each < end; each += kRows)
        add_rows(each, std::min(end - each, kRows), scratch + (each - r) * kLanes);
      if (result.turned) turn(r, end - r, scratch);
    }
  }

 private:
  // The sums of one tile's rows, in the result or in the scratch.
  void add_rows(int64_t r, int64_t count, float* scratch) const {
    const int64_t each = part_of(terms, kChunk, kVector);
    for (int64_t k = 0; k < terms; k += each) {
      for (int64_t p = 0; p < panels; p++) add(r, count, k, std::min(each, terms - k), p, scratch);
    }
  }

  void add(int64_t r, int64_t count, int64_t k, int64_t chunk, int64_t p, float* scratch) const {
    const int64_t lane = first_lane + p * kLanes, have = std::min(lanes.count - lane, kLanes);
    const int64_t vectors = (have + kVector - 1) / kVector;
    const bool begins = term + k == 0;
    Tile tile{};
    tile.panel = packed + p * panel_stride + k * kLanes;
    tile.rows = rows.data + r * rows.stride + term + k;
    tile.row_stride = rows.stride;
    tile.terms = chunk;
    tile.begin = Begin::Stored;
    if (result.turned) {
      tile.out = scratch + p * kTurned * kLanes;
      tile.out_stride = kLanes;
      tile.last = 0xffff;
      if (k == 0) tile.begin = begins && bias != nullptr ? Begin::BiasOfRows : Begin::Zero;
      if (bias != nullptr) tile.bias = bias + r;
    } else {
      tile.out = result.data + r * result.stride + lane;
      tile.out_stride = result.stride;
      tile.last = first(have - (vectors - 1) * kVector);
      if (begins) tile.begin = bias != nullptr ? Begin::BiasOfLanes : Begin::Zero;
      if (bias != nullptr) tile.bias = bias + lane;
    }
    look_ahead(tile, r, k, chunk, p);
    compute_of(count, vectors, std::make_integer_sequence<int, kRows>())(tile);
  }

  // Which of the rows that come next this tile fetches, and which lines of the next block.
  void look_ahead(Tile& tile, int64_t r, int64_t k, int64_t chunk, int64_t p) const {
    const bool more = k + chunk < terms;
    const float* from = rows.data + (more ? r : r + kRows) * rows.stride + term + (more ? k + chunk : 0);
    const int64_t count = std::min(rows.count - (more ? r : r + kRows), kRows);
    for (int64_t n = 0; n < 2 * kParts; n++) {
      const int64_t row = p * 2 * kParts + n;
      tile.ahead[n / 2][n % 2] = row < count ? from + row * rows.stride : tile.panel;
    }
    tile.next = reinterpret_cast<const char*>(tile.panel);
    const int64_t tiles = (rows.count + kRows - 1) / kRows, steps = tiles * panels * (terms / kStep);
    if (next_lines == 0 || steps == 0) return;
    const int64_t lines = next_lines > steps ? 2 : 1;
    const int64_t begin = ((r / kRows * terms + k) * panels + p * chunk) / kStep * lines;
    if (begin >= next_lines) return;
    tile.next = reinterpret_cast<const char*>(packed + panels * panel_stride) + begin * kLine;
    tile.next_step = lines * kLine;
  }

  // Stores what the scratch has of some rows, whole lines of the result where there are as many.
  void turn(int64_t r, int64_t count, const float* scratch) const {
    for (int64_t p = 0; p < panels; p++) {
      for (int64_t v = 0; v < kLanes; v += kVector) {
        const int64_t lane = first_lane + p * kLanes + v, have = lanes.count - lane;
        for (int64_t i = 0; i < count && have > 0; i += kVector) {
          Square square;
          square.load(scratch + (p * kTurned + i) * kLanes + v, kLanes, count - i, kVector);
          square.turn();
          float* out = result.data + lane * result.stride + r + i;
          const __mmask16 mask = first(count - i);
#pragma GCC unroll 16
          for (int j = 0; j < 16; j++) {
            if (j >= have) continue;
            __m512 sum = square.line[j];
            if (term != 0) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, out + j * result.stride));
            _mm512_mask_storeu_ps(out + j * result.stride, mask, sum);
          }
        }
      }
    }
  }
};

}  // namespace

void pack(const Lanes& lanes, int64_t terms, float* out) { pack_block(lanes, 0, lanes.count, 0, terms, out); }

void multiply(const Lanes& lanes, const Rows& rows, int64_t terms, const Result& result, const float* bias) {
  const int64_t panels = (lanes.count + kLanes - 1) / kLanes;
  const int64_t deep = part_of(terms, std::max(cache_floats() / (kFewestPanels * kLanes), kChunk), kVector);
  const int64_t most =
      std::clamp(cache_floats() / (deep * kLanes), kFewestPanels, result.turned ? kMostTurned : kMostPanels);
  const int64_t wide = part_of(panels, most, 1);
  float* const space = lanes.packed ? nullptr : workspace(wide * std::min(deep, terms) * kLanes);
  for (int64_t p = 0; p < panels; p += wide) {
    const int64_t count = std::min(wide, panels - p), lane = p * kLanes;
    for (int64_t k = 0; k < terms; k += deep) {
      const int64_t some = std::min(deep, terms - k);
      const float* packed = lanes.packed ? lanes.data + (p * terms + k) * kLanes : space;
      if (!lanes.packed) pack_block(lanes, lane, std::min(lanes.count - lane, count * kLanes), k, some, space);
      // A block over all terms is followed by the next one.
      const int64_t next =
          lanes.packed && deep >= terms ? std::min(wide, panels - p - count) * terms * kLanes / kFloats : 0;
      Block{lanes, rows, result, bias, lane, count, k, some, packed, (lanes.packed ? terms : some) * kLanes, next}
          .run();
    }
  }
}

}  // namespace flambeau::gemm
#pragma GCC pop_options

namespace flambeau::gemm {

bool is_supported() { return __builtin_cpu_supports("avx512f") != 0; }

int64_t packed_size(int64_t count, int64_t terms) { return (count + kLanes - 1) / kLanes * kLanes * terms; }

}  // namespace flambeau::gemm
