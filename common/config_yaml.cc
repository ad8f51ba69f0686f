#include "common/config_yaml.h"

#include <algorithm>
#include <set>
#include <utility>

#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/yaml_document.h"

namespace tokura {
namespace {

absl::StatusOr<YamlSetting> ReadSetting(const YAML::Node& key, const YAML::Node& value,
                                        const std::string& file_name) {
  if (!key.IsScalar()) {
    return YamlError(file_name, key.Mark(), "a key must be a name");
  }
  YamlSetting setting;
  setting.key = key.Scalar();
  setting.line = key.Mark().line + 1;
  if (value.IsScalar()) {
    setting.values.push_back(value.Scalar());
    return setting;
  }
  if (!value.IsSequence()) {
    return YamlError(
        file_name, key.Mark(),
        absl::StrCat("'", setting.key, "' ",
                     value.IsNull() ? "has no value" : "must be a value or a list, no map"));
  }
  setting.shape = YamlSetting::Shape::kList;
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return YamlError(file_name, item.Mark(),
                       absl::StrCat("a list item of '", setting.key, "' must be a plain value"));
    }
    setting.values.push_back(item.Scalar());
  }
  return setting;
}

absl::StatusOr<std::vector<YamlSetting>> ReadDocument(const YAML::Node& document,
                                                      const std::string& file_name) {
  std::vector<YamlSetting> settings;
  if (document.IsNull()) {
    return settings;
  }
  if (!document.IsMap()) {
    return YamlError(file_name, document.Mark(), "must be a map of 'key: value' lines");
  }
  std::set<std::string> seen;
  for (const auto& entry : document) {
    TOKURA_ASSIGN_OR_RETURN(YamlSetting setting, ReadSetting(entry.first, entry.second, file_name));
    if (!seen.insert(setting.key).second) {
      return YamlError(file_name, entry.first.Mark(),
                       absl::StrCat("'", setting.key, "' is there a second time"));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

bool IsPlain(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/';
  };
  if (text.empty() || !letter(text.front()) || text.back() == ':') {
    return false;
  }
  const std::set<std::string_view> nulls = {"null", "Null", "NULL"};
  return nulls.count(text) == 0 && std::all_of(text.begin(), text.end(), [&](char c) {
           return letter(c) || c == ':' || c == '@' || c == '+' || c == '-';
         });
}

}  // namespace

absl::StatusOr<std::vector<YamlSetting>> ReadYamlSettings(std::string_view text,
                                                          const std::string& file_name) {
  std::vector<YamlSetting> settings;
  TOKURA_RETURN_IF_ERROR(
      ReadYamlDocument(text, file_name, [&](const YAML::Node& root) -> absl::Status {
        TOKURA_ASSIGN_OR_RETURN(settings, ReadDocument(root, file_name));
        return absl::OkStatus();
      }));
  return settings;
}

std::string QuoteYaml(std::string_view text) {
  if (IsPlain(text)) {
    return std::string(text);
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (byte < ' ' || byte == 0x7f) {
      quoted += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace tokura
