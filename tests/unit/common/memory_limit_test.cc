#include "common/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// A tree of the kernel's files as one process sees them.
class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() {
    Write("/proc/meminfo", "MemTotal: 9999999 kB\nMemFree: 1 kB\nMemAvailable:  8388608 kB\n");
  }
  ~MemoryLimitTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  uint64_t Bytes() {
    const auto limit = FindMemoryLimit(root_);
    return limit.has_value() ? limit->bytes : 0;
  }

  const std::string root_ = ::testing::TempDir() + "memory_limit_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MemoryLimitTest, WithoutGroupsItIsWhatTheMachineHasToGive) {
  EXPECT_EQ(Bytes(), uint64_t{8} << 30);
  EXPECT_THAT(FindMemoryLimit(root_)->source, EndsWith("/proc/meminfo"));
}

TEST_F(MemoryLimitTest, TheSmallestLimitOfAGroupAndWhatItIsInCounts) {
  Write("/proc/self/cgroup", "0::/pods/one/node\n");
  Write("/sys/fs/cgroup/pods/one/node/memory.max", "max\n");
  Write("/sys/fs/cgroup/pods/one/memory.max", "1073741824\n");
  Write("/sys/fs/cgroup/pods/memory.max", "2147483648\n");
  EXPECT_EQ(Bytes(), uint64_t{1} << 30);
  EXPECT_THAT(FindMemoryLimit(root_)->source, EndsWith("/sys/fs/cgroup/pods/one/memory.max"));
}

TEST_F(MemoryLimitTest, AContainerSeesItsGroupAsTheRoot) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(Bytes(), uint64_t{512} << 20);
}

TEST_F(MemoryLimitTest, VersionOneNamesItsControllers) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n3:cpuset:/y\n");
  Write("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "268435456\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(Bytes(), uint64_t{256} << 20);
}

TEST_F(MemoryLimitTest, WhatCannotBeReadIsNoLimit) {
  std::filesystem::remove_all(root_);
  EXPECT_FALSE(FindMemoryLimit(root_).has_value());
  Write("/proc/self/cgroup", "nonsense\n0::\n:::\n");
  Write("/proc/meminfo", "MemAvailable: many\n");
  EXPECT_FALSE(FindMemoryLimit(root_).has_value());
}

TEST_F(MemoryLimitTest, WhatDoesNotFitIsRefusedWithTheFileThatSaysSo) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_TRUE(CheckMemoryLimit(536870911, root_).ok());
  const absl::Status refused = CheckMemoryLimit(536870912, root_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("/sys/fs/cgroup/memory.max"));
  std::filesystem::remove_all(root_);
  EXPECT_TRUE(CheckMemoryLimit(uint64_t{1} << 50, root_).ok()) << "no limit is known";
}

TEST_F(MemoryLimitTest, ThisProcessHasSome) {
  ASSERT_TRUE(FindMemoryLimit().has_value());
  EXPECT_GT(FindMemoryLimit()->bytes, uint64_t{1} << 20);
}

}  // namespace
}  // namespace tokura
