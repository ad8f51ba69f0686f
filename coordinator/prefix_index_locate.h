#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/prefix_index.h"
#include "coordinator/prefix_index_records.h"

namespace tokura::coordinator {

// Tables of one lookup, kept for the next one's use.
struct PrefixIndex::Scratch {
  // An inventory as the lookup sees it.
  struct SourceView {
    NodeSlot node = 0;
    NodeStanding::Use use = NodeStanding::Use::kHidden;
    uint32_t load = 0;
  };
  // What the lookup thinks of a class of forms.
  struct ClassView {
    bool known = false;
    Verdict verdict = Verdict::kNo;
    uint32_t fidelity = kWireExact;
    uint32_t codec_rank = 0;
    uint32_t must_follow = 0;
  };

  std::vector<SourceView> sources;  // by SourceId
  std::vector<ClassView> classes;   // by ClassId
  std::vector<uint32_t> handles;    // of the keys found

  uint64_t memory_bytes() const {
    return sources.capacity() * sizeof(SourceView) + classes.capacity() * sizeof(ClassView) +
           handles.capacity() * sizeof(uint32_t);
  }
};

// One call of Locate: looks at every block once to find how long the prefix is, then again, when
// its end and so what each block needs is known, to choose nodes.
class PrefixIndex::Locator {
 public:
  Locator(PrefixIndex& index, const LocateQuery& query);
  void Run(LocateResult& result);

 private:
  using SourceView = Scratch::SourceView;
  using ClassView = Scratch::ClassView;
  struct Candidate {
    const FormEntry* form = nullptr;
    const SourceView* source = nullptr;
    const ClassView* form_class = nullptr;
  };
  // Runs under construction.
  struct Line {
    std::vector<IndexRun>& runs;
    double error_sum = 0;  // of the last run
    SourceId source = 0;   // of the block that was added last
    // The node of the block before, if it was in the last run.
    std::optional<NodeSlot> NodeBefore(uint32_t block) const;
    void Add(uint32_t block, const Candidate& chosen);
    // Add the only form of a block if it goes on with the last run; whether it did.
    bool Extend(uint32_t block, const FormEntry& form);
    void Count(const FormEntry& form);
    void CloseRun();
  };
  // Blocks of a chain lie mostly in one inventory and one class each: what was found out about the
  // last one holds for the next one.
  struct LastForm {
    SourceId source = 0;  // 0: none
    ClassId form_class = 0;
    uint32_t must_follow = 0;
  };

  const ClassView& ViewOf(ClassId id);
  ClassView Judged(ClassId id) const;
  // The form as a candidate; false when the lookup does not see or take it.
  bool Considers(const FormEntry& form, Candidate& candidate);
  uint32_t MustFollow(const Record& record);
  uint32_t MustFollowAny(const Record& record);
  // Choose for a block with `following` blocks of the prefix after it.
  void Choose(const Record& record, uint32_t block, uint32_t following);
  static bool Better(const Candidate& a, const Candidate& b, std::optional<NodeSlot> before);

  PrefixIndex& index_;
  const LocateQuery& query_;
  Scratch& scratch_;
  std::optional<float> max_error_;
  LastForm last_;
  Line* runs_ = nullptr;
  Line* alternates_ = nullptr;
};

}  // namespace tokura::coordinator
