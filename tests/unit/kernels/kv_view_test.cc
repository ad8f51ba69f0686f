#include "kernels/kv_view.h"

#include <array>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

std::array<std::byte, 4096> g_memory;

KvView Good() {
  return ContiguousView(DType::kFloat16, 2, 8, 16, {{g_memory.data(), g_memory.data() + 512}});
}

std::string Refusal(const KvView& view) {
  const absl::Status status = ValidateView(view);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(KvView, AcceptsEveryLayoutOfTheTests) {
  for (const Layout layout : kLayouts) {
    const KvBuffer buffer(layout, {DType::kBFloat16, 2, 3, 64, 64, 300, 128});
    EXPECT_TRUE(ValidateView(buffer.view()).ok()) << ValidateView(buffer.view());
  }
}

TEST(KvView, NamesWhatIsWrong) {
  EXPECT_TRUE(ValidateView(Good()).ok());
  KvView view = Good();
  view.layers.clear();
  EXPECT_NE(Refusal(view).find("layers"), std::string::npos);
  view = Good();
  view.layers[0].k = nullptr;
  EXPECT_NE(Refusal(view).find("layers[0].k"), std::string::npos);
  view = Good();
  view.layers[0].v = nullptr;
  EXPECT_NE(Refusal(view).find("layers[0].v"), std::string::npos);
  view.v_head_dim = 0;
  EXPECT_TRUE(ValidateView(view).ok());
  view = Good();
  view.heads = 0;
  EXPECT_NE(Refusal(view).find("heads"), std::string::npos);
  view = Good();
  view.k_head_dim = 0;
  EXPECT_NE(Refusal(view).find("k_head_dim"), std::string::npos);
  view = Good();
  view.page_tokens = 0;
  EXPECT_NE(Refusal(view).find("page_tokens"), std::string::npos);
  view = Good();
  view.tokens = 17;
  EXPECT_NE(Refusal(view).find("page_table"), std::string::npos);
  view = Good();
  view.dtype = static_cast<DType>(9);
  EXPECT_NE(Refusal(view).find("dtype"), std::string::npos);
}

TEST(KvView, RefusesStridesThatOverlap) {
  KvView view = Good();
  view.k_strides.channel = 1;
  EXPECT_NE(Refusal(view).find("k_strides"), std::string::npos);
  view = Good();
  view.v_strides.token -= 1;
  EXPECT_NE(Refusal(view).find("v_strides"), std::string::npos);
  view = Good();
  view.k_strides.head = 0;
  EXPECT_NE(Refusal(view).find("k_strides"), std::string::npos);
  view = Good();
  view.k_strides.token = -16;
  EXPECT_NE(Refusal(view).find("negative"), std::string::npos);
  view = Good();
  view.page_table = {1u << 31};
  view.k_strides.page = int64_t{1} << 40;
  EXPECT_NE(Refusal(view).find("2^63"), std::string::npos);
}

// The layout that vLLM's CPU backend was seen to have: [pages, heads, 2 · N · D], K as [D, N], then
// V as [N, D].
TEST(KvView, VllmCpuLayoutAddressesKByChannelAndVByToken) {
  constexpr uint32_t kHeads = 3;
  constexpr uint32_t kDim = 64;
  constexpr uint32_t kPage = 128;
  std::vector<std::byte> tensor(size_t{4} * kHeads * 2 * kPage * kDim * 2);
  std::byte* base = tensor.data();
  const KvView view = VllmCpuView({DType::kBFloat16, kHeads, kDim, kPage}, 200, {2, 0}, {&base, 1});
  ASSERT_TRUE(ValidateView(view).ok());
  const uint32_t token = 130;  // second page of the view, slot 2: page 0 of the tensor
  const uint32_t head = 1;
  const size_t head_at = (0 * kHeads + head) * size_t{2} * kPage * kDim;
  for (uint32_t c = 0; c < kDim; ++c) {
    EXPECT_EQ(view.KAt(0, token, head) + c * view.k_strides.channel,
              base + 2 * (head_at + c * kPage + 2));
    EXPECT_EQ(view.VAt(0, token, head) + c * view.v_strides.channel,
              base + 2 * (head_at + kPage * kDim + 2 * kDim + c));
  }
  EXPECT_EQ(view.KAt(0, 0, 0), base + 2 * (size_t{2} * kHeads * 2 * kPage * kDim));
}

}  // namespace
}  // namespace tokura::kernels
