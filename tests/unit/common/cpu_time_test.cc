#include "common/cpu_time.h"

#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tokura {
namespace {

TEST(CpuTime, GrowsWithWork) {
  const absl::StatusOr<Duration> before = ProcessCpuTime(0);
  ASSERT_TRUE(before.ok());
  absl::StatusOr<Duration> after = before;
  uint64_t sum = 0;
  while (after.ok() && *after - *before < std::chrono::milliseconds(2)) {
    for (int i = 0; i < 100000; ++i) {
      sum += static_cast<uint64_t>(i) ^ sum << 1;
    }
    after = ProcessCpuTime(0);
  }
  EXPECT_NE(sum, 1u);
  EXPECT_TRUE(after.ok());
}

TEST(CpuTime, ReadsItsOwnProcessByNumberToo) {
  const absl::StatusOr<Duration> by_number = ProcessCpuTime(getpid());
  const absl::StatusOr<Duration> own = ProcessCpuTime(0);
  ASSERT_TRUE(by_number.ok() && own.ok());
  EXPECT_LE(*by_number, *own);
}

TEST(CpuTime, RefusesAProcessThatDoesNotExist) {
  EXPECT_EQ(ProcessCpuTime(0x7ffffff0).status().code(), absl::StatusCode::kNotFound);
}

TEST(CpuTime, OfAThreadIsOfThatThreadAlone) {
  const Duration before = ThreadCpuTime();
  std::thread([] {
    const Duration start = ThreadCpuTime();
    while (ThreadCpuTime() - start < std::chrono::milliseconds(50)) {
    }
  }).join();
  const Duration after = ThreadCpuTime();
  EXPECT_GT(after, before);
  EXPECT_LT(after - before, std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace tokura
