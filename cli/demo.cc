#include "cli/demo.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/child_process.h"
#include "cli/coordinator_ask.h"
#include "cli/demo_cluster.h"
#include "cli/kvcap.h"
#include "cli/paths.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/profile_paths.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

namespace tokura::cli {
namespace {

constexpr Duration kWorkerTimeout = std::chrono::seconds(60);
constexpr char kPrefix[] = "prefix";
constexpr const char* kNodes[] = {"node-a", "node-b"};
constexpr const char* kDecodeRequests[] = {"request_1", "request_2", "request_3"};

struct DemoFlags {
  std::string codec = "kivi4";
  std::string data;
  int64_t block_tokens = 16;
  ProfilePaths profiles;
  std::string json_path;
};

// A directory for the workers' logs, removed with everything in it at the end.
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

// Starts workers for one round and collects what they report.
class RoundRunner {
 public:
  // Whether the workers store what they computed.
  enum class Store { kNo, kYes };

  RoundRunner(const DemoFlags& flags, const ScratchDirectory& scratch, std::string coordinator)
      : flags_(flags), scratch_(scratch), coordinator_(std::move(coordinator)) {}

  absl::StatusOr<DemoRound> Run(Store store) {
    DemoRound round;
    TOKURA_ASSIGN_OR_RETURN(const auto prefill, StartWorker(kPrefix, "prefill", store));
    Collect(prefill.get(), "prefill", &round);
    std::vector<std::unique_ptr<ChildProcess>> decoders;
    for (const char* name : kDecodeRequests) {
      TOKURA_ASSIGN_OR_RETURN(auto worker, StartWorker(name, name, store));
      decoders.push_back(std::move(worker));
    }
    for (size_t i = 0; i < decoders.size(); ++i) {
      Collect(decoders[i].get(), kDecodeRequests[i], &round);
    }
    return round;
  }

 private:
  absl::StatusOr<std::unique_ptr<ChildProcess>> StartWorker(const std::string& file,
                                                            const std::string& name, Store store) {
    std::vector<std::string> command = {ExecutablePath(),
                                        "demo-worker",
                                        "--coordinator",
                                        coordinator_,
                                        store == Store::kYes ? "--store=true" : "--store=false",
                                        "--codec",
                                        flags_.codec,
                                        "--block-tokens",
                                        absl::StrCat(flags_.block_tokens),
                                        "--timeout",
                                        "5s",
                                        "--name",
                                        name,
                                        "--kv",
                                        absl::StrCat(flags_.data, "/", file, ".kvcap")};
    if (file != kPrefix) {
      command.insert(command.end(),
                     {"--prefix", absl::StrCat(flags_.data, "/", kPrefix, ".kvcap")});
    }
    for (const std::string& profile : flags_.profiles.files) {
      command.insert(command.end(), {"--profile", profile});
    }
    if (!flags_.profiles.directory.empty()) {
      command.insert(command.end(), {"--profile-dir", flags_.profiles.directory});
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
  const std::string coordinator_;
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

// "256 (node-a 128, node-b 128)"
std::string HitsText(const DemoRequest& request) {
  std::string nodes;
  for (const auto& [node, tokens] : request.hits_by_node) {
    absl::StrAppend(&nodes, nodes.empty() ? "" : ", ", node, " ", tokens);
  }
  return absl::StrCat(request.tokens_hit, nodes.empty() ? "" : absl::StrCat(" (", nodes, ")"));
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
    table.AddRow({r.name, absl::StrCat(r.tokens), HitsText(r), BytesText(r.bytes_logical),
                  BytesText(r.bytes_stored), BytesText(r.bytes_moved),
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
      " tokens: a system turn with a document.\nTwo cache nodes hold their KV in blocks of ",
      flags.block_tokens, " tokens, compressed with ", flags.codec,
      "; four blocks in a row\nlie on one node, and a coordinator knows which.\n\n"
      "1. A prefill worker puts the prefix. Three decode workers, all at once, fetch the longest\n"
      "   prefix of their own tokens that the nodes hold, decode it, and put the rest.\n\n");
}

std::string SharedText(const DemoRound& round) {
  const DemoRequest totals = Totals(round);
  const auto ratio = [](uint64_t a, uint64_t b) {
    return b == 0 ? "-" : FixedPoint(static_cast<double>(a) / static_cast<double>(b), 1) + "×";
  };
  return absl::StrCat(
      RoundTable(round),
      "\n   from cache: tokens whose KV the worker did not have to compute, and from which nodes.\n"
      "   added: blocks that this worker put, raw and as stored. moved: payload on the network.\n"
      "   attention error: how far the output of the model's own queries is from the output over\n"
      "   exact KV, relative, mean over layers.\n\n"
      "   The nodes hold ",
      BytesText(totals.bytes_logical), " of KV in ", BytesText(totals.bytes_stored), " (",
      ratio(totals.bytes_logical, totals.bytes_stored), " smaller); ",
      BytesText(totals.bytes_moved),
      " were moved.\n   Private raw copies in every worker would take ",
      BytesText(totals.bytes_private), ", ", ratio(totals.bytes_private, totals.bytes_stored),
      " as much,\n   and ", totals.tokens_hit, " tokens would be computed again.\n\n");
}

std::string LossText(const std::string& lost, const DemoRound& round) {
  return absl::StrCat("2. ", lost,
                      " is killed, and the same requests come again. (They store nothing, so that\n"
                      "   what survived can be seen.)\n\n",
                      RoundTable(round), "\n   ", Totals(round).tokens_hit,
                      " tokens from the cache, ", round.errors,
                      " errors: a prefix counts up to its first gap, the rest is\n"
                      "   computed again, and no request fails.\n\n");
}

std::string ReturnText(const std::string& lost, const DemoRound& round) {
  return absl::StrCat("3. ", lost,
                      " comes back, empty. The same requests fill it again and use it.\n\n",
                      RoundTable(round),
                      "\n   Round 1 stored the ends of the requests, too, so each finds more of "
                      "its tokens. Queries\n"
                      "   look at the latest tokens most, and these are compressed now: hence the "
                      "larger error.\n\n");
}

std::string RestartText(const DemoRound& round) {
  return absl::StrCat(
      "4. The coordinator is killed and started again: it asks the nodes what they hold. The same\n"
      "   requests, storing nothing.\n\n",
      RoundTable(round), "\n   ", Totals(round).tokens_hit, " tokens from the cache, ",
      round.errors, " errors.\n");
}

absl::Status CheckEveryDecodeHits(const DemoRound& round, const char* when) {
  for (size_t i = 1; i < round.requests.size(); ++i) {
    if (round.requests[i].tokens_hit == 0) {
      return absl::InternalError(
          absl::StrCat(round.requests[i].name, " found nothing in the cache ", when));
    }
  }
  return absl::OkStatus();
}

bool HitsFrom(const DemoRound& round, const std::string& node) {
  return std::any_of(
      round.requests.begin(), round.requests.end(),
      [&node](const DemoRequest& request) { return request.hits_by_node.count(node) != 0; });
}

// What the demo promises to show; a status says what was not as promised.
absl::Status CheckResult(const DemoResult& result, const std::string& lost) {
  for (const DemoRound* round : {&result.shared, &result.after_node_loss, &result.after_node_return,
                                 &result.after_coordinator_restart}) {
    if (round->errors > 0) {
      return absl::InternalError("a worker failed (see above)");
    }
  }
  TOKURA_RETURN_IF_ERROR(CheckEveryDecodeHits(result.shared, "although nothing was lost"));
  TOKURA_RETURN_IF_ERROR(CheckEveryDecodeHits(result.after_node_loss, "that a node still held"));
  TOKURA_RETURN_IF_ERROR(
      CheckEveryDecodeHits(result.after_coordinator_restart, "after the coordinator's restart"));
  if (HitsFrom(result.after_node_loss, lost)) {
    return absl::InternalError("a request hit a node that is gone");
  }
  for (const char* node : kNodes) {
    if (!HitsFrom(result.shared, node) || !HitsFrom(result.after_node_return, node)) {
      return absl::InternalError(absl::StrCat("no request hit ", node));
    }
  }
  if (Totals(result.after_coordinator_restart).tokens_hit <
      Totals(result.after_node_return).tokens_hit) {
    return absl::InternalError("not all hits came back after the coordinator's restart");
  }
  return absl::OkStatus();
}

// The node to lose: not the one with the first block, so that a prefix survives.
absl::StatusOr<std::string> NodeToLose(const DemoRound& round) {
  for (const char* node : kNodes) {
    if (!round.requests.empty() && !round.requests.front().first_node.empty() &&
        round.requests.front().first_node != node) {
      return std::string(node);
    }
  }
  return absl::InternalError("the prefill worker's blocks are not held by any node");
}

absl::Status PlayRounds(const DemoFlags& flags, const ScratchDirectory& scratch,
                        DemoCluster* cluster, const Output& output) {
  using Store = RoundRunner::Store;
  const std::vector<std::string> nodes(std::begin(kNodes), std::end(kNodes));
  RoundRunner runner(flags, scratch, cluster->coordinator());
  DemoResult result;
  TOKURA_RETURN_IF_ERROR(WaitForNodes(cluster->coordinator(), nodes));
  TOKURA_ASSIGN_OR_RETURN(result.shared, runner.Run(Store::kYes));
  output.Print(SharedText(result.shared));
  TOKURA_ASSIGN_OR_RETURN(const std::string lost, NodeToLose(result.shared));
  cluster->KillNode(lost);
  TOKURA_ASSIGN_OR_RETURN(result.after_node_loss, runner.Run(Store::kNo));
  output.Print(LossText(lost, result.after_node_loss));
  TOKURA_RETURN_IF_ERROR(cluster->StartNode(lost));
  TOKURA_RETURN_IF_ERROR(WaitForNodes(cluster->coordinator(), nodes));
  TOKURA_ASSIGN_OR_RETURN(result.after_node_return, runner.Run(Store::kYes));
  output.Print(ReturnText(lost, result.after_node_return));
  TOKURA_RETURN_IF_ERROR(cluster->RestartCoordinator());
  TOKURA_RETURN_IF_ERROR(WaitForNodes(cluster->coordinator(), nodes));
  TOKURA_ASSIGN_OR_RETURN(result.after_coordinator_restart, runner.Run(Store::kNo));
  output.Print(RestartText(result.after_coordinator_restart));
  TOKURA_RETURN_IF_ERROR(output.WriteJson(ToJson(result)));
  return CheckResult(result, lost);
}

absl::Status Demonstrate(const DemoFlags& flags) {
  TOKURA_ASSIGN_OR_RETURN(const Capture prefix,
                          ReadCapture(absl::StrCat(flags.data, "/", kPrefix, ".kvcap")));
  const Output output(flags.json_path);
  output.Print(IntroductionText(prefix, flags));
  TOKURA_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create());
  TOKURA_ASSIGN_OR_RETURN(const auto cluster, DemoCluster::Start(std::vector<std::string>(
                                                  std::begin(kNodes), std::end(kNodes))));
  const absl::Status played = PlayRounds(flags, *scratch, cluster.get(), output);
  return played.ok()
             ? played
             : absl::Status(played.code(), absl::StrCat(played.message(), "\n", cluster->Logs()));
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
  const auto round = [&requests](const DemoRound& of) {
    return Json{{"requests", requests(of)}, {"errors", of.errors}};
  };
  const DemoRequest totals = Totals(result.shared);
  return Json{{"requests", requests(result.shared)},
              {"totals",
               {{"bytes_logical", totals.bytes_logical},
                {"bytes_stored", totals.bytes_stored},
                {"bytes_moved", totals.bytes_moved}}},
              {"after_node_loss", round(result.after_node_loss)},
              {"after_node_return", round(result.after_node_return)},
              {"after_coordinator_restart", round(result.after_coordinator_restart)}};
}

int RunDemo(const std::vector<std::string>& args) {
  DemoFlags flags;
  OptionTable options("tokura demo",
                      "Watch worker processes share the KV of a real model's prompts through two "
                      "cache nodes, compressed, with the measured error; then lose a node, get it "
                      "back, and lose the coordinator.");
  options.SetDefaultLogLevel("warn");
  options.AddString("codec", &flags.codec, "codec to store in (tokura codec list)");
  options.AddString("data", &flags.data, "directory with the captures; empty: tests/data/kv");
  options.AddInt("block-tokens", &flags.block_tokens, "tokens per block");
  AddProfileOptions(&options, &flags.profiles);
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
