#pragma once

// Value types of the client library's interface.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/profile_paths.h"
#include "common/time.h"
#include "kernels/kv_view.h"
#include "kernels/part.h"
#include "proto/block_key.h"
#include "proto/namespace.h"

namespace tokura {

struct ClientOptions {
  // "host:port" of coordinators: they say which nodes there are and what they hold. Lookups and
  // puts turn to another one when the first is silent, within their deadline.
  std::vector<std::string> coordinators;
  // "host:port" of cache nodes, where there is no coordinator: they are asked themselves. One of
  // the two lists is empty.
  std::vector<std::string> nodes;
  std::string name = "client";               // for the nodes' logs
  uint64_t ring_bytes = uint64_t{64} << 20;  // registered memory for payloads in both directions
  // What the payloads of one node, in each direction, may take of the ring at a time (two parts are
  // always allowed): enough to keep the wire busy, which is bandwidth times round trip, and little
  // enough to stay in the processor's caches.
  uint64_t window_bytes = uint64_t{1} << 20;
  uint64_t part_bytes_max = uint64_t{16} << 20;  // larger parts are refused
  uint32_t codec_threads = 1;
  uint32_t operations_max = 1024;  // outstanding; more are RESOURCE_EXHAUSTED
  uint64_t inline_decode_bytes = uint64_t{64}
                                 << 10;  // gets up to this raw size are decoded on the progress
                                         // thread, which is sooner than handing them over
  Duration progress_timeout =
      std::chrono::milliseconds(200);  // an operation without progress for so long ends
  Duration connect_timeout = std::chrono::milliseconds(1000);
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration dead_after = std::chrono::milliseconds(1000);
  Duration breaker_backoff_min = std::chrono::milliseconds(100);
  Duration breaker_backoff_max = std::chrono::milliseconds(2000);
  std::string ingest_codec = "kivi4";  // where no policy of a coordinator says otherwise
  // Model profiles, read when the client is made; one that cannot be used is an error then. Blocks
  // are put with the first that fits their namespace: the model's name and every layer group are
  // the same. It gives codecs what they need, and the queries that errors are measured with.
  // Without one that fits, errors are judged by the block's own keys, and codecs that need one are
  // refused. Blocks that need one to be decoded are got with the very one, whichever it is; where
  // that is not among these they are misses.
  ProfilePaths profiles;
  // Let forms judged by their own keys meet a stated max_error; where there is a policy, it has to
  // allow that too.
  bool accept_proxy_error = false;
  uint32_t sink_tokens = 4;
  enum class Wake { kSleep, kSpin } wake = Wake::kSleep;  // how the progress thread waits
  Duration spin = std::chrono::microseconds(50);          // before sleeping
};

// A namespace as the client uses it: the spec, its fingerprint, and how many heads a shard has.
// Immutable, shared by the caller and by operations under way.
class Namespace {
 public:
  explicit Namespace(NamespaceSpec spec)
      : spec_(std::move(spec)), fingerprint_(ComputeFingerprint(spec_)) {}
  const NamespaceSpec& spec() const { return spec_; }
  const Fingerprint& fingerprint() const { return fingerprint_; }
  uint32_t group_mask() const { return (1u << spec_.groups.size()) - 1; }
  // Shape of the part (group, any shard) of a whole block.
  kernels::PartShape Shape(size_t group) const;

 private:
  NamespaceSpec spec_;
  Fingerprint fingerprint_;
};
using NamespaceRef = std::shared_ptr<const Namespace>;

// The engine's memory of one sequence: a view per layer group (empty `layers`: this group is not
// read or written), for the head shards [first_shard, first_shard + shards) that this worker holds.
// The views' heads are those of the shards. Token t of a view is token `first_token + t` of the
// sequence. Borrowed until the operation releases it.
struct SequenceView {
  std::vector<kernels::KvView> groups;
  uint32_t first_shard = 0;
  uint32_t shards = 1;
  uint64_t first_token = 0;  // multiple of block_tokens
};

struct AcceptOptions {
  std::optional<double> max_error;  // unset: the policy's budget, else any; 0: exact only
  bool allow_summary = false;
};

// What one lookup or acquire found for a chain: its leading blocks, which may lie on several nodes.
// A value; safe to keep, to copy, and to carry to another process of the same tenant as bytes.
struct Match {
  // One life of one node, and the lease there.
  struct Holder {
    std::string node;  // name
    uint64_t incarnation = 0;
    LeaseToken lease;  // empty: a hint only
  };
  // Blocks [first, first + count) of the match lie at holders[holder].
  struct Run {
    uint32_t holder = 0;
    uint32_t first = 0;
    uint32_t count = 0;
  };

  Fingerprint fingerprint;
  uint32_t block_tokens = 0;
  std::vector<Holder> holders;
  std::vector<Run> runs;        // in order, covering every block exactly once
  std::vector<Run> alternates;  // where some blocks lie as well, unleased; in order of `first`
  std::vector<BlockKey> keys;   // leading blocks held, in chain order
  std::vector<ContentId> content_ids;  // one per key; empty ids: not known before an acquire
  std::vector<uint64_t> stored_bytes;  // one per key; of a hint: an estimate
  std::vector<std::string> codecs;     // one per key
  size_t blocks() const { return keys.size(); }
  size_t tokens() const { return keys.size() * block_tokens; }
  // The holder of a block; null when `block` is out of range.
  const Holder* HolderOf(size_t block) const;
  // Whether some of it is leased.
  bool held() const;

  // Bytes for another process (versioned, checked by a CRC; FORMAT in match_bytes.h). Parse:
  // INVALID_ARGUMENT says what is wrong; any bytes are safe to give.
  std::string Serialize() const;
  static absl::StatusOr<Match> Parse(std::string_view bytes);
};

struct LookupOptions {
  AcceptOptions accept;
  bool touch = true;                 // keep the chain warm; takes no lease
  std::optional<Duration> deadline;  // default: progress_timeout
};

struct GetOptions {
  AcceptOptions accept;
  uint32_t first_block = 0;  // of the match: get blocks [first_block, first_block + blocks)
  uint32_t blocks = 0;       // 0: all to the end
  // Range of layers within every group; layers 0: all to the end. Gets of several ranges of one
  // block have its layers from one content only when the match is held (Acquire): of a hint, each
  // may find another writer's.
  uint32_t first_layer = 0;
  uint32_t layers = 0;
  std::optional<Duration> deadline;  // total; default: progress_timeout without progress, plus
                                     // twice the predicted transfer
  // Called on the client's threads when one layer of one group is complete for every block that
  // succeeded so far.
  std::function<void(size_t group, uint32_t layer)> on_layer;
};

// Where the time of a get or put went. The two overlap, so they do not add up to its duration.
struct OperationTimings {
  // From the first request (get) or payload (put) to the last payload or answer; of a put to
  // several nodes, the longest of theirs.
  Duration wire{};
  Duration codec{};  // verify and decode, or encode: the codec threads' time, added up
};

// Result of one Get. A block is OK only when all its asked-for parts were verified and decoded from
// one content id. The contents of the view are defined for OK blocks only, and never change after
// the result was delivered.
struct GetResult {
  std::vector<absl::Status>
      blocks;  // OK, NOT_FOUND, DATA_LOSS, DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED, …
  std::vector<std::string> codecs;     // of OK blocks
  std::vector<double> declared_error;  // mean over layers, of OK blocks; 0 = exact, +infinity =
                                       // lossy and never measured
  std::vector<bool> proxy_error;
  uint64_t bytes_moved = 0;    // payload over the wire
  uint64_t bytes_logical = 0;  // raw size of OK blocks
  OperationTimings timings;
  size_t prefix_ok() const;  // leading OK blocks
};

struct PutOptions {
  // Default: the policy's, else ingest_codec, also where the policy's is unknown here or needs a
  // model profile and none fits.
  std::optional<std::string> codec;
  uint32_t first_block = 0;  // of the chain
  uint32_t blocks = 0;       // 0: all complete blocks that the view covers
  // Total; default: progress_timeout plus twice the predicted encoding and transfer. A put ends
  // earlier when its node makes no progress for progress_timeout while it has everything it needs,
  // since another node's copy would have to be encoded from the start; put again when time is left.
  // Duration::max() is no limit, here and everywhere.
  std::optional<Duration> deadline;
  // Writers of one sharded block share this, so that their parts join; unset: made anew (single
  // writer).
  std::optional<ContentId> content_id_base;
};

struct PutResult {
  // OK: stored (or held already); CANCELLED: never visible; RESOURCE_EXHAUSTED: the node has no
  // room; FAILED_PRECONDITION: the codec needs a model profile, and none here fits; UNKNOWN or
  // DEADLINE_EXCEEDED: all of the block was offered and the node's answer did not come, so it may
  // be stored, and then with the right bytes.
  std::vector<absl::Status> blocks;
  uint64_t bytes_moved = 0;
  uint64_t bytes_logical = 0;
  OperationTimings timings;
  size_t stored() const;
};

struct RemoveResult {
  std::vector<absl::Status> blocks;  // OK, NOT_FOUND, UNAVAILABLE
};

struct NodeStat {
  std::string node;
  uint64_t incarnation = 0, blocks = 0, forms = 0, bytes_stored = 0, bytes_logical = 0;
  uint64_t capacity_bytes = 0, largest_free_bytes = 0, pinned_bytes = 0, leases = 0;
};

}  // namespace tokura
