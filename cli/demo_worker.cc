#include "cli/demo_worker.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/judge.h"
#include "cli/kv_session.h"
#include "cli/sequence_memory.h"
#include "common/config.h"
#include "common/status_macros.h"
#include "common/time.h"
#include "tokura/client.h"

namespace tokura::cli {
namespace {

// Progress timeouts are generous: the demo shows sharing, also on a slow machine with few cores.
constexpr Duration kProgressTimeout = std::chrono::seconds(1);

// The engine's side of one request: its KV memory, and the cache in front of computing it.
class Worker {
 public:
  Worker(const KvFlags& flags, const KvSequence& sequence, Client* client)
      : flags_(flags),
        sequence_(sequence),
        client_(client),
        memory_(SequenceMemory::Blank(sequence.capture)),
        view_(memory_.View(sequence.ns->spec())) {}

  absl::StatusOr<DemoRequest> Run(std::string name) {
    DemoRequest request;
    request.name = std::move(name);
    request.tokens = sequence_.capture.tokens;
    request.bytes_private = sequence_.chain.blocks() * sequence_.BlockBytes();
    const TimePoint start = SystemClock().Now();
    TOKURA_ASSIGN_OR_RETURN(const uint32_t hit_blocks, Fetch(&request));
    // An engine would now compute the tokens that the cache did not have; the capture is the
    // result.
    memory_.CopyTokensFrom(sequence_.capture,
                           hit_blocks * static_cast<uint32_t>(flags_.block_tokens));
    Store(hit_blocks, &request);
    request.seconds = std::chrono::duration<double>(SystemClock().Now() - start).count();
    TOKURA_RETURN_IF_ERROR(MeasureStored(hit_blocks, &request));
    MeasureAttention(&request);
    return request;
  }

 private:
  // Get the longest prefix that is held; the number of its blocks.
  absl::StatusOr<uint32_t> Fetch(DemoRequest* request) {
    TOKURA_ASSIGN_OR_RETURN(const Match match,
                            client_->Lookup(sequence_.ns, sequence_.chain, LookupOptions{}));
    if (match.blocks() == 0) {
      return 0;
    }
    const GetResult got = client_->Get(sequence_.ns, match, view_, GetOptions{});
    request->bytes_moved += got.bytes_moved;
    const auto hit_blocks = static_cast<uint32_t>(got.prefix_ok());
    request->tokens_hit = uint64_t{hit_blocks} * static_cast<uint64_t>(flags_.block_tokens);
    request->hit_node = hit_blocks > 0 ? match.HolderOf(0)->node : "";
    return hit_blocks;
  }

  // Put the blocks that this worker computed. That they cannot be stored is no error of the
  // request.
  void Store(uint32_t first_block, DemoRequest* request) {
    if (first_block >= sequence_.chain.blocks()) {
      return;
    }
    PutOptions options;
    options.first_block = first_block;
    request->bytes_moved += client_->Put(sequence_.ns, sequence_.chain, view_, options).bytes_moved;
  }

  // Ask the node what the blocks of this worker take.
  absl::Status MeasureStored(uint32_t first_block, DemoRequest* request) {
    LookupOptions options;
    options.touch = false;
    TOKURA_ASSIGN_OR_RETURN(const Match held,
                            client_->Lookup(sequence_.ns, sequence_.chain, options));
    for (size_t i = first_block; i < held.blocks(); ++i) {
      request->bytes_logical += sequence_.BlockBytes();
      request->bytes_stored += held.stored_bytes[i];
    }
    return absl::OkStatus();
  }

  void MeasureAttention(DemoRequest* request) const {
    if (sequence_.capture.queries == 0) {
      return;
    }
    const std::vector<double> errors = AttentionErrors(sequence_.capture, memory_);
    request->has_queries = true;
    request->attention_error =
        std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  }

  const KvFlags& flags_;
  const KvSequence& sequence_;
  Client* const client_;
  SequenceMemory memory_;
  const SequenceView view_;
};

absl::StatusOr<DemoRequest> Work(const KvFlags& flags, const std::string& name) {
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  ClientOptions options;
  options.nodes = flags.nodes;
  options.name = name;
  options.ingest_codec = flags.codec;
  options.progress_timeout = kProgressTimeout;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(std::move(options)));
  // Workers connect when they start, long before their first request. Without a node there is
  // nothing to wait for longer: they work without the cache.
  client->WaitReady(flags.timeout).IgnoreError();
  return Worker(flags, sequence, client.get()).Run(name);
}

}  // namespace

Json ToJson(const DemoRequest& request) {
  Json hits = Json::object();
  if (!request.hit_node.empty()) {
    hits[request.hit_node] = request.tokens_hit;
  }
  Json json{{"name", request.name},
            {"tokens", request.tokens},
            {"tokens_hit", request.tokens_hit},
            {"hits_by_node", hits},
            {"bytes_logical", request.bytes_logical},
            {"bytes_stored", request.bytes_stored},
            {"bytes_moved", request.bytes_moved},
            {"seconds", request.seconds},
            {"attention_error", nullptr}};
  if (request.has_queries) {
    json["attention_error"] = request.attention_error;
  }
  return json;
}

std::string ToLine(const DemoRequest& request) {
  Json json = ToJson(request);
  json["hit_node"] = request.hit_node;
  json["bytes_private"] = request.bytes_private;
  json["has_queries"] = request.has_queries;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<DemoRequest> ParseDemoRequest(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  DemoRequest request;
  // Every field with its type: get() on another type would throw.
  const auto text = [&](const char* key, std::string* out) {
    const bool present = json.contains(key) && json[key].is_string();
    *out = present ? json[key].get<std::string>() : "";
    return present;
  };
  const auto count = [&](const char* key, uint64_t* out) {
    const bool present = json.contains(key) && json[key].is_number_unsigned();
    *out = present ? json[key].get<uint64_t>() : 0;
    return present;
  };
  const bool whole =
      json.is_object() && text("name", &request.name) && text("hit_node", &request.hit_node) &&
      count("tokens", &request.tokens) && count("tokens_hit", &request.tokens_hit) &&
      count("bytes_logical", &request.bytes_logical) &&
      count("bytes_stored", &request.bytes_stored) && count("bytes_moved", &request.bytes_moved) &&
      count("bytes_private", &request.bytes_private) && json.contains("seconds") &&
      json["seconds"].is_number() && json.contains("has_queries") &&
      json["has_queries"].is_boolean();
  if (!whole) {
    return absl::InternalError(absl::StrCat("a worker reported '", line, "'"));
  }
  request.seconds = json["seconds"].get<double>();
  request.has_queries = json["has_queries"].get<bool>();
  const bool number = json.contains("attention_error") && json["attention_error"].is_number();
  request.attention_error = number ? json["attention_error"].get<double>() : std::nan("");
  return request;
}

int RunDemoWorker(const std::vector<std::string>& args) {
  KvFlags flags;
  std::string name = "worker";
  OptionTable options("tokura demo-worker", "Serve one request of `tokura demo`.");
  options.SetDefaultLogLevel("warn");
  options.AddStrings("node", &flags.nodes, "cache nodes, host:port");
  options.AddString("kv", &flags.kv_path, "capture with the request's tokens");
  options.AddString("prefix", &flags.prefix_path, "capture that comes before it");
  options.AddString("codec", &flags.codec, "codec to store in");
  options.AddInt("block-tokens", &flags.block_tokens, "tokens per block");
  options.AddDuration("timeout", &flags.timeout, "longest wait for a connection");
  options.AddString("name", &name, "of the request");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto request = Work(flags, name);
  if (!request.ok()) {
    return Fail("demo-worker", request.status());
  }
  Output("").Print(ToLine(*request) + "\n");
  return kExitOk;
}

}  // namespace tokura::cli
