#include "coded_side.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/float_convert.h"
#include "kernels/packing.h"

namespace tokura::kernels {
namespace {

constexpr size_t kMargin = 64;

size_t Aligned(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

std::vector<int> CodesOf(const SideTask& task, uint32_t dim, const std::byte* bytes) {
  const CodecSide& side = task.side;
  std::vector<int> codes;
  for (uint32_t t = 0; t < task.shape.tokens; ++t) {
    const auto* row =
        reinterpret_cast<const uint8_t*>(bytes) + size_t{t} * CodeRowBytes(side.bits, dim);
    for (uint32_t c = 0; c < dim; ++c) {
      const auto code = static_cast<int>(RowCode(row, side.bits, dim, c));
      const bool is_signed = side.number == Number::kInteger && side.zero == Zero::kSymmetric;
      codes.push_back(!is_signed       ? code
                      : side.bits == 8 ? static_cast<int8_t>(code)
                                       : code - (1 << (side.bits - 1)));
    }
  }
  return codes;
}

void DecodeByRows(const SideTask& task, const CodedSide& coded) {
  SideScratch scratch;
  std::vector<float> row(task.shape.dim);
  for (uint32_t t = 0; t < task.shape.tokens; ++t) {
    DecodeSide(task, coded.bytes.data(), {t, 1}, &scratch, row.data());
    ASSERT_EQ(std::memcmp(row.data(), coded.decoded.data() + size_t{t} * task.shape.dim,
                          row.size() * sizeof(float)),
              0)
        << "token " << t;
  }
}

}  // namespace

CodedSide CodeSide(const SideTask& task, const std::vector<float>& x) {
  CodedSide out;
  SideScratch scratch;
  const SideBytes sizes = SideBytesOf(task.side, task.shape);
  std::vector<std::byte> memory(sizes.padded() + kMargin, std::byte{0xee});
  out.result = EncodeSide(task, x.data(), &scratch, memory.data());
  EXPECT_TRUE(std::all_of(memory.end() - kMargin, memory.end(),
                          [](std::byte b) { return b == std::byte{0xee}; }));
  if (out.result != SideResult::kOk) {
    return out;
  }
  out.bytes.assign(memory.begin(), memory.end() - kMargin);
  std::vector<std::byte> again(out.bytes.size(), std::byte{0x11});
  EXPECT_EQ(EncodeSide(task, x.data(), &scratch, again.data()), SideResult::kOk);
  EXPECT_EQ(again, out.bytes);
  const size_t element = task.side.number == Number::kFloat8 ? 4 : DTypeBytes(task.shape.dtype);
  const DType dtype = task.side.number == Number::kFloat8 ? DType::kFloat32 : task.shape.dtype;
  for (size_t i = 0; i < sizes.parameters / element; ++i) {
    out.parameters.push_back(
        LoadElement(dtype, out.bytes.data() + Aligned(sizes.codes) + i * element));
  }
  const uint32_t exact = OutlierChannels(task.side, task.shape.dim) +
                         std::min<uint32_t>(task.side.tail, task.shape.dim);
  if (task.side.number != Number::kFloat8) {
    out.codes = CodesOf(task, task.shape.dim - exact, out.bytes.data());
  }
  out.decoded.resize(x.size());
  DecodeSide(task, out.bytes.data(), {0, task.shape.tokens}, &scratch, out.decoded.data());
  DecodeByRows(task, out);
  return out;
}

}  // namespace tokura::kernels
