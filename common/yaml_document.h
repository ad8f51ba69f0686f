#pragma once

#include <string>
#include <string_view>

#include <yaml-cpp/node/node.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tokura {

inline constexpr size_t kYamlBytesMax = size_t{1} << 20;

// Read `text` (untrusted), which must be one YAML document, and call `read` with its root.
// `file_name` is for messages. INVALID_ARGUMENT with file and line: no YAML, more than one
// document, more than kYamlBytesMax, or what `read` came upon where yaml-cpp throws; else what
// `read` returns.
absl::Status ReadYamlDocument(std::string_view text, const std::string& file_name,
                              absl::FunctionRef<absl::Status(const YAML::Node& root)> read);

// INVALID_ARGUMENT "FILE:LINE: what".
absl::Status YamlError(const std::string& file_name, const YAML::Mark& mark, std::string_view what);

}  // namespace tokura
