#include "cli/codec_commands.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "cli/codec_eval.h"
#include "cli/cpu_option.h"
#include "cli/kvcap.h"
#include "cli/output.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/time.h"
#include "kernels/codec.h"
#include "kernels/cpu_features.h"

namespace tokura::cli {
namespace {

constexpr uint32_t kListHeadDim = 128;
constexpr uint32_t kListBlockTokens = 64;

std::string EvaluationText(const CodecEvaluation& e) {
  TextTable table({{"relative error"},
                   {"mean of layers", TextTable::Align::kRight},
                   {"worst layer", TextTable::Align::kRight}});
  const auto row = [&](const char* name, const LayerErrors& errors) {
    table.AddRow({name, FixedPoint(errors.Mean(), 5), FixedPoint(errors.Max(), 5)});
  };
  table.AddRow({"keys", FixedPoint(e.k_error, 5)});
  table.AddRow({"values", FixedPoint(e.v_error, 5)});
  row("attention output, captured queries", e.attention_error);
  row("declared by the blocks", e.declared_error);
  std::string text = absl::StrCat(e.codec, ": ", FixedPoint(e.bits_per_element, 2),
                                  " bits per element, ", e.blocks, " blocks\n\n", table.ToString());
  absl::StrAppend(&text, "\nBlock by block: true ", FixedPoint(e.block_true_mean, 5), ", declared ",
                  FixedPoint(e.block_declared_mean, 5), "; declared within 25 % in ",
                  FixedPoint(100 * e.within_25_percent, 0), " % of blocks and layers.\n");
  if (e.profile == 0 && e.declared_error.Max() > 0) {
    absl::StrAppend(&text,
                    "Declared errors come from the blocks' own keys in the place of queries (no "
                    "profile), which is a rough guess.\n");
  }
  return text;
}

// Who needs a model profile for the codec, for people and in JSON.
struct ProfileTexts {
  const char* text;
  const char* json;
};
ProfileTexts ProfileTextsOf(const kernels::CodecPreset& preset) {
  using Use = kernels::ProfileUse;
  switch (std::max(kernels::UsesProfile(preset.k), kernels::UsesProfile(preset.v))) {
    case Use::kNone:
      return {"-", "none"};
    case Use::kOptional:
      return {"may have one", "optional"};
    case Use::kToEncode:
      return {"to write", "encode"};
    case Use::kToDecode:
      return {"to write and read", "decode"};
  }
  return {"", ""};
}

}  // namespace

int RunCodecList(const std::vector<std::string>& args) {
  std::string json_path;
  CpuOption cpu;
  OptionTable options("tokura codec list",
                      "List the codecs that blocks can be stored in, and the instruction set that "
                      "they run in here.");
  cpu.AddTo(&options);
  options.AddString("json", &json_path, "write the result to this file; - for stdout alone");
  options.AddExample("tokura codec list", "names, bits per element, and how K and V are coded");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  TextTable table(
      {{"codec"}, {"bits/element", TextTable::Align::kRight}, {"needs a profile"}, {"K"}, {"V"}});
  Json codecs = Json::array();
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    const double bits =
        kernels::BitsPerElement(preset, kListHeadDim, kListBlockTokens, DType::kFloat16);
    const ProfileTexts profile = ProfileTextsOf(preset);
    table.AddRow({std::string(preset.name), FixedPoint(bits, 2), profile.text,
                  std::string(preset.k_text), std::string(preset.v_text)});
    codecs.push_back({{"name", preset.name},
                      {"k", preset.k_text},
                      {"v", preset.v_text},
                      {"profile", profile.json},
                      {"bits_per_element_d128", bits}});
  }
  const Output output(json_path);
  output.Print(table.ToString());
  output.Print("(bits of a 64-token float16 block with head size 128; K+V mixes two of them)\n");
  const std::string isa(kernels::IsaName(kernels::ActiveIsa()));
  output.Print(
      "(profiles are made by `tokura profile` and given with --profile or --profile-dir; where a "
      "codec\n may have one, readers need the one that the writer had)\n");
  output.Print(absl::StrCat("(instruction set here: ", isa, ")\n"));
  const absl::Status written = output.WriteJson(Json{{"codecs", codecs}, {"instruction_set", isa}});
  return written.ok() ? kExitOk : Fail("codec list", written);
}

int RunCodecEval(const std::vector<std::string>& args) {
  std::string json_path;
  std::string kv_path;
  std::string prefix_path;
  std::string profile_path;
  CodecEvalOptions eval;
  int64_t block_tokens = eval.block_tokens;
  int64_t queries = eval.record_queries;
  CpuOption cpu;
  OptionTable options("tokura codec eval",
                      "Measure what a codec does to captured KV: bits, errors of keys, values and "
                      "attention output, and how true the error is that the blocks declare.");
  options.AddString("kv", &kv_path, "capture (.kvcap) to encode");
  options.AddString("prefix", &prefix_path, "capture that comes before it, for request files");
  options.AddString("codec", &eval.codec, "codec, or K+V of two (tokura codec list)");
  options.AddString("profile", &profile_path,
                    "profile of the model (tokura profile): queries for declared errors, and what "
                    "some codecs need");
  options.AddInt("queries", &queries, "queries that declared errors are measured with, 1 to 64");
  options.AddInt("block-tokens", &block_tokens, "tokens per block");
  cpu.AddTo(&options);
  options.AddString("json", &json_path, "write the result to this file; - for stdout alone");
  options.AddExample(
      "tokura codec eval --prefix tests/data/kv/prefix.kvcap --kv tests/data/kv/request_1.kvcap",
      "what kivi4 costs a real request");
  options.AddCheck([&]() -> absl::Status {
    if (kv_path.empty()) {
      return absl::InvalidArgumentError("give the capture to encode with --kv FILE");
    }
    if (queries < 1 || queries > kernels::kExemplarsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--queries must be 1 to ", kernels::kExemplarsMax));
    }
    if (block_tokens < 1 || block_tokens > 1024) {
      return absl::InvalidArgumentError("--block-tokens must be 1 to 1024");
    }
    return kernels::FindCodec(eval.codec).status();
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  eval.block_tokens = static_cast<uint32_t>(block_tokens);
  eval.record_queries = static_cast<uint32_t>(queries);
  if (!profile_path.empty()) {
    const auto profile = kernels::Profile::Read(profile_path);
    if (!profile.ok()) {
      return Fail("codec eval", profile.status());
    }
    eval.profile = *profile;
  }
  const auto capture = ReadSequence(kv_path, prefix_path);
  if (!capture.ok()) {
    return Fail("codec eval", capture.status());
  }
  Progress progress(SystemClock(), "codec eval");
  const auto evaluation =
      EvaluateCodec(*capture, eval, [&](std::string_view what) { progress.Update(what); });
  if (!evaluation.ok()) {
    return Fail("codec eval", evaluation.status());
  }
  const Output output(json_path);
  output.Print(EvaluationText(*evaluation));
  const absl::Status written = output.WriteJson(ToJson(*evaluation));
  return written.ok() ? kExitOk : Fail("codec eval", written);
}

}  // namespace tokura::cli
