#pragma once

// What a command writes: its result for people on stdout or as JSON, its progress on stderr, and
// its exit status.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "common/time.h"

namespace tokura::cli {

// Exit statuses of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

// Where a command's results go: with --json FILE the object goes to the file (replaced at once, so
// that a reader never sees half of it) and people still get their text; with --json - the object
// alone is on stdout. Thread-compatible.
class Output {
 public:
  // `json_path` as the user gave it; empty: no JSON.
  explicit Output(std::string json_path) : json_path_(std::move(json_path)) {}
  // Print for people, unless stdout is the JSON's.
  void Print(std::string_view text) const;
  // Write the result. Not-finite numbers become null. UNAVAILABLE: the file cannot be written (the
  // message names it).
  absl::Status WriteJson(const Json& result) const;

 private:
  std::string json_path_;
};

// Print "tokura COMMAND: reason" on stderr and return kExitFailed.
int Fail(std::string_view command, const absl::Status& status);

// Replace the file's contents at once: written beside it, then renamed over it. UNAVAILABLE names
// the file and the reason.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

// Says on stderr what a long command is doing: nothing in the first two seconds, then a line every
// two seconds at most. Thread-compatible.
class Progress {
 public:
  Progress(const Clock& clock, std::string command)
      : clock_(clock), command_(std::move(command)), last_(clock.Now()) {}
  void Update(std::string_view what);

 private:
  const Clock& clock_;
  const std::string command_;
  TimePoint last_;
};

}  // namespace tokura::cli
