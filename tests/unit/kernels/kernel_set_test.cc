#include "kernels/kernel_set.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu_features.h"
#include "kernels/float_convert.h"
#include "kernels/guided_rounding.h"
#include "kernels/kv_access.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

constexpr DType kTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
constexpr uint32_t kDims[] = {1, 7, 16, 40, 64, 80, 96, 128, 192, 256};
constexpr uint32_t kTokens[] = {1, 5, 16, 60, 64, 130};

// Every side of the table of codecs once, and some that no preset has.
std::vector<CodecSide> Sides() {
  std::vector<CodecSide> sides;
  const auto add = [&](const CodecSide& side) {
    if (!side.raw() && std::find(sides.begin(), sides.end(), side) == sides.end()) {
      sides.push_back(side);
    }
  };
  for (const CodecPreset& preset : CodecPresets()) {
    add(preset.k);
    add(preset.v);
  }
  CodecSide side = FindCodec("kivi4")->k;
  for (const uint8_t bits : {2, 3, 4, 8}) {
    for (const Zero zero : {Zero::kSymmetric, Zero::kAsymmetric}) {
      for (const Grouping grouping : {Grouping::kPerChannel, Grouping::kPerToken}) {
        side.bits = bits;
        side.zero = zero;
        side.grouping = grouping;
        add(side);
      }
    }
  }
  side.group_split = 24;  // groups that are no multiple of a vector
  add(side);
  return sides;
}

// What a side may ask of a profile.
struct Extras {
  std::vector<float> smooth;
  std::vector<uint16_t> outliers;
  GuideArrays guide;

  Extras(const CodecSide& side, uint32_t dim, uint32_t tokens, TestRandom& random) {
    for (uint32_t c = 0; c < dim; ++c) {
      smooth.push_back(std::ldexp(1.0f + static_cast<float>(random() % 256) / 256.0f,
                                  static_cast<int>(random() % 5) - 2));
    }
    for (uint32_t i = 0; i < OutlierChannels(side, dim); ++i) {
      outliers.push_back(static_cast<uint16_t>(i * 3 % std::max(dim - side.tail, 1u)));
    }
    std::sort(outliers.begin(), outliers.end());
    if (side.rounding == Rounding::kGuidedByChannel) {
      AddGuide(dim, random);
    }
    for (uint32_t t = 0; side.rounding == Rounding::kGuidedByToken && t < tokens;
         t += kGuideTokens) {
      AddGuide(std::min(kGuideTokens, tokens - t), random);
    }
  }
  SideProfile view() const { return {smooth, outliers, guide.view(), 0x9e3779b9u}; }

 private:
  void AddGuide(uint32_t n, TestRandom& random) {
    const size_t first = guide.order.size();
    guide.order.resize(first + n);
    std::iota(guide.order.begin() + static_cast<ptrdiff_t>(first), guide.order.end(), uint16_t{0});
    std::shuffle(guide.order.begin() + static_cast<ptrdiff_t>(first), guide.order.end(), random);
    for (uint32_t i = 0; i < n * (n - 1) / 2; ++i) {
      guide.factors.push_back(0.2f * Normal(random));
    }
  }
};

enum class Values { kNormal, kOutliers, kConstant, kZeros, kTiny, kHuge, kLarger, kInfinity, kNan };
constexpr Values kValues[] = {Values::kNormal, Values::kOutliers, Values::kConstant,
                              Values::kZeros,  Values::kTiny,     Values::kHuge,
                              Values::kLarger, Values::kInfinity, Values::kNan};

std::vector<float> MakeValues(Values kind, DType dtype, size_t count, TestRandom& random) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i) {
    const float normal = Normal(random);
    switch (kind) {
      case Values::kConstant:
        x[i] = -3.25f;
        break;
      case Values::kZeros:
        x[i] = random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case Values::kTiny:
        x[i] = normal * (dtype == DType::kFloat16 ? 0x1p-22f : 0x1p-130f);
        break;
      case Values::kHuge:
        x[i] = normal * LargestFinite(dtype) * 0.1f;
        break;
      case Values::kLarger:
        x[i] = normal * LargestFinite(dtype) * 0.6f;
        break;
      case Values::kNormal:
        x[i] = normal;
        break;
      default:
        x[i] = normal * (random() % 16 == 0 ? 40.0f : 1.0f);
        break;
    }
    // Ties of rounding, and elements that are equal.
    x[i] = random() % 8 == 0 ? std::round(x[i] * 2) / 2 : x[i];
    x[i] = RoundToType(dtype, x[i]);
  }
  const float inf = std::numeric_limits<float>::infinity();
  if (kind == Values::kInfinity) {
    x[random() % count] = random() % 2 == 0 ? inf : -inf;
  } else if (kind == Values::kNan) {
    x[random() % count] = std::numeric_limits<float>::quiet_NaN();
  }
  return x;
}

// Memory of an engine: [tokens, dim] elements with given strides, in pages, and not a byte more.
class Pages {
 public:
  enum class Layout { kRows, kColumns, kGaps, kPagedRows, kPagedColumns };
  static constexpr Layout kAll[] = {Layout::kRows, Layout::kColumns, Layout::kGaps,
                                    Layout::kPagedRows, Layout::kPagedColumns};

  Pages(Layout layout, DType dtype, uint32_t tokens, uint32_t dim)
      : bytes_(static_cast<int64_t>(DTypeBytes(dtype))) {
    const bool paged = layout == Layout::kPagedRows || layout == Layout::kPagedColumns;
    access_.page_tokens = paged ? 12 : tokens;
    access_.dim = dim;
    access_.dtype = dtype;
    const bool columns = layout == Layout::kColumns || layout == Layout::kPagedColumns;
    const int64_t gap = layout == Layout::kGaps ? 1 : 0;
    access_.channel_stride = columns ? bytes_ * access_.page_tokens : bytes_ + gap;
    access_.token_stride = columns ? bytes_ : access_.channel_stride * dim + 3 * gap;
    const int64_t page = Offset(access_.page_tokens - 1, dim - 1) + bytes_;
    access_.page_stride = page + (paged ? 5 : 0);
    const uint32_t pages = (tokens + access_.page_tokens - 1) / access_.page_tokens;
    for (uint32_t i = 0; i < pages; ++i) {
      table_.push_back(pages - 1 - i);
    }
    access_.page_table = table_.data();
    skew_ = gap;
    size_ = static_cast<size_t>(access_.page_stride * (pages - 1) + page + skew_);
    memory_ = std::make_unique<std::byte[]>(size_);
    std::fill_n(memory_.get(), size_, std::byte{0xa5});
    access_.base = memory_.get() + skew_;
  }
  const SideAccess& access() const { return access_; }
  std::vector<std::byte> Snapshot() const { return {memory_.get(), memory_.get() + size_}; }
  std::byte* At(uint32_t token, uint32_t channel) {
    return access_.base +
           static_cast<int64_t>(table_[token / access_.page_tokens]) * access_.page_stride +
           Offset(token % access_.page_tokens, channel);
  }
  void Fill(const std::vector<float>& x, uint32_t tokens) {
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t c = 0; c < access_.dim; ++c) {
        StoreElement(access_.dtype, x[size_t{t} * access_.dim + c], At(t, c));
      }
    }
  }

 private:
  int64_t Offset(uint32_t slot, uint32_t channel) const {
    return static_cast<int64_t>(slot) * access_.token_stride +
           static_cast<int64_t>(channel) * access_.channel_stride;
  }
  int64_t bytes_;
  int64_t skew_ = 0;
  size_t size_ = 0;
  std::vector<uint32_t> table_;
  std::unique_ptr<std::byte[]> memory_;
  SideAccess access_;
};

// Runs its tests for one instruction set; where the machine has it not they are reported as
// skipped, so that nobody takes them for passed.
class EverySet : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsaAvailable(GetParam())) {
      GTEST_SKIP() << "NOT TESTED HERE: this machine does not run " << IsaName(GetParam());
    }
    for (const KernelSet* set : RunnableKernels()) {
      if (set->name == IsaName(GetParam())) {
        set_ = set;
      }
    }
    ASSERT_NE(set_, nullptr);
  }
  const KernelSet* set_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Isas, EverySet, testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

struct Case {
  CodecSide side;
  SideShape shape;
  std::string Text() const {
    return absl::StrCat("number ", static_cast<int>(side.number), " bits ", side.bits, " grouping ",
                        static_cast<int>(side.grouping), " zero ", static_cast<int>(side.zero),
                        " transform ", static_cast<int>(side.transform), " rounding ",
                        static_cast<int>(side.rounding), " outliers ", side.outliers, " tail ",
                        side.tail, "; ", DTypeName(shape.dtype), " [", shape.tokens, ", ",
                        shape.dim, "]");
  }
};

// Calls visit(case, a number that differs from call to call) for every side and size, with the
// types in turn.
template <typename Visit>
void ForEachCase(const Visit& visit) {
  uint32_t n = 0;
  for (const CodecSide& side : Sides()) {
    for (const uint32_t dim : kDims) {
      for (const uint32_t tokens : kTokens) {
        const DType dtype = kTypes[n % 3];
        ASSERT_TRUE(CheckSide(side, dtype).ok());
        visit(Case{side, {tokens, dim, dtype}}, n++);
        if (testing::Test::HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

std::vector<std::byte> Encoded(const SideTask& task, const SideAccess& access, SideResult* result) {
  const size_t size = SideBytesOf(task.side, task.shape).padded();
  auto out = std::make_unique<std::byte[]>(size);  // to the byte, for AddressSanitizer
  std::fill_n(out.get(), size, std::byte{0x5a});
  SideScratch scratch;
  *result = EncodeSideFrom(task, access, {0, task.shape.tokens}, &scratch, out.get());
  return {out.get(), out.get() + size};
}

TEST_P(EverySet, EncodesTheSameBytesFromEveryLayout) {
  TestRandom random(1);
  uint32_t refused = 0;
  ForEachCase([&](const Case& test, uint32_t n) {
    const Extras extras(test.side, test.shape.dim, test.shape.tokens, random);
    SideTask task{test.side, test.shape, extras.view(), &ScalarKernels()};
    const Values kind = kValues[n / 3 % std::size(kValues)];
    const std::vector<float> x =
        MakeValues(kind, test.shape.dtype, size_t{test.shape.tokens} * test.shape.dim, random);
    Pages rows(Pages::Layout::kRows, test.shape.dtype, test.shape.tokens, test.shape.dim);
    rows.Fill(x, test.shape.tokens);
    SideResult expected;
    const std::vector<std::byte> plain = Encoded(task, rows.access(), &expected);
    refused += expected == SideResult::kOk ? 0 : 1;
    task.kernels = set_;
    for (const Pages::Layout layout : {Pages::Layout::kRows, Pages::kAll[n % 5]}) {
      Pages pages(layout, test.shape.dtype, test.shape.tokens, test.shape.dim);
      pages.Fill(x, test.shape.tokens);
      SideResult result;
      const std::vector<std::byte> bytes = Encoded(task, pages.access(), &result);
      ASSERT_EQ(result, expected) << test.Text() << " layout " << static_cast<int>(layout);
      if (expected == SideResult::kOk) {
        ASSERT_EQ(bytes, plain) << test.Text() << " layout " << static_cast<int>(layout)
                                << " values " << static_cast<int>(kind);
      }
    }
  });
  EXPECT_GT(refused, 50u);  // infinities and NaNs among the values were seen
}

// NaNs are alike: which of two that meet is kept is not said.
bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return false;
    }
  }
  return a.size() == b.size();
}

TEST_P(EverySet, DecodesAnyBytesToTheSameFloats) {
  TestRandom random(2);
  ForEachCase([&](const Case& test, uint32_t) {
    const Extras extras(test.side, test.shape.dim, test.shape.tokens, random);
    SideTask task{test.side, test.shape, extras.view(), &ScalarKernels()};
    const size_t size = SideBytesOf(test.side, test.shape).padded();
    auto bytes = std::make_unique<std::byte[]>(size);
    std::generate_n(bytes.get(), size, [&] { return static_cast<std::byte>(random()); });
    const uint32_t first = static_cast<uint32_t>(random() % test.shape.tokens);
    const TokenRange rows{first, 1 + static_cast<uint32_t>(random() % (test.shape.tokens - first))};
    std::vector<float> plain(size_t{rows.count} * test.shape.dim, 1.0f);
    std::vector<float> decoded(plain.size(), 2.0f);
    SideScratch scratch;
    DecodeSide(task, bytes.get(), rows, &scratch, plain.data());
    task.kernels = set_;
    DecodeSide(task, bytes.get(), rows, &scratch, decoded.data());
    ASSERT_TRUE(SameFloats(decoded, plain)) << test.Text();
  });
}

TEST_P(EverySet, DecodesToEveryTypeAndLayoutAndWritesNothingElse) {
  constexpr DType kViewTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                                  DType::kFloat8E4M3};
  TestRandom random(3);
  ForEachCase([&](const Case& test, uint32_t n) {
    const auto& [tokens, dim, dtype] = test.shape;
    const Extras extras(test.side, dim, tokens, random);
    SideTask task{test.side, test.shape, extras.view(), &ScalarKernels()};
    const std::vector<float> x = MakeValues(Values::kOutliers, dtype, size_t{tokens} * dim, random);
    Pages source(Pages::Layout::kRows, dtype, tokens, dim);
    source.Fill(x, tokens);
    SideResult result;
    const std::vector<std::byte> bytes = Encoded(task, source.access(), &result);
    ASSERT_EQ(result, SideResult::kOk) << test.Text();
    const uint32_t first = static_cast<uint32_t>(random() % tokens);
    const uint32_t count = 1 + static_cast<uint32_t>(random() % (tokens - first));
    const uint32_t to = static_cast<uint32_t>(random() % (tokens - count + 1));
    const Pages plain(Pages::kAll[n % 5], kViewTypes[n % 4], tokens, dim);
    const Pages decoded(Pages::kAll[n % 5], kViewTypes[n % 4], tokens, dim);
    SideScratch scratch;
    DecodeSideTo(task, bytes.data(), {first, count}, &scratch, plain.access(), to);
    task.kernels = set_;
    DecodeSideTo(task, bytes.data(), {first, count}, &scratch, decoded.access(), to);
    ASSERT_EQ(decoded.Snapshot(), plain.Snapshot()) << test.Text();
  });
}

TEST_P(EverySet, MultipliesWithTheSameHadamardMatrix) {
  TestRandom random(4);
  for (uint32_t dim = 1; dim <= 520; ++dim) {
    std::vector<float> x = MakeValues(Values::kOutliers, DType::kFloat32, size_t{3} * dim, random);
    std::vector<float> y = x;
    ScalarKernels().hadamard(x.data(), 3, dim);
    set_->hadamard(y.data(), 3, dim);
    ASSERT_EQ(y, x) << dim;
  }
}

// Exact memory, so that AddressSanitizer sees a byte too many.
template <typename T>
std::unique_ptr<T[]> Copy(const std::vector<T>& x) {
  auto copy = std::make_unique<T[]>(x.size());
  std::copy(x.begin(), x.end(), copy.get());
  return copy;
}

TEST_P(EverySet, WidensEveryNumberAlike) {
  std::vector<std::byte> all(2 * 0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(all.data() + 2 * i, &bits, sizeof(bits));
  }
  const auto word = [&](size_t i) {
    uint16_t bits;
    std::memcpy(&bits, all.data() + 2 * i, sizeof(bits));
    return bits;
  };
  std::vector<float> wide(0x10000);
  const auto bits = [&](size_t i) { return std::bit_cast<uint32_t>(wide[i]); };
  set_->to_float(DType::kFloat16, all.data(), wide.size(), wide.data());
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(bits(i), std::bit_cast<uint32_t>(HalfToFloat(word(i)))) << i;
  }
  set_->to_float(DType::kBFloat16, all.data(), wide.size(), wide.data());
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(bits(i), std::bit_cast<uint32_t>(BFloat16ToFloat(word(i)))) << i;
  }
  set_->to_float(DType::kFloat8E4M3, all.data(), wide.size(), wide.data());
  for (size_t i = 0; i < wide.size(); ++i) {
    const auto byte = static_cast<uint8_t>(all[i]);
    ASSERT_EQ(bits(i), std::bit_cast<uint32_t>(Float8ToFloat(byte))) << i;
  }
}

TEST_P(EverySet, NarrowsEveryKindOfNumberAlike) {
  TestRandom random(5);
  std::vector<float> x;
  for (uint32_t i = 0; i < (1u << 20); ++i) {
    const auto any = static_cast<uint32_t>(random());
    // Numbers near the boundaries of rounding, as well as any bits.
    x.push_back(std::bit_cast<float>(i % 2 == 0 ? any : any & ~0x1fffu));
  }
  std::vector<std::byte> out(2 * x.size());
  set_->from_float(DType::kFloat16, x.data(), x.size(), out.data());
  const auto word = [&](size_t i) {
    uint16_t bits;
    std::memcpy(&bits, out.data() + 2 * i, sizeof(bits));
    return bits;
  };
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(word(i), FloatToHalf(x[i])) << std::bit_cast<uint32_t>(x[i]);
  }
  set_->from_float(DType::kBFloat16, x.data(), x.size(), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(word(i), FloatToBFloat16(x[i])) << std::bit_cast<uint32_t>(x[i]);
  }
  set_->from_float(DType::kFloat8E4M3, x.data(), x.size(), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(static_cast<uint8_t>(out[i]), FloatToFloat8(x[i])) << std::bit_cast<uint32_t>(x[i]);
  }
}

TEST_P(EverySet, ConvertsArraysOfEveryLengthToTheByte) {
  TestRandom random(6);
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3}) {
    for (size_t count = 1; count <= 50; ++count) {
      const std::vector<float> x = MakeValues(Values::kNormal, DType::kFloat32, count, random);
      const auto in = Copy(x);
      const auto narrow = Copy(std::vector<std::byte>(count * DTypeBytes(dtype)));
      const auto wide = Copy(std::vector<float>(count));
      set_->from_float(dtype, in.get(), count, narrow.get());
      set_->to_float(dtype, narrow.get(), count, wide.get());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(wide[i], RoundToType(dtype, x[i])) << DTypeName(dtype) << " " << count;
      }
    }
  }
}

TEST_P(EverySet, CopiesElementsOfEveryLayout) {
  TestRandom random(7);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat8E4M3}) {
    for (const Pages::Layout layout : Pages::kAll) {
      for (const uint32_t dim : kDims) {
        const uint32_t tokens = 37;
        Pages pages(layout, dtype, tokens, dim);
        const size_t row = dim * DTypeBytes(dtype);
        const TokenRange range{5, 29};
        std::vector<std::byte> dense(range.count * row);
        for (auto& byte : dense) {
          byte = static_cast<std::byte>(random());
        }
        const std::vector<std::byte> before = pages.Snapshot();
        const auto in = Copy(dense);
        set_->scatter(pages.access(), range, in.get());
        const auto back = Copy(std::vector<std::byte>(dense.size()));
        set_->gather(pages.access(), range, back.get());
        ASSERT_EQ(std::memcmp(back.get(), dense.data(), dense.size()), 0) << dim;
        // What was written is the elements and nothing else.
        for (uint32_t t = 0; t < range.count; ++t) {
          for (uint32_t c = 0; c < dim; ++c) {
            std::byte* at = pages.At(range.first + t, c);
            ASSERT_EQ(
                std::memcmp(at, dense.data() + t * row + c * DTypeBytes(dtype), DTypeBytes(dtype)),
                0);
            std::memset(at, 0xa5, DTypeBytes(dtype));
          }
        }
        ASSERT_EQ(pages.Snapshot(), before) << dim;
      }
    }
  }
}

constexpr uint32_t kTileFloats = kRecordTile * kRecordQuad;

TEST_P(EverySet, ScoresForTheRecordInTheSameOrder) {
  TestRandom random(8);
  for (const uint32_t tokens : {1u, 4u, 7u, 16u, 60u, 67u}) {
    for (const uint32_t quads : {1u, 2u, 5u, 32u}) {
      for (const uint32_t tiles : {1u, 2u, 5u}) {
        const auto k = MakeValues(Values::kOutliers, DType::kFloat32,
                                  AlignUp(tokens, kRecordRows) * quads * kRecordQuad, random);
        const auto q = MakeValues(Values::kNormal, DType::kFloat32,
                                  size_t{tiles} * quads * kTileFloats, random);
        const size_t stride = AlignUp(tokens, kRecordRows) * kRecordTile + 16;
        std::vector<float> expected(stride * (tiles - 1) + stride - 16, 9.0f);
        const auto scores = Copy(expected);
        const auto exact_k = Copy(k);
        const auto exact_q = Copy(q);
        ScalarKernels().record_scores({k.data(), tokens, quads}, {q.data(), tiles, stride},
                                      expected.data());
        set_->record_scores({exact_k.get(), tokens, quads}, {exact_q.get(), tiles, stride},
                            scores.get());
        for (size_t tile = 0; tile < tiles; ++tile) {
          for (size_t i = 0; i < size_t{tokens} * kRecordTile; ++i) {
            const size_t token = i / kRecordTile;
            const size_t at = tile * stride + token / kRecordQuad * kTileFloats +
                              i % kRecordTile * kRecordQuad + token % kRecordQuad;
            ASSERT_EQ(scores[at], expected[at]) << tokens << " " << quads << " " << tiles;
          }
        }
      }
    }
  }
}

TEST_P(EverySet, TakesTheSoftmaxOfEveryQuery) {
  TestRandom random(9);
  for (const uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 64u, 99u}) {
    std::vector<float> x = MakeValues(Values::kOutliers, DType::kFloat32,
                                      AlignUp(tokens, kRecordQuad) * kRecordTile, random);
    // Whatever stands for absent tokens must not count.
    for (uint32_t t = tokens; t % kRecordQuad != 0; ++t) {
      for (uint32_t m = 0; m < kRecordTile; ++m) {
        x[t / kRecordQuad * kTileFloats + m * kRecordQuad + t % kRecordQuad] = 1e30f;
      }
    }
    const auto weights = Copy(x);
    set_->record_softmax(tokens, weights.get());
    ScalarKernels().record_softmax(tokens, x.data());
    float total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(weights[i], x[i]) << tokens << " " << i;
      total += x[i];
    }
    EXPECT_NEAR(total, kRecordTile, 1e-4) << tokens;
  }
}

TEST_P(EverySet, SumsOutputsForTheRecordInTheSameOrder) {
  TestRandom random(10);
  for (const uint32_t dim : {1u, 12u, 16u, 80u, 128u, 136u}) {
    for (const uint32_t tokens : {1u, 6u, 32u}) {
      const size_t stride = dim + tokens % 4;
      const auto v =
          MakeValues(Values::kOutliers, DType::kFloat32, stride * (tokens - 1) + dim, random);
      const auto w = MakeValues(Values::kNormal, DType::kFloat32,
                                AlignUp(tokens, kRecordQuad) * kRecordTile, random);
      std::vector<float> expected =
          MakeValues(Values::kNormal, DType::kFloat32, size_t{kRecordTile} * dim, random);
      const auto out = Copy(expected);
      ScalarKernels().record_outputs({v.data(), stride, tokens, dim}, w.data(), expected.data());
      set_->record_outputs({Copy(v).get(), stride, tokens, dim}, Copy(w).get(), out.get());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out[i], expected[i]) << dim << " " << tokens;
      }
    }
  }
}

TEST_P(EverySet, SumsSquaresForTheRecordInTheSameOrder) {
  TestRandom random(11);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{250}}) {
    const auto exact = MakeValues(Values::kOutliers, DType::kFloat32, count, random);
    const auto decoded = MakeValues(Values::kOutliers, DType::kFloat32, count, random);
    RecordSums expected{0.5, 0.25};
    RecordSums sums = expected;
    ScalarKernels().record_sums(exact.data(), decoded.data(), count, &expected);
    set_->record_sums(Copy(exact).get(), Copy(decoded).get(), count, &sums);
    EXPECT_EQ(sums.error, expected.error) << count;
    EXPECT_EQ(sums.size, expected.size) << count;
    EXPECT_EQ(count == 0, expected.size == 0.25);
  }
}

TEST(KernelSets, SayWhichOfThemRunHere) {
  uint32_t runnable = 0;
  for (const Isa isa : kIsas) {
    runnable += IsaAvailable(isa) ? 1 : 0;
    RecordProperty(std::string(IsaName(isa)), IsaAvailable(isa) ? "tested" : "NOT RUN HERE");
  }
  ASSERT_EQ(RunnableKernels().size(), runnable);
  EXPECT_EQ(RunnableKernels().front()->name, "scalar");
  EXPECT_EQ(RunnableKernels().back()->name, IsaName(BestIsa()));
  std::printf("instruction sets tested: %u of %zu\n", runnable, kIsas.size());
}

TEST(KernelSets, TheSetInForceFollowsTheChoice) {
  for (const Isa isa : kIsas) {
    if (SetIsa(isa).ok()) {
      EXPECT_EQ(ActiveKernels().name, IsaName(isa));
    }
  }
  ASSERT_TRUE(SetIsa(BestIsa()).ok());
}

}  // namespace
}  // namespace tokura::kernels
