#include "cli/kv_commands.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/judge.h"
#include "cli/kv_session.h"
#include "cli/output.h"
#include "cli/sequence_memory.h"
#include "cli/table.h"
#include "common/config.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

constexpr Duration kAnnounceTimeout = std::chrono::seconds(2);

uint64_t Sum(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

std::string StatusText(const StatusCounts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", count, " ", name);
  }
  return text.empty() ? "nothing to do" : text;
}

// Print the report for people and as JSON; the command's exit status. `extra` keys go behind the
// report's.
int Finish(const char* command, const KvFlags& flags, const KvReport& report,
           const std::string& text, const Json& extra = Json::object()) {
  const Output output(flags.json_path);
  output.Print(text);
  Json json = ToJson(report);
  json.update(extra);
  const absl::Status written = output.WriteJson(json);
  return written.ok() ? kExitOk : Fail(command, written);
}

// A line for each reason.
std::string ReasonsText(const KvReport& report) {
  std::string text;
  for (const std::string& reason : report.reasons) {
    absl::StrAppend(&text, "  why not: ", reason, "\n");
  }
  return text;
}

// Which leading blocks are held, in whatever form; leaves the evictor's view of them as it is.
absl::StatusOr<Match> LookUpHeld(Client* client, const KvFlags& flags, const KvSequence& sequence) {
  LookupOptions options;
  options.touch = false;
  options.deadline = flags.timeout;
  return client->Lookup(sequence.ns, sequence.chain, options);
}

// The same, once the first `expected` blocks are there, or after a while: a coordinator hears of a
// block a moment after it is stored.
absl::StatusOr<Match> LookUpAnnounced(Client* client, const KvFlags& flags,
                                      const KvSequence& sequence, size_t expected) {
  const TimePoint deadline = SystemClock().Now() + std::min(flags.timeout, kAnnounceTimeout);
  Match held;
  do {
    TOKURA_ASSIGN_OR_RETURN(held, LookUpHeld(client, flags, sequence));
  } while (held.blocks() < expected && SystemClock().Now() < deadline);
  return held;
}

// Which leading blocks the user's flags accept.
absl::StatusOr<Match> LookUpAccepted(Client* client, const KvFlags& flags,
                                     const KvSequence& sequence) {
  LookupOptions options;
  options.accept = flags.accept();
  options.deadline = flags.timeout;
  return client->Lookup(sequence.ns, sequence.chain, options);
}

absl::StatusOr<KvReport> Put(const KvFlags& flags) {
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(flags));
  TOKURA_ASSIGN_OR_RETURN(const Match before, LookUpHeld(client.get(), flags, sequence));
  SequenceMemory memory = SequenceMemory::CopyOf(sequence.capture);
  PutOptions options;
  options.codec = flags.codec;
  options.deadline = flags.timeout;
  const PutResult result =
      client->Put(sequence.ns, sequence.chain, memory.View(sequence.ns->spec()), options);
  size_t stored = 0;
  while (stored < result.blocks.size() && result.blocks[stored].ok()) {
    ++stored;
  }
  TOKURA_ASSIGN_OR_RETURN(const Match after,
                          LookUpAnnounced(client.get(), flags, sequence, stored));
  KvReport report;
  report.blocks = sequence.chain.blocks();
  report.hit = before.blocks();
  report.bytes_logical = after.blocks() * sequence.BlockBytes();
  report.bytes_stored = Sum(after.stored_bytes);
  for (const absl::Status& status : result.blocks) {
    Count(status, &report.status);
  }
  report.reasons = ReasonsOf(result.blocks);
  return report;
}

// The leading tokens of `sequence` with the keys and values that `memory` holds, without queries.
Capture LeadingCapture(const Capture& capture, const SequenceMemory& memory, uint32_t tokens) {
  Capture out = capture;
  out.tokens = tokens;
  out.context_tokens = std::min(tokens, capture.context_tokens);
  out.queries = 0;
  out.first_query_position = std::min(out.first_query_position, tokens);
  out.token_ids.resize(tokens);
  out.k.clear();
  out.v.clear();
  out.q.clear();
  const size_t elements = size_t{tokens} * capture.head_dim;
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    for (size_t head = 0; head < capture.kv_heads; ++head) {
      const auto k = memory.K(layer, head).first(elements);
      const auto v = memory.V(layer, head).first(elements);
      out.k.insert(out.k.end(), k.begin(), k.end());
      out.v.insert(out.v.end(), v.begin(), v.end());
    }
  }
  return out;
}

// ‖got − captured‖ / ‖captured‖ of K and V over the leading tokens.
std::string DifferenceText(const Capture& capture, const Capture& got) {
  kernels::AttentionSums k;
  kernels::AttentionSums v;
  const size_t elements = got.HeadElements();
  for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
    for (size_t head = 0; head < capture.kv_heads; ++head) {
      k += ValueDifference(capture.K(layer, head).first(elements), got.K(layer, head));
      v += ValueDifference(capture.V(layer, head).first(elements), got.V(layer, head));
    }
  }
  return absl::StrCat("relative difference from the capture: keys ", FixedPoint(k.Relative(), 5),
                      ", values ", FixedPoint(v.Relative(), 5), "\n");
}

// What the blocks that were got declare: the mean of their errors, and how many are judged by their
// own keys.
struct DeclaredError {
  double mean = 0;
  uint64_t proxies = 0;
};

DeclaredError DeclaredBy(const GetResult& got) {
  DeclaredError declared;
  size_t count = 0;
  for (size_t i = 0; i < got.blocks.size(); ++i) {
    if (got.blocks[i].ok()) {
      declared.mean += got.declared_error[i];
      declared.proxies += got.proxy_error[i] ? 1 : 0;
      ++count;
    }
  }
  declared.mean /= static_cast<double>(std::max<size_t>(count, 1));
  return declared;
}

std::string DeclaredText(const DeclaredError& declared) {
  return absl::StrCat(
      "declared attention error of a block, mean: ", FixedPoint(declared.mean, 5),
      declared.proxies == 0
          ? ""
          : absl::StrCat(", judged by its own keys (no profile) in ", declared.proxies, " of them"),
      "\n");
}

struct GetOutcome {
  KvReport report;
  DeclaredError declared;
  std::string difference;  // for people; empty when nothing was found
};

absl::StatusOr<GetOutcome> Get(const KvFlags& flags, const std::string& out_path) {
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(flags));
  TOKURA_ASSIGN_OR_RETURN(const Match match, LookUpAccepted(client.get(), flags, sequence));
  SequenceMemory memory = SequenceMemory::Blank(sequence.capture);
  GetResult result;
  if (match.blocks() > 0) {
    GetOptions options;
    options.accept = flags.accept();
    options.deadline = flags.timeout;
    result = client->Get(sequence.ns, match, memory.View(sequence.ns->spec()), options);
  }
  GetOutcome outcome;
  KvReport& report = outcome.report;
  report.blocks = sequence.chain.blocks();
  report.hit = result.prefix_ok();
  report.bytes_logical = result.bytes_logical;
  for (size_t i = 0; i < result.blocks.size(); ++i) {
    Count(result.blocks[i], &report.status);
    report.bytes_stored += result.blocks[i].ok() ? match.stored_bytes[i] : 0;
  }
  Count(absl::NotFoundError(""), &report.status, report.blocks - result.blocks.size());
  report.reasons = ReasonsOf(result.blocks);
  outcome.declared = DeclaredBy(result);
  if (report.hit == 0) {
    return out_path.empty() ? absl::StatusOr<GetOutcome>(outcome)
                            : absl::NotFoundError(
                                  absl::StrCat("no block was found: ", out_path, " not written"));
  }
  const auto tokens = static_cast<uint32_t>(report.hit * flags.block_tokens);
  const Capture got = LeadingCapture(sequence.capture, memory, tokens);
  outcome.difference = DifferenceText(sequence.capture, got);
  if (!out_path.empty()) {
    TOKURA_RETURN_IF_ERROR(WriteCapture(out_path, got));
  }
  return outcome;
}

absl::StatusOr<KvReport> Remove(const KvFlags& flags) {
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(flags));
  TOKURA_ASSIGN_OR_RETURN(const Match before, LookUpHeld(client.get(), flags, sequence));
  const auto keys = sequence.chain.keys();
  const RemoveResult result = client->Remove(sequence.ns, {keys.begin(), keys.end()});
  KvReport report;
  report.blocks = sequence.chain.blocks();
  report.hit = before.blocks();
  report.bytes_logical = before.blocks() * sequence.BlockBytes();
  report.bytes_stored = Sum(before.stored_bytes);
  for (const absl::Status& status : result.blocks) {
    Count(status, &report.status);
  }
  return report;
}

struct StatOutcome {
  KvReport report;
  std::string text;
  Json nodes = Json::array();
};

void AddNodes(Client* client, const KvFlags& flags, StatOutcome* outcome) {
  using Align = TextTable::Align;
  TextTable table({{"node"},
                   {"blocks", Align::kRight},
                   {"raw", Align::kRight},
                   {"stored", Align::kRight},
                   {"capacity", Align::kRight},
                   {"pinned", Align::kRight},
                   {"leases", Align::kRight}});
  size_t index = 0;
  for (const absl::StatusOr<NodeStat>& stat : client->Stat()) {
    const std::string asked = index < flags.nodes.size() ? flags.nodes[index] : "node";
    ++index;
    Count(stat.status(), &outcome->report.status);
    if (!stat.ok()) {
      table.AddRow({asked, std::string(stat.status().message())});
      continue;
    }
    outcome->report.blocks += stat->blocks;
    outcome->report.bytes_logical += stat->bytes_logical;
    outcome->report.bytes_stored += stat->bytes_stored;
    table.AddRow({stat->node, absl::StrCat(stat->blocks),
                  ReadableBytes(static_cast<double>(stat->bytes_logical)),
                  ReadableBytes(static_cast<double>(stat->bytes_stored)),
                  ReadableBytes(static_cast<double>(stat->capacity_bytes)),
                  ReadableBytes(static_cast<double>(stat->pinned_bytes)),
                  absl::StrCat(stat->leases)});
    outcome->nodes.push_back({{"node", stat->node},
                              {"incarnation", stat->incarnation},
                              {"blocks", stat->blocks},
                              {"forms", stat->forms},
                              {"bytes_logical", stat->bytes_logical},
                              {"bytes_stored", stat->bytes_stored},
                              {"capacity_bytes", stat->capacity_bytes},
                              {"largest_free_bytes", stat->largest_free_bytes},
                              {"pinned_bytes", stat->pinned_bytes},
                              {"leases", stat->leases}});
  }
  outcome->report.hit = outcome->report.blocks;
  absl::StrAppend(&outcome->text, table.ToString());
}

// Of a sequence: which of its leading blocks are held. Without --kv: what the nodes hold.
absl::StatusOr<StatOutcome> Stat(const KvFlags& flags) {
  StatOutcome outcome;
  if (flags.kv_path.empty()) {
    TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(flags));
    AddNodes(client.get(), flags, &outcome);
    return outcome;
  }
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(flags));
  TOKURA_ASSIGN_OR_RETURN(const Match match, LookUpAccepted(client.get(), flags, sequence));
  AddNodes(client.get(), flags, &outcome);
  KvReport report;
  report.blocks = sequence.chain.blocks();
  report.hit = match.blocks();
  report.bytes_logical = match.blocks() * sequence.BlockBytes();
  report.bytes_stored = Sum(match.stored_bytes);
  Count(absl::OkStatus(), &report.status, report.hit);
  Count(absl::NotFoundError(""), &report.status, report.blocks - report.hit);
  outcome.report = report;
  absl::StrAppend(&outcome.text, "\nThis sequence: ", report.hit, " of ", report.blocks,
                  " blocks held, ", ReadableBytes(static_cast<double>(report.bytes_logical)),
                  " raw in ", ReadableBytes(static_cast<double>(report.bytes_stored)), "\n");
  return outcome;
}

std::string Sizes(const KvReport& report) {
  return absl::StrCat(ReadableBytes(static_cast<double>(report.bytes_logical)), " raw in ",
                      ReadableBytes(static_cast<double>(report.bytes_stored)));
}

constexpr char kExampleFlags[] = " --coordinator 127.0.0.1:7420 --kv tests/data/kv/prefix.kvcap";

}  // namespace

int RunPut(const std::vector<std::string>& args) {
  KvFlags flags;
  OptionTable options("tokura put", "Store the complete blocks of a captured sequence.");
  flags.AddTo(&options, KvFlags::Kv::kRequired);
  AddProfileOptions(&options, &flags.profiles);
  options.AddExample(absl::StrCat("tokura put", kExampleFlags, " --block-tokens 16"),
                     "store 16 blocks in the default codec");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto report = Put(flags);
  if (!report.ok()) {
    return Fail("put", report.status());
  }
  const int exit_code =
      Finish("put", flags, *report,
             absl::StrCat("put ", report->blocks, " blocks: ", StatusText(report->status), "; ",
                          report->hit, " were held before; now ", Sizes(*report), "\n",
                          ReasonsText(*report)));
  const auto ok = report->status.find("OK");
  const bool stored = ok != report->status.end() && ok->second == report->blocks;
  return exit_code == kExitOk && !stored && report->blocks > 0 ? kExitFailed : exit_code;
}

int RunGet(const std::vector<std::string>& args) {
  KvFlags flags;
  std::string out_path;
  OptionTable options("tokura get",
                      "Fetch the longest prefix of a captured sequence's tokens that is held.");
  flags.AddTo(&options, KvFlags::Kv::kRequired);
  AddProfileOptions(&options, &flags.profiles);
  options.AddString("out", &out_path, "write what was got as a capture");
  options.AddExample(absl::StrCat("tokura get", kExampleFlags, " --out got.kvcap"),
                     "fetch, decode and write it");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto outcome = Get(flags, out_path);
  if (!outcome.ok()) {
    return Fail("get", outcome.status());
  }
  const KvReport& report = outcome->report;
  return Finish(
      "get", flags, report,
      absl::StrCat("got ", report.hit, " of ", report.blocks, " blocks (",
                   StatusText(report.status), "): ", Sizes(report), "\n", ReasonsText(report),
                   report.hit == 0 ? "" : DeclaredText(outcome->declared), outcome->difference),
      Json{{"declared_error",
            {{"mean", outcome->declared.mean}, {"proxy_blocks", outcome->declared.proxies}}}});
}

int RunStat(const std::vector<std::string>& args) {
  KvFlags flags;
  OptionTable options("tokura stat",
                      "Show what nodes hold, and with --kv how much of a captured sequence.");
  flags.AddTo(&options, KvFlags::Kv::kOptional);
  options.AddExample("tokura stat --node 127.0.0.1:4321", "what the node holds");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto outcome = Stat(flags);
  if (!outcome.ok()) {
    return Fail("stat", outcome.status());
  }
  return Finish("stat", flags, outcome->report, outcome->text, Json{{"nodes", outcome->nodes}});
}

int RunRemove(const std::vector<std::string>& args) {
  KvFlags flags;
  OptionTable options("tokura rm", "Remove the blocks of a captured sequence.");
  flags.AddTo(&options, KvFlags::Kv::kRequired);
  options.AddExample(absl::StrCat("tokura rm", kExampleFlags, " --block-tokens 16"),
                     "remove its 16 blocks");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto report = Remove(flags);
  if (!report.ok()) {
    return Fail("rm", report.status());
  }
  return Finish("rm", flags, *report,
                absl::StrCat("removed ", report->hit, " of ", report->blocks, " blocks (",
                             StatusText(report->status), "): ", Sizes(*report), "\n"));
}

}  // namespace tokura::cli
