#include "kernels/error_record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_set.h"
#include "kernels/part.h"
#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

// Up to so many queries the loops are quicker than tiles, which take sixteen at a time, unless one
// set of rows serves as keys and values: tiles then convert it once.
constexpr uint32_t kLoopQueriesMax = 8;
// Squares of outputs below this sum may have been below fp32's normal range one by one, and tile
// units take numbers for zero that are: the loops sum in double.
constexpr double kLeastTileSum = 1e-30;

uint32_t QuadsOf(uint32_t channels) {
  return (channels + kRecordQuad - 1) / kRecordQuad;
}

// Token that proxy `index` of `count` is the key of.
uint32_t ProxyToken(uint32_t index, uint32_t count, uint32_t tokens) {
  return count == 1 ? tokens / 2
                    : static_cast<uint32_t>(uint64_t{index} * (tokens - 1) / (count - 1));
}

// Attention over huge values overflows fp32. What cannot be measured is declared as infinite.
AttentionSums Measurable(const RecordSums& sums) {
  return std::isfinite(sums.error) && std::isfinite(sums.size)
             ? AttentionSums{sums.error, sums.size}
             : AttentionSums{std::numeric_limits<double>::infinity(), 0};
}

// Whether pairs can be turned four at a time: their channels fill quads, in order.
bool TurnsByQuads(const RopeShape& rope) {
  return rope.kind == RopeKind::kHalfSplit && rope.first % kRecordQuad == 0 &&
         rope.pairs() % kRecordQuad == 0;
}

}  // namespace

void RecordMeter::LoadProxies(const RecordInput& input, uint32_t count) {
  const SideShape& shape = input.k.task.shape;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
  tiles_ = (count + kRecordTile - 1) / kRecordTile;
  queries_.assign(ExemplarTileFloats(count, shape.dim), 0.0f);
  rows_.resize(shape.dim);
  for (uint32_t m = 0; m < count; ++m) {
    const uint32_t token = ProxyToken(m, count, shape.tokens);
    GatherFloat(input.k.access, {input.k.first_token + token, 1}, rows_.data());
    for (uint32_t c = 0; c < shape.dim; ++c) {
      queries_[ExemplarTileIndex(m, c, shape.dim)] = rows_[c] * scale;
    }
  }
}

void RecordMeter::FindRotations(const Exemplars& exemplars, uint64_t last_position) {
  if (last_position == last_position_ &&
      std::equal(turns_.begin(), turns_.end(), exemplars.turns.begin(), exemplars.turns.end())) {
    return;
  }
  turns_.assign(exemplars.turns.begin(), exemplars.turns.end());
  last_position_ = last_position;
  rotations_.resize(turns_.size());
  RotationsAt(turns_, last_position, rotations_);
}

void RecordMeter::Turn(const Exemplars& exemplars) {
  const RopeShape& rope = exemplars.rope;
  const uint32_t step = TurnsByQuads(rope) ? kRecordQuad : 1;
  const size_t tile_floats = ExemplarTileFloats(kRecordTile, exemplars.k_dim);
  for (uint32_t i = 0; i < rope.pairs(); i += step) {
    const RopeShape::Pair pair = rope.PairAt(i);
    float cosine[kRecordQuad];
    float sine[kRecordQuad];
    for (uint32_t j = 0; j < step; ++j) {
      cosine[j] = rotations_[i + j].cosine;
      sine[j] = rotations_[i + j].sine;
    }
    const size_t first_a = ExemplarTileIndex(0, pair.a, exemplars.k_dim);
    const size_t first_b = ExemplarTileIndex(0, pair.b, exemplars.k_dim);
    for (uint32_t m = 0; m < tiles_ * kRecordTile; ++m) {
      float* tile = queries_.data() + m / kRecordTile * tile_floats + m % kRecordTile * kRecordQuad;
      for (uint32_t j = 0; j < step; ++j) {
        const float a = tile[first_a + j];
        const float b = tile[first_b + j];
        tile[first_a + j] = a * cosine[j] - b * sine[j];
        tile[first_b + j] = b * cosine[j] + a * sine[j];
      }
    }
  }
}

void RecordMeter::LoadExemplars(const Exemplars& exemplars) {
  tiles_ = exemplars.tile_count();
  queries_.assign(exemplars.tiles,
                  exemplars.tiles + ExemplarTileFloats(exemplars.count, exemplars.k_dim));
  Turn(exemplars);
}

// Rows of whole quads of channels, and whole groups of rows: what is behind the last channel is
// zero, what is behind the last row whatever was there.
void RecordMeter::LoadRows(const RecordSide& side, Form form, TokenRange rows) {
  const uint32_t dim = side.task.shape.dim;
  const size_t stride = size_t{QuadsOf(dim)} * kRecordQuad;
  rows_.resize(std::max(rows_.size(), stride * AlignUp(rows.count, kRecordRows)));
  if (form == Form::kExact) {
    GatherFloat(side.access, {side.first_token + rows.first, rows.count}, rows_.data());
  } else {
    DecodeSide(side.task, side.coded, rows, &scratch_, rows_.data());
  }
  if (stride == dim) {
    return;
  }
  for (size_t t = rows.count; t-- > 0;) {
    std::memmove(rows_.data() + t * stride, rows_.data() + t * dim, dim * sizeof(float));
    std::fill_n(rows_.data() + t * stride + dim, stride - dim, 0.0f);
  }
}

void RecordMeter::FindWeights(const RecordSide& side) {
  const KernelSet& kernels = ActiveKernels();
  const SideShape& shape = side.task.shape;
  weights_of_tile_ = AlignUp(shape.tokens, kRecordRows) * kRecordTile;
  const RecordQueries queries{queries_.data(), tiles_, weights_of_tile_};
  for (const Form form : {Form::kExact, Form::kDecoded}) {
    std::vector<float>& weights = form == Form::kExact ? exact_.weights : decoded_.weights;
    if (form == Form::kDecoded && side.task.side.raw()) {
      weights = exact_.weights;
      return;
    }
    weights.resize(tiles_ * weights_of_tile_);
    ForEachRecordPiece(shape, [&](TokenRange rows) {
      LoadRows(side, form, rows);
      kernels.record_scores({rows_.data(), rows.count, QuadsOf(shape.dim)}, queries,
                            weights.data() + size_t{rows.first} * kRecordTile);
    });
    for (uint32_t tile = 0; tile < tiles_; ++tile) {
      kernels.record_softmax(shape.tokens, weights.data() + tile * weights_of_tile_);
    }
  }
}

void RecordMeter::AddOutputs(const RecordInput& input, TokenRange rows, Attention* attention) {
  const KernelSet& kernels = ActiveKernels();
  const size_t stride = size_t{QuadsOf(input.v.task.shape.dim)} * kRecordQuad;
  for (uint32_t tile = 0; tile < tiles_; ++tile) {
    kernels.record_outputs(
        {rows_.data(), stride, rows.count, input.v_dim},
        attention->weights.data() + tile * weights_of_tile_ + size_t{rows.first} * kRecordTile,
        attention->outputs.data() + size_t{tile} * kRecordTile * input.v_dim);
  }
}

void RecordMeter::FindOutputs(const RecordInput& input) {
  const size_t floats = size_t{tiles_} * kRecordTile * input.v_dim;
  exact_.outputs.assign(floats, 0.0f);
  decoded_.outputs.assign(floats, 0.0f);
  ForEachRecordPiece(input.v.task.shape, [&](TokenRange rows) {
    LoadRows(input.v, Form::kExact, rows);
    AddOutputs(input, rows, &exact_);
    if (!input.v.task.side.raw()) {
      LoadRows(input.v, Form::kDecoded, rows);
    }
    AddOutputs(input, rows, &decoded_);
  });
}

std::optional<AttentionSums> RecordMeter::MeasureByTiles(const RecordInput& input,
                                                         const TileQueries& queries,
                                                         uint32_t count) {
  const TileRecordKernels* maybe_tiles = ActiveKernels().maybe_tile_record;
  if (maybe_tiles == nullptr || (count <= kLoopQueriesMax && !input.v_is_k)) {
    return std::nullopt;
  }
  const RecordSums sums = tile_meter_.Measure(*maybe_tiles, input, queries, count);
  const auto says = [](double sum) { return sum >= kLeastTileSum && std::isfinite(sum); };
  if (!says(sums.error) || !says(sums.size)) {
    return std::nullopt;
  }
  return AttentionSums{sums.error, sums.size};
}

std::optional<TileQueries> RecordMeter::TileQueriesOf(const Exemplars& exemplars) const {
  const RopeShape& rope = exemplars.rope;
  TileQueries queries{.tiles = exemplars.tiles, .quads = QuadsOf(exemplars.k_dim)};
  if (rope.pairs() == 0) {
    return queries;
  }
  if (!TurnsByQuads(rope)) {
    return std::nullopt;
  }
  queries.first_turned = rope.first / kRecordQuad;
  queries.half_turned = rope.pairs() / kRecordQuad;
  queries.rotations = rotations_.data();
  return queries;
}

AttentionSums RecordMeter::MeasureByLoops(const RecordInput& input, uint32_t count) {
  RecordSums sums;
  FindWeights(input.k);
  FindOutputs(input);
  ActiveKernels().record_sums(exact_.outputs.data(), decoded_.outputs.data(),
                              size_t{count} * input.v_dim, &sums);
  return Measurable(sums);
}

AttentionSums RecordMeter::MeasureExemplars(const RecordInput& input, const Exemplars& exemplars,
                                            uint64_t last_position) {
  if (input.k.task.shape.tokens == 0) {
    return {};
  }
  FindRotations(exemplars, last_position);
  std::optional<TileQueries> as_they_are = TileQueriesOf(exemplars);
  if (as_they_are) {
    if (const auto sums = MeasureByTiles(input, *as_they_are, exemplars.count)) {
      return *sums;
    }
  }
  LoadExemplars(exemplars);
  return as_they_are ? MeasureByLoops(input, exemplars.count)
                     : MeasureLoaded(input, exemplars.count);
}

AttentionSums RecordMeter::MeasureProxies(const RecordInput& input, uint32_t queries) {
  const uint32_t count = std::min(queries, input.k.task.shape.tokens);
  if (count == 0) {
    return {};
  }
  LoadProxies(input, count);
  return MeasureLoaded(input, count);
}

AttentionSums RecordMeter::MeasureLoaded(const RecordInput& input, uint32_t count) {
  const TileQueries loaded{.tiles = queries_.data(), .quads = QuadsOf(input.k.task.shape.dim)};
  const auto sums = MeasureByTiles(input, loaded, count);
  return sums ? *sums : MeasureByLoops(input, count);
}

uint32_t DefaultRecordQueries() {
  return ActiveKernels().maybe_tile_record != nullptr ? kTileRecordQueries : kRecordQueries;
}

double ErrorRecord::LayerError(size_t layer) const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  return AttentionSums{layers[layer].error, layers[layer].size}.Relative();
}

double ErrorRecord::Mean() const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  double sum = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    sum += LayerError(layer);
  }
  return layers.empty() ? 0 : sum / static_cast<double>(layers.size());
}

double ErrorRecord::Max() const {
  if (!measured) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    largest = std::max(largest, LayerError(layer));
  }
  return largest;
}

}  // namespace tokura::kernels
