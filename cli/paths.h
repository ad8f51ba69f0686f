#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tokura::cli {

// This program's file, links resolved.
std::string ExecutablePath();

// The directory with the demo's captures: `given` when that is not empty, else tests/data/kv below
// the nearest directory above the executable, or above the working directory, that has it.
// NOT_FOUND says what was looked for and how to give it.
absl::StatusOr<std::string> DemoDataDirectory(const std::string& given);

}  // namespace tokura::cli
