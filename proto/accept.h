#pragma once

// Which stored forms a caller accepts, and which of them is the best: one definition for the node
// that serves blocks and the coordinator that says where they are.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/tokura.pb.h"

namespace tokura {

// What a caller accepts (WIRE.md, section 6). A form is acceptable when it has all of
// required_groups; it is no summary, or summaries are allowed; its codec is among `codecs` (empty:
// any); and, where max_error is stated, its mean error is at most that, and not judged by its own
// keys only, unless accept_proxy_error. Exact forms always meet max_error; a lossy one never meets
// 0, whatever its error.
// Of several acceptable forms the best is: the one earliest in `codecs`; then the higher fidelity
// class; then the smaller mean error; then fewer bytes; then the smaller content id.
struct AcceptRule {
  std::optional<double> max_error;  // unset: any; 0: exact
  bool allow_summary = false;
  bool accept_proxy_error = false;
  std::vector<std::string> codecs;  // best first
  uint32_t required_groups = 0;     // bit per layer group
};

// Codecs that one rule may name: ranking a form looks at each.
inline constexpr int kAcceptCodecsMax = 64;

// A rule from its message. INVALID_ARGUMENT names the field: a negative max_error, too many codecs.
absl::StatusOr<AcceptRule> ReadAccept(const proto::Accept& accept);

// Fidelity classes as numbers of the wire; the smaller is the better one.
inline constexpr uint32_t kWireExact = 1;
inline constexpr uint32_t kWireQuantized = 2;
inline constexpr uint32_t kWireSummary = 3;

// What the rule looks at in a form, but for its error and size.
struct FormTraits {
  size_t codec_rank = 0;  // CodecRank of its codec
  uint32_t group_mask = 0;
  uint32_t fidelity = kWireExact;
  bool proxy_error = false;
};

// Position of `codec` in rule.codecs, their number where it is not among them; 0 where any will do.
size_t CodecRank(const AcceptRule& rule, std::string_view codec);

enum class Verdict {
  kNo,
  kYes,
  kByError,  // yes, when its mean error is at most *rule.max_error
};
// What the rule says to all forms with these traits.
Verdict Judge(const AcceptRule& rule, const FormTraits& form);

// Whether a form is acceptable: Judge, with the error looked at. NaN never meets a limit.
bool Accepts(const AcceptRule& rule, const FormTraits& form, double error_mean);

// What orders two acceptable forms, but for the content id.
struct FormRank {
  size_t codec_rank = 0;
  uint32_t fidelity = kWireExact;
  double error_mean = 0;
  uint64_t stored_bytes = 0;
};
// `less`: `a` is the better one.
std::partial_ordering CompareForms(const FormRank& a, const FormRank& b);

}  // namespace tokura
