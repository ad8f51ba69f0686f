#pragma once

#include <string_view>

#include <google/protobuf/repeated_field.h>

#include "proto/cluster.pb.h"

namespace tokura {

// Whether a rule's pattern names `name`: it ends with * and the name begins with what is before it,
// or it is equal. Bytes are compared; a * elsewhere is a character as any.
bool PolicyPatternMatches(std::string_view pattern, std::string_view name);

// The rule that holds for a namespace: the first one whose tenant and model match; null when none
// does. Coordinators and clients decide by this one function. The pointer is good as long as
// `rules`. Thread-safe.
struct PolicySubject {
  std::string_view tenant;
  std::string_view model;
};
const proto::PolicyRule* MatchPolicy(
    const google::protobuf::RepeatedPtrField<proto::PolicyRule>& rules,
    const PolicySubject& subject);

}  // namespace tokura
