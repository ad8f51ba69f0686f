#include "client-lib/src/coordinators.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client-lib/src/fan_out.h"
#include "common/check.h"

namespace tokura {

Coordinators::~Coordinators() {
  TOKURA_CHECK(links_.empty());
}

void Coordinators::Start(std::vector<std::shared_ptr<NodeLink>> links, Observer& observer) {
  TOKURA_CHECK(links_.empty() && maybe_observer_ == nullptr);
  maybe_observer_ = &observer;
  links_ = std::move(links);
  for (const std::shared_ptr<NodeLink>& link : links_) {
    link->Start();
  }
}

void Coordinators::Stop(Task stopped) {
  maybe_observer_ = nullptr;
  stopped_ = std::move(stopped);
  const std::vector<std::shared_ptr<NodeLink>> links = links_;
  for (const std::shared_ptr<NodeLink>& link : links) {
    link->Stop();
  }
}

std::shared_ptr<HedgedRequest> Coordinators::Ask(HedgedRequest::Question question,
                                                 HedgedRequest::Answer answer) {
  const auto ended = [](const std::weak_ptr<HedgedRequest>& request) { return request.expired(); };
  requests_.erase(std::remove_if(requests_.begin(), requests_.end(), ended), requests_.end());
  // Owners: the asking operation and the calls and timers under way.
  auto request = std::make_shared<HedgedRequest>(*this, std::move(question), std::move(answer));
  requests_.push_back(request);
  request->Start();
  return request;
}

NodeLink* Coordinators::Next(const std::vector<const NodeLink*>& asked) const {
  for (size_t i = 0; i < links_.size(); ++i) {
    NodeLink* const link = links_[(preferred_ + i) % links_.size()].get();
    if (link->usable() && std::find(asked.begin(), asked.end(), link) == asked.end()) {
      return link;
    }
  }
  return nullptr;
}

bool Coordinators::MayAnswer() const {
  return std::any_of(links_.begin(), links_.end(), [](const std::shared_ptr<NodeLink>& link) {
    return link->usable() || link->meeting();
  });
}

void Coordinators::Prefer(const NodeLink& link) {
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].get() == &link && i != preferred_) {
      preferred_ = i;
      environment_.metrics.failovers->Increment();
      TellObserver();
      return;
    }
  }
}

void Coordinators::Avoid(const NodeLink& link) {
  // While everything is closed, losing one is no reason to turn to the next.
  if (maybe_observer_ == nullptr || links_[preferred_].get() != &link) {
    return;
  }
  if (NodeLink* maybe_other = Next({&link}); maybe_other != nullptr) {
    Prefer(*maybe_other);
  }
}

size_t Coordinators::keys_max() const {
  size_t most = kKeysPerMessageMax;
  for (const std::shared_ptr<NodeLink>& link : links_) {
    most = link->usable() ? std::min(most, KeysMax(*link)) : most;
  }
  return most;
}

std::string Coordinators::Trouble() const {
  std::string text = "no coordinator is reachable";
  for (const std::shared_ptr<NodeLink>& link : links_) {
    absl::StrAppend(&text, "; ", link->address().ToString(), ": ", link->trouble().message());
  }
  return text;
}

absl::Status Coordinators::AdmitNode(NodeLink&, const proto::Welcome&) {
  return absl::OkStatus();
}

uint64_t Coordinators::FencedBelow(const std::string&) const {
  return 0;
}

void Coordinators::OnLinkUp(NodeLink&) {
  TellObserver();
}

void Coordinators::TellObserver() {
  if (maybe_observer_ != nullptr) {
    maybe_observer_->OnPreferenceChanged();
  }
}

void Coordinators::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  Avoid(link);
  TellRequests(link, HedgedRequest::Which::kQueued, why);
  TellObserver();
}

void Coordinators::OnLinkLost(NodeLink& link, const absl::Status& why) {
  Avoid(link);
  TellRequests(link, HedgedRequest::Which::kAll, why);
  TellObserver();
}

void Coordinators::TellRequests(const NodeLink& link, HedgedRequest::Which which,
                                const absl::Status& why) {
  const std::vector<std::weak_ptr<HedgedRequest>> requests = requests_;
  for (const std::weak_ptr<HedgedRequest>& weak : requests) {
    if (const std::shared_ptr<HedgedRequest> request = weak.lock()) {
      request->OnLinkGone(link, which, why);
    }
  }
}

void Coordinators::OnLinkStopped(NodeLink& link) {
  const auto is_link = [&link](const std::shared_ptr<NodeLink>& held) {
    return held.get() == &link;
  };
  links_.erase(std::remove_if(links_.begin(), links_.end(), is_link), links_.end());
  preferred_ = 0;
  if (links_.empty()) {
    environment_.executor.Post(std::exchange(stopped_, nullptr));
  }
}

}  // namespace tokura
