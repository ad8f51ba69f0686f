// Configuration files, and the sizes and durations in them. What is accepted must survive being
// written and read again.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "common/config.h"
#include "common/config_yaml.h"

namespace tokura {
namespace {

void CheckValue(const std::string& text) {
  if (const auto bytes = ParseBytes(text); bytes.ok()) {
    const auto again = ParseBytes(FormatBytes(*bytes));
    TOKURA_CHECK(again.ok() && *again == *bytes);
  }
  if (const auto duration = ParseDuration(text); duration.ok()) {
    const auto again = ParseDuration(FormatDuration(*duration));
    TOKURA_CHECK(duration->count() >= 0 && again.ok() && *again == *duration);
  }
}

void CheckQuoting(const std::string& value) {
  const auto again = ReadYamlSettings("key: " + QuoteYaml(value), "file");
  TOKURA_CHECK(again.ok() && again->size() == 1 && (*again)[0].values.size() == 1);
  TOKURA_CHECK((*again)[0].values[0] == value);
}

}  // namespace
}  // namespace tokura

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  tokura::CheckValue(text);
  const auto settings = tokura::ReadYamlSettings(text, "file");
  if (settings.ok()) {
    for (const tokura::YamlSetting& setting : *settings) {
      for (const std::string& value : setting.values) {
        tokura::CheckQuoting(value);
        tokura::CheckValue(value);
      }
    }
  }
  return 0;
}
