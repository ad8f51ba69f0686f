#include "cli/profile_command.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/capture_profile.h"
#include "cli/kvcap.h"
#include "cli/output.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/time.h"
#include "kernels/profile.h"

namespace tokura::cli {
namespace {

const char* AttentionName(kernels::ProfileAttention attention) {
  switch (attention) {
    case kernels::ProfileAttention::kFull:
      return "full";
    case kernels::ProfileAttention::kSliding:
      return "sliding";
    case kernels::ProfileAttention::kLatent:
      return "latent";
  }
  return "";
}

const char* RopeName(kernels::RopeKind kind) {
  switch (kind) {
    case kernels::RopeKind::kNone:
      return "none";
    case kernels::RopeKind::kHalfSplit:
      return "half-split";
    case kernels::RopeKind::kInterleaved:
      return "interleaved";
  }
  return "";
}

Json ToJson(const kernels::Profile& profile) {
  const kernels::ProfileData& data = profile.data();
  const kernels::ProfileGroup& first = data.groups.front();
  size_t layers = 0;
  for (const kernels::ProfileGroup& group : data.groups) {
    layers += group.layers.size();
  }
  return Json{{"id", kernels::ProfileIdText(profile.id())},
              {"model", data.model},
              {"layers", layers},
              {"kv_heads", first.kv_heads},
              {"head_dim", first.k_head_dim},
              {"exemplars", data.exemplars}};
}

std::string Joined(const std::vector<uint16_t>& channels) {
  std::string text;
  for (const uint16_t channel : channels) {
    absl::StrAppend(&text, text.empty() ? "" : " ", channel);
  }
  return text;
}

void AddHeads(const kernels::ProfileGroup& group, TextTable* table) {
  for (size_t i = 0; i < group.heads.size(); ++i) {
    const kernels::ProfileHead& head = group.heads[i];
    const auto [low, high] = std::minmax_element(head.smooth.begin(), head.smooth.end());
    const auto [first, last] = std::minmax_element(head.positions.begin(), head.positions.end());
    const kernels::ProfileLayer& layer = group.layers[i / group.kv_heads];
    table->AddRow({absl::StrCat(layer.index), absl::StrCat(i % group.kv_heads),
                   absl::StrFormat("%.6g", layer.rope_base),
                   absl::StrCat(FixedPoint(*low, 2), " – ", FixedPoint(*high, 2)),
                   Joined(head.k_outliers), Joined(head.v_outliers),
                   absl::StrCat(*first, " – ", *last)});
  }
}

std::string Text(const kernels::Profile& profile) {
  const kernels::ProfileData& data = profile.data();
  std::string text = absl::StrCat("profile ", kernels::ProfileIdText(profile.id()), " of ",
                                  data.model, ", ", data.exemplars, " exemplar queries a head\n");
  for (const kernels::ProfileGroup& group : data.groups) {
    absl::StrAppend(
        &text, "\n", group.layers.size(), " layers with ", AttentionName(group.attention),
        " attention", group.window == 0 ? "" : absl::StrCat(" over ", group.window, " tokens"),
        ", ", group.kv_heads, " KV heads for ", group.queries_per_head,
        " query heads each, head size ", group.k_head_dim, ", RoPE ", RopeName(group.rope.kind),
        ", softmax scale ", FixedPoint(static_cast<double>(group.softmax_scale), 5),
        group.rounding ? "" : ", no factors for guided rounding", "\n\n");
    TextTable table({{"layer", TextTable::Align::kRight},
                     {"head", TextTable::Align::kRight},
                     {"RoPE base", TextTable::Align::kRight},
                     {"smoothing"},
                     {"outliers K"},
                     {"outliers V"},
                     {"queries from"}});
    AddHeads(group, &table);
    absl::StrAppend(&text, table.ToString());
  }
  return text;
}

absl::StatusOr<std::vector<Capture>> ReadCaptures(const std::vector<std::string>& paths) {
  std::vector<Capture> captures;
  for (const std::string& path : paths) {
    auto capture = ReadCapture(path);
    if (!capture.ok()) {
      return capture.status();
    }
    captures.push_back(*std::move(capture));
  }
  return captures;
}

absl::StatusOr<std::string> MakeProfile(const std::vector<std::string>& paths,
                                        const CaptureProfileOptions& options) {
  const auto captures = ReadCaptures(paths);
  if (!captures.ok()) {
    return captures.status();
  }
  Progress progress(SystemClock(), "profile");
  const auto data =
      ProfileOfCaptures(*captures, options, [&](std::string_view what) { progress.Update(what); });
  if (!data.ok()) {
    return data.status();
  }
  return kernels::SerializeProfile(*data);
}

}  // namespace

int RunProfile(const std::vector<std::string>& args) {
  std::string json_path;
  std::string out_path;
  std::vector<std::string> kv_paths;
  CaptureProfileOptions make;
  int64_t exemplars = make.exemplars;
  OptionTable options("tokura profile",
                      "Make a model's profile from captured KV: what codecs need to know about the "
                      "model, and the queries that declared errors are measured with.");
  options.AddStrings("kv", &kv_paths,
                     "captures (.kvcap) of one model, the more different the "
                     "texts the better");
  options.AddString("out", &out_path, "profile to write");
  options.AddString("model", &make.model, "name of the model; default: the captures'");
  options.AddInt("exemplars", &exemplars, "exemplar queries of each KV head, 1 to 64");
  options.AddString("json", &json_path, "write the result to this file; - for stdout alone");
  options.AddExample("tokura profile --kv prose.kvcap --kv code.kvcap --out smollm2.profile",
                     "a profile from two texts");
  options.AddExample("tokura profile show smollm2.profile", "what is in it");
  options.AddCheck([&]() -> absl::Status {
    if (kv_paths.empty()) {
      return absl::InvalidArgumentError("give captures to learn from with --kv FILE");
    }
    if (out_path.empty()) {
      return absl::InvalidArgumentError("give the file to write with --out FILE");
    }
    if (exemplars < 1 || exemplars > kernels::kExemplarsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--exemplars must be 1 to ", kernels::kExemplarsMax));
    }
    return absl::OkStatus();
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  make.exemplars = static_cast<uint32_t>(exemplars);
  const auto bytes = MakeProfile(kv_paths, make);
  if (!bytes.ok()) {
    return Fail("profile", bytes.status());
  }
  if (const absl::Status written = ReplaceFile(out_path, *bytes); !written.ok()) {
    return Fail("profile", written);
  }
  const auto profile = kernels::Profile::Parse(std::as_bytes(std::span<const char>(*bytes)));
  if (!profile.ok()) {
    return Fail("profile", profile.status());
  }
  const Output output(json_path);
  output.Print(absl::StrCat(
      "profile ", kernels::ProfileIdText((*profile)->id()), " of ", (*profile)->data().model, ": ",
      ReadableBytes(static_cast<double>(bytes->size())), " in ", out_path, "\n"));
  const absl::Status written = output.WriteJson(ToJson(**profile));
  return written.ok() ? kExitOk : Fail("profile", written);
}

int RunProfileShow(const std::vector<std::string>& args) {
  std::string json_path;
  std::vector<std::string> path;
  OptionTable options("tokura profile show", "Show what is in a model's profile.");
  options.AddPositional("file", &path, OptionTable::Presence::kRequired, "profile to show");
  options.AddString("json", &json_path, "write the result to this file; - for stdout alone");
  options.AddExample("tokura profile show smollm2.profile", "id, layers, statistics by head");
  options.AddCheck([&]() -> absl::Status {
    return path.size() == 1 ? absl::OkStatus()
                            : absl::InvalidArgumentError("give one profile to show");
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto profile = kernels::Profile::Read(path.front());
  if (!profile.ok()) {
    return Fail("profile show", profile.status());
  }
  const Output output(json_path);
  output.Print(Text(**profile));
  const absl::Status written = output.WriteJson(ToJson(**profile));
  return written.ok() ? kExitOk : Fail("profile show", written);
}

}  // namespace tokura::cli
