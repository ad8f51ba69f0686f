#include "cli/capture_profile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/sequence_memory.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/float_convert.h"
#include "kernels/profile_maker.h"

namespace tokura::cli {
namespace {

absl::Status CheckAlike(std::span<const Capture> captures) {
  if (captures.empty()) {
    return absl::InvalidArgumentError("no capture");
  }
  const Capture& first = captures.front();
  for (const Capture& other : captures) {
    if (other.model != first.model || other.layers != first.layers ||
        other.kv_heads != first.kv_heads || other.q_heads != first.q_heads ||
        other.head_dim != first.head_dim || other.softmax_scale != first.softmax_scale) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the captures are not of one model: ", first.model, " with ", first.layers.size(),
          " captured layers, ", other.model, " with ", other.layers.size(), " (or another shape)"));
    }
  }
  if (first.head_dim > kernels::kProfileDimMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heads of ", first.head_dim, " channels; profiles have at most ", kernels::kProfileDimMax));
  }
  return absl::OkStatus();
}

// One query of a capture.
struct QueryPlace {
  size_t capture = 0;
  uint32_t query_head = 0;  // of those that read the KV head
  uint32_t index = 0;
};

// At most `limit` queries in equal shares of the captures, spread over positions, each position's
// heads in turn.
std::vector<QueryPlace> Candidates(std::span<const Capture> captures, uint32_t limit) {
  const auto with_queries = static_cast<uint32_t>(std::count_if(
      captures.begin(), captures.end(), [](const Capture& c) { return c.queries > 0; }));
  std::vector<QueryPlace> places;
  for (size_t i = 0; i < captures.size(); ++i) {
    const Capture& capture = captures[i];
    const uint32_t heads = capture.queries_per_head();
    const uint32_t share =
        capture.queries == 0
            ? 0
            : std::min<uint32_t>(std::max(limit / with_queries, 1u), heads * capture.queries);
    for (uint32_t n = 0; n < share; ++n) {
      places.push_back(
          {i, n % heads, static_cast<uint32_t>(uint64_t{n} * capture.queries / share)});
    }
  }
  return places;
}

std::vector<float> Floats(std::span<const uint16_t> halves) {
  std::vector<float> out(halves.size());
  std::transform(halves.begin(), halves.end(), out.begin(), kernels::HalfToFloat);
  return out;
}

struct CaptureHead {
  size_t layer = 0;  // captured
  size_t head = 0;
};

kernels::HeadSamples Samples(std::span<const Capture> captures,
                             const std::vector<QueryPlace>& candidates, const CaptureHead& at) {
  kernels::HeadSamples samples;
  for (const Capture& capture : captures) {
    samples.runs.push_back({capture.first_position, capture.tokens,
                            Floats(capture.K(at.layer, at.head)),
                            Floats(capture.V(at.layer, at.head))});
  }
  for (const QueryPlace& place : candidates) {
    const Capture& capture = captures[place.capture];
    const size_t query_head = at.head * capture.queries_per_head() + place.query_head;
    const std::vector<float> q =
        Floats(capture.Q(at.layer, query_head)
                   .subspan(size_t{place.index} * capture.head_dim, capture.head_dim));
    samples.queries.insert(samples.queries.end(), q.begin(), q.end());
    samples.positions.push_back(capture.first_query_position + place.index);
  }
  return samples;
}

// How many outlier channels the codecs of the table want.
template <typename SideOf>
uint32_t OutliersWanted(uint32_t dim, const SideOf& side_of) {
  uint32_t wanted = 0;
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    wanted = std::max(wanted, kernels::OutlierChannels(side_of(preset), dim));
  }
  return wanted;
}

// The group without layers and heads.
kernels::ProfileGroup GroupOf(const Capture& capture, const LayerGroup& layers) {
  kernels::ProfileGroup group;
  group.attention = static_cast<kernels::ProfileAttention>(layers.kind);
  group.window = layers.window;
  group.kv_heads = layers.kv_heads;
  group.queries_per_head = capture.queries_per_head();
  group.k_head_dim = layers.k_head_dim;
  group.v_head_dim = layers.v_head_dim;
  group.rope = {kernels::RopeKind::kHalfSplit, 0, capture.head_dim};
  group.softmax_scale = capture.softmax_scale;
  group.k_outliers =
      OutliersWanted(group.k_head_dim, [](const kernels::CodecPreset& p) { return p.k; });
  group.v_outliers =
      OutliersWanted(group.v_head_dim, [](const kernels::CodecPreset& p) { return p.v; });
  group.rounding = true;
  return group;
}

}  // namespace

absl::StatusOr<kernels::ProfileData> ProfileOfCaptures(
    std::span<const Capture> captures, const CaptureProfileOptions& options,
    const std::function<void(std::string_view)>& progress) {
  TOKURA_RETURN_IF_ERROR(CheckAlike(captures));
  const std::vector<QueryPlace> candidates = Candidates(captures, options.candidates);
  if (candidates.empty()) {
    return absl::InvalidArgumentError(
        "no capture has queries; give one that has, such as a request (--kv "
        "tests/data/kv/request_1.kvcap)");
  }
  const Capture& shape = captures.front();
  TOKURA_ASSIGN_OR_RETURN(const NamespaceSpec spec, CaptureNamespace(shape, {}));
  kernels::ProfileData data;
  data.model = options.model.empty() ? shape.model : options.model;
  data.exemplars = std::min(options.exemplars, static_cast<uint32_t>(candidates.size()));
  size_t done = 0;
  for (const LayerGroup& layers : spec.groups) {
    kernels::ProfileGroup& group = data.groups.emplace_back(GroupOf(shape, layers));
    for (const uint32_t index : layers.layers) {
      progress(absl::StrCat("layer ", ++done, " of ", shape.layers.size()));
      const auto found = std::find_if(shape.layers.begin(), shape.layers.end(),
                                      [&](const CaptureLayer& l) { return l.index == index; });
      TOKURA_CHECK(found != shape.layers.end());
      if (!(found->rope_theta > 1)) {
        return absl::InvalidArgumentError(absl::StrCat("layer ", index, " has no RoPE base"));
      }
      group.layers.push_back({index, static_cast<double>(found->rope_theta),
                              kernels::TurnsOf(found->rope_theta, shape.head_dim)});
      const auto layer = static_cast<size_t>(found - shape.layers.begin());
      for (uint32_t head = 0; head < shape.kv_heads; ++head) {
        const kernels::HeadPlace place{static_cast<uint32_t>(group.layers.size() - 1), head};
        group.heads.push_back(kernels::MakeProfileHead(
            group, place, Samples(captures, candidates, {layer, head}), data.exemplars));
      }
    }
  }
  TOKURA_RETURN_IF_ERROR(kernels::CheckProfile(data));
  return data;
}

}  // namespace tokura::cli
