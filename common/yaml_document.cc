#include "common/yaml_document.h"

#include <exception>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

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
    return YamlError(file_name, start.mark(), "a second document; there must be one");
  }
  return YAML::Load(text);
}

}  // namespace

absl::Status ReadYamlDocument(std::string_view text, const std::string& file_name,
                              absl::FunctionRef<absl::Status(const YAML::Node& root)> read) {
  if (text.size() > kYamlBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": has more than ", kYamlBytesMax, " bytes"));
  }
  try {
    TOKURA_ASSIGN_OR_RETURN(const YAML::Node document, LoadOne(std::string(text), file_name));
    return read(document);
  } catch (const YAML::Exception& error) {
    return YamlError(file_name, error.mark, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": not YAML: ", error.what()));
  }
}

absl::Status YamlError(const std::string& file_name, const YAML::Mark& mark,
                       std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name, ":", mark.line + 1, ": ", std::string(what)));
}

}  // namespace tokura
