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
constexpr Duration kAnnounceTimeout = std::chrono::seconds(2);

// The engine's side of one request: its KV memory, and the cache in front of computing it.
class Worker {
 public:
  // Whether a worker stores what it computed.
  enum class Store { kNo, kYes };

  Worker(const KvFlags& flags, const KvSequence& sequence, Client* client, Store store)
      : flags_(flags),
        store_(store),
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
    if (store_ == Store::kYes) {
      StoreFrom(hit_blocks, &request);
    }
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
    for (uint32_t i = 0; i < hit_blocks; ++i) {
      request->hits_by_node[match.HolderOf(i)->node] += static_cast<uint64_t>(flags_.block_tokens);
    }
    return hit_blocks;
  }

  // Put the blocks that this worker computed. That they cannot be stored is no error of the
  // request.
  void StoreFrom(uint32_t first_block, DemoRequest* request) {
    if (first_block >= sequence_.chain.blocks()) {
      return;
    }
    PutOptions options;
    options.first_block = first_block;
    const PutResult put = client_->Put(sequence_.ns, sequence_.chain, view_, options);
    request->bytes_moved += put.bytes_moved;
    stored_blocks_ = put.stored();
  }

  // Ask what the blocks of this worker take. The coordinator hears of new blocks a moment after
  // they are stored.
  absl::Status MeasureStored(uint32_t first_block, DemoRequest* request) {
    const size_t expected = stored_blocks_ > 0 ? sequence_.chain.blocks() : 0;
    const TimePoint deadline = SystemClock().Now() + kAnnounceTimeout;
    LookupOptions options;
    options.touch = false;
    Match held;
    do {
      TOKURA_ASSIGN_OR_RETURN(held, client_->Lookup(sequence_.ns, sequence_.chain, options));
    } while (held.blocks() < expected && SystemClock().Now() < deadline);
    if (stored_blocks_ == 0) {
      first_block = static_cast<uint32_t>(held.blocks());
    }
    request->first_node = held.blocks() > 0 ? held.HolderOf(0)->node : "";
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
  const Store store_;
  const KvSequence& sequence_;
  Client* const client_;
  SequenceMemory memory_;
  const SequenceView view_;
  size_t stored_blocks_ = 0;
};

absl::StatusOr<DemoRequest> Work(const KvFlags& flags, const std::string& name,
                                 Worker::Store store) {
  TOKURA_ASSIGN_OR_RETURN(const KvSequence sequence, OpenSequence(flags));
  ClientOptions options;
  options.coordinators = flags.coordinators;
  options.name = name;
  options.ingest_codec = flags.codec;
  options.profiles = flags.profiles;
  options.progress_timeout = kProgressTimeout;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(std::move(options)));
  // Workers connect when they start, long before their first request. Without a cache there is
  // nothing to wait for longer: they work without the cache.
  client->WaitReady(flags.timeout).IgnoreError();
  return Worker(flags, sequence, client.get(), store).Run(name);
}

}  // namespace

Json ToJson(const DemoRequest& request) {
  Json hits = Json::object();
  for (const auto& [node, tokens] : request.hits_by_node) {
    hits[node] = tokens;
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
  json["first_node"] = request.first_node;
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
  const auto hits = [&] {
    const bool present = json.contains("hits_by_node") && json["hits_by_node"].is_object();
    const Json by_node = present ? json["hits_by_node"] : Json::object();
    for (const auto& [node, tokens] : by_node.items()) {
      if (!tokens.is_number_unsigned()) {
        return false;
      }
      request.hits_by_node[node] = tokens.get<uint64_t>();
    }
    return present;
  };
  const bool whole =
      json.is_object() && text("name", &request.name) && text("first_node", &request.first_node) &&
      hits() && count("tokens", &request.tokens) && count("tokens_hit", &request.tokens_hit) &&
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
  bool store = true;
  OptionTable options("tokura demo-worker", "Serve one request of `tokura demo`.");
  options.SetDefaultLogLevel("warn");
  options.AddStrings("coordinator", &flags.coordinators, "coordinators, host:port");
  options.AddString("kv", &flags.kv_path, "capture with the request's tokens");
  options.AddString("prefix", &flags.prefix_path, "capture that comes before it");
  options.AddString("codec", &flags.codec, "codec to store in");
  options.AddInt("block-tokens", &flags.block_tokens, "tokens per block");
  AddProfileOptions(&options, &flags.profiles);
  options.AddDuration("timeout", &flags.timeout, "longest wait for a connection");
  options.AddString("name", &name, "of the request");
  options.AddBool("store", &store, "put the blocks that were not in the cache");
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const auto request = Work(flags, name, store ? Worker::Store::kYes : Worker::Store::kNo);
  if (!request.ok()) {
    return Fail("demo-worker", request.status());
  }
  Output("").Print(ToLine(*request) + "\n");
  return kExitOk;
}

}  // namespace tokura::cli
