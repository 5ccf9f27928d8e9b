#include "matmul.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace ling3 {
namespace {

// Fewer units than this per thread and the last ones leave threads idle; then long groups are cut by rows as well.
constexpr int64_t units_per_thread = 4;
constexpr int64_t least_span =
    4;  // row blocks; below that unpacking the weights again costs more than the balance gains
constexpr int64_t float_columns = 16;

struct Block {
  int64_t row;
  int rows;
  int64_t prepared;  // offset of the block's first K tile
};

// The work of a matmul cut into units (group, tile of columns, span of row blocks), the span running fastest so that
// neighbouring units share weights.
class Plan {
 public:
  Plan(const Groups& groups, int64_t column_tiles, int threads) : column_tiles_(column_tiles) {
    int64_t most = 0;
    for (int64_t g = 0; g < groups.count; ++g) {
      first_block_.push_back(static_cast<int64_t>(blocks.size()));
      for (int64_t row = groups.offsets[g]; row < groups.offsets[g + 1]; row += row_block)
        blocks.push_back({row, static_cast<int>(std::min<int64_t>(row_block, groups.offsets[g + 1] - row)), 0});
      most = std::max(most, static_cast<int64_t>(blocks.size()) - first_block_.back());
    }
    first_block_.push_back(static_cast<int64_t>(blocks.size()));
    span_ = std::max<int64_t>(most, 1);
    count_units();
    while (units() < threads * units_per_thread && span_ > least_span) {
      span_ = (span_ + 1) / 2;
      count_units();
    }
  }

  int64_t units() const { return first_unit_.back(); }

  struct Unit {
    int64_t group, column_tile, first_block, last_block;
  };

  Unit unit(int64_t index) const {
    const auto after = std::upper_bound(first_unit_.begin(), first_unit_.end(), index);
    const int64_t group = after - first_unit_.begin() - 1;
    const int64_t spans = (group_blocks(group) + span_ - 1) / span_;
    const int64_t local = index - first_unit_[static_cast<size_t>(group)];
    const int64_t first = first_block_[static_cast<size_t>(group)] + local % spans * span_;
    return {group, local / spans, first, std::min(first + span_, first_block_[static_cast<size_t>(group) + 1])};
  }

  std::vector<Block> blocks;

 private:
  int64_t group_blocks(int64_t group) const {
    return first_block_[static_cast<size_t>(group) + 1] - first_block_[static_cast<size_t>(group)];
  }

  void count_units() {
    first_unit_.assign(1, 0);
    for (int64_t g = 0; g + 1 < static_cast<int64_t>(first_block_.size()); ++g)
      first_unit_.push_back(first_unit_.back() + (group_blocks(g) + span_ - 1) / span_ * column_tiles_);
  }

  int64_t column_tiles_;
  int64_t span_ = 1;
  std::vector<int64_t> first_block_;
  std::vector<int64_t> first_unit_;
};

// Cache-line aligned memory of the calling thread that grows and is kept: the steps of a generation allocate nothing.
uint8_t* scratch(int64_t bytes) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<void, Free> memory;
  static thread_local int64_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    const int64_t rounded = (bytes + 4095) / 4096 * 4096;
    memory.reset(std::aligned_alloc(64, static_cast<size_t>(rounded)));
    if (!memory) throw std::bad_alloc();
    size = rounded;
  }
  return static_cast<uint8_t*>(memory.get());
}

// Copies all activations into the order that the kernels read; returns the memory the blocks' offsets refer to.
const uint8_t* prepare(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, const int8_t* q,
                       Plan& plan) {
  const int64_t tile = weights.k / weights.tiles;
  int64_t bytes = 0;
  for (Block& block : plan.blocks) {
    block.prepared = bytes;
    bytes += kernels.prepared_bytes(block.rows, tile) * weights.tiles;
  }
  uint8_t* memory = scratch(bytes);
  pool.each(static_cast<int64_t>(plan.blocks.size()), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Block& block = plan.blocks[static_cast<size_t>(i)];
      const int64_t step = kernels.prepared_bytes(block.rows, tile);
      for (int64_t t = 0; t < weights.tiles; ++t)
        kernels.prepare(q + block.row * weights.k + t * tile, weights.k, block.rows, tile,
                        memory + block.prepared + t * step);
    }
  });
  return memory;
}

// Calls use(expert, block, column tile, K tile, acc [rows, columns]) for everything in the plan, K tiles in order.
template <class Use>
void each_tile(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, const Groups& groups,
               const int8_t* q, const Use& use) {
  const int64_t column_tiles = weights.n / kernels.columns;
  Plan plan(groups, column_tiles, pool.threads());
  const uint8_t* prepared = prepare(pool, kernels, weights, q, plan);
  const int64_t tile = weights.k / weights.tiles;
  const int64_t tile_bytes = tile / k_block * block_bytes;
  pool.each(plan.units(), 1, [&](int64_t begin, int64_t end) {
    alignas(64) int32_t acc[row_block * 64];
    for (int64_t index = begin; index < end; ++index) {
      const Plan::Unit unit = plan.unit(index);
      const int64_t expert = groups.experts[unit.group];
      const uint8_t* data = weights.data + (expert * column_tiles + unit.column_tile) * weights.tiles * tile_bytes;
      for (int64_t i = unit.first_block; i < unit.last_block; ++i) {
        const Block& block = plan.blocks[static_cast<size_t>(i)];
        const int64_t step = kernels.prepared_bytes(block.rows, tile);
        for (int64_t t = 0; t < weights.tiles; ++t) {
          kernels.accumulate(prepared + block.prepared + t * step, block.rows, tile, data + t * tile_bytes, acc);
          use(expert, block, unit.column_tile, t, acc);
        }
      }
    }
  });
}

}  // namespace

void tiled_matmul(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, const Groups& groups,
                  const int8_t* q, const float* a_scale, float* y, int64_t y_columns) {
  const int64_t columns = kernels.columns;
  each_tile(pool, kernels, weights, groups, q,
            [&](int64_t expert, const Block& block, int64_t column_tile, int64_t t, const int32_t* acc) {
              const int64_t first = column_tile * columns;
              const int64_t kept = std::min(columns, y_columns - first);
              const float* scale = weights.scale + (expert * weights.tiles + t) * weights.n + first;
              for (int r = 0; r < block.rows; ++r) {
                const float a = a_scale[(block.row + r) * weights.tiles + t];
                float* out = y + (block.row + r) * y_columns + first;
                const int32_t* sums = acc + r * columns;
                // Product and sum stay separate (-ffp-contract=off): all machines round alike.
                if (t == 0) {
                  for (int64_t n = 0; n < kept; ++n) out[n] = static_cast<float>(sums[n]) * (a * scale[n]);
                } else {
                  for (int64_t n = 0; n < kept; ++n) out[n] += static_cast<float>(sums[n]) * (a * scale[n]);
                }
              }
            });
}

void tiled_accumulate(Pool& pool, const TileKernels& kernels, const TiledWeights& weights, int64_t rows,
                      const int8_t* q, int32_t* acc) {
  const int32_t expert = 0;
  const int32_t offsets[2] = {0, static_cast<int32_t>(rows)};
  const int64_t columns = kernels.columns;
  each_tile(pool, kernels, weights, {&expert, offsets, 1}, q,
            [&](int64_t, const Block& block, int64_t column_tile, int64_t t, const int32_t* sums) {
              for (int r = 0; r < block.rows; ++r)
                memcpy(acc + ((block.row + r) * weights.tiles + t) * weights.n + column_tile * columns,
                       sums + r * columns, static_cast<size_t>(columns) * sizeof(int32_t));
            });
}

void float_matmul(Pool& pool, FloatDots dots, const FloatWeights& weights, const Groups& groups, const float* x,
                  float* y) {
  const int64_t column_tiles = (weights.n + float_columns - 1) / float_columns;
  const Plan plan(groups, column_tiles, pool.threads());
  pool.each(plan.units(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Plan::Unit unit = plan.unit(index);
      const int64_t first = unit.column_tile * float_columns;
      const int64_t columns = std::min(float_columns, weights.n - first);
      const uint8_t* data =
          weights.data + (groups.experts[unit.group] * weights.n + first) * weights.k * weights.element_bytes;
      for (int64_t i = unit.first_block; i < unit.last_block; ++i) {
        const Block& block = plan.blocks[static_cast<size_t>(i)];
        dots(x + block.row * weights.k, block.rows, data, columns, weights.k, y + block.row * weights.n + first,
             weights.n);
      }
    }
  });
}

}  // namespace ling3
