#include "cli/bench_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "cli/bench_transport_rows.h"
#include "cli/block_pages.h"
#include "cli/child_process.h"
#include "cli/statistics.h"
#include "common/cpu_time.h"
#include "common/crc32c.h"
#include "common/log.h"
#include "common/loop_pool.h"
#include "common/net/ucx_raw_peer.h"
#include "common/net/ucx_transport.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "prometheus/registry.h"
#include "tokura/client_core.h"

namespace tokura::cli {
namespace {

using net::UcxRawPeer;
using Wake = net::UcxTransport::Options::Wake;

constexpr uint32_t kBlockTokens = 16;
constexpr size_t kLayerBytes = size_t{64} << 10;
constexpr size_t kBlockBytesMax = size_t{4} << 20;
constexpr uint32_t kBatchMax = 64;
constexpr size_t kTransferBytesMax = kBlockBytesMax * kBatchMax;
// Room for three of the largest batches: puts always bring new blocks, and old ones are evicted.
constexpr uint64_t kNodeBytes = uint64_t{4} * kTransferBytesMax;
constexpr Duration kDeadline = std::chrono::seconds(30);
constexpr Duration kStartTimeout = std::chrono::seconds(20);
// For all rows, what starting the processes takes included.
constexpr Duration kTimeMax = std::chrono::seconds(210);
constexpr uint32_t kPairsMin = 15;
constexpr uint32_t kPairsMax = 200;
constexpr uint32_t kEchoes = 200;  // per sample

// A block of `bytes` raw bytes: one full-attention group whose layers have 64 KiB each.
PagesShape ShapeOf(size_t bytes) {
  return {.layers = static_cast<uint32_t>(bytes / kLayerBytes),
          .heads = 8,
          .head_dim = 128,
          .block_tokens = kBlockTokens};
}

// CPU time of a process that is certainly there: this one (0), or a peer that answers.
Duration CpuTime(pid_t process) {
  return ProcessCpuTime(process).value_or(Duration::zero());
}

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The other process.
class Peer {
 public:
  static absl::StatusOr<Peer> Start(const BenchOptions& options, const char* role, Wake wake,
                                    uint64_t bytes) {
    std::vector<std::string> command = options.self;
    command.insert(command.end(), {"bench-transport-peer", role,
                                   wake == Wake::kSpin ? "spin" : "sleep", absl::StrCat(bytes)});
    Peer peer;
    TOKURA_ASSIGN_OR_RETURN(peer.process_,
                            ChildProcess::Start({.command = command, .error_path = ""}));
    TOKURA_ASSIGN_OR_RETURN(const std::string line, peer.process_->ReadLine(kStartTimeout));
    TOKURA_ASSIGN_OR_RETURN(peer.address_, net::Address::Parse(line));
    return peer;
  }
  const net::Address& address() const { return address_; }
  Duration cpu() const { return CpuTime(process_->pid()); }
  // So that it takes no processor time from another one that is measured; for milliseconds only,
  // because a node's silence is noticed.
  void Pause() const { process_->Signal(SIGSTOP); }
  void Continue() const { process_->Signal(SIGCONT); }

 private:
  std::unique_ptr<ChildProcess> process_;
  net::Address address_;
};

// Run `operation` `times` times: the median time of one, and the processor time of all.
absl::StatusOr<TransferCost> Measure(const Peer& peer, uint32_t times, uint64_t bytes,
                                     const std::function<absl::Status()>& operation) {
  TransferCost sample;
  const Duration self_before = CpuTime(0);
  const Duration peer_before = peer.cpu();
  std::vector<double> seconds;
  for (uint32_t i = 0; i < times; ++i) {
    const TimePoint start = SystemClock().Now();
    TOKURA_RETURN_IF_ERROR(operation());
    seconds.push_back(Seconds(SystemClock().Now() - start));
  }
  sample.time = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(Quantile(std::move(seconds), 0.5)));
  sample.bytes = bytes;
  sample.cpu_self = (CpuTime(0) - self_before) / times;
  sample.cpu_peer = (peer.cpu() - peer_before) / times;
  return sample;
}

// The client core, driven by the calling thread, and the node it talks to.
class TokuraSide {
 public:
  static absl::StatusOr<std::unique_ptr<TokuraSide>> Start(const BenchOptions& options,
                                                           net::UcxContext& context, Wake wake,
                                                           uint64_t node_bytes) {
    std::unique_ptr<TokuraSide> side(new TokuraSide);
    TOKURA_ASSIGN_OR_RETURN(side->peer_, Peer::Start(options, "node", wake, node_bytes));
    net::UcxTransport::Options transport;
    transport.wake = wake;
    TOKURA_ASSIGN_OR_RETURN(side->transport_, net::UcxTransport::Create(context, transport));
    side->transport_->Poll(Duration::zero());  // this thread is the transport's from here on
    side->pool_ =
        MakeLoopPool({&side->transport_->executor()}, MakeThreadPool(1, "codec"), ProcessorsFor(1));
    ClientOptions client;
    client.nodes = {side->peer_.address().ToString()};
    client.ring_bytes = uint64_t{128} << 20;
    client.ingest_codec = "raw";
    // Nobody polls this side while the other one is measured.
    client.dead_after = kDeadline;
    TOKURA_ASSIGN_OR_RETURN(
        side->core_, ClientCore::Create({.transport = *side->transport_,
                                         .pool = *side->pool_,
                                         .random = SystemRandom(),
                                         .metrics = std::make_shared<prometheus::Registry>()},
                                        client));
    TOKURA_RETURN_IF_ERROR(side->WaitReady());
    return side;
  }
  ~TokuraSide() {
    if (core_ != nullptr) {
      bool down = false;
      core_->Shutdown([&down] { down = true; });
      PollUntil(down);
    }
  }

  const Peer& peer() const { return peer_; }
  bool connected() const { return core_->ready(); }

  absl::StatusOr<Match> Lookup(const NamespaceRef& ns, const TokenChain& chain) {
    bool done = false;
    absl::StatusOr<Match> match = absl::UnknownError("");
    LookupOptions options;
    options.deadline = kDeadline;
    core_->Lookup(ns, chain, options, [&](absl::StatusOr<Match> found) {
      match = std::move(found);
      done = true;
    });
    PollUntil(done);
    return match;
  }
  absl::Status Get(const NamespaceRef& ns, const Match& match, const SequenceView& view) {
    bool done = false;
    GetResult result;
    GetOptions options;
    options.deadline = kDeadline;
    core_->Get(ns, match, view, options, [&](GetResult got) {
      result = std::move(got);
      done = true;
    });
    PollUntil(done);
    return FirstError(result.blocks);
  }
  absl::Status Put(const NamespaceRef& ns, const TokenChain& chain, const SequenceView& view) {
    bool done = false;
    PutResult result;
    PutOptions options;
    options.deadline = kDeadline;
    core_->Put(
        ns, chain, view, options, [] {},
        [&](PutResult put) {
          result = std::move(put);
          done = true;
        });
    PollUntil(done);
    return FirstError(result.blocks);
  }

 private:
  TokuraSide() = default;
  void PollUntil(const bool& done) {
    while (!done) {
      transport_->Poll(std::chrono::seconds(1));
    }
  }
  absl::Status WaitReady() {
    bool done = false;
    absl::Status ready;
    core_->WhenReady(transport_->executor().Now() + kStartTimeout, [&](absl::Status status) {
      ready = std::move(status);
      done = true;
    });
    PollUntil(done);
    return ready;
  }
  static absl::Status FirstError(const std::vector<absl::Status>& blocks) {
    for (const absl::Status& status : blocks) {
      TOKURA_RETURN_IF_ERROR(status);
    }
    return absl::OkStatus();
  }

  Peer peer_;
  std::unique_ptr<net::UcxTransport> transport_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<ClientCore> core_;
};

// Raw UCX and the process at its other end.
class RawSide {
 public:
  // `bytes` are the largest transfer's; the other process has `server_bytes`, as many or more.
  static absl::StatusOr<std::unique_ptr<RawSide>> Start(const BenchOptions& options,
                                                        net::UcxContext& context, Wake wake,
                                                        uint64_t bytes, uint64_t server_bytes) {
    std::unique_ptr<RawSide> side(new RawSide);
    TOKURA_ASSIGN_OR_RETURN(side->process_, Peer::Start(options, "raw", wake, server_bytes));
    UcxRawPeer::Options raw;
    raw.wake = wake;
    raw.memory_bytes = bytes;
    TOKURA_ASSIGN_OR_RETURN(side->peer_,
                            UcxRawPeer::Connect(context, raw, side->process_.address()));
    return side;
  }
  const Peer& process() const { return process_; }
  UcxRawPeer& peer() { return *peer_; }

 private:
  RawSide() = default;
  Peer process_;
  std::unique_ptr<UcxRawPeer> peer_;
};

enum class Direction { kGet, kPut };

// Both ends of both ways read and write as much memory as they would in use: a node puts what it is
// given where nothing was received lately, so raw UCX does, too, and goes through as much memory.
const char* BoundOf(Direction direction) {
  return direction == Direction::kGet
             ? "raw UCX messages and one CRC-32C pass"
             : "raw UCX messages to memory not used lately, one CRC-32C pass";
}

// Beside it: what is left to gain where pages are not the memory that messages go through, which
// takes one copy at the client, and what would be possible if puts were not kept.
std::vector<OtherBound> OtherBoundsOf(Direction direction) {
  std::vector<OtherBound> bounds = {{"copied", "the same and one copy at the client"}};
  if (direction == Direction::kPut) {
    bounds.push_back({"warm", "raw UCX messages to the same memory again, one CRC-32C pass"});
  }
  return bounds;
}

struct RowSpec {
  Direction direction;
  size_t block_bytes;
  uint32_t batch;
  uint64_t bytes() const { return block_bytes * batch; }
  uint64_t raw_server_bytes() const { return direction == Direction::kPut ? kNodeBytes : bytes(); }
  std::string name() const {
    const std::string size = block_bytes >= (size_t{1} << 20)
                                 ? absl::StrCat(block_bytes >> 20, "MiB")
                                 : absl::StrCat(block_bytes >> 10, "KiB");
    return absl::StrCat("transport/", direction == Direction::kGet ? "get" : "put", "/", size,
                        "/batch", batch);
  }
};

// One of the get and put rows.
class TransferBench {
 public:
  TransferBench(const RowSpec& spec, TokuraSide& tokura, RawSide& raw)
      : spec_(spec),
        tokura_(tokura),
        raw_(raw),
        ns_(std::make_shared<const Namespace>(
            PagesNamespace(ShapeOf(spec.block_bytes), "default", spec.name()))),
        source_(ShapeOf(spec.block_bytes), spec.batch),
        target_(ShapeOf(spec.block_bytes), spec.batch),
        rows_(OtherBoundsOf(spec.direction)) {}

  absl::StatusOr<std::vector<BenchRow>> Run(Duration time) {
    TOKURA_RETURN_IF_ERROR(Prepare());
    const TimePoint end = SystemClock().Now() + time;
    for (uint32_t pair = 0; pair < kPairsMax; ++pair) {
      if (pair >= kPairsMin && SystemClock().Now() >= end) {
        break;
      }
      TOKURA_RETURN_IF_ERROR(OnePair(pair));
    }
    return rows_.Rows(spec_.name(), BoundOf(spec_.direction));
  }

 private:
  // Single operations are short: several make a sample.
  uint32_t times() const { return spec_.batch == 1 ? 16 : 1; }
  SequenceView View(BlockPages& pages) { return {.groups = {pages.view()}}; }

  // Blocks that were never put before.
  TokenChain NewChain() {
    TokenChain chain(ns_->fingerprint(), kBlockTokens);
    std::vector<uint32_t> tokens(size_t{spec_.batch} * kBlockTokens);
    for (uint32_t& token : tokens) {
      token = ++last_token_;
    }
    chain.Append(tokens);
    return chain;
  }

  // Move everything once, and compare every byte.
  absl::Status Prepare() {
    uint64_t state = spec_.block_bytes + spec_.batch;
    for (size_t i = 0; i + 1 < source_.bytes().size(); i += 2) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      // Finite halves: an exponent below the largest.
      const auto half = static_cast<uint16_t>((state >> 48) & 0xbbff);
      std::memcpy(source_.bytes().data() + i, &half, sizeof(half));
    }
    const TokenChain chain = NewChain();
    TOKURA_RETURN_IF_ERROR(tokura_.Put(ns_, chain, View(source_)));
    TOKURA_ASSIGN_OR_RETURN(match_, tokura_.Lookup(ns_, chain));
    if (match_.blocks() != spec_.batch) {
      return absl::DataLossError(absl::StrCat("the node holds ", match_.blocks(), " of ",
                                              spec_.batch, " blocks that were just put"));
    }
    TOKURA_RETURN_IF_ERROR(tokura_.Get(ns_, match_, View(target_)));
    if (std::memcmp(source_.bytes().data(), target_.bytes().data(), source_.bytes().size()) != 0) {
      return absl::DataLossError("a get returned other bytes than were put");
    }
    return VerifyRaw();
  }

  absl::Status VerifyRaw() {
    UcxRawPeer::Transfer transfer = RawTransfer(UcxRawPeer::Checksum::kAtReceiver);
    transfer.pages = UcxRawPeer::Pages::kCopied;
    TOKURA_RETURN_IF_ERROR(raw_.peer().Get(transfer));
    uint32_t crc = 0;
    for (uint32_t i = 0; i < spec_.batch; ++i) {
      crc ^= Crc32c(raw_.peer().pages().subspan(i * spec_.block_bytes, spec_.block_bytes));
    }
    const uint32_t fetched = raw_.peer().received_crc();
    TOKURA_RETURN_IF_ERROR(raw_.peer().Put(transfer));
    if (fetched != crc || raw_.peer().received_crc() != crc) {
      return absl::DataLossError("raw UCX moved other bytes than were sent");
    }
    return absl::OkStatus();
  }

  UcxRawPeer::Transfer RawTransfer(UcxRawPeer::Checksum checksum) const {
    return {.block_bytes = spec_.block_bytes, .blocks = spec_.batch, .checksum = checksum};
  }

  absl::StatusOr<TransferCost> MeasureTokura() {
    // Keys are hashed before the clock starts.
    std::vector<TokenChain> chains;
    for (uint32_t i = 0; i < times() && spec_.direction == Direction::kPut; ++i) {
      chains.push_back(NewChain());
    }
    size_t next = 0;
    return Measure(tokura_.peer(), times(), spec_.bytes(), [&] {
      return spec_.direction == Direction::kGet ? tokura_.Get(ns_, match_, View(target_))
                                                : tokura_.Put(ns_, chains[next++], View(source_));
    });
  }
  absl::StatusOr<TransferCost> MeasureRaw(const UcxRawPeer::Transfer& transfer) {
    return Measure(raw_.process(), times(), spec_.bytes(), [&] {
      return spec_.direction == Direction::kGet ? raw_.peer().Get(transfer)
                                                : raw_.peer().Put(transfer);
    });
  }
  absl::Status MeasureWay(size_t way, TransferCosts* costs) {
    using Checksum = UcxRawPeer::Checksum;
    UcxRawPeer::Transfer transfer = RawTransfer(Checksum::kAtReceiver);
    switch (way) {
      case 0: {
        TOKURA_ASSIGN_OR_RETURN(costs->tokura, MeasureTokura());
        break;
      }
      case 1: {
        TOKURA_ASSIGN_OR_RETURN(costs->raw, MeasureRaw(transfer));
        break;
      }
      case 2: {
        transfer.checksum = Checksum::kNone;
        TOKURA_ASSIGN_OR_RETURN(costs->raw_without_crc, MeasureRaw(transfer));
        break;
      }
      case 3: {
        transfer.pages = UcxRawPeer::Pages::kCopied;
        TOKURA_ASSIGN_OR_RETURN(costs->others[0], MeasureRaw(transfer));
        break;
      }
      default: {
        transfer.room = UcxRawPeer::Room::kSame;
        TOKURA_ASSIGN_OR_RETURN(costs->others[1], MeasureRaw(transfer));
      }
    }
    return absl::OkStatus();
  }

  absl::Status OnePair(uint32_t pair) {
    if (spec_.direction == Direction::kGet && pair % 8 == 0) {
      // The puts of other rows may have pushed the blocks out.
      TOKURA_RETURN_IF_ERROR(tokura_.Get(ns_, match_, View(target_)));
    }
    TransferCosts costs;
    costs.others.resize(OtherBoundsOf(spec_.direction).size());
    const size_t ways = 3 + costs.others.size();
    // Whoever comes first in one pair comes last in the next.
    for (size_t step = 0; step < ways; ++step) {
      TOKURA_RETURN_IF_ERROR(MeasureWay(pair % 2 == 0 ? step : ways - 1 - step, &costs));
    }
    rows_.Add(costs);
    return absl::OkStatus();
  }

  const RowSpec spec_;
  TokuraSide& tokura_;
  RawSide& raw_;
  const NamespaceRef ns_;
  BlockPages source_;
  BlockPages target_;
  Match match_;
  uint32_t last_token_ = 0;
  TransferRows rows_;
};

std::vector<RowSpec> RowSpecs() {
  std::vector<RowSpec> rows;
  for (const Direction direction : {Direction::kGet, Direction::kPut}) {
    for (const size_t bytes : {size_t{256} << 10, size_t{1} << 20, size_t{4} << 20}) {
      for (const uint32_t batch : {1u, kBatchMax}) {
        rows.push_back({direction, bytes, batch});
      }
    }
  }
  return rows;
}

absl::StatusOr<BenchRow> BenchRpc(const BenchOptions& options, net::UcxContext& context, Wake wake,
                                  Duration time) {
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<TokuraSide> tokura,
                          TokuraSide::Start(options, context, wake, uint64_t{64} << 20));
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<RawSide> raw,
                          RawSide::Start(options, context, wake, 4096, 4096));
  const auto ns =
      std::make_shared<const Namespace>(PagesNamespace(ShapeOf(kLayerBytes), "default", "rpc"));
  TokenChain chain(ns->fingerprint(), kBlockTokens);
  chain.Append(std::vector<uint32_t>(kBlockTokens, 1));
  // Without a node every lookup is a quick miss.
  const auto lookup = [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(tokura->Lookup(ns, chain).status());
    return tokura->connected() ? absl::OkStatus() : absl::UnavailableError("lost the node");
  };
  const auto echo = [&] { return raw->peer().Echo(); };
  PairedSamples samples;
  const TimePoint end = SystemClock().Now() + time;
  for (uint32_t pair = 0; pair < kPairsMax; ++pair) {
    if (pair >= kPairsMin && SystemClock().Now() >= end) {
      break;
    }
    std::array<double, 2> microseconds{};
    for (uint32_t step = 0; step < 2; ++step) {
      const bool ours = (pair + step) % 2 == 0;
      (ours ? raw->process() : tokura->peer()).Pause();
      (ours ? tokura->peer() : raw->process()).Continue();
      TOKURA_ASSIGN_OR_RETURN(const TransferCost sample,
                              ours ? Measure(tokura->peer(), kEchoes, 0, lookup)
                                   : Measure(raw->process(), kEchoes, 0, echo));
      microseconds[ours ? 0 : 1] = Seconds(sample.time) * 1e6;
    }
    samples.Add({.value = microseconds[0], .bound = microseconds[1]});
  }
  tokura->peer().Continue();
  return samples.Row(wake == Wake::kSpin ? "transport/rpc/spin" : "transport/rpc/sleep", "us",
                     "raw UCX echo, both sides waiting the same way");
}

}  // namespace

absl::StatusOr<std::vector<BenchRow>> BenchTransport(const BenchOptions& options) {
  SetLogLevel(LogLevel::kWarn);
  std::vector<RowSpec> transfers;
  for (const RowSpec& spec : RowSpecs()) {
    if (Selected(options, spec.name())) {
      transfers.push_back(spec);
    }
  }
  std::vector<Wake> rpcs;
  for (const auto& [name, wake] :
       {std::pair("transport/rpc/sleep", Wake::kSleep), {"transport/rpc/spin", Wake::kSpin}}) {
    if (Selected(options, name)) {
      rpcs.push_back(wake);
    }
  }
  if (transfers.empty() && rpcs.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no row begins with '", options.filter,
                     "'; rows are transport/{get,put}/{256KiB,1MiB,4MiB}/batch{1,64} and "
                     "transport/rpc/{sleep,spin}"));
  }
  const TimePoint end = SystemClock().Now() + options.seconds.value_or(kTimeMax);
  size_t rows_left = transfers.size() + rpcs.size();
  // A row's share of what is left, so that a slow one shortens the others.
  const auto row_time = [&] {
    return (end - SystemClock().Now()) / static_cast<int64_t>(rows_left--);
  };
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<net::UcxContext> context,
                          net::UcxContext::Create({}));
  std::vector<BenchRow> rows;
  for (const RowSpec& spec : transfers) {
    options.progress(spec.name());
    TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<TokuraSide> tokura,
                            TokuraSide::Start(options, *context, Wake::kSleep, kNodeBytes));
    TOKURA_ASSIGN_OR_RETURN(
        const std::unique_ptr<RawSide> raw,
        RawSide::Start(options, *context, Wake::kSleep, spec.bytes(), spec.raw_server_bytes()));
    TransferBench bench(spec, *tokura, *raw);
    TOKURA_ASSIGN_OR_RETURN(std::vector<BenchRow> measured, bench.Run(row_time()));
    std::move(measured.begin(), measured.end(), std::back_inserter(rows));
  }
  for (const Wake wake : rpcs) {
    options.progress("transport/rpc");
    TOKURA_ASSIGN_OR_RETURN(BenchRow row, BenchRpc(options, *context, wake, row_time()));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tokura::cli
