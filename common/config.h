#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time.h"

namespace tokura {

// Sizes as people write them: "64MiB", "512 KiB", "4096". Whole numbers only. INVALID_ARGUMENT
// names what is wrong.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// "250ms", "2s", "1m", "3h", "100us", "5ns", "0"; never negative. INVALID_ARGUMENT names what is
// wrong.
absl::StatusOr<Duration> ParseDuration(std::string_view text);
std::string FormatBytes(uint64_t bytes);     // shortest exact form that ParseBytes reads, "64MiB"
std::string FormatDuration(Duration value);  // likewise, "250ms"

// The one table of a program's options. Each option has a kebab-case name and is set by (first
// wins)
//   --host-bytes 4GiB      flag
//   TOKURA_HOST_BYTES      environment (an empty value counts as none)
//   host-bytes: 4GiB       YAML file (--config FILE)
//   the target's value when it was added (the default)
// An unknown flag or YAML key is an error (usage, exit 2) that names the nearest one; so is a value
// given twice by one source or of another type. Every program also gets --config, --print-config
// (each value and where it comes from, as YAML that --config reads), --check-config (exit 0 or 1;
// an unknown flag is 2 here too), --help, --version, and --log-level and --log-format, which Parse
// puts into force. Thread-compatible. Names are lower-case kebab-case and distinct.
class OptionTable {
 public:
  OptionTable(std::string program, std::string description);
  ~OptionTable();

  // The level that is logged unless the user sets another; "info" without this call. For commands
  // whose lifecycle is none of the user's interest. One of the levels of --log-level.
  void SetDefaultLogLevel(std::string_view level);

  // `target` holds the default, is written by Parse, and outlives the table. `help` states the unit
  // and what it is for.
  void AddString(std::string name, std::string* target, std::string help);
  void AddStrings(std::string name, std::vector<std::string>* target,
                  std::string help);  // comma-separated or repeated
  void AddInt(std::string name, int64_t* target, std::string help);
  void AddDouble(std::string name, double* target, std::string help);
  void AddBool(std::string name, bool* target,
               std::string help);  // flag without a value, or =true / =false
  void AddBytes(std::string name, uint64_t* target, std::string help);
  void AddDuration(std::string name, Duration* target, std::string help);
  // Exactly one of `choices`.
  void AddChoice(std::string name, std::string* target, std::vector<std::string> choices,
                 std::string help);
  // A positional argument (commands of the CLI): one, or in the last one added all that remain.
  // kRequired: usage error without it.
  enum class Presence { kOptional, kRequired };
  void AddPositional(std::string name, std::vector<std::string>* target, Presence presence,
                     std::string help);
  // Shown at the end of --help.
  void AddExample(std::string command_line, std::string what_it_does);
  // Run after parsing, in order; an error is a usage error (exit 2).
  void AddCheck(std::function<absl::Status()> check);

  // What main() should do next: go on, or exit with `exit_code` (after --help, --version,
  // --print-config, --check-config or a usage error, whose text has already been printed).
  struct Outcome {
    bool run = false;
    int exit_code = 0;
  };
  // `args` are without the program's name. `environment` is the process's unless a test hands in
  // its own.
  using Environment = std::function<const char*(const char* name)>;
  Outcome Parse(const std::vector<std::string>& args, const Environment& environment);
  Outcome Parse(const std::vector<std::string>& args);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tokura
