#include "cli/bench_soak.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/kv_session.h"
#include "cli/output.h"
#include "cli/soak.h"
#include "cli/statistics.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/status_macros.h"
#include "common/stop_signals.h"
#include "common/time.h"
#include "tokura/client.h"

namespace tokura::cli {
namespace {

constexpr uint64_t kBlockBytesMax = uint64_t{8} << 20;

struct SoakFlags {
  std::vector<std::string> nodes;
  std::vector<std::string> coordinators;
  std::string tenant = "default";
  double seconds = 10;
  int64_t threads = 4;
  int64_t chains = 64;
  uint64_t block_bytes = uint64_t{256} << 10;
  bool verify = false;
  Duration slack = SoakOptions().slack;
  std::string json_path;
};

absl::Status Check(const SoakFlags& flags) {
  if (!(flags.seconds > 0)) {
    return absl::InvalidArgumentError("--seconds must be positive");
  }
  if (flags.threads < 1 || flags.threads > 256) {
    return absl::InvalidArgumentError("--threads must be 1 to 256");
  }
  if (flags.chains < 1 || flags.chains > 65536) {
    return absl::InvalidArgumentError("--chains must be 1 to 65536");
  }
  if (flags.block_bytes < 1 || flags.block_bytes > kBlockBytesMax) {
    return absl::InvalidArgumentError("--block-bytes must be 1 to 8MiB");
  }
  if (flags.slack < Duration::zero()) {
    return absl::InvalidArgumentError("--slack must not be negative");
  }
  return absl::OkStatus();
}

void AddFlags(OptionTable* options, SoakFlags* flags) {
  AddServerFlags(options, &flags->nodes, &flags->coordinators);
  options->AddDouble("seconds", &flags->seconds,
                     "how long at most; Ctrl-C or SIGTERM end it before");
  options->AddInt("threads", &flags->threads, "threads that call the client at the same time");
  options->AddInt("chains", &flags->chains, "different sequences, of eight blocks each");
  options->AddBytes("block-bytes", &flags->block_bytes, "raw size of a block, rounded up to 4KiB");
  options->AddString("tenant", &flags->tenant, "tenant");
  options->AddBool("verify", &flags->verify, "check every byte, codec and declared error");
  options->AddDuration("slack", &flags->slack,
                       "a call that takes longer than its deadline by more hangs");
  options->AddString("json", &flags->json_path,
                     "write the result to this file; - for stdout alone");
  options->AddExample(
      "tokura bench soak --coordinator 127.0.0.1:7420 --seconds 30 --threads 8 --verify",
      "use a cluster for half a minute; kill, stop and restart servers meanwhile");
  options->AddCheck([flags] { return Check(*flags); });
}

std::string ReportText(const SoakReport& report) {
  std::string text = absl::StrCat(report.ops, " calls: ", report.puts, " blocks put, ", report.hits,
                                  " of ", report.gets, " wanted blocks hit\nwrong ", report.wrong,
                                  ", hung ", report.hung, "\n");
  for (const auto& [name, count] : report.status) {
    absl::StrAppend(&text, "  ", name, " ", count, "\n");
  }
  const auto ms = [](Duration d) {
    return FixedPoint(std::chrono::duration<double, std::milli>(d).count(), 2);
  };
  absl::StrAppend(&text, "latency ms: p50 ", ms(report.latency.AtQuantile(0.5)), ", p99 ",
                  ms(report.latency.AtQuantile(0.99)), ", max ", ms(report.latency.max()), "\n");
  if (!report.recovery_ms.empty()) {
    absl::StrAppend(&text, "hits again after each of ", report.recovery_ms.size(),
                    " faults seen, ms: p50 ", FixedPoint(Quantile(report.recovery_ms, 0.5), 0),
                    ", max ", FixedPoint(Quantile(report.recovery_ms, 1), 0), "\n");
  }
  return text;
}

absl::StatusOr<SoakReport> Soak(const SoakFlags& flags, const std::atomic<bool>& stop) {
  SoakOptions soak;
  soak.maybe_stop = &stop;
  soak.content.tenant = flags.tenant;
  soak.content.block_bytes = flags.block_bytes;
  soak.content.chains = static_cast<uint32_t>(flags.chains);
  soak.run_time =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.seconds));
  soak.threads = static_cast<uint32_t>(flags.threads);
  soak.slack = flags.slack;
  soak.verify = flags.verify ? SoakVerify::kYes : SoakVerify::kNo;
  ClientOptions options;
  options.nodes = flags.nodes;
  options.coordinators = flags.coordinators;
  options.name = "tokura-soak";
  options.ingest_codec = "kivi4";
  options.sink_tokens = soak.content.sink_tokens;
  options.progress_timeout = soak.remove_deadline;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(std::move(options)));
  TOKURA_RETURN_IF_ERROR(client->WaitReady(std::chrono::seconds(5)));
  Progress progress(SystemClock(), "bench soak");
  return RunSoak(*client, soak, SystemClock(),
                 [&](std::string_view what) { progress.Update(what); });
}

// The same until a signal asks it to end, which it does soon and with its report; one more signal
// ends the process at once.
absl::StatusOr<SoakReport> SoakUntilSignal(const SoakFlags& flags) {
  const StopSignals signals;
  signals.Block();
  std::atomic<bool> stop{false};
  absl::StatusOr<SoakReport> report = absl::UnknownError("not run");
  std::thread thread([&] {
    report = Soak(flags, stop);
    if (!stop.exchange(true)) {
      StopSignals::Raise();
    }
  });
  signals.WaitForOne();
  if (!stop.exchange(true)) {
    signals.LetThrough();
  }
  thread.join();
  return report;
}

}  // namespace

int RunBenchSoak(const std::vector<std::string>& args) {
  SoakFlags flags;
  OptionTable options("tokura bench soak",
                      "Put, get, look up and remove blocks from many threads while nodes are "
                      "killed, stopped and restarted by somebody else.");
  AddFlags(&options, &flags);
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto report = SoakUntilSignal(flags);
  if (!report.ok()) {
    return Fail("bench soak", report.status());
  }
  const Output output(flags.json_path);
  output.Print(ReportText(*report));
  if (const absl::Status written = output.WriteJson(ToJson(*report)); !written.ok()) {
    return Fail("bench soak", written);
  }
  for (const std::string& complaint : report->complaints) {
    Fail("bench soak", absl::DataLossError(complaint));
  }
  return report->clean() ? kExitOk : kExitFailed;
}

}  // namespace tokura::cli
