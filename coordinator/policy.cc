#include "coordinator/policy.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <yaml-cpp/yaml.h>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config.h"
#include "common/status_macros.h"
#include "common/yaml_document.h"
#include "kernels/codec.h"
#include "proto/policy_match.h"

namespace tokura::coordinator {
namespace {

constexpr size_t kPatternBytesMax = 256;
constexpr Duration kTtlMin = std::chrono::milliseconds(1);

// Setters of a rule's keys: what is wrong with `text` and what to write instead, or OK.

absl::StatusOr<std::string> ReadPattern(const std::string& text) {
  if (text.empty() || text.size() > kPatternBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("has ", text.size(), " bytes; write 1 to ",
                                                   kPatternBytesMax, ", or \"*\" for all"));
  }
  if (text.find('*') < text.size() - 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' has a * before its end; write a name, or the beginning of names and one *"));
  }
  return text;
}

absl::Status SetTenant(const std::string& text, proto::PolicyRule& rule) {
  TOKURA_ASSIGN_OR_RETURN(*rule.mutable_tenant(), ReadPattern(text));
  return absl::OkStatus();
}

absl::Status SetModel(const std::string& text, proto::PolicyRule& rule) {
  TOKURA_ASSIGN_OR_RETURN(*rule.mutable_model(), ReadPattern(text));
  return absl::OkStatus();
}

absl::Status SetIngestCodec(const std::string& text, proto::PolicyRule& rule) {
  TOKURA_ASSIGN_OR_RETURN(const kernels::CodecPreset codec, kernels::FindCodec(text));
  // One name per codec: "kivi4+kivi4" is kivi4 to whoever compares names.
  TOKURA_ASSIGN_OR_RETURN(*rule.mutable_ingest_codec(), kernels::CodecNameOf(codec.k, codec.v));
  return absl::OkStatus();
}

absl::Status SetMaxError(const std::string& text, proto::PolicyRule& rule) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no error budget; write a number from 0 (exact) to 1"));
  }
  rule.set_max_error(value);
  return absl::OkStatus();
}

absl::Status SetAcceptProxyError(const std::string& text, proto::PolicyRule& rule) {
  if (text != "true" && text != "false") {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "'; write true or false"));
  }
  rule.set_accept_proxy_error(text == "true");
  return absl::OkStatus();
}

absl::Status SetTtl(const std::string& text, proto::PolicyRule& rule) {
  TOKURA_ASSIGN_OR_RETURN(const Duration ttl, ParseDuration(text));
  if (ttl < kTtlMin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "'; write at least ", FormatDuration(kTtlMin), ", or leave ttl out for none"));
  }
  rule.set_ttl_us(static_cast<uint64_t>(ttl / std::chrono::microseconds(1)));
  return absl::OkStatus();
}

struct Key {
  const char* name;
  absl::Status (*set)(const std::string& text, proto::PolicyRule& rule);
};
constexpr Key kKeys[] = {
    {"tenant", SetTenant},
    {"model", SetModel},
    {"ingest_codec", SetIngestCodec},
    {"max_error", SetMaxError},
    {"accept_proxy_error", SetAcceptProxyError},
    {"ttl", SetTtl},
};

absl::Status UnknownKey(const std::string& name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown key '", name, "'; a rule has ",
      absl::StrJoin(kKeys, ", ", [](std::string* out, const Key& key) { *out += key.name; })));
}

absl::Status SetKey(const std::string& name, const YAML::Node& value, proto::PolicyRule& rule) {
  for (const Key& key : kKeys) {
    if (name != key.name) {
      continue;
    }
    if (!value.IsScalar()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, value.IsNull() ? " has no value; write one or leave the key out"
                                            : " must be one plain value, no list and no map"));
    }
    if (absl::Status status = key.set(value.Scalar(), rule); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
    }
    return absl::OkStatus();
  }
  return UnknownKey(name);
}

// Whether what the ingest codec stores can be used under the rule's own budget.
absl::Status CheckBudget(const proto::PolicyRule& rule) {
  if (!rule.has_max_error() || rule.max_error() > 0 || rule.ingest_codec().empty()) {
    return absl::OkStatus();
  }
  TOKURA_ASSIGN_OR_RETURN(const kernels::CodecPreset codec,
                          kernels::FindCodec(rule.ingest_codec()));
  if (codec.k.raw() && codec.v.raw()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("max_error 0 refuses everything that ingest_codec ", rule.ingest_codec(),
                   " stores; write raw, or a larger max_error"));
}

// Whether every name that matches `narrow` matches `wide`.
bool Covers(std::string_view wide, std::string_view narrow) {
  return wide == narrow || (wide.back() == '*' && PolicyPatternMatches(wide, narrow));
}

// Reads the rules of one file.
class PolicyReader {
 public:
  PolicyReader(const std::string& file_name, std::vector<proto::PolicyRule>& rules)
      : file_name_(file_name), rules_(rules) {}

  absl::Status ReadRoot(const YAML::Node& root) {
    if (root.IsNull()) {
      return absl::OkStatus();
    }
    if (!root.IsMap()) {
      return At(root, "must begin with 'rules:' and have a list of rules below it");
    }
    bool seen = false;
    for (const auto& entry : root) {
      if (!entry.first.IsScalar() || entry.first.Scalar() != "rules") {
        return At(entry.first, "unknown key; the only one outside a rule is 'rules'");
      }
      if (std::exchange(seen, true)) {
        return At(entry.first, "'rules' is there a second time; put all rules below one");
      }
      if (!entry.second.IsSequence()) {
        return At(entry.first, "rules must be a list; begin each rule with '- ', or write []");
      }
      for (const YAML::Node& node : entry.second) {
        TOKURA_RETURN_IF_ERROR(ReadRule(node));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status At(const YAML::Node& node, std::string_view what) const {
    return YamlError(file_name_, node.Mark(), what);
  }

  absl::Status ReadRule(const YAML::Node& node) {
    if (!node.IsMap()) {
      return At(node, "a rule must be a map of 'key: value' lines");
    }
    if (rules_.size() >= kPolicyRulesMax) {
      return At(node, absl::StrCat("there may be ", kPolicyRulesMax,
                                   " rules; join some by a pattern that ends with *"));
    }
    proto::PolicyRule rule;
    rule.set_tenant("*");
    rule.set_model("*");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        return At(entry.first, "a key must be a name");
      }
      const std::string& name = entry.first.Scalar();
      if (!seen.insert(name).second) {
        return At(entry.first, absl::StrCat("'", name, "' is there a second time in this rule"));
      }
      if (absl::Status status = SetKey(name, entry.second, rule); !status.ok()) {
        return At(entry.first, std::string(status.message()));
      }
    }
    if (absl::Status status = CheckBudget(rule); !status.ok()) {
      return At(node, std::string(status.message()));
    }
    return Add(std::move(rule), node);
  }

  absl::Status Add(proto::PolicyRule rule, const YAML::Node& node) {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (Covers(rules_[i].tenant(), rule.tenant()) && Covers(rules_[i].model(), rule.model())) {
        return At(node, absl::StrCat("this rule never holds: the one of line ", lines_[i],
                                     " matches all that it matches; put it before that one"));
      }
    }
    rules_.push_back(std::move(rule));
    lines_.push_back(node.Mark().line + 1);
    return absl::OkStatus();
  }

  const std::string& file_name_;
  std::vector<proto::PolicyRule>& rules_;
  std::vector<int> lines_;
};

}  // namespace

absl::StatusOr<Policy> ParsePolicy(std::string_view text, const std::string& file_name) {
  if (text.size() > kPolicyTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": a policy may have ", kPolicyTextBytesMax, " bytes"));
  }
  Policy policy;
  policy.text = std::string(text);
  PolicyReader reader(file_name, policy.rules);
  absl::Status status = ReadYamlDocument(
      text, file_name, [&](const YAML::Node& root) { return reader.ReadRoot(root); });
  if (!status.ok() && status.message().find("alias") != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(status.message(), "; a value that begins with * must be in quotes: \"*\""));
  }
  TOKURA_RETURN_IF_ERROR(status);
  return policy;
}

absl::StatusOr<Policy> ReadPolicyFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the policy file ", path));
  }
  std::string text(kPolicyTextBytesMax + 1, '\0');  // one byte more shows that it is too long
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the policy file ", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return ParsePolicy(text, path);
}

}  // namespace tokura::coordinator
