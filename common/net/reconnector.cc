#include "common/net/reconnector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"

namespace tokura::net {

// Counts a request as under way until it is answered.
class Reconnector::CountedCall final : public Call {
 public:
  CountedCall(std::shared_ptr<Reconnector> link, std::shared_ptr<Call> call)
      : link_(std::move(link)), generation_(link_->generation_), call_(std::move(call)) {}
  void OnPayload(const FrameHeader& frame, IncomingPayload payload) override {
    call_->OnPayload(frame, std::move(payload));
  }
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    if (generation_ == link_->generation_) {
      link_->RequestEnded(status.ok() ? Ended::kAnswered : Ended::kOtherwise);
    }
    call_->OnReply(std::move(status), body);
  }

 private:
  std::shared_ptr<Reconnector> link_;  // owners: who made it, and the calls under way
  const uint64_t generation_;
  std::shared_ptr<Call> call_;  // shared with whoever sent the request
};

Reconnector::Reconnector(Transport& transport, RandomSource& random, Options options, Owner& owner)
    : transport_(transport),
      executor_(transport.executor()),
      random_(random),
      options_(std::move(options)),
      owner_(owner),
      breaker_(options_.breaker),
      last_error_(
          absl::UnavailableError(absl::StrCat("not connected to ", address().ToString(), " yet"))) {
}

Reconnector::~Reconnector() = default;

void Reconnector::Start() {
  TOKURA_CHECK(!channel_ && generation_ == 0);
  if (!stopping_) {
    Connect();
  }
}

void Reconnector::Stop() {
  if (std::exchange(stopping_, true)) {
    return;
  }
  const std::shared_ptr<Reconnector> self = shared_from_this();
  executor_.CancelTimer(std::exchange(retry_timer_, 0));
  Lose(absl::CancelledError("this side stops"));
  if (channel_) {
    channel_->Close(CloseMode::kFlush);
    return;
  }
  executor_.Post([self] { self->owner_.OnLinkStopped(*self); });
}

void Reconnector::Drop(const absl::Status& why) {
  if (!channel_ || stopping_) {
    return;
  }
  const std::shared_ptr<Reconnector> self = shared_from_this();
  Trouble(why);
  Lose(why);
  channel_->Close(CloseMode::kAbort);
}

bool Reconnector::usable() const {
  return phase_ == Phase::kUp && channel_ && channel_->ready();
}

absl::Status Reconnector::trouble() const {
  return usable() ? absl::OkStatus() : last_error_;
}

uint64_t Reconnector::Send(Op op, const google::protobuf::MessageLite& body, TimePoint deadline,
                           std::shared_ptr<Call> call) {
  if (!usable()) {
    executor_.Post([call = std::move(call), why = absl::UnavailableError(last_error_.message())] {
      call->OnReply(why, {});
    });
    return 0;
  }
  ++outstanding_;
  return channel_->Send(op, body, deadline,
                        std::make_shared<CountedCall>(shared_from_this(), std::move(call)));
}

absl::Status Reconnector::OnWelcome(ClientChannel&, const proto::Welcome& welcome) {
  if (absl::Status admitted = owner_.AdmitPeer(*this, welcome); !admitted.ok()) {
    return admitted;
  }
  peer_ = welcome.node();
  peer_incarnation_ = welcome.incarnation();
  last_error_ = absl::UnavailableError(absl::StrCat("the connection to ", peer_, " ends"));
  breaker_.OnProbeAnswered();
  // The channel becomes ready after this call returns.
  executor_.Post([self = shared_from_this(), generation = generation_] {
    if (generation == self->generation_ && !self->stopping_ && self->channel_->ready()) {
      self->phase_ = Phase::kUp;
      self->logged_trouble_.clear();
      Log(LogLevel::kInfo, self->options_.component, "link_up",
          {{"peer", self->peer_},
           {"address", self->address().ToString()},
           {"incarnation", self->peer_incarnation_}});
      self->owner_.OnLinkUp(*self);
    }
  });
  return absl::OkStatus();
}

void Reconnector::OnGoodbye(ClientChannel&) {
  last_error_ = absl::UnavailableError(absl::StrCat(peer_, " drains"));
  Fail();
  if (phase_ == Phase::kUp) {
    phase_ = Phase::kDraining;
    owner_.OnLinkDraining(*this);
  }
  goodbye_ = true;
  CloseIfDrained();
}

void Reconnector::OnDown(ClientChannel&, absl::Status why) {
  // The breaker is open already when the peer drained or the owner dropped the session: the cause
  // is known, and the end of the connection adds nothing to it.
  if (!stopping_ && breaker_.state() != Breaker::State::kOpen) {
    Trouble(why.ok() ? absl::UnavailableError("the connection was closed") : why);
  }
  Lose(why.ok() ? last_error_ : why);
  goodbye_ = false;
  ++generation_;
  outstanding_ = 0;
  // The channel may not be destroyed inside its own call. Stop, called in between, tells of the end
  // itself, after this task.
  executor_.Post([self = shared_from_this(), channel = std::move(channel_), stopped = stopping_] {
    if (stopped) {
      self->owner_.OnLinkStopped(*self);
    }
  });
  if (!stopping_) {
    ScheduleRetry();
  }
}

void Reconnector::Connect() {
  if (breaker_.state() == Breaker::State::kOpen) {
    breaker_.OnProbeStarted();
  }
  channel_ = ClientChannel::Start(transport_, options_.address, options_.channel, *this);
}

void Reconnector::ScheduleRetry() {
  const TimePoint now = executor_.Now();
  const Duration backoff = std::max(breaker_.next_probe() - now, Duration(0));
  const Duration jitter(
      static_cast<int64_t>(random_.Next() % (static_cast<uint64_t>(backoff.count()) / 2 + 1)));
  retry_timer_ = executor_.RunAt(now + backoff + jitter, [weak = weak_from_this()] {
    if (const std::shared_ptr<Reconnector> self = weak.lock(); self && !self->stopping_) {
      self->retry_timer_ = 0;
      self->Connect();
    }
  });
}

void Reconnector::Trouble(const absl::Status& why) {
  last_error_ = why;
  Fail();
  // Once per cause: tries repeat, and a dead peer must not fill the log.
  std::string trouble(why.message());
  if (trouble == logged_trouble_) {
    return;
  }
  Log(LogLevel::kWarn, options_.component, phase_ == Phase::kDown ? "link_failed" : "link_lost",
      {{"peer", peer_}, {"address", address().ToString()}, {"why", trouble}});
  logged_trouble_ = std::move(trouble);
}

void Reconnector::Fail() {
  if (breaker_.state() != Breaker::State::kOpen) {
    breaker_.OnFailure(executor_.Now());
  }
}

void Reconnector::Lose(const absl::Status& why) {
  if (std::exchange(phase_, Phase::kDown) != Phase::kDown) {
    owner_.OnLinkLost(*this, why);
  }
}

void Reconnector::RequestEnded(Ended how) {
  --outstanding_;
  if (how == Ended::kAnswered && breaker_.AllowsRequests()) {
    breaker_.OnSuccess();
  }
  CloseIfDrained();
}

void Reconnector::CloseIfDrained() {
  if (goodbye_ && outstanding_ == 0 && channel_) {
    channel_->Close(CloseMode::kFlush);
  }
}

}  // namespace tokura::net
