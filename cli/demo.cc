#include "cli/demo.h"

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/child_process.h"
#include "cli/kvcap.h"
#include "cli/paths.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/port_file.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

namespace tokura::cli {
namespace {

constexpr Duration kStartTimeout = std::chrono::seconds(30);
constexpr Duration kWorkerTimeout = std::chrono::seconds(60);
constexpr char kPrefix[] = "prefix";
constexpr char kNodeLog[] = "node.log";
constexpr const char* kDecodeRequests[] = {"request_1", "request_2", "request_3"};

struct DemoFlags {
  std::string codec = "kivi4";
  std::string data;
  int64_t block_tokens = 16;
  std::string json_path;
};

// A directory for the logs and the port file, removed with everything in it at the end.
class ScratchDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<ScratchDirectory>> Create() {
    std::error_code error;
    const auto parent = std::filesystem::temp_directory_path(error);
    std::string name = (parent / "tokura-demo-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      return absl::UnavailableError(absl::StrCat("cannot make a directory like ", name));
    }
    return std::unique_ptr<ScratchDirectory>(new ScratchDirectory(name));
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The cache node as a process of its own.
class DemoNode {
 public:
  static absl::StatusOr<std::unique_ptr<DemoNode>> Start(const ScratchDirectory& scratch) {
    const std::string port_file = scratch.File("ports");
    const std::string log = scratch.File(kNodeLog);
    TOKURA_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProcess> process,
        ChildProcess::Start({.command = {ExecutablePath(), "up", "--listen", "127.0.0.1:0",
                                         "--admin", "127.0.0.1:0", "--host-bytes", "256MiB",
                                         "--name", "node-0", "--port-file", port_file},
                             .error_path = log}));
    // It writes the port file, then says on stdout that it is ready.
    const auto ready = process->ReadLine(kStartTimeout);
    if (!ready.ok()) {
      return absl::Status(
          ready.status().code(),
          absl::StrCat("the node did not start: ", ready.status().message(), "\n", FileText(log)));
    }
    TOKURA_ASSIGN_OR_RETURN(const PortFile ports, ReadPortFile(port_file));
    return std::unique_ptr<DemoNode>(new DemoNode(std::move(process), ports.node));
  }
  const std::string& address() const { return address_; }
  // As a machine dies: without a word.
  void Kill() { process_.reset(); }

 private:
  DemoNode(std::unique_ptr<ChildProcess> process, std::string address)
      : process_(std::move(process)), address_(std::move(address)) {}
  std::unique_ptr<ChildProcess> process_;
  const std::string address_;
};

// Starts workers for one round and collects what they report.
class RoundRunner {
 public:
  RoundRunner(const DemoFlags& flags, const ScratchDirectory& scratch, std::string node,
              std::string connect_timeout)
      : flags_(flags),
        scratch_(scratch),
        node_(std::move(node)),
        connect_timeout_(std::move(connect_timeout)) {}

  absl::StatusOr<DemoRound> Run() {
    DemoRound round;
    TOKURA_ASSIGN_OR_RETURN(const auto prefill, StartWorker(kPrefix, "prefill"));
    Collect(prefill.get(), "prefill", &round);
    std::vector<std::unique_ptr<ChildProcess>> decoders;
    for (const char* name : kDecodeRequests) {
      TOKURA_ASSIGN_OR_RETURN(auto worker, StartWorker(name, name));
      decoders.push_back(std::move(worker));
    }
    for (size_t i = 0; i < decoders.size(); ++i) {
      Collect(decoders[i].get(), kDecodeRequests[i], &round);
    }
    return round;
  }

 private:
  absl::StatusOr<std::unique_ptr<ChildProcess>> StartWorker(const std::string& file,
                                                            const std::string& name) {
    std::vector<std::string> command = {
        ExecutablePath(), "demo-worker",
        "--node",         node_,
        "--codec",        flags_.codec,
        "--block-tokens", absl::StrCat(flags_.block_tokens),
        "--timeout",      connect_timeout_,
        "--name",         name,
        "--kv",           absl::StrCat(flags_.data, "/", file, ".kvcap")};
    if (file != kPrefix) {
      command.insert(command.end(),
                     {"--prefix", absl::StrCat(flags_.data, "/", kPrefix, ".kvcap")});
    }
    return ChildProcess::Start({.command = command, .error_path = scratch_.File(name + ".log")});
  }

  void Collect(ChildProcess* worker, const std::string& name, DemoRound* round) {
    const absl::StatusOr<ChildProcess::End> end = worker->Wait(kWorkerTimeout);
    absl::StatusOr<DemoRequest> request =
        !end.ok() ? absl::StatusOr<DemoRequest>(end.status())
                  : ParseDemoRequest(end->output.substr(0, end->output.find('\n')));
    const bool finite =
        request.ok() && (!request->has_queries || std::isfinite(request->attention_error));
    if (!finite || end->exit_code != kExitOk) {
      ++round->errors;
      const std::string why = request.ok() ? "its attention output is not finite"
                                           : std::string(request.status().message());
      Fail("demo", absl::InternalError(absl::StrCat("worker ", name, " failed: ", why, "\n",
                                                    FileText(scratch_.File(name + ".log")))));
    }
    if (!request.ok()) {
      request = DemoRequest{};
      request->name = name;
    }
    round->requests.push_back(*std::move(request));
  }

  const DemoFlags& flags_;
  const ScratchDirectory& scratch_;
  const std::string node_;
  const std::string connect_timeout_;
};

DemoRequest Totals(const DemoRound& round) {
  DemoRequest totals;
  for (const DemoRequest& request : round.requests) {
    totals.bytes_logical += request.bytes_logical;
    totals.bytes_stored += request.bytes_stored;
    totals.bytes_moved += request.bytes_moved;
    totals.bytes_private += request.bytes_private;
    totals.tokens_hit += request.tokens_hit;
  }
  return totals;
}

std::string BytesText(uint64_t bytes) {
  return ReadableBytes(static_cast<double>(bytes));
}

std::string RoundTable(const DemoRound& round) {
  using Align = TextTable::Align;
  TextTable table({{"request"},
                   {"tokens", Align::kRight},
                   {"from cache", Align::kRight},
                   {"added raw", Align::kRight},
                   {"added stored", Align::kRight},
                   {"moved", Align::kRight},
                   {"time", Align::kRight},
                   {"attention error", Align::kRight}});
  for (const DemoRequest& r : round.requests) {
    table.AddRow({r.name, absl::StrCat(r.tokens), absl::StrCat(r.tokens_hit),
                  BytesText(r.bytes_logical), BytesText(r.bytes_stored), BytesText(r.bytes_moved),
                  FixedPoint(1000 * r.seconds, 1) + " ms",
                  r.has_queries ? FixedPoint(100 * r.attention_error, 2) + " %" : "-"});
  }
  return table.ToString();
}

std::string IntroductionText(const Capture& prefix, const DemoFlags& flags) {
  return absl::StrCat(
      "Tokura demo: worker processes share the KV cache of a real model's prompts.\n\n"
      "Model ",
      prefix.model, " (", prefix.layers.size(), " layers, ", prefix.kv_heads, " KV heads of ",
      prefix.head_dim, " channels, float16).\nThree requests begin with the same ", prefix.tokens,
      " tokens: a system turn with a document.\nA cache node holds their KV in blocks of ",
      flags.block_tokens, " tokens, compressed with ", flags.codec,
      ".\n\n"
      "1. A prefill worker puts the prefix. Three decode workers, all at once, fetch the longest\n"
      "   prefix of their own tokens that the node holds, decode it, and put the rest.\n\n");
}

std::string SharedText(const DemoRound& round) {
  const DemoRequest totals = Totals(round);
  const auto ratio = [](uint64_t a, uint64_t b) {
    return b == 0 ? "-" : FixedPoint(static_cast<double>(a) / static_cast<double>(b), 1) + "×";
  };
  return absl::StrCat(
      RoundTable(round),
      "\n   from cache: tokens whose KV the worker did not have to compute.\n"
      "   added: blocks that this worker put, raw and as stored. moved: payload on the network.\n"
      "   attention error: how far the output of the model's own queries is from the output over\n"
      "   exact KV, relative, mean over layers.\n\n"
      "   The node holds ",
      BytesText(totals.bytes_logical), " of KV in ", BytesText(totals.bytes_stored), " (",
      ratio(totals.bytes_logical, totals.bytes_stored), " smaller); ",
      BytesText(totals.bytes_moved),
      " were moved.\n   Private raw copies in every worker would take ",
      BytesText(totals.bytes_private), ", ", ratio(totals.bytes_private, totals.bytes_stored),
      " as much, and ", totals.tokens_hit, " tokens would be computed again.\n\n");
}

std::string LossText(const DemoRound& round) {
  return absl::StrCat("2. The node is killed, and the same requests come again.\n\n",
                      RoundTable(round), "\n   ", Totals(round).tokens_hit,
                      " tokens from the cache, ", round.errors,
                      " errors: without the cache a request costs more, and never fails.\n");
}

// What the demo promises to show; a status says what was not as promised.
absl::Status CheckResult(const DemoResult& result) {
  if (result.shared.errors + result.after_node_loss.errors > 0) {
    return absl::InternalError("a worker failed (see above)");
  }
  for (size_t i = 1; i < result.shared.requests.size(); ++i) {
    if (result.shared.requests[i].tokens_hit == 0) {
      return absl::InternalError(absl::StrCat(result.shared.requests[i].name,
                                              " found nothing in the cache: nothing was shared"));
    }
  }
  if (Totals(result.after_node_loss).tokens_hit > 0) {
    return absl::InternalError("a request hit a node that is gone");
  }
  return absl::OkStatus();
}

absl::Status Demonstrate(const DemoFlags& flags) {
  TOKURA_ASSIGN_OR_RETURN(const Capture prefix,
                          ReadCapture(absl::StrCat(flags.data, "/", kPrefix, ".kvcap")));
  const Output output(flags.json_path);
  output.Print(IntroductionText(prefix, flags));
  TOKURA_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create());
  TOKURA_ASSIGN_OR_RETURN(const auto node, DemoNode::Start(*scratch));
  DemoResult result;
  TOKURA_ASSIGN_OR_RETURN(result.shared, RoundRunner(flags, *scratch, node->address(), "5s").Run());
  output.Print(SharedText(result.shared));
  node->Kill();
  TOKURA_ASSIGN_OR_RETURN(result.after_node_loss,
                          RoundRunner(flags, *scratch, node->address(), "200ms").Run());
  output.Print(LossText(result.after_node_loss));
  TOKURA_RETURN_IF_ERROR(output.WriteJson(ToJson(result)));
  const absl::Status as_promised = CheckResult(result);
  return as_promised.ok()
             ? as_promised
             : absl::InternalError(absl::StrCat(as_promised.message(), "\nthe node's log:\n",
                                                FileText(scratch->File(kNodeLog))));
}

}  // namespace

Json ToJson(const DemoResult& result) {
  const auto requests = [](const DemoRound& round) {
    Json list = Json::array();
    for (const DemoRequest& request : round.requests) {
      list.push_back(ToJson(request));
    }
    return list;
  };
  const DemoRequest totals = Totals(result.shared);
  return Json{{"requests", requests(result.shared)},
              {"totals",
               {{"bytes_logical", totals.bytes_logical},
                {"bytes_stored", totals.bytes_stored},
                {"bytes_moved", totals.bytes_moved}}},
              {"after_node_loss",
               {{"requests", requests(result.after_node_loss)},
                {"errors", result.after_node_loss.errors}}}};
}

int RunDemo(const std::vector<std::string>& args) {
  DemoFlags flags;
  OptionTable options("tokura demo",
                      "Watch worker processes share the KV of a real model's prompts through a "
                      "cache node, compressed, with the measured error; then lose the node.");
  options.SetDefaultLogLevel("warn");
  options.AddString("codec", &flags.codec, "codec to store in (tokura codec list)");
  options.AddString("data", &flags.data, "directory with the captures; empty: tests/data/kv");
  options.AddInt("block-tokens", &flags.block_tokens, "tokens per block");
  options.AddString("json", &flags.json_path, "write the result to this file; - for stdout alone");
  options.AddExample("tokura demo", "takes a few seconds, needs nothing else running");
  options.AddExample("tokura demo --codec raw --json -", "exact KV, figures as JSON");
  options.AddCheck([&]() -> absl::Status {
    if (flags.block_tokens < 1 || flags.block_tokens > 1024) {
      return absl::InvalidArgumentError("--block-tokens must be 1 to 1024");
    }
    return kernels::FindCodec(flags.codec).status();
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  auto data = DemoDataDirectory(flags.data);
  if (!data.ok()) {
    return Fail("demo", data.status());
  }
  flags.data = *std::move(data);
  const absl::Status status = Demonstrate(flags);
  return status.ok() ? kExitOk : Fail("demo", status);
}

}  // namespace tokura::cli
