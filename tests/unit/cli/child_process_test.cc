#include "cli/child_process.h"

#include <csignal>

#include <gtest/gtest.h>

#include "cli/output.h"

namespace tokura::cli {
namespace {

constexpr Duration kLong = std::chrono::seconds(30);

std::unique_ptr<ChildProcess> Shell(const std::string& script) {
  auto child = ChildProcess::Start({.command = {"/bin/sh", "-c", script}, .error_path = ""});
  EXPECT_TRUE(child.ok()) << child.status();
  return *std::move(child);
}

TEST(ChildProcessTest, LinesComeOneByOneAndTheRestAtTheEnd) {
  const auto child = Shell("echo one; echo two; printf three; exit 7");
  EXPECT_EQ(*child->ReadLine(kLong), "one");
  EXPECT_EQ(*child->ReadLine(kLong), "two");
  const auto end = child->Wait(kLong);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "three");
  EXPECT_EQ(end->exit_code, 7);
}

TEST(ChildProcessTest, ASilentChildTimesOutAndIsKilledWithItsObject) {
  auto child = Shell("echo ready; kill -STOP $$");
  EXPECT_EQ(*child->ReadLine(kLong), "ready");
  EXPECT_EQ(child->Wait(std::chrono::milliseconds(20)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const pid_t pid = child->pid();
  child.reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ChildProcessTest, SignalsShowInTheExitCode) {
  const auto child = Shell("echo ready; kill -STOP $$");
  EXPECT_EQ(*child->ReadLine(kLong), "ready");
  child->Signal(SIGKILL);
  const auto end = child->Wait(kLong);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->exit_code, 128 + SIGKILL);
  child->Signal(SIGKILL);  // reaped: nobody is hit
}

TEST(ChildProcessTest, AProgramThatDoesNotExistEndsAtOnce) {
  const auto child = ChildProcess::Start({.command = {"/nonexistent"}, .error_path = ""});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ((*child)->ReadLine(kLong).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*child)->Wait(kLong)->exit_code, 127);
}

TEST(OutputTest, AFileIsReplacedAtOnceAndDevicesAreWrittenTo) {
  const std::string path = ::testing::TempDir() + "/output_test.json";
  ASSERT_TRUE(Output(path).WriteJson(Json{{"a", 1}}).ok());
  ASSERT_TRUE(Output(path).WriteJson(Json{{"a", 2}}).ok());
  const auto child = Shell("cat " + path + "; ls " + path + "*");
  EXPECT_EQ(child->Wait(kLong)->output, "{\n  \"a\": 2\n}\n" + path + "\n");
  EXPECT_TRUE(ReplaceFile("/dev/null", "x").ok());
  EXPECT_EQ(Shell("test -c /dev/null")->Wait(kLong)->exit_code, 0);
  EXPECT_EQ(ReplaceFile("/nonexistent/x", "y").code(), absl::StatusCode::kUnavailable);
  std::remove(path.c_str());
}

TEST(OutputTest, BytesThatAreNotTextDoNotStopTheReport) {
  const std::string path = ::testing::TempDir() + "/output_test_bytes.json";
  EXPECT_TRUE(Output(path).WriteJson(Json{{"model", "\xff\xfe"}}).ok());
  std::remove(path.c_str());
}

class SetClock : public Clock {
 public:
  TimePoint Now() const override { return now; }
  uint64_t WallMicros() const override { return 0; }
  TimePoint now{};
};

TEST(ProgressTest, SaysNothingInTheFirstTwoSecondsAndThenNowAndThen) {
  SetClock clock;
  Progress progress(clock, "test");
  ::testing::internal::CaptureStderr();
  progress.Update("a");
  clock.now += std::chrono::milliseconds(1999);
  progress.Update("b");
  clock.now += std::chrono::milliseconds(1);
  progress.Update("c");
  clock.now += std::chrono::seconds(1);
  progress.Update("d");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "tokura test: c\n");
}

}  // namespace
}  // namespace tokura::cli
