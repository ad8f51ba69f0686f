#include "coordinator/prefix_index_locate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "coordinator/prefix_index_visit.h"

namespace tokura::coordinator {
namespace {

constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
// Records keep times in ticks, so that 32 bits last for years of uptime.
constexpr Duration kTick = std::chrono::microseconds(62500);
constexpr uint32_t kTicksPerSecond = 16;
// Heat decays by e in a minute, so that it settles at the number of lookups per minute.
constexpr float kHeatTicks = 60 * kTicksPerSecond;

uint32_t Ticks(TimePoint now) {
  return static_cast<uint32_t>(now.time_since_epoch() / kTick);
}

}  // namespace

// What is left of records' heat at one moment. The exponential costs more than the rest of a
// lookup, and the blocks of a chain were mostly looked up together the last time, too: it is
// computed when the time between differs from the record's before.
class PrefixIndex::HeatClock {
 public:
  explicit HeatClock(TimePoint now) : now_(Ticks(now)) {}
  uint32_t now() const { return now_; }
  uint32_t Since(const Record& record) const { return now_ - record.touched; }
  float Left(const Record& record) {
    if (const uint32_t elapsed = Since(record); elapsed != elapsed_) {
      elapsed_ = elapsed;
      factor_ = std::exp(-static_cast<float>(elapsed) / kHeatTicks);
    }
    return record.heat * factor_;
  }

 private:
  const uint32_t now_;
  uint32_t elapsed_ = 0;
  float factor_ = 1;
};

PrefixIndex::Locator::Locator(PrefixIndex& index, const LocateQuery& query)
    : index_(index), query_(query), scratch_(*index.scratch_) {
  scratch_.sources.assign(index.sources_.size(), SourceView{});
  for (size_t id = 1; id < index.sources_.size(); ++id) {
    const Source& source = index.sources_[id];
    if (source.state == SourceState::kVisible && source.node < query.nodes.size()) {
      const NodeStanding& standing = query.nodes[source.node];
      scratch_.sources[id] = SourceView{source.node, standing.use, standing.load};
    }
  }
  scratch_.classes.assign(index.classes_.size(), ClassView{});
  scratch_.handles.clear();
  scratch_.handles.reserve(query.keys.size());
  if (query.accept->max_error.has_value()) {
    max_error_ = static_cast<float>(*query.accept->max_error);
  }
}

void PrefixIndex::Locator::Run(LocateResult& result) {
  PrefixScan scan;
  index_.records_->FindAll(query_.keys, [&](size_t, uint32_t handle) {
    const uint32_t must_follow = handle == 0 ? kNever : MustFollow((*index_.records_)[handle]);
    if (must_follow == kNever) {
      return false;
    }
    scan.Add(must_follow);
    scratch_.handles.push_back(handle);
    return true;
  });
  result.runs.clear();
  result.alternates.clear();
  result.prefix_blocks = static_cast<uint32_t>(scan.usable());
  Line runs{result.runs};
  Line alternates{result.alternates};
  runs_ = &runs;
  alternates_ = &alternates;
  HeatClock clock(query_.now);
  for (uint32_t block = 0; block < result.prefix_blocks; ++block) {
    Record& record = (*index_.records_)[scratch_.handles[block]];
    Choose(record, block, result.prefix_blocks - 1 - block);
    if (query_.touch == LocateQuery::Touch::kYes) {
      index_.TouchRecord(record, clock);
    }
  }
  runs.CloseRun();
  alternates.CloseRun();
}

const PrefixIndex::Scratch::ClassView& PrefixIndex::Locator::ViewOf(ClassId id) {
  ClassView& view = scratch_.classes[id];
  if (!view.known) {
    view = Judged(id);
  }
  return view;
}

PrefixIndex::Scratch::ClassView PrefixIndex::Locator::Judged(ClassId id) const {
  const FormClass& form_class = index_.classes_[id];
  const FormTraits traits{CodecRank(*query_.accept, form_class.codec), form_class.group_mask,
                          form_class.fidelity, form_class.proxy_error};
  ClassView view;
  view.known = true;
  view.verdict = Judge(*query_.accept, traits);
  view.fidelity = form_class.fidelity;
  view.codec_rank = static_cast<uint32_t>(traits.codec_rank);
  const size_t must_follow = query_.rule.MustFollow(form_class.group_mask);
  view.must_follow = static_cast<uint32_t>(std::min<size_t>(must_follow, kNever));
  if (view.must_follow == kNever) {
    view.verdict = Verdict::kNo;
  }
  return view;
}

bool PrefixIndex::Locator::Considers(const FormEntry& form, Candidate& candidate) {
  const SourceView& source = scratch_.sources[form.source];
  if (source.use == NodeStanding::Use::kHidden) {
    return false;
  }
  const ClassView& form_class = ViewOf(form.form_class);
  if (form_class.verdict == Verdict::kNo ||
      (form_class.verdict == Verdict::kByError && !(form.error_mean <= *max_error_))) {
    return false;
  }
  candidate = Candidate{&form, &source, &form_class};
  return true;
}

inline uint32_t PrefixIndex::Locator::MustFollow(const Record& record) {
  const FormEntry& form = record.form;
  if (record.more == 0 && form.source == last_.source && form.form_class == last_.form_class &&
      form.source != 0) {
    return last_.must_follow;
  }
  const uint32_t least = MustFollowAny(record);
  // A form that is judged by its error says nothing about the next one.
  if (record.more == 0 && least != kNever && ViewOf(form.form_class).verdict == Verdict::kYes) {
    last_ = LastForm{form.source, form.form_class, least};
  }
  return least;
}

uint32_t PrefixIndex::Locator::MustFollowAny(const Record& record) {
  uint32_t least = kNever;
  index_.records_->VisitForms(record, [&](const FormEntry& form) {
    Candidate candidate;
    if (Considers(form, candidate)) {
      least = std::min(least, candidate.form_class->must_follow);
    }
  });
  return least;
}

void PrefixIndex::Locator::Choose(const Record& record, uint32_t block, uint32_t following) {
  if (record.more == 0) {  // nearly all
    if (runs_->Extend(block, record.form)) {
      return;
    }
    Candidate only;
    Considers(record.form, only);
    runs_->Add(block, only);
    return;
  }
  std::array<Candidate, kFormsMax> candidates;
  size_t count = 0;
  index_.records_->VisitForms(record, [&](const FormEntry& form) {
    if (Considers(form, candidates[count]) &&
        candidates[count].form_class->must_follow <= following) {
      ++count;
    }
  });
  // The prefix ends where it does because every block of it has one.
  const Candidate* const begin = candidates.data();
  const Candidate* const end = begin + count;
  const std::optional<NodeSlot> before = runs_->NodeBefore(block);
  const Candidate* chosen = std::min_element(
      begin, end, [&](const Candidate& a, const Candidate& b) { return Better(a, b, before); });
  runs_->Add(block, *chosen);
  if (count == 1) {
    return;
  }
  const std::optional<NodeSlot> alternate_before = alternates_->NodeBefore(block);
  const Candidate* alternate = nullptr;
  for (const Candidate* candidate = begin; candidate != end; ++candidate) {
    if (candidate->source->use == NodeStanding::Use::kUsable &&
        candidate->source->node != chosen->source->node &&
        (alternate == nullptr || Better(*candidate, *alternate, alternate_before))) {
      alternate = candidate;
    }
  }
  if (alternate != nullptr) {
    alternates_->Add(block, *alternate);
  }
}

bool PrefixIndex::Locator::Better(const Candidate& a, const Candidate& b,
                                  std::optional<NodeSlot> before) {
  if (a.source->use != b.source->use) {
    return a.source->use == NodeStanding::Use::kUsable;
  }
  if (a.source->node != b.source->node) {
    const bool goes_on = before == a.source->node;
    if (goes_on != (before == b.source->node)) {
      return goes_on;
    }
    return a.source->load != b.source->load ? a.source->load < b.source->load
                                            : a.source->node < b.source->node;
  }
  const auto rank = [](const Candidate& c) {
    return FormRank{c.form_class->codec_rank, c.form_class->fidelity, c.form->error_mean,
                    c.form->stored_bytes};
  };
  const std::partial_ordering order = CompareForms(rank(a), rank(b));
  return order != 0 ? order < 0 : a.form->form_class < b.form->form_class;
}

std::optional<NodeSlot> PrefixIndex::Locator::Line::NodeBefore(uint32_t block) const {
  if (runs.empty() || runs.back().first + runs.back().count != block) {
    return std::nullopt;
  }
  return runs.back().node;
}

void PrefixIndex::Locator::Line::Add(uint32_t block, const Candidate& chosen) {
  const FormEntry& form = *chosen.form;
  const NodeSlot node = chosen.source->node;
  if (NodeBefore(block) != node || runs.back().form_class != form.form_class) {
    CloseRun();
    runs.push_back(IndexRun{node, form.form_class, block, 0, 0, 0, 0});
    error_sum = 0;
  }
  source = form.source;
  Count(form);
}

inline bool PrefixIndex::Locator::Line::Extend(uint32_t block, const FormEntry& form) {
  if (runs.empty() || source != form.source || runs.back().form_class != form.form_class ||
      runs.back().first + runs.back().count != block) {
    return false;
  }
  Count(form);
  return true;
}

inline void PrefixIndex::Locator::Line::Count(const FormEntry& form) {
  IndexRun& run = runs.back();
  ++run.count;
  run.stored_bytes += form.stored_bytes;
  run.error_max = std::max(run.error_max, form.error_max);
  error_sum += form.error_mean;
}

void PrefixIndex::Locator::Line::CloseRun() {
  if (!runs.empty()) {
    runs.back().error_mean = static_cast<float>(error_sum / runs.back().count);
  }
}

void PrefixIndex::Locate(const LocateQuery& query, LocateResult& result) {
  Locator(*this, query).Run(result);
}

inline void PrefixIndex::TouchRecord(Record& record, HeatClock& clock) {
  if (record.heat > 0 && clock.Since(record) < kTicksPerSecond) {
    ++record.heat;
    return;
  }
  record.heat = record.heat > 0 ? clock.Left(record) + 1 : 1;
  record.touched = clock.now();
  VisitNodes(record, [&](NodeSlot node) { sink_.Touched(node, record.key); });
}

float PrefixIndex::Heat(const BlockKey& key, TimePoint now) const {
  const uint32_t handle = records_->Find(key, records_->Hash(key));
  return handle == 0 ? 0 : HeatClock(now).Left((*records_)[handle]);
}

void PrefixIndex::Held(const HeldQuery& query, std::vector<BlockHolders>& holders) const {
  std::vector<bool> will_do(classes_.size());
  for (size_t id = 0; id < classes_.size(); ++id) {
    const FormClass& form_class = classes_[id];
    will_do[id] = (form_class.group_mask & query.group_mask) == query.group_mask &&
                  (form_class.codec == query.codec || form_class.fidelity == kWireExact);
  }
  const auto usable = [&](const Source& source) {
    return source.state == SourceState::kVisible && source.node < query.nodes.size() &&
           query.nodes[source.node].use == NodeStanding::Use::kUsable;
  };
  holders.assign(query.keys.size(), BlockHolders{});
  records_->FindAll(query.keys, [&](size_t i, uint32_t handle) {
    if (handle == 0) {
      return true;
    }
    BlockHolders& block = holders[i];
    records_->VisitForms((*records_)[handle], [&](const FormEntry& form) {
      const Source& source = sources_[form.source];
      if (will_do[form.form_class] && usable(source)) {
        block.Add(source.node);
      }
    });
    return true;
  });
}

void BlockHolders::Add(NodeSlot node) {
  NodeSlot* const end = nodes + count;
  NodeSlot* const at = std::lower_bound(nodes, end, node);
  if (at == nodes + kMax || (at != end && *at == node)) {
    return;
  }
  const size_t kept = std::min<size_t>(count, kMax - 1);
  std::copy_backward(at, nodes + kept, nodes + kept + 1);
  *at = node;
  count = static_cast<uint8_t>(kept + 1);
}

}  // namespace tokura::coordinator
