#include "cli/soak.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/mix.h"
#include "common/crc32c.h"
#include "common/ids.h"

namespace tokura::cli {
namespace {

constexpr size_t kComplaintsMax = 10;
// A get's memory is looked at again when so many later gets of the thread are through.
constexpr size_t kGetBuffers = 4;
constexpr int kUnwritten = 0xff;

bool IsFault(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// What one thread does. Owned by that thread; the report is read after it has ended.
class SoakWorker {
 public:
  struct Shared {
    Client& client;
    const SoakOptions& options;
    const SoakContent& content;
    const Clock& clock;
    RecoveryWatch& recovery;
  };
  SoakWorker(const Shared& shared, uint32_t index)
      : client_(shared.client),
        options_(shared.options),
        content_(shared.content),
        clock_(shared.clock),
        recovery_(shared.recovery),
        index_(index),
        source_(content_.MakePages()),
        expected_(content_.MakePages()) {
    for (size_t i = 0; i < kGetBuffers; ++i) {
      got_.push_back({content_.MakePages(), std::nullopt});
    }
  }

  void RunUntil(TimePoint end, const std::function<void(std::string_view)>& progress) {
    for (uint64_t step = 0; clock_.Now() < end && !Stopped(); ++step) {
      Step(step);
      progress(absl::StrCat(report_.ops, " calls of one thread, ", report_.hits, " blocks hit, ",
                            report_.wrong, " wrong, ", report_.hung, " hung"));
    }
    for (GotPages& got : got_) {
      CheckUnchanged(&got);
    }
  }
  const SoakReport& report() const { return report_; }

 private:
  // The memory of one get, and its checksum when the get returned.
  struct GotPages {
    BlockPages pages;
    std::optional<uint32_t> checksum;
  };

  bool Stopped() const { return options_.maybe_stop != nullptr && *options_.maybe_stop; }

  uint64_t Random(uint64_t step, uint64_t salt) const { return Mix(Mix(index_ + 1, step), salt); }

  void Step(uint64_t step) {
    const auto chain = static_cast<uint32_t>(Random(step, 1) % content_.chains());
    const uint64_t choice = Random(step, 2) % 100;
    if (choice < 55) {
      Get(step, chain);
    } else if (choice < 92) {
      Put(step, chain);
    } else {
      Remove(step, chain);
    }
  }

  // Time a call against its deadline.
  template <typename F>
  RecoveryWatch::Call Timed(const char* what, Duration deadline, F&& call) {
    const TimePoint start = clock_.Now();
    call();
    const TimePoint end = clock_.Now();
    ++report_.ops;
    report_.latency.Add(end - start);
    if (end - start > deadline + options_.slack) {
      ++report_.hung;
      Complain(absl::StrCat(what, " took ", (end - start) / std::chrono::milliseconds(1),
                            " ms, its deadline was ", deadline / std::chrono::milliseconds(1),
                            " ms"));
    }
    return {start, end};
  }

  void Complain(std::string text) {
    if (report_.complaints.size() < kComplaintsMax) {
      report_.complaints.push_back(std::move(text));
    }
  }

  void CountStatus(const absl::Status& status) {
    ++report_.status[absl::StatusCodeToString(status.code())];
    if (IsFault(status)) {
      recovery_.SawFault(clock_.Now());
    }
  }

  void Put(uint64_t step, uint32_t chain) {
    content_.Fill(chain, source_);
    PutOptions put;
    put.codec = content_.codec(chain);
    put.deadline = options_.transfer_deadline;
    // Now and then only the end of a chain, which leaves a hole where the beginning is missing.
    put.first_block = Random(step, 3) % 5 == 0
                          ? static_cast<uint32_t>(Random(step, 4) % content_.blocks_per_chain())
                          : 0;
    PutResult result;
    Timed("put", options_.transfer_deadline, [&] {
      const auto handle =
          client_.StartPut(content_.ns(), content_.chain(chain), content_.View(source_), put);
      handle->WaitReleased();
      // The engine uses its pages for something else; a read after this stores wrong bytes.
      std::memset(source_.bytes().data(), kUnwritten, source_.bytes().size());
      result = handle->Wait();
    });
    report_.puts += result.blocks.size();
    for (const absl::Status& status : result.blocks) {
      CountStatus(status);
    }
  }

  void Remove(uint64_t step, uint32_t chain) {
    const auto keys = content_.chain(chain).keys();
    const size_t first = Random(step, 3) % keys.size();
    RemoveResult result;
    Timed("remove", options_.remove_deadline, [&] {
      result = client_.Remove(content_.ns(),
                              {keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end()});
    });
    for (const absl::Status& status : result.blocks) {
      CountStatus(status);
    }
  }

  void Get(uint64_t step, uint32_t chain) {
    report_.gets += content_.blocks_per_chain();
    LookupOptions lookup;
    lookup.deadline = options_.lookup_deadline;
    absl::StatusOr<Match> match;
    Timed("lookup", options_.lookup_deadline,
          [&] { match = client_.Lookup(content_.ns(), content_.chain(chain), lookup); });
    CountStatus(match.status());
    if (!match.ok() || match->blocks() == 0) {
      return;
    }
    GotPages& got = got_[next_got_++ % kGetBuffers];
    CheckUnchanged(&got);
    std::memset(got.pages.bytes().data(), kUnwritten, got.pages.bytes().size());
    GetOptions get;
    get.deadline = options_.transfer_deadline;
    if (Random(step, 3) % 4 == 0) {
      get.first_layer = static_cast<uint32_t>(Random(step, 4) % content_.shape().layers);
      get.layers =
          1 + static_cast<uint32_t>(Random(step, 5) % (content_.shape().layers - get.first_layer));
    }
    GetResult result;
    const RecoveryWatch::Call call = Timed("get", options_.transfer_deadline, [&] {
      result = client_.Get(content_.ns(), *match, content_.View(got.pages), get);
    });
    Judge(chain, get, result, &got);
    if (std::any_of(result.blocks.begin(), result.blocks.end(),
                    [](const absl::Status& status) { return status.ok(); })) {
      recovery_.SawHit(call);
    }
  }

  void Judge(uint32_t chain, const GetOptions& get, const GetResult& result, GotPages* got) {
    got->checksum = Crc32c(got->pages.bytes());
    for (size_t i = 0; i < result.blocks.size(); ++i) {
      CountStatus(result.blocks[i]);
      if (!result.blocks[i].ok()) {
        continue;
      }
      ++report_.hits;
      const std::string wrong =
          options_.verify == SoakVerify::kYes ? WhatIsWrong(chain, i, get, result, got->pages) : "";
      if (!wrong.empty()) {
        ++report_.wrong;
        Complain(absl::StrCat("chain ", chain, " block ", i, " key ",
                              ToHex(content_.chain(chain).keys()[i].span()), ": ", wrong));
      }
    }
  }

  // Empty: the block is as it must be.
  std::string WhatIsWrong(uint32_t chain, size_t block, const GetOptions& get,
                          const GetResult& result, const BlockPages& pages) {
    if (block >= content_.blocks_per_chain() || block >= result.codecs.size() ||
        block >= result.declared_error.size()) {
      return "the result has no such block";
    }
    if (result.codecs[block] != content_.codec(chain)) {
      return absl::StrCat("codec ", result.codecs[block], ", put as ", content_.codec(chain));
    }
    if ((result.declared_error[block] == 0) != content_.exact(chain)) {
      return absl::StrCat("declares an error of ", result.declared_error[block]);
    }
    const absl::Status expected = content_.Expect(chain, static_cast<uint32_t>(block), expected_);
    if (!expected.ok()) {
      return absl::StrCat("cannot be encoded here: ", expected.message());
    }
    const uint32_t layers = content_.shape().layers;
    const uint32_t end = get.layers == 0 ? layers : get.first_layer + get.layers;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      const auto bytes = pages.Layer(block, layer);
      const bool asked = layer >= get.first_layer && layer < end;
      if (!asked && std::any_of(bytes.begin(), bytes.end(),
                                [](std::byte b) { return b != std::byte{kUnwritten}; })) {
        return absl::StrCat("layer ", layer, " was not asked for and was written");
      }
      const auto wanted = expected_.Layer(block, layer);
      if (asked && std::memcmp(bytes.data(), wanted.data(), bytes.size()) != 0) {
        const auto at = std::mismatch(bytes.begin(), bytes.end(), wanted.begin()).first;
        return absl::StrCat("layer ", layer, " differs from byte ", at - bytes.begin());
      }
    }
    return "";
  }

  // After a get has returned, not one byte of its memory changes any more.
  void CheckUnchanged(GotPages* got) {
    if (got->checksum.has_value() && Crc32c(got->pages.bytes()) != *got->checksum) {
      ++report_.wrong;
      Complain("memory of a get changed after the get had returned");
    }
    got->checksum.reset();
  }

  Client& client_;
  const SoakOptions& options_;
  const SoakContent& content_;
  const Clock& clock_;
  RecoveryWatch& recovery_;
  const uint32_t index_;
  const BlockPages source_;
  const BlockPages expected_;
  std::vector<GotPages> got_;
  size_t next_got_ = 0;
  SoakReport report_;
};

void Merge(const SoakReport& part, SoakReport* total) {
  total->ops += part.ops;
  total->puts += part.puts;
  total->gets += part.gets;
  total->hits += part.hits;
  total->wrong += part.wrong;
  total->hung += part.hung;
  total->latency.Merge(part.latency);
  for (const auto& [name, count] : part.status) {
    total->status[name] += count;
  }
  for (const std::string& complaint : part.complaints) {
    if (total->complaints.size() < kComplaintsMax) {
      total->complaints.push_back(complaint);
    }
  }
}

double Milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

void RecoveryWatch::SawFault(TimePoint now) {
  const MutexLock lock(mutex_);
  if (!fault_.has_value()) {
    fault_ = now;
  }
}

void RecoveryWatch::SawHit(const Call& call) {
  const MutexLock lock(mutex_);
  if (fault_.has_value() && call.start >= *fault_) {
    recovery_ms_.push_back(Milliseconds(call.end - *fault_));
    fault_.reset();
  }
}

std::vector<double> RecoveryWatch::recovery_ms() const {
  const MutexLock lock(mutex_);
  return recovery_ms_;
}

SoakReport RunSoak(Client& client, const SoakOptions& options, const Clock& clock,
                   const std::function<void(std::string_view)>& progress) {
  const SoakContent content(options.content);
  RecoveryWatch recovery;
  const SoakWorker::Shared shared{client, options, content, clock, recovery};
  std::vector<std::unique_ptr<SoakWorker>> workers;
  for (uint32_t i = 0; i < options.threads; ++i) {
    workers.push_back(std::make_unique<SoakWorker>(shared, i));
  }
  const TimePoint end = clock.Now() + options.run_time;
  const std::function<void(std::string_view)> silent = [](std::string_view) {};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([worker = workers[i].get(), end, &report = i == 0 ? progress : silent] {
      worker->RunUntil(end, report);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  SoakReport total;
  for (const auto& worker : workers) {
    Merge(worker->report(), &total);
  }
  total.recovery_ms = recovery.recovery_ms();
  return total;
}

Json ToJson(const SoakReport& report) {
  Json status = Json::object();
  for (const auto& [name, count] : report.status) {
    status[name] = count;
  }
  return Json{{"ops", report.ops},
              {"puts", report.puts},
              {"gets", report.gets},
              {"hits", report.hits},
              {"wrong", report.wrong},
              {"hung", report.hung},
              {"status", status},
              {"latency_ms",
               {{"p50", Milliseconds(report.latency.AtQuantile(0.5))},
                {"p99", Milliseconds(report.latency.AtQuantile(0.99))},
                {"max", Milliseconds(report.latency.max())}}},
              {"recovery_ms", report.recovery_ms}};
}

}  // namespace tokura::cli
