#include "cache-node/lease.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"

namespace tokura::node {

// Guarded by the table's lock, but for what is fixed at the beginning (tenant, owner, pins,
// acquired).
struct LeaseUse::Shared {
  LeaseToken token;
  std::string tenant;
  uint64_t owner = 0;
  std::vector<FormPin> pins;
  std::vector<uint32_t> by_key;  // indices of pins, ascending by key
  TimePoint acquired{};
  TimePoint progressed{};  // never goes back
  TimePoint due{};         // no later than the end of its age: its place in LeaseTable::due_
  bool closing = false;
  bool expired = false;
  std::map<uint64_t, uint32_t> uses;  // connection → transfers under way

  void SortByKey() {
    by_key.resize(pins.size());
    std::iota(by_key.begin(), by_key.end(), 0u);
    std::stable_sort(by_key.begin(), by_key.end(),
                     [&](uint32_t a, uint32_t b) { return pins[a].key() < pins[b].key(); });
  }
};

LeaseUse::LeaseUse(LeaseTable* table, std::shared_ptr<Shared> lease, uint64_t connection)
    : table_(table), lease_(std::move(lease)), connection_(connection) {}

LeaseUse::LeaseUse(LeaseUse&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)),
      lease_(std::move(other.lease_)),
      connection_(other.connection_) {}

LeaseUse& LeaseUse::operator=(LeaseUse&& other) noexcept {
  if (this != &other) {
    Reset();
    table_ = std::exchange(other.table_, nullptr);
    lease_ = std::move(other.lease_);
    connection_ = other.connection_;
  }
  return *this;
}

void LeaseUse::Reset() {
  if (table_ != nullptr) {
    std::exchange(table_, nullptr)->EndUse(*lease_, connection_);
    // The last holder drops the pins, here or in the table.
    lease_.reset();
  }
}

std::span<const FormPin> LeaseUse::pins() const {
  TOKURA_CHECK(valid());
  return lease_->pins;
}

const FormPin* LeaseUse::Find(const Fingerprint& fingerprint, const BlockKey& key) const {
  const std::span<const FormPin> all = pins();
  const std::vector<uint32_t>& order = lease_->by_key;
  for (auto at = std::lower_bound(order.begin(), order.end(), key,
                                  [&](uint32_t i, const BlockKey&k) { return all[i].key() < k; });
       at != order.end() && all[*at].key() == key; ++at) {
    if (all[*at].fingerprint() == fingerprint) {
      return &all[*at];
    }
  }
  return nullptr;
}

void LeaseUse::Progress(TimePoint now) {
  TOKURA_CHECK(valid());
  table_->MarkProgress(*lease_, now);
}

LeaseTable::LeaseTable(Options options, RandomSource& random)
    : options_(options), random_(random) {}

LeaseTable::~LeaseTable() {
  MutexLock lock(mutex_);
  for (const auto& [token, lease] : leases_) {
    TOKURA_CHECK(lease->uses.empty());
  }
}

TimePoint LeaseTable::AgeEnd(const Shared& lease) const {
  return std::min(lease.progressed + options_.lease_age, lease.acquired + options_.lease_age_max);
}

bool LeaseTable::PastAge(const Shared& lease, TimePoint now) const {
  return lease.expired || now >= AgeEnd(lease);
}

LeaseTable::Shared* LeaseTable::FindLive(const LeaseToken& token, std::string_view tenant,
                                         TimePoint now) const {
  const auto entry = leases_.find(token);
  if (entry == leases_.end()) {
    return nullptr;
  }
  Shared& lease = *entry->second;
  return !lease.closing && lease.tenant == tenant && !PastAge(lease, now) ? &lease : nullptr;
}

absl::StatusOr<LeaseToken> LeaseTable::Acquire(std::string tenant, uint64_t owner,
                                               std::vector<FormPin> pins, TimePoint now) {
  TOKURA_CHECK(!pins.empty());
  auto lease = std::make_shared<Shared>();
  random_.Fill(std::as_writable_bytes(std::span<uint8_t>(lease->token.bytes)));
  lease->tenant = std::move(tenant);
  lease->owner = owner;
  lease->pins = std::move(pins);
  lease->SortByKey();
  const auto twice =
      std::adjacent_find(lease->by_key.begin(), lease->by_key.end(), [&](uint32_t a, uint32_t b) {
        return lease->pins[a].key() == lease->pins[b].key() &&
               lease->pins[a].fingerprint() == lease->pins[b].fingerprint();
      });
  if (twice != lease->by_key.end()) {
    return absl::InvalidArgumentError("a block is named twice");
  }
  lease->acquired = lease->progressed = now;
  const LeaseToken token = lease->token;
  MutexLock lock(mutex_);
  if (absl::Status status = CheckRoom(owner, lease->pins.size()); !status.ok()) {
    return status;
  }
  Holding& holding = owners_[owner];
  holding.leases.emplace(token, lease.get());
  holding.pins += lease->pins.size();
  pins_ += lease->pins.size();
  lease->due = AgeEnd(*lease);
  due_.emplace(std::pair(lease->due, token), lease.get());
  TOKURA_CHECK(!token.empty() && leases_.emplace(token, std::move(lease)).second);
  return token;
}

absl::Status LeaseTable::CheckRoom(uint64_t owner, size_t pins) const {
  const auto held = owners_.find(owner);
  const uint64_t owner_leases = held == owners_.end() ? 0 : held->second.leases.size();
  const uint64_t owner_pins = held == owners_.end() ? 0 : held->second.pins;
  if (leases_.size() >= options_.leases_max || owner_leases >= options_.owner_leases_max) {
    return absl::ResourceExhaustedError("too many leases");
  }
  if (pins_ + pins > options_.pins_max || owner_pins + pins > options_.owner_pins_max) {
    return absl::ResourceExhaustedError("leases hold too many blocks");
  }
  return absl::OkStatus();
}

bool LeaseTable::Renew(const LeaseToken& token, std::string_view tenant, TimePoint now) {
  MutexLock lock(mutex_);
  Shared* lease = FindLive(token, tenant, now);
  if (lease != nullptr) {
    lease->progressed = std::max(lease->progressed, now);
  }
  return lease != nullptr;
}

bool LeaseTable::Release(const LeaseToken& token, std::string_view tenant, TimePoint now) {
  std::shared_ptr<Shared> ended;  // dropped outside the lock
  std::vector<FormPin> taken;     // the same
  MutexLock lock(mutex_);
  Shared* lease = FindLive(token, tenant, now);
  if (lease == nullptr) {
    if (options_.release_twice) {
      taken = TakeOthersPins(token);
    }
    return false;
  }
  if (options_.release_twice) {
    for (const FormPin& pin : lease->pins) {
      released_[token].push_back(pin.key());
    }
  }
  ended = Close(*lease);
  return true;
}

std::vector<FormPin> LeaseTable::TakeOthersPins(const LeaseToken& token) {
  std::vector<FormPin> taken;
  const auto entry = released_.find(token);
  for (const BlockKey& key : entry == released_.end() ? std::vector<BlockKey>() : entry->second) {
    for (const auto& [other, lease] : leases_) {
      const auto pin = std::find_if(lease->pins.begin(), lease->pins.end(),
                                    [&](const FormPin& held) { return held.key() == key; });
      if (lease->uses.empty() && !lease->closing && pin != lease->pins.end()) {
        taken.push_back(std::move(*pin));
        lease->pins.erase(pin);
        lease->SortByKey();
        --pins_;
        --owners_[lease->owner].pins;
        break;
      }
    }
  }
  return taken;
}

std::shared_ptr<LeaseTable::Shared> LeaseTable::Close(Shared& lease) {
  closing_ += lease.closing ? 0 : 1;
  lease.closing = true;
  if (!lease.uses.empty()) {
    return nullptr;
  }
  const auto entry = leases_.find(lease.token);
  std::shared_ptr<Shared> ended = std::move(entry->second);
  leases_.erase(entry);
  due_.erase({ended->due, ended->token});
  --closing_;
  const auto held = owners_.find(ended->owner);
  held->second.pins -= ended->pins.size();
  pins_ -= ended->pins.size();
  held->second.leases.erase(ended->token);
  if (held->second.leases.empty()) {
    owners_.erase(held);
  }
  return ended;
}

absl::StatusOr<LeaseUse> LeaseTable::Use(const LeaseToken& token, std::string_view tenant,
                                         uint64_t connection, TimePoint now) {
  MutexLock lock(mutex_);
  Shared* lease = FindLive(token, tenant, now);
  if (lease == nullptr) {
    return absl::NotFoundError("no such lease");
  }
  lease->progressed = std::max(lease->progressed, now);
  ++lease->uses[connection];
  return LeaseUse(this, leases_.find(token)->second, connection);
}

void LeaseTable::EndUse(Shared& lease, uint64_t connection) {
  std::shared_ptr<Shared> ended;
  MutexLock lock(mutex_);
  const auto use = lease.uses.find(connection);
  TOKURA_CHECK(use != lease.uses.end());
  if (--use->second == 0) {
    lease.uses.erase(use);
  }
  if (lease.closing) {
    ended = Close(lease);
  }
}

void LeaseTable::MarkProgress(Shared& lease, TimePoint now) {
  MutexLock lock(mutex_);
  lease.progressed = std::max(lease.progressed, now);
}

void LeaseTable::ReleaseOwner(uint64_t owner) {
  std::vector<std::shared_ptr<Shared>> ended;
  MutexLock lock(mutex_);
  const auto held = owners_.find(owner);
  if (held == owners_.end()) {
    return;
  }
  std::vector<Shared*> leases;  // apart, because closing the last one takes the owner out
  for (const auto& [token, lease] : held->second.leases) {
    leases.push_back(lease);
  }
  visited_total_ += leases.size();
  for (Shared* lease : leases) {
    ended.push_back(Close(*lease));
  }
}

std::vector<LeaseTable::Shared*> LeaseTable::TakeStock(TimePoint now) {
  std::vector<Shared*> past;
  std::vector<Shared*> later;
  auto end = due_.begin();
  for (; end != due_.end() && end->first.first <= now; ++end) {
    (PastAge(*end->second, now) ? past : later).push_back(end->second);
  }
  visited_total_ += past.size() + later.size();
  for (Shared* lease : later) {
    auto entry = due_.extract({lease->due, lease->token});
    lease->due = AgeEnd(*lease);
    entry.key().first = lease->due;
    due_.insert(std::move(entry));
  }
  std::sort(past.begin(), past.end(),
            [](const Shared* a, const Shared* b) { return a->token < b->token; });
  return past;
}

std::vector<LeaseTable::Expired> LeaseTable::Sweep(TimePoint now) {
  std::vector<std::shared_ptr<Shared>> ended;
  std::vector<Expired> expired;
  MutexLock lock(mutex_);
  for (Shared* lease : TakeStock(now)) {
    expired_total_ += lease->closing ? 0 : 1;
    lease->expired = true;
    if (!lease->uses.empty()) {
      Expired& report = expired.emplace_back();
      report.token = lease->token;
      report.owner = lease->owner;
      for (const auto& [connection, count] : lease->uses) {
        report.connections.push_back(connection);
      }
    }
    ended.push_back(Close(*lease));
  }
  return expired;
}

LeaseTable::Stats LeaseTable::stats() const {
  MutexLock lock(mutex_);
  Stats stats;
  stats.leases = leases_.size();
  stats.pins = pins_;
  stats.closing = closing_;
  stats.expired_total = expired_total_;
  stats.visited_total = visited_total_;
  return stats;
}

}  // namespace tokura::node
