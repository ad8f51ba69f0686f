#include "cli/kv_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/sequence_memory.h"
#include "common/net/address_option.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

namespace tokura::cli {

void AddServerFlags(OptionTable* options, std::vector<std::string>* nodes,
                    std::vector<std::string>* coordinators) {
  options->SetDefaultLogLevel("warn");  // Connecting is no news to whoever runs one command.
  options->AddStrings("coordinator", coordinators, "coordinators, host:port, comma-separated");
  options->AddStrings("node", nodes,
                      "cache nodes, host:port, comma-separated, where there is no coordinator");
  options->AddCheck([nodes, coordinators]() -> absl::Status {
    for (const std::string& node : *nodes) {
      TOKURA_RETURN_IF_ERROR(net::ParseAddressOption("node", node).status());
    }
    for (const std::string& coordinator : *coordinators) {
      TOKURA_RETURN_IF_ERROR(net::ParseAddressOption("coordinator", coordinator).status());
    }
    if (nodes->empty() && coordinators->empty()) {
      return absl::InvalidArgumentError(
          "name a coordinator with --coordinator HOST:PORT, or a cache node with --node HOST:PORT "
          "(`tokura up` starts both and prints their addresses)");
    }
    if (!nodes->empty() && !coordinators->empty()) {
      return absl::InvalidArgumentError(
          "--coordinator and --node: give one of them; a coordinator knows the nodes");
    }
    return absl::OkStatus();
  });
}

void KvFlags::AddTo(OptionTable* options, Kv kv) {
  AddServerFlags(options, &nodes, &coordinators);
  options->AddString("kv", &kv_path, "capture (.kvcap) whose tokens name the blocks");
  options->AddString("prefix", &prefix_path, "capture that comes before it, for request files");
  options->AddString("tenant", &tenant, "tenant; others' blocks are never seen");
  options->AddString("model", &model, "model name in the namespace; empty: the capture's");
  options->AddString("codec", &codec, "codec to store in and to accept (tokura codec list)");
  options->AddString("max-error", &max_error_text,
                     "largest declared attention error to accept; 0: exact only; unset: whatever "
                     "--codec gives");
  options->AddBool("accept-proxy-error", &accept_proxy_error,
                   "let an error that a block's own keys declare count for --max-error");
  options->AddInt("block-tokens", &block_tokens, "tokens per block");
  options->AddDuration("timeout", &timeout,
                       "longest wait for a connection, and for each operation");
  options->AddString("json", &json_path, "write the result to this file; - for stdout alone");
  options->AddCheck([this, kv]() -> absl::Status {
    double parsed = 0;
    if (kv == Kv::kRequired && kv_path.empty()) {
      return absl::InvalidArgumentError("give a capture with --kv FILE (tests/data/kv has some)");
    }
    if (block_tokens < 1 || block_tokens > 1024) {
      return absl::InvalidArgumentError("--block-tokens must be 1 to 1024");
    }
    if (timeout <= Duration::zero()) {
      return absl::InvalidArgumentError("--timeout must be positive");
    }
    if (!max_error_text.empty() && (!absl::SimpleAtod(max_error_text, &parsed) || !(parsed >= 0))) {
      return absl::InvalidArgumentError(
          absl::StrCat("--max-error must be a number of at least 0, not '", max_error_text, "'"));
    }
    return kernels::FindCodec(codec).status();
  });
}

AcceptOptions KvFlags::accept() const {
  AcceptOptions accept;
  double parsed = 0;
  if (absl::SimpleAtod(max_error_text, &parsed)) {
    accept.max_error = parsed;
  }
  return accept;
}

uint64_t KvSequence::BlockBytes() const {
  const NamespaceSpec& spec = ns->spec();
  uint64_t elements = 0;
  for (const LayerGroup& group : spec.groups) {
    elements += uint64_t{group.layers.size()} * group.kv_heads * spec.block_tokens *
                (group.k_head_dim + group.v_head_dim);
  }
  return elements * DTypeBytes(spec.dtype);
}

absl::StatusOr<KvSequence> OpenSequence(const KvFlags& flags) {
  TOKURA_ASSIGN_OR_RETURN(Capture capture, ReadSequence(flags.kv_path, flags.prefix_path));
  const auto block_tokens = static_cast<uint32_t>(flags.block_tokens);
  TOKURA_ASSIGN_OR_RETURN(
      NamespaceSpec spec,
      CaptureNamespace(
          capture, {.tenant = flags.tenant, .model = flags.model, .block_tokens = block_tokens}));
  auto ns = std::make_shared<const Namespace>(std::move(spec));
  TokenChain chain = CaptureChain(capture, ns->fingerprint(), block_tokens);
  return KvSequence{std::move(capture), std::move(ns), std::move(chain)};
}

absl::StatusOr<std::unique_ptr<Client>> Connect(const KvFlags& flags) {
  ClientOptions options;
  options.nodes = flags.nodes;
  options.coordinators = flags.coordinators;
  options.name = "tokura-cli";
  options.ingest_codec = flags.codec;
  options.accept_proxy_error = flags.accept_proxy_error;
  options.profiles = flags.profiles;
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Create(std::move(options)));
  const absl::Status ready = client->WaitReady(flags.timeout);
  if (!ready.ok()) {
    return absl::Status(
        ready.code(),
        absl::StrCat(ready.message(), "; is a server running there? `tokura up` starts one"));
  }
  return client;
}

void Count(const absl::Status& status, StatusCounts* counts, uint64_t blocks) {
  if (blocks > 0) {
    (*counts)[absl::StatusCodeToString(status.code())] += blocks;
  }
}

std::vector<std::string> ReasonsOf(const std::vector<absl::Status>& blocks) {
  std::vector<std::string> reasons;
  for (const absl::Status& block : blocks) {
    std::string reason(block.message());
    if (!block.ok() && !reason.empty() && reasons.size() < kReasonsMax &&
        std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
      reasons.push_back(std::move(reason));
    }
  }
  return reasons;
}

Json ToJson(const KvReport& report) {
  Json status = Json::object();
  for (const auto& [name, count] : report.status) {
    status[name] = count;
  }
  return Json{{"blocks", report.blocks},
              {"hit", report.hit},
              {"bytes_logical", report.bytes_logical},
              {"bytes_stored", report.bytes_stored},
              {"status", status},
              {"reasons", report.reasons}};
}

}  // namespace tokura::cli
