#pragma once

// The coordinator's map from block keys to the nodes that hold them. A pure data structure: no
// time, no network, no threads; the same calls in the same order give the same answers.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/time.h"
#include "proto/accept.h"
#include "proto/prefix_rule.h"

namespace tokura::coordinator {

struct Record;
class RecordStore;

// A life of a node, as a small number that its owner gives out (Inventory does).
using NodeSlot = uint16_t;
// One inventory of one life. 0 is none.
using SourceId = uint16_t;
// An interned FormClass.
using ClassId = uint16_t;

// What many forms have in common (cluster.proto).
struct FormClass {
  std::string codec;
  uint32_t group_mask = 0;
  uint32_t shards = 0;
  uint32_t fidelity = kWireExact;
  bool proxy_error = false;
  uint32_t tier = 0;
  friend auto operator<=>(const FormClass&, const FormClass&) = default;
};

// One form of a block at one node. Sizes beyond 4 GiB are kept as 4 GiB.
struct IndexedForm {
  ClassId form_class = 0;
  uint64_t stored_bytes = 0;
  float error_mean = 0;
  float error_max = 0;
};

// What one inventory says about one key: all forms of it, none when it is not held any more.
struct IndexUpdate {
  BlockKey key;
  BlockKey parent;  // empty: the root, or not known
  std::span<const IndexedForm> forms;
};

// How a lookup treats the blocks of a node.
struct NodeStanding {
  enum class Use : uint8_t {
    kHidden,      // as if it held nothing
    kLastResort,  // only where no usable one has the block
    kUsable,
  };
  Use use = Use::kHidden;
  uint32_t load = 0;  // among usable ones the smallest is taken; any unit
};

struct LocateQuery {
  std::span<const BlockKey> keys;      // of a chain, from its root
  const AcceptRule* accept = nullptr;  // not null
  PrefixRule rule;
  std::span<const NodeStanding> nodes;  // by NodeSlot; slots beyond are hidden
  enum class Touch : uint8_t { kNo, kYes } touch = Touch::kNo;
  TimePoint now;
};

// Blocks [first, first + count) of the keys, held by one node in one class.
struct IndexRun {
  NodeSlot node = 0;
  ClassId form_class = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t stored_bytes = 0;  // of all its blocks
  float error_mean = 0;       // mean over its blocks
  float error_max = 0;        // the largest
  friend bool operator==(const IndexRun&, const IndexRun&) = default;
};

struct LocateResult {
  uint32_t prefix_blocks = 0;
  std::vector<IndexRun> runs;  // in order, covering exactly [0, prefix_blocks)
  std::vector<IndexRun>
      alternates;  // in order of `first`; other, usable nodes; at most one per block
};

// Which forms make a put needless: of this codec, or exact, with all these groups.
struct HeldQuery {
  std::span<const BlockKey> keys;
  std::string_view codec;
  uint32_t group_mask = 0;
  std::span<const NodeStanding> nodes;  // only those that are kUsable count
};
// Nodes that hold a block, the lowest slots first; no more than kMax are told.
struct BlockHolders {
  static constexpr size_t kMax = 4;
  uint8_t count = 0;
  NodeSlot nodes[kMax] = {};
  std::span<const NodeSlot> span() const { return {nodes, count}; }
  void Add(NodeSlot node);
};

// What the index tells its owner. Called within Locate and Work, for visible inventories only; must
// not call back into the index.
class PrefixIndexSink {
 public:
  virtual ~PrefixIndexSink() = default;
  // A block that `node` holds was looked up. At most once a second per block.
  virtual void Touched(NodeSlot node, const BlockKey& key) = 0;
  // A block that `node` holds has lost its prefix: a block before it is held nowhere any more.
  virtual void Orphaned(NodeSlot node, const BlockKey& key) = 0;
};

struct PrefixIndexOptions {
  uint64_t blocks_max = uint64_t{1} << 26;  // records, those of vanished parents included; ≤ 2^30
  uint64_t hash_seed = 0;                   // unknown to those who choose keys
};

struct PrefixIndexStats {
  uint64_t blocks = 0;    // with a form of any inventory that is not dropped and swept
  uint64_t vanished = 0;  // records without forms, kept because held blocks name them as parents
  uint64_t forms = 0;
  uint64_t sources = 0;        // not dropped
  uint64_t sources_swept = 0;  // dropped, and still being swept
  uint64_t classes = 0;
  uint64_t orphans_waiting = 0;  // vanished records whose descendants are still to be told
  // Since creation.
  uint64_t refused_blocks = 0;  // beyond blocks_max, or the machine's memory
  uint64_t refused_forms = 0;   // beyond kFormsMax
  uint64_t table_moves = 0;     // entries that moved because the table grew
};

// Owned by one thread. Memory is taken from the machine as it grows, in small steps, and not given
// back; nothing is ever copied to a larger place, so no call pays for the growth of the whole.
class PrefixIndex {
 public:
  static constexpr size_t kFormsMax = 32;      // per block, over all inventories not dropped
  static constexpr size_t kClassesMax = 4096;  // distinct
  static constexpr size_t kSourcesMax = 16384;
  // Entries that one insertion moves at most, however large the table, but for chains that are
  // longer than any that a fair hash makes.
  static constexpr size_t kMovesPerInsert = 64;

  // `sink` is borrowed and outlives the index. INVALID_ARGUMENT: blocks_max; RESOURCE_EXHAUSTED:
  // no address space for blocks_max.
  static absl::StatusOr<std::unique_ptr<PrefixIndex>> Create(PrefixIndexOptions options,
                                                             PrefixIndexSink& sink);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The id of a class, made if need be. Nothing: there are kClassesMax others.
  std::optional<ClassId> Intern(const FormClass& form_class);
  // `id` came from Intern; the reference holds for the life of the index.
  const FormClass& Class(ClassId id) const;

  enum class Visibility : uint8_t { kHidden, kVisible };
  // A new, empty inventory of `node`. Nothing: there are kSourcesMax, those being swept included.
  std::optional<SourceId> AddSource(NodeSlot node, Visibility visibility);
  // Let lookups see a hidden inventory. One call, whatever its size.
  void Show(SourceId source);
  // Forget an inventory: invisible from now on; Work sweeps it. The id is given out again after
  // that.
  void Drop(SourceId source);
  // Blocks of an inventory.
  uint64_t SourceBlocks(SourceId source) const;
  // Whether forms of a life are still being swept: its slot must not be given to another life yet.
  bool Sweeping(NodeSlot node) const;

  // What `source` holds of each key from now on, instead of what it held. A key's parent is settled
  // by the first update that names one. Blocks beyond the limits are refused and counted. A few
  // hundred nanoseconds per update and form.
  void Apply(SourceId source, std::span<const IndexUpdate> updates);

  // The longest usable prefix of a chain and where it lies. Every block is held in a form that
  // `accept` takes (errors are compared as floats, so that a limit stated as a double is not
  // missed by rounding; the node decides) and with the groups that the rule needs there. Blocks of
  // last-resort nodes only where no usable node has the block. The node of the block before goes
  // on where it can; else the least loaded one, then the lowest slot, is taken. Of a node's forms
  // the best one is named.
  // Alternates are usable nodes other than the run's, chosen in the same way.
  void Locate(const LocateQuery& query, LocateResult& result);

  // For each key, which usable nodes hold it well enough. `holders` is resized to keys.size().
  void Held(const HeldQuery& query, std::vector<BlockHolders>& holders) const;

  // Lookups per minute of a block by Locate with touch, over about the last minute; 0 when it is
  // not known.
  float Heat(const BlockKey& key, TimePoint now) const;

  enum class Orphans : uint8_t { kTell, kHold };
  // Do some of what is waiting: sweep dropped inventories, free records, tell orphans, open rings
  // of parents (which no writer makes who hashes its keys). `steps` is
  // about the number of records looked at (a thousand take less than a millisecond). kHold: orphans
  // wait, because some inventory is not complete yet and what seems to be held nowhere may turn up;
  // those whose prefix has come back are not told. True: there is more that may be done now.
  bool Work(size_t steps, Orphans orphans);

  PrefixIndexStats stats() const;
  // Memory taken from the machine, all tables and lists included.
  uint64_t memory_bytes() const;
  // Walk everything and compare (slow; for tests and the simulation). INTERNAL names what is
  // broken.
  absl::Status CheckInvariants() const;

 private:
  enum class SourceState : uint8_t { kFree, kHidden, kVisible, kDropped };
  struct Source {
    NodeSlot node = 0;
    SourceState state = SourceState::kFree;
    uint64_t blocks = 0;
    uint64_t forms = 0;
  };
  // A walk over the descendants of a vanished record, in slices. Links alone lead it: `at` is the
  // record to look at, or (leaving) to go on from.
  struct OrphanWalk {
    uint32_t root = 0;  // 0: no walk
    uint32_t at = 0;
    bool leaving = false;
  };
  struct Scratch;
  class Locator;
  class HeatClock;

  PrefixIndex(std::unique_ptr<RecordStore> records, PrefixIndexSink& sink);

  void ApplyOne(SourceId source, const IndexUpdate& update, uint32_t hash, uint32_t parent_hash);
  bool SetForms(uint32_t handle, SourceId source, std::span<const IndexedForm> forms);
  size_t RemoveFormsOf(Record& record, SourceId source);
  void LinkToParent(uint32_t handle, const BlockKey& parent, uint32_t parent_hash);
  // The record has no forms: free it, or keep it for its children, who are orphans now.
  void Vanished(uint32_t handle);
  // Free a record that nothing needs any more; then look at its parent later.
  void FreeIfUnneeded(uint32_t handle);
  // A record has lost a child: it may not be needed any more.
  void ReapLater(uint32_t handle);

  void Reap(size_t& steps);
  void TellOrphans(size_t& steps);
  void OpenRings(size_t steps);
  void StartWalk();
  void StepWalk();
  void EndWalk();
  void LeaveWalked(const Record& record);
  void TellOrphan(const Record& record) const;
  void Sweep(size_t& steps);
  void SweepRecord(uint32_t handle, size_t& steps);
  size_t RemoveDroppedForms(Record& record);
  bool HasSource(const Record& record) const;

  // One lookup of the record: its heat, and word to the nodes that hold it.
  void TouchRecord(Record& record, HeatClock& clock);
  template <typename Visit>
  void VisitNodes(const Record& record, const Visit& visit) const;

  absl::Status CheckRecord(uint32_t handle, std::vector<Source>& counted) const;

  std::unique_ptr<RecordStore> records_;
  PrefixIndexSink& sink_;
  std::unique_ptr<Scratch> scratch_;  // of Locate, kept between calls
  std::deque<FormClass> classes_;     // by id; never moved
  std::map<FormClass, ClassId> class_ids_;
  std::vector<Source> sources_{1};  // by id
  std::vector<SourceId> free_sources_;
  std::vector<SourceId> dropped_;  // being swept
  uint32_t sweep_at_ = 0;          // the record that was swept last
  std::deque<uint32_t> orphans_;   // vanished records whose descendants are to be told
  OrphanWalk walk_;
  std::vector<uint32_t> reap_;  // records that lost their last child while they had no forms
  // Records that got their parent when they had children already. Each ring has one among them: it
  // was closed by such a link.
  std::deque<uint32_t> ring_suspects_;
  uint32_t climb_at_ = 0;  // an ancestor of the first suspect, none of which waits itself; 0: begin
  uint64_t blocks_ = 0;
  uint64_t forms_ = 0;
  uint64_t refused_blocks_ = 0;
  uint64_t refused_forms_ = 0;
};

}  // namespace tokura::coordinator
