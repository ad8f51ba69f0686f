#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/yaml_document.h"

namespace tokura {

// One `key: value` line of a configuration file.
struct YamlSetting {
  enum class Shape { kScalar, kList };
  std::string key;
  std::vector<std::string> values;  // one for a scalar
  Shape shape = Shape::kScalar;
  int line = 0;  // from 1
};

// Read a configuration file's text (untrusted): one mapping from keys to scalars or lists of
// scalars, in the order of the file; an empty file has none. `file_name` is for messages.
// INVALID_ARGUMENT names file, line and what is wrong: no YAML, another shape, a key twice, a key
// without a value, more than kYamlBytesMax.
absl::StatusOr<std::vector<YamlSetting>> ReadYamlSettings(std::string_view text,
                                                          const std::string& file_name);

// `text` as one YAML scalar, quoted where it must be; also valid inside [ ].
std::string QuoteYaml(std::string_view text);

}  // namespace tokura
