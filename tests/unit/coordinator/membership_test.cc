// The members as their holder sees them: incarnations, suspicion, leaves, ramps, epochs, and a
// holder that starts again.

#include "coordinator/membership.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "tests/sim/scheduler.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kFenced = absl::StatusCode::kFailedPrecondition;

proto::RegisterRequest NodeRequest(const std::string& name, uint64_t incarnation, char process) {
  proto::RegisterRequest request;
  request.set_node(name);
  request.set_incarnation(incarnation);
  request.set_instance(std::string(16, process));
  request.set_starting(true);
  request.set_address("10.0.0.1:7000");
  request.set_capacity_bytes(uint64_t{1} << 30);
  return request;
}

proto::RegisterRequest AdmittedRequest(const std::string& name, uint64_t incarnation,
                                       char process) {
  proto::RegisterRequest request = NodeRequest(name, incarnation, process);
  request.set_starting(false);
  return request;
}

class MembershipTest : public ::testing::Test {
 protected:
  MembershipTest() {
    SetLogLevel(LogLevel::kError);  // suspicion warns
    options_.holder = "c0";
    options_.join_ramp = Duration(0);
    Restart();
  }

  void Restart() { membership_.emplace(options_, bugs_, now_); }

  absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request) {
    return membership_->Register(request, now_);
  }
  absl::StatusOr<uint64_t> Report(const std::string& name, uint64_t incarnation,
                                  bool leaving = false) {
    proto::ReportRequest request;
    request.set_incarnation(incarnation);
    request.set_leaving(leaving);
    return membership_->Report(name, request, now_);
  }
  // Let time pass in ticks, as the holder does.
  void Pass(Duration duration) {
    const TimePoint end = now_ + duration;
    while (now_ < end) {
      now_ = std::min(now_ + membership_->tick_interval(), end);
      membership_->Tick(now_);
    }
  }
  // Publish what is to be published: the new epoch, or 0.
  uint64_t Publish() {
    const std::optional<Membership::Draft> draft = membership_->NextDraft(now_);
    if (!draft) {
      return 0;
    }
    EXPECT_EQ(draft->metadata.epoch, draft->state.epoch());
    membership_->Publish(*draft);
    EXPECT_FALSE(membership_->NextDraft(now_)) << "published and still another";
    return membership_->published().epoch();
  }
  std::vector<std::string> Members() const {
    std::vector<std::string> members;
    for (const proto::Member& member : membership_->published().members()) {
      members.push_back(absl::StrCat(member.node(), ":", member.incarnation(), " ",
                                     proto::Member::State_Name(member.state()), " ",
                                     member.share_permille()));
    }
    return members;
  }

  TimePoint now_{seconds(1000)};
  Membership::Options options_;
  PlantedBugs bugs_;
  std::optional<Membership> membership_;
};

TEST_F(MembershipTest, AFreshClusterPublishesAtOnceAndEveryChangeIsAnEpoch) {
  EXPECT_EQ(Publish(), 0u);
  EXPECT_EQ(*Register(NodeRequest("b", 100, 'b')), 100u);
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(Publish(), 0u);
  EXPECT_EQ(*Register(NodeRequest("a", 200, 'a')), 200u);
  EXPECT_EQ(Publish(), 2u);
  EXPECT_THAT(Members(), ElementsAre("a:200 UP 1000", "b:100 UP 1000"));
  EXPECT_EQ(membership_->published().holder(), "c0");
  EXPECT_EQ(membership_->published().segment_blocks(), 32u);
}

TEST_F(MembershipTest, AnEmptyClusterIsPublishedAfterForming) {
  Pass(options_.forming - milliseconds(1));
  EXPECT_EQ(Publish(), 0u);
  Pass(milliseconds(1));
  EXPECT_EQ(Publish(), 1u);
  EXPECT_THAT(Members(), IsEmpty());
}

TEST_F(MembershipTest, RefusesMalformedRequestsByField) {
  const auto refused = [&](auto change) {
    proto::RegisterRequest request = NodeRequest("a", 100, 'a');
    change(request);
    const absl::StatusOr<uint64_t> got = Register(request);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(got.status().message());
  };
  using Request = proto::RegisterRequest;
  EXPECT_THAT(refused([](Request& r) { r.set_node(""); }), HasSubstr("node"));
  EXPECT_THAT(refused([](Request& r) { r.set_node(std::string(257, 'n')); }), HasSubstr("node"));
  EXPECT_THAT(refused([](Request& r) { r.set_address(""); }), HasSubstr("address"));
  EXPECT_THAT(refused([](Request& r) { r.set_admin(std::string(257, 'n')); }), HasSubstr("admin"));
  EXPECT_THAT(refused([](Request& r) { r.set_incarnation(0); }), HasSubstr("incarnation"));
  EXPECT_THAT(refused([](Request& r) { r.set_incarnation(UINT64_MAX); }), HasSubstr("incarnation"));
  EXPECT_THAT(refused([](Request& r) { r.set_instance("x"); }), HasSubstr("instance"));
  EXPECT_THAT(refused([](Request& r) { r.set_capacity_bytes(0); }), HasSubstr("capacity_bytes"));
  EXPECT_THAT(refused([](Request& r) { r.set_highest_epoch(UINT64_MAX); }),
              HasSubstr("highest_epoch"));
  EXPECT_EQ(Publish(), 0u);
}

// ---- incarnations ----

TEST_F(MembershipTest, AStartingProcessGetsMoreThanTheLastOfItsName) {
  EXPECT_EQ(*Register(NodeRequest("a", 100, 'a')), 100u);
  Publish();
  EXPECT_EQ(*Register(NodeRequest("a", 90, 'b')), 101u) << "its clock went back";
  EXPECT_EQ(*Register(NodeRequest("a", 101, 'c')), 102u) << "the same number is another life";
  EXPECT_EQ(*Register(NodeRequest("a", 500, 'd')), 500u);
  EXPECT_EQ(Publish(), 2u);
  EXPECT_THAT(Members(), ElementsAre("a:500 UP 1000"));
}

TEST_F(MembershipTest, TheSameProcessAskingAgainGetsTheSameAnswer) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(*Register(NodeRequest("a", 90, 'b')), 101u);
  Publish();
  EXPECT_EQ(*Register(NodeRequest("a", 90, 'b')), 101u) << "the answer was lost";
  EXPECT_EQ(*Register(AdmittedRequest("a", 101, 'b')), 101u) << "a new connection";
  EXPECT_EQ(Publish(), 0u) << "nothing has changed";
}

TEST_F(MembershipTest, AZombieIsFenced) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Register(NodeRequest("a", 200, 'b')).IgnoreError();
  Publish();
  EXPECT_EQ(Register(AdmittedRequest("a", 100, 'a')).status().code(), kFenced);
  EXPECT_EQ(Report("a", 100).status().code(), kFenced);
  EXPECT_EQ(Register(AdmittedRequest("a", 200, 'a')).status().code(), kFenced)
      << "another process with the number of the live one";
  EXPECT_TRUE(Report("a", 200).ok());
  EXPECT_EQ(Publish(), 0u);
  // Also after its successor is gone.
  Pass(options_.remove_after);
  EXPECT_EQ(Register(AdmittedRequest("a", 100, 'a')).status().code(), kFenced);
}

TEST_F(MembershipTest, PlantedBugLetsAZombieRegister) {
  bugs_.accept_lower_incarnation = true;
  Restart();
  Register(NodeRequest("a", 200, 'b')).IgnoreError();
  EXPECT_EQ(*Register(AdmittedRequest("a", 100, 'a')), 100u);
}

TEST_F(MembershipTest, AnOldHoldersNodesAreTakenAsTheyAreTheHighestWins) {
  EXPECT_EQ(*Register(AdmittedRequest("a", 100, 'a')), 100u);
  EXPECT_EQ(*Register(AdmittedRequest("a", 200, 'b')), 200u) << "it superseded the first";
  EXPECT_EQ(Register(AdmittedRequest("a", 100, 'a')).status().code(), kFenced);
}

TEST_F(MembershipTest, WhatTheStoreKeptIsFencedToo) {
  membership_->Restore({.epoch = 7, .incarnations = {{"a", 300}}, .policy = ""}, now_);
  EXPECT_EQ(Register(AdmittedRequest("a", 200, 'z')).status().code(), kFenced);
  EXPECT_EQ(*Register(AdmittedRequest("a", 300, 'a')), 300u) << "it lived through the restart";
  EXPECT_EQ(*Register(NodeRequest("a", 300, 'b')), 301u);
  Pass(options_.forming);
  EXPECT_EQ(Publish(), 8u);
}

// ---- silence ----

TEST_F(MembershipTest, SilenceIsSuspicionThenRemoval) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  Pass(options_.suspect_after - milliseconds(1));
  EXPECT_EQ(Publish(), 0u);
  Pass(milliseconds(1));
  EXPECT_EQ(Publish(), 2u);
  EXPECT_THAT(Members(), ElementsAre("a:100 SUSPECT 1000"));
  Pass(options_.remove_after - options_.suspect_after - milliseconds(1));
  EXPECT_EQ(Publish(), 0u);
  Pass(milliseconds(1));
  EXPECT_EQ(Publish(), 3u);
  EXPECT_THAT(Members(), IsEmpty());
  EXPECT_EQ(Report("a", 100).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(MembershipTest, AReportEndsSuspicionAndARegistrationBringsBack) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  Pass(options_.suspect_after);
  EXPECT_EQ(Publish(), 2u);
  EXPECT_TRUE(Report("a", 100).ok());
  EXPECT_EQ(Publish(), 3u);
  EXPECT_THAT(Members(), ElementsAre("a:100 UP 1000"));
  Pass(options_.remove_after);
  Publish();
  EXPECT_EQ(*Register(AdmittedRequest("a", 100, 'a')), 100u) << "it was only out of reach";
  Publish();
  EXPECT_THAT(Members(), ElementsAre("a:100 UP 1000"));
}

TEST_F(MembershipTest, ReportsKeepANodeUp) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  for (int i = 0; i < 100; ++i) {
    Pass(options_.suspect_after - milliseconds(1));
    EXPECT_TRUE(Report("a", 100).ok());
  }
  EXPECT_EQ(Publish(), 0u);
}

TEST_F(MembershipTest, AConnectionLostIsNoSuspicionYet) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  membership_->ConnectionLost("a", 100);
  EXPECT_EQ(Publish(), 0u);
}

TEST_F(MembershipTest, AHolderThatWasStoppedBlamesNobody) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  Pass(milliseconds(500));
  now_ += seconds(60);
  membership_->Tick(now_);
  EXPECT_EQ(Publish(), 0u);
  Pass(options_.suspect_after);
  EXPECT_EQ(Publish(), 2u) << "but silence from then on counts";
}

// ---- leaving ----

TEST_F(MembershipTest, ALeavingNodeRefusesWhatWasPlacedBefore) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  EXPECT_EQ(*Report("a", 100), 0u);
  EXPECT_EQ(*Report("a", 100, true), 0u) << "nobody has been told yet";
  EXPECT_EQ(Publish(), 2u);
  EXPECT_THAT(Members(), ElementsAre("a:100 LEAVING 0"));
  EXPECT_EQ(*Report("a", 100, true), 2u);
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  EXPECT_EQ(Publish(), 3u);
  EXPECT_EQ(*Report("a", 100, true), 2u) << "later epochs do not move it";
  EXPECT_EQ(*Report("a", 100, false), 2u) << "there is no way back for this life";
  membership_->ConnectionLost("a", 99);
  EXPECT_EQ(Publish(), 0u) << "another life's connection";
  membership_->ConnectionLost("a", 100);
  EXPECT_EQ(Publish(), 4u);
  EXPECT_THAT(Members(), ElementsAre("b:100 UP 1000"));
}

TEST_F(MembershipTest, ALeaveDuringADraftCountsFromTheNextEpoch) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  const std::optional<Membership::Draft> draft = membership_->NextDraft(now_);
  ASSERT_TRUE(draft);
  EXPECT_EQ(*Report("a", 100, true), 0u);
  membership_->Publish(*draft);
  EXPECT_THAT(Members(), ElementsAre("a:100 UP 1000"));
  EXPECT_EQ(*Report("a", 100, true), 0u) << "in epoch 1 it was a choice";
  EXPECT_EQ(Publish(), 2u);
  EXPECT_EQ(*Report("a", 100, true), 2u);
}

TEST_F(MembershipTest, ALeavingNodeComesBackAsLeavingAndItsNextLifeAsUp) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Report("a", 100, true).IgnoreError();
  Publish();
  membership_->ConnectionLost("a", 100);
  Publish();
  Register(AdmittedRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(Publish(), 3u);
  EXPECT_THAT(Members(), ElementsAre("a:100 LEAVING 0"));
  EXPECT_EQ(*Report("a", 100, true), 3u);
  Register(NodeRequest("a", 200, 'b')).IgnoreError();
  Publish();
  EXPECT_THAT(Members(), ElementsAre("a:200 UP 1000"));
  EXPECT_EQ(*Report("a", 200), 0u);
}

// ---- the ramp ----

TEST_F(MembershipTest, ANewNodesShareGrowsInStepsEachAnEpoch) {
  options_.join_ramp = seconds(9);
  Restart();
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  EXPECT_THAT(Members(), ElementsAre("a:100 UP 100"));
  for (uint32_t step = 2; step <= 10; ++step) {
    Pass(milliseconds(500));
    Report("a", 100).IgnoreError();
    Pass(milliseconds(499));
    Report("a", 100).IgnoreError();
    EXPECT_EQ(Publish(), 0u);
    Pass(milliseconds(1));
    EXPECT_EQ(Publish(), step);
    EXPECT_THAT(Members(), ElementsAre(absl::StrCat("a:100 UP ", 100 * step)));
  }
  Pass(milliseconds(900));
  EXPECT_EQ(Publish(), 0u);
}

TEST_F(MembershipTest, TheAgeOfANodeThatIsNotNewCounts) {
  options_.join_ramp = seconds(9);
  Restart();
  proto::RegisterRequest old = AdmittedRequest("a", 100, 'a');
  old.set_age_us(UINT64_MAX);
  Register(old).IgnoreError();
  proto::RegisterRequest young = AdmittedRequest("b", 100, 'b');
  young.set_age_us(4'000'000);
  Register(young).IgnoreError();
  Publish();
  EXPECT_THAT(Members(), ElementsAre("a:100 UP 1000", "b:100 UP 500"));
  young.set_age_us(0);
  Register(young).IgnoreError();
  EXPECT_EQ(Publish(), 0u) << "what is known of the same life is not forgotten";
  Register(NodeRequest("a", 200, 'n')).IgnoreError();
  Publish();
  EXPECT_THAT(Members(), ElementsAre("a:200 UP 100", "b:100 UP 500")) << "a new life is empty";
}

// ---- epochs ----

TEST_F(MembershipTest, AHolderThatStartsAgainWaitsAndGoesOnAbove) {
  proto::RegisterRequest request = AdmittedRequest("a", 100, 'a');
  request.set_highest_epoch(57);
  Register(request).IgnoreError();
  EXPECT_EQ(Publish(), 0u);
  Register(NodeRequest("new", 100, 'n')).IgnoreError();
  EXPECT_EQ(Publish(), 0u) << "a new node does not end the waiting";
  membership_->NameEpoch(60, now_);
  Pass(milliseconds(500));
  Register(AdmittedRequest("b", 100, 'b')).IgnoreError();
  Report("a", 100).IgnoreError();
  Pass(milliseconds(999));
  EXPECT_EQ(Publish(), 0u);
  Report("b", 100).IgnoreError();
  Pass(milliseconds(1));
  EXPECT_EQ(Publish(), 61u);
  EXPECT_THAT(Members(),
              ElementsAre("a:100 SUSPECT 1000", "b:100 UP 1000", "new:100 SUSPECT 1000"));
}

TEST_F(MembershipTest, WhoeverNamesAnEarlierLifeLateIsWaitedForOnceOnly) {
  Register(NodeRequest("new", 100, 'n')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  proto::RegisterRequest request = AdmittedRequest("a", 100, 'a');
  request.set_highest_epoch(57);
  Register(request).IgnoreError();
  EXPECT_EQ(Publish(), 0u);
  EXPECT_THAT(Members(), ElementsAre("new:100 UP 1000")) << "what was published stays";
  for (int i = 0; i < 3; ++i) {
    Pass(milliseconds(500));
    Report("a", 100).IgnoreError();
    Report("new", 100).IgnoreError();
  }
  EXPECT_EQ(Publish(), 58u);
  Pass(Membership::kNamedApart);
  Publish();  // their silence
  membership_->NameEpoch(1000, now_);
  EXPECT_EQ(Publish(), 1001u) << "at once";
  membership_->NameEpoch(1001, now_);
  EXPECT_EQ(Publish(), 0u) << "its own";
  membership_->NameEpoch(UINT64_MAX, now_);
  EXPECT_EQ(Publish(), 0u) << "no epoch could follow";
}

TEST_F(MembershipTest, EpochsThatArePublishedOnlyBecauseTheyWereNamedComeApart) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  int published = 0;
  for (int i = 0; i < 1000; ++i) {
    Report("a", 100).IgnoreError();
    membership_->NameEpoch(membership_->published().epoch() + 1, now_);
    published += Publish() != 0 ? 1 : 0;
    Pass(milliseconds(10));
  }
  EXPECT_GE(published, 8) << "in ten seconds, of which the first waits for an earlier life's nodes";
  EXPECT_LE(published, 11);
  membership_->NameEpoch(5000, now_);
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  EXPECT_EQ(Publish(), 5001u) << "a change of the members does not wait";
}

TEST_F(MembershipTest, TheHighestNumbersThatAPeerMayClaimLeaveRoomAbove) {
  proto::RegisterRequest request = AdmittedRequest("a", kClaimMax, 'a');
  request.set_highest_epoch(kClaimMax);
  EXPECT_TRUE(Register(request).ok());
  EXPECT_EQ(*Register(NodeRequest("a", 100, 'b')), kClaimMax + 1);
  Pass(options_.forming);
  EXPECT_EQ(Publish(), kClaimMax + 1);
  request = AdmittedRequest("a", kClaimMax + 1, 'b');
  request.set_highest_epoch(kClaimMax + 1);
  EXPECT_TRUE(Register(request).ok()) << "what it was told";
  request.set_highest_epoch(kToldMax + 1);
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MembershipTest, TheNextHolderTakesNumbersThatGrewAboveTheHighestClaims) {
  membership_->NameEpoch(kClaimMax, now_);
  EXPECT_EQ(*Register(NodeRequest("a", kClaimMax, 'a')), kClaimMax);
  EXPECT_EQ(*Register(NodeRequest("a", 100, 'b')), kClaimMax + 1);
  Pass(options_.forming);
  EXPECT_EQ(Publish(), kClaimMax + 1);
  Restart();
  EXPECT_FALSE(Register(NodeRequest("a", kClaimMax + 1, 'c')).ok()) << "it was told nothing yet";
  proto::RegisterRequest request = AdmittedRequest("a", kClaimMax + 1, 'b');
  request.set_highest_epoch(kClaimMax + 1);
  EXPECT_EQ(*Register(request), kClaimMax + 1);
  Pass(options_.forming);
  EXPECT_EQ(Publish(), kClaimMax + 2);
}

TEST_F(MembershipTest, ReportsNameEpochsToo) {
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  Publish();
  proto::ReportRequest report;
  report.set_incarnation(100);
  report.set_highest_epoch(30);
  EXPECT_TRUE(membership_->Report("a", report, now_).ok());
  Pass(milliseconds(800));
  Report("a", 100).IgnoreError();
  Pass(milliseconds(800));
  EXPECT_EQ(Publish(), 31u);
}

TEST_F(MembershipTest, PlantedBugStartsAtOneAgain) {
  bugs_.restart_epoch_at_one = true;
  Restart();
  proto::RegisterRequest request = AdmittedRequest("a", 100, 'a');
  request.set_highest_epoch(57);
  Register(request).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
}

// ---- policy, bounds ----

TEST_F(MembershipTest, RulesGoWithTheStateAndTheirVersionRises) {
  Policy policy;
  policy.text = "text";
  policy.rules.emplace_back().set_tenant("*");
  membership_->SetPolicy(policy);
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(membership_->published().rules_size(), 1);
  EXPECT_EQ(membership_->published().policy_version(), 1u);
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  EXPECT_EQ(Publish(), 2u);
  EXPECT_EQ(membership_->published().policy_version(), 1u) << "the rules are the same";
  Register(NodeRequest("c", 100, 'c')).IgnoreError();
  const std::optional<Membership::Draft> draft = membership_->NextDraft(now_);
  EXPECT_EQ(draft->metadata.policy, "text");
  EXPECT_THAT(draft->metadata.incarnations,
              ElementsAre(std::pair("a", 100u), std::pair("b", 100u), std::pair("c", 100u)));
  membership_->SetPolicy({});
  membership_->Publish(*draft);
  EXPECT_EQ(membership_->published().policy_version(), 1u);
  EXPECT_EQ(Publish(), 4u);
  EXPECT_EQ(membership_->published().rules_size(), 0);
  EXPECT_EQ(membership_->published().policy_version(), 4u);
}

TEST_F(MembershipTest, StatesOfTwoLivesUnderOneEpochDifferInTheVersionOfTheirRules) {
  options_.life = 1000;
  Restart();
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(membership_->published().policy_version(), 1000u) << "none are rules, too";
  membership_->SetPolicy({});
  EXPECT_EQ(Publish(), 2u);
  EXPECT_EQ(membership_->published().policy_version(), 1001u);
  options_.life = 2000;
  Restart();
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(membership_->published().policy_version(), 2000u);
}

TEST_F(MembershipTest, MembersAndNamesAreBounded) {
  for (size_t i = 0; i < Membership::kMembersMax; ++i) {
    ASSERT_TRUE(Register(NodeRequest(absl::StrCat("n", i), 100, 'a')).ok());
  }
  EXPECT_EQ(Register(NodeRequest("more", 100, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Register(NodeRequest("n0", 100, 'a')).ok()) << "a member stays one";
  Publish();
  proto::ClusterState largest = membership_->published();
  for (proto::Member& member : *largest.mutable_members()) {
    member.set_node(std::string(Membership::kTextBytesMax, 'n'));
    member.set_address(std::string(Membership::kTextBytesMax, 'n'));
    member.set_admin(std::string(Membership::kTextBytesMax, 'n'));
    member.set_incarnation(kClaimMax);
    member.set_capacity_bytes(UINT64_MAX);
  }
  for (size_t i = 0; i < kPolicyRulesMax; ++i) {
    proto::PolicyRule& rule = *largest.add_rules();
    rule.set_tenant(std::string(256, 't'));
    rule.set_model(std::string(256, 'm'));
    rule.set_ingest_codec(std::string(40, 'c'));
    rule.set_max_error(0.5);
    rule.set_ttl_us(UINT64_MAX);
  }
  EXPECT_LT(largest.ByteSizeLong(), size_t{1} << 20) << "one message";
}

TEST_F(MembershipTest, TheNameThatIsGoneLongestIsForgottenFirst) {
  Register(NodeRequest("first", 900, 'a')).IgnoreError();
  Pass(options_.remove_after);
  Register(NodeRequest("second", 900, 'a')).IgnoreError();
  Pass(options_.remove_after);
  for (size_t i = 0; i < Membership::kNamesMax - 1; ++i) {
    ASSERT_TRUE(Register(NodeRequest(absl::StrCat("n", i), 100, 'a')).ok());
    if (i % 500 == 499) {
      Pass(options_.remove_after);
    }
  }
  EXPECT_EQ(Register(AdmittedRequest("second", 100, 'z')).status().code(), kFenced);
  EXPECT_EQ(*Register(AdmittedRequest("first", 100, 'z')), 100u);
}

// Whatever happens in whatever order: epochs rise, members are in order, a lower incarnation never
// follows a higher one of its name, and a refused epoch is one in which the node was said to leave.
class RandomMembershipTest : public MembershipTest {
 protected:
  void RandomEvent() {
    const std::string name = absl::StrCat("n", random_.Below(4));
    switch (random_.Below(6)) {
      case 0:
        Register(RandomRegister(name)).IgnoreError();
        break;
      case 1:
      case 2:
        CheckRefusal(name, Report(name, highest_[name], random_.Permille(30)));
        break;
      case 3:
        membership_->ConnectionLost(name, highest_[name]);
        break;
      default:
        Pass(milliseconds(random_.Below(800)));
    }
    if (random_.Permille(700) && Publish() != 0) {
      CheckPublished();
    }
  }

  proto::RegisterRequest RandomRegister(const std::string& name) {
    proto::RegisterRequest request =
        NodeRequest(name, 1 + random_.Below(30), static_cast<char>('a' + random_.Below(6)));
    request.set_starting(random_.Permille(500));
    request.set_highest_epoch(random_.Permille(20) ? random_.Below(5000) : 0);
    return request;
  }

  void CheckRefusal(const std::string& name, const absl::StatusOr<uint64_t>& refuse_below) {
    if (!refuse_below.ok() || *refuse_below == 0) {
      return;
    }
    bool leaving = false;
    for (const proto::Member& member : published_[*refuse_below].members()) {
      leaving |= member.node() == name && member.state() == proto::Member::LEAVING;
    }
    EXPECT_TRUE(leaving) << name << " in epoch " << *refuse_below;
  }

  void CheckPublished() {
    const proto::ClusterState& state = membership_->published();
    EXPECT_TRUE(published_.empty() || published_.rbegin()->first < state.epoch());
    published_[state.epoch()] = state;
    std::string last;
    for (const proto::Member& member : state.members()) {
      EXPECT_LT(last, member.node());
      EXPECT_GE(member.incarnation(), highest_[member.node()]);
      EXPECT_EQ(member.share_permille() == 0, member.state() == proto::Member::LEAVING);
      last = member.node();
      highest_[last] = member.incarnation();
    }
  }

  sim::SimRandom random_{1};
  std::map<std::string, uint64_t> highest_;            // incarnation published, by name
  std::map<uint64_t, proto::ClusterState> published_;  // by epoch
};

TEST_F(RandomMembershipTest, InvariantsHold) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    random_ = sim::SimRandom(seed);
    highest_.clear();
    published_.clear();
    options_.join_ramp = seconds(random_.Below(20));
    Restart();
    for (int i = 0; i < 2000 && !HasFailure(); ++i) {
      RandomEvent();
    }
    EXPECT_GT(published_.size(), 100u) << seed;
  }
}

}  // namespace
}  // namespace tokura::coordinator
