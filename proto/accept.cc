#include "proto/accept.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tokura {

absl::StatusOr<AcceptRule> ReadAccept(const proto::Accept& accept) {
  AcceptRule rule;
  if (accept.has_max_error()) {
    if (!(accept.max_error() >= 0)) {  // NaN as well.
      return absl::InvalidArgumentError("max_error is negative or not a number");
    }
    rule.max_error = accept.max_error();
  }
  if (accept.codecs_size() > kAcceptCodecsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("codecs has ", accept.codecs_size(), " entries; at most ", kAcceptCodecsMax));
  }
  rule.allow_summary = accept.allow_summary();
  rule.accept_proxy_error = accept.accept_proxy_error();
  rule.codecs.assign(accept.codecs().begin(), accept.codecs().end());
  return rule;
}

size_t CodecRank(const AcceptRule& rule, std::string_view codec) {
  return static_cast<size_t>(std::find(rule.codecs.begin(), rule.codecs.end(), codec) -
                             rule.codecs.begin());
}

Verdict Judge(const AcceptRule& rule, const FormTraits& form) {
  if ((form.group_mask & rule.required_groups) != rule.required_groups) {
    return Verdict::kNo;
  }
  if (form.fidelity >= kWireSummary && !rule.allow_summary) {
    return Verdict::kNo;
  }
  if (!rule.codecs.empty() && form.codec_rank >= rule.codecs.size()) {
    return Verdict::kNo;
  }
  if (!rule.max_error.has_value() || form.fidelity == kWireExact) {
    return Verdict::kYes;
  }
  // Exact was asked for, and a lossy form whose error happens to be 0 is not that.
  const bool exact_only = !(*rule.max_error > 0);
  return exact_only || (form.proxy_error && !rule.accept_proxy_error) ? Verdict::kNo
                                                                      : Verdict::kByError;
}

bool Accepts(const AcceptRule& rule, const FormTraits& form, double error_mean) {
  const Verdict verdict = Judge(rule, form);
  return verdict == Verdict::kYes ||
         (verdict == Verdict::kByError && error_mean <= *rule.max_error);
}

std::partial_ordering CompareForms(const FormRank& a, const FormRank& b) {
  if (a.codec_rank != b.codec_rank) {
    return a.codec_rank <=> b.codec_rank;
  }
  if (a.fidelity != b.fidelity) {
    return a.fidelity <=> b.fidelity;
  }
  if (a.error_mean != b.error_mean) {
    return a.error_mean <=> b.error_mean;
  }
  return a.stored_bytes <=> b.stored_bytes;
}

}  // namespace tokura
