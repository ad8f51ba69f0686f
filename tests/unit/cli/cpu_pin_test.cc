#include "cli/cpu_pin.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tokura::cli {
namespace {

TEST(CpuPinTest, MovesEveryThreadAndPutsThemBack) {
  const std::vector<int> before = AllowedCpus();
  ASSERT_FALSE(before.empty());
  std::promise<void> pinned, unpinned;
  std::promise<std::vector<int>> during, after;
  std::promise<void> running;
  std::thread other([&] {
    running.set_value();
    pinned.get_future().wait();
    during.set_value(AllowedCpus());
    unpinned.get_future().wait();
    after.set_value(AllowedCpus());
  });
  running.get_future().wait();
  {
    const auto pin = CpuPin::Create(getpid(), {before.back()});
    ASSERT_TRUE(pin.ok()) << pin.status();
    EXPECT_EQ(AllowedCpus(), std::vector<int>{before.back()});
    pinned.set_value();
    EXPECT_EQ(during.get_future().get(), std::vector<int>{before.back()});
  }
  unpinned.set_value();
  EXPECT_EQ(AllowedCpus(), before);
  EXPECT_EQ(after.get_future().get(), before);
  other.join();
}

TEST(CpuPinTest, NoSuchProcessIsUnavailable) {
  constexpr pid_t kNobody = 0x7fffffff;
  EXPECT_TRUE(absl::IsUnavailable(CpuPin::Create(kNobody, {0}).status()));
}

}  // namespace
}  // namespace tokura::cli
