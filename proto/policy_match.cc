#include "proto/policy_match.h"

namespace tokura {

bool PolicyPatternMatches(std::string_view pattern, std::string_view name) {
  if (pattern.empty() || pattern.back() != '*') {
    return pattern == name;
  }
  pattern.remove_suffix(1);
  return name.substr(0, pattern.size()) == pattern;
}

const proto::PolicyRule* MatchPolicy(
    const google::protobuf::RepeatedPtrField<proto::PolicyRule>& rules,
    const PolicySubject& subject) {
  for (const proto::PolicyRule& rule : rules) {
    if (PolicyPatternMatches(rule.tenant(), subject.tenant) &&
        PolicyPatternMatches(rule.model(), subject.model)) {
      return &rule;
    }
  }
  return nullptr;
}

}  // namespace tokura
