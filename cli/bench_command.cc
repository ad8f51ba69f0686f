#include "cli/bench_command.h"

#include <cstddef>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include <sys/utsname.h>

#include "absl/strings/str_cat.h"
#include "cli/bench_codec.h"
#include "cli/bench_lookup.h"
#include "cli/bench_lookup_rows.h"
#include "cli/bench_transport.h"
#include "cli/cpu_option.h"
#include "cli/paths.h"
#include "cli/table.h"
#include "common/build_info.h"
#include "common/config.h"
#include "common/time.h"
#include "kernels/cpu_features.h"

namespace tokura::cli {
namespace {

// "model name : …" of /proc/cpuinfo; empty where there is none.
std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

// What numbers depend on besides the commit: processor, system, compiler.
std::string MachineText() {
  utsname system{};
  uname(&system);
  return absl::StrCat(CpuName(), ", ", std::thread::hardware_concurrency(), " CPUs, ",
                      system.sysname, " ", system.release, ", compiler ", __VERSION__,
                      ", codecs in ", std::string(kernels::IsaName(kernels::ActiveIsa())));
}

struct BenchCommand {
  std::string name;
  std::string description;
  std::string example_filter;
  Bench run;
  // Options of this benchmark alone; their targets outlive the call.
  std::function<void(OptionTable*)> add_options = [](OptionTable*) {};
  // What people read below the table; null: nothing.
  std::string (*maybe_text)(const std::vector<BenchRow>& rows) = nullptr;
};

int Run(const BenchCommand& bench, const std::vector<std::string>& args) {
  std::string json_path;
  std::string memory = "host";
  BenchOptions bench_options;
  double seconds = 0;
  OptionTable options("tokura bench " + bench.name, bench.description);
  options.SetDefaultLogLevel("warn");
  options.AddString("filter", &bench_options.filter, "only rows whose name begins so");
  options.AddDouble("seconds", &seconds,
                    "seconds for all rows together; 0: at most four minutes, chosen per row");
  options.AddChoice("memory", &memory, {"host", "cuda"},
                    "where the KV lies (cuda is not there yet)");
  options.AddString("json", &json_path, "write the result to this file; - for stdout alone");
  bench.add_options(&options);
  options.AddExample(absl::StrCat("tokura bench ", bench.name, " --filter ", bench.example_filter),
                     "some of the rows");
  options.AddCheck([&]() -> absl::Status {
    if (memory != "host") {
      return absl::InvalidArgumentError(
          "--memory cuda: this version has no CUDA kernels yet; use --memory host");
    }
    return seconds >= 0 ? absl::OkStatus()
                        : absl::InvalidArgumentError("--seconds must not be negative");
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  Progress progress(SystemClock(), "bench " + bench.name);
  if (seconds > 0) {
    bench_options.seconds =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }
  bench_options.progress = [&](std::string_view what) { progress.Update(what); };
  bench_options.self = {ExecutablePath()};
  const auto rows = bench.run(bench_options);
  if (!rows.ok()) {
    const int code = Fail("bench " + bench.name, rows.status());
    return absl::IsInvalidArgument(rows.status()) ? kExitUsage : code;
  }
  const Output output(json_path);
  output.Print(BenchTable(*rows));
  if (bench.maybe_text != nullptr) {
    output.Print(bench.maybe_text(*rows));
  }
  const absl::Status written = output.WriteJson(BenchReport(*rows));
  return written.ok() ? kExitOk : Fail("bench " + bench.name, written);
}

}  // namespace

Json BenchReport(const std::vector<BenchRow>& rows) {
  Json results = Json::array();
  for (const BenchRow& row : rows) {
    Json json{{"name", row.name},   {"value", row.value},           {"unit", row.unit},
              {"bound", row.bound}, {"bound_name", row.bound_name}, {"ratio", nullptr}};
    if (row.ratio.has_value()) {
      json["ratio"] = *row.ratio;
    }
    if (row.ratio_without_crc.has_value()) {
      json["ratio_without_crc"] = *row.ratio_without_crc;
    }
    json["repeats"] = row.repeats;
    json["p10"] = row.p10;
    json["p90"] = row.p90;
    results.push_back(std::move(json));
  }
  return Json{{"commit", GetBuildInfo().commit}, {"machine", MachineText()}, {"results", results}};
}

std::string BenchTable(const std::vector<BenchRow>& rows) {
  using Align = TextTable::Align;
  TextTable table({{"name"},
                   {"value", Align::kRight},
                   {"bound", Align::kRight},
                   {"unit"},
                   {"ratio", Align::kRight},
                   {"p10…p90", Align::kRight},
                   {"without CRC", Align::kRight},
                   {"n", Align::kRight},
                   {"bound is"}});
  for (const BenchRow& row : rows) {
    const auto optional = [](const std::optional<double>& value) {
      return value.has_value() ? FixedPoint(*value, 3) : "";
    };
    table.AddRow({row.name, FixedPoint(row.value, 3),
                  row.bound_name.empty() ? "" : FixedPoint(row.bound, 3), row.unit,
                  optional(row.ratio),
                  absl::StrCat(FixedPoint(row.p10, 3), "…", FixedPoint(row.p90, 3)),
                  optional(row.ratio_without_crc), absl::StrCat(row.repeats), row.bound_name});
  }
  return table.ToString();
}

int RunBenchCodec(const std::vector<std::string>& args) {
  CodecBenchOptions codec;
  CpuOption cpu;
  const auto add_options = [&](OptionTable* options) {
    options->AddChoice("dtype", &codec.dtype, {"float32", "float16", "bfloat16"},
                       "type of the engine's KV");
    options->AddChoice("layout", &codec.layout, {"head-major", "token-major", "channel-major"},
                       "how the engine keeps it; channel-major: K as vLLM's CPU backend has it");
    cpu.AddTo(options);
  };
  return Run({.name = "codec",
              .description = "Measure encoding and decoding on one core against memcpy of the raw "
                             "bytes, and the error record against encoding without it.",
              .example_filter = "codec/cpu/decode/",
              .run = [&](const BenchOptions& options) { return BenchCodec(options, codec); },
              .add_options = add_options},
             args);
}

int RunBenchTransport(const std::vector<std::string>& args) {
  return Run({.name = "transport",
              .description = "Measure gets, puts and small requests over TCP loopback against raw "
                             "UCX between two processes.",
              .example_filter = "transport/get/1MiB/",
              .run = BenchTransport},
             args);
}

int RunBenchLookup(const std::vector<std::string>& args) {
  return Run({.name = "lookup",
              .description =
                  "Measure lookups in a coordinator process against pipelined EXISTS in Redis, its "
                  "index's memory, how it absorbs inventory and how it grows. Servers have a CPU "
                  "of their own where there are two. The largest index takes 1 GiB.",
              .example_filter = "lookup/1024/",
              .run = BenchLookup,
              .maybe_text = LookupText},
             args);
}

}  // namespace tokura::cli
