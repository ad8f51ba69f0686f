#include "common/config_yaml.h"

#include <algorithm>
#include <exception>
#include <set>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

absl::Status At(const std::string& file_name, const YAML::Mark& mark, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name, ":", mark.line + 1, ": ", std::string(what)));
}

absl::StatusOr<YamlSetting> ReadSetting(const YAML::Node& key, const YAML::Node& value,
                                        const std::string& file_name) {
  if (!key.IsScalar()) {
    return At(file_name, key.Mark(), "a key must be a name");
  }
  YamlSetting setting;
  setting.key = key.Scalar();
  setting.line = key.Mark().line + 1;
  if (value.IsScalar()) {
    setting.values.push_back(value.Scalar());
    return setting;
  }
  if (!value.IsSequence()) {
    return At(file_name, key.Mark(),
              absl::StrCat("'", setting.key, "' ",
                           value.IsNull() ? "has no value" : "must be a value or a list, no map"));
  }
  setting.shape = YamlSetting::Shape::kList;
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return At(file_name, item.Mark(),
                absl::StrCat("a list item of '", setting.key, "' must be a plain value"));
    }
    setting.values.push_back(item.Scalar());
  }
  return setting;
}

// Remembers where a document begins and ignores what is in it.
class DocumentStart final : public YAML::EventHandler {
 public:
  const YAML::Mark& mark() const { return mark_; }

  void OnDocumentStart(const YAML::Mark& mark) override { mark_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark mark_;
};

// The one document of `text`. YAML::LoadAll would tell about further ones, but never returns from
// some malformed texts, for which yaml-cpp reports one empty document after the other.
absl::StatusOr<YAML::Node> LoadOne(const std::string& text, const std::string& file_name) {
  std::istringstream input(text);
  YAML::Parser parser(input);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start)) {
    return At(file_name, start.mark(), "a second document; there must be one");
  }
  return YAML::Load(text);
}

absl::StatusOr<std::vector<YamlSetting>> ReadDocument(const YAML::Node& document,
                                                      const std::string& file_name) {
  std::vector<YamlSetting> settings;
  if (document.IsNull()) {
    return settings;
  }
  if (!document.IsMap()) {
    return At(file_name, document.Mark(), "must be a map of 'key: value' lines");
  }
  std::set<std::string> seen;
  for (const auto& entry : document) {
    TOKURA_ASSIGN_OR_RETURN(YamlSetting setting, ReadSetting(entry.first, entry.second, file_name));
    if (!seen.insert(setting.key).second) {
      return At(file_name, entry.first.Mark(),
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
  if (text.size() > kYamlBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": has more than ", kYamlBytesMax, " bytes"));
  }
  try {
    TOKURA_ASSIGN_OR_RETURN(const YAML::Node document, LoadOne(std::string(text), file_name));
    return ReadDocument(document, file_name);
  } catch (const YAML::Exception& error) {
    return At(file_name, error.mark, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": not YAML: ", error.what()));
  }
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
