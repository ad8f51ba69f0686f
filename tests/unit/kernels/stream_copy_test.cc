#include "kernels/stream_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace tokura::kernels {
namespace {

TEST(StreamCopy, CopiesAnyBytesToAnyAddressAndNothingBeside) {
  constexpr size_t kRoom = 4096;
  std::vector<std::byte> from(kRoom + 64);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<std::byte>(i * 131 % 251);
  }
  std::vector<std::byte> to(kRoom + 192);
  for (const size_t offset : {0, 1, 15, 16, 63, 64}) {
    for (const size_t source : {0, 3, 64}) {
      for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 255, 256, 1000, 4096}) {
        std::fill(to.begin(), to.end(), std::byte{0xee});
        StreamCopy(to.data() + 64 + offset, from.data() + source, bytes);
        StreamFence();
        const auto begin = to.begin() + static_cast<ptrdiff_t>(64 + offset);
        ASSERT_EQ(std::memcmp(&*begin, from.data() + source, bytes), 0) << offset << " " << bytes;
        ASSERT_EQ(std::count(to.begin(), begin, std::byte{0xee}), 64 + static_cast<int>(offset));
        ASSERT_TRUE(std::all_of(begin + static_cast<ptrdiff_t>(bytes), to.end(),
                                [](std::byte b) { return b == std::byte{0xee}; }));
      }
    }
  }
}

}  // namespace
}  // namespace tokura::kernels
