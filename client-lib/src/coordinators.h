#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client-lib/src/client_metrics.h"
#include "client-lib/src/deadline.h"
#include "client-lib/src/hedged_request.h"
#include "client-lib/src/node_link.h"
#include "common/executor.h"
#include "tokura/types.h"

namespace tokura {

// The connections to all listed coordinators, and which of them is asked first: the first one
// listed until it fails, then whoever took over. Owned by the core's executor.
class Coordinators final : public NodeLink::Owner {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    // First() may be another one now, or null.
    virtual void OnPreferenceChanged() = 0;
  };
  // Everything outlives this.
  struct Environment {
    Executor& executor;
    ClientMetrics& metrics;
    PauseWatch& pauses;
    const ClientOptions& options;
  };
  explicit Coordinators(Environment environment) : environment_(environment) {}
  ~Coordinators() override;

  // Connect; `observer` outlives Stop. Once.
  void Start(std::vector<std::shared_ptr<NodeLink>> links, Observer& observer);
  // Close every connection, then call `stopped`. Nothing is asked any more.
  void Stop(Task stopped);
  bool stopped() const { return links_.empty(); }

  // Ask; `answer` is called once, never inline, unless the request is cancelled.
  std::shared_ptr<HedgedRequest> Ask(HedgedRequest::Question question,
                                     HedgedRequest::Answer answer);
  // The usable coordinator to ask first; null when none is.
  NodeLink* First() const { return Next({}); }
  // Whether a question asked now or soon may be answered: one is usable, or still being met.
  bool MayAnswer() const;
  // The first usable one that is not among `asked`.
  NodeLink* Next(const std::vector<const NodeLink*>& asked) const;
  // `link` answered where others did not: it is asked first from now on.
  void Prefer(const NodeLink& link);
  // `link` did not do what was asked of it: another one is asked first from now on.
  void Avoid(const NodeLink& link);
  // How many keys every usable one takes in one request.
  size_t keys_max() const;
  // What is wrong with each, for people.
  std::string Trouble() const;
  const Environment& environment() const { return environment_; }

  // NodeLink::Owner. Coordinators are not fenced: what they say is soft state with its own epochs.
  absl::Status AdmitNode(NodeLink& link, const proto::Welcome& welcome) override;
  uint64_t FencedBelow(const std::string& node) const override;
  void OnLinkUp(NodeLink& link) override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;
  void OnLinkStopped(NodeLink& link) override;
  void OnLinkFailed(NodeLink&) override {}

 private:
  void TellObserver();
  void TellRequests(const NodeLink& link, HedgedRequest::Which which, const absl::Status& why);

  const Environment environment_;
  std::vector<std::shared_ptr<NodeLink>> links_;  // as listed; owners: this, calls and posted tasks
  size_t preferred_ = 0;
  Observer* maybe_observer_ = nullptr;
  std::vector<std::weak_ptr<HedgedRequest>> requests_;  // those that ended are swept with the next
  Task stopped_;
};

}  // namespace tokura
