#include "tests/unit/coordinator/prefix_index_model.h"

#include <algorithm>
#include <tuple>

namespace tokura::coordinator {
namespace {

size_t RankOf(const AcceptRule& rule, const std::string& codec) {
  size_t rank = 0;
  while (rank < rule.codecs.size() && rule.codecs[rank] != codec) {
    ++rank;
  }
  return rank;
}

bool Acceptable(const AcceptRule& rule, const FormClass& form_class, float error) {
  if (form_class.fidelity == kWireSummary && !rule.allow_summary) {
    return false;
  }
  if (!rule.codecs.empty() && RankOf(rule, form_class.codec) == rule.codecs.size()) {
    return false;
  }
  if (!rule.max_error.has_value() || form_class.fidelity == kWireExact) {
    return true;
  }
  if (*rule.max_error == 0 || (form_class.proxy_error && !rule.accept_proxy_error)) {
    return false;
  }
  return error <= static_cast<float>(*rule.max_error);
}

void AddToRuns(std::vector<IndexRun>& runs, std::vector<std::vector<float>>& errors,
               const IndexRun& one) {
  if (!runs.empty() && runs.back().first + runs.back().count == one.first &&
      runs.back().node == one.node && runs.back().form_class == one.form_class) {
    IndexRun& run = runs.back();
    ++run.count;
    run.stored_bytes += one.stored_bytes;
    run.error_max = std::max(run.error_max, one.error_max);
  } else {
    runs.push_back(one);
    errors.emplace_back();
  }
  errors.back().push_back(one.error_mean);
  double sum = 0;
  for (const float error : errors.back()) {
    sum += error;
  }
  runs.back().error_mean = static_cast<float>(sum / runs.back().count);
}

std::optional<NodeSlot> NodeBefore(const std::vector<IndexRun>& runs, uint32_t block) {
  if (runs.empty() || runs.back().first + runs.back().count != block) {
    return std::nullopt;
  }
  return runs.back().node;
}

}  // namespace

std::set<uint32_t> PrefixIndexModel::Drop(SourceId source) {
  const Source dropped = sources_.at(source);
  sources_.erase(source);
  std::set<uint32_t> vanished;
  for (const auto& [block, forms] : dropped.blocks) {
    if (!Held(block)) {
      vanished.insert(block);
    }
  }
  return vanished;
}

std::set<uint32_t> PrefixIndexModel::Set(SourceId source, uint32_t block,
                                         std::vector<IndexedForm> forms) {
  const bool was_held = Held(block);
  if (forms.empty()) {
    sources_.at(source).blocks.erase(block);
  } else {
    sources_.at(source).blocks[block] = std::move(forms);
  }
  return was_held && !Held(block) ? std::set<uint32_t>{block} : std::set<uint32_t>{};
}

NodeBlocks PrefixIndexModel::Orphans(const std::set<uint32_t>& vanished) const {
  NodeBlocks orphans;
  std::set<uint32_t> held;
  for (const auto& [id, source] : sources_) {
    for (const auto& [block, forms] : source.blocks) {
      held.insert(block);
    }
  }
  for (const uint32_t block : held) {
    uint32_t above = TreeParent(block);
    while (above != 0 && held.count(above) > 0) {
      above = TreeParent(above);
    }
    if (vanished.count(above) > 0) {
      for (const NodeSlot node : VisibleNodes(block)) {
        orphans.emplace(node, TreeKey(block));
      }
    }
  }
  return orphans;
}

bool PrefixIndexModel::Held(uint32_t block) const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [&](const auto& entry) { return entry.second.blocks.count(block) > 0; });
}

size_t PrefixIndexModel::blocks() const {
  std::set<uint32_t> held;
  for (const auto& [id, source] : sources_) {
    for (const auto& [block, forms] : source.blocks) {
      held.insert(block);
    }
  }
  return held.size();
}

std::set<NodeSlot> PrefixIndexModel::VisibleNodes(uint32_t block) const {
  std::set<NodeSlot> nodes;
  for (const auto& [id, source] : sources_) {
    if (source.visible && source.blocks.count(block) > 0) {
      nodes.insert(source.node);
    }
  }
  return nodes;
}

std::vector<PrefixIndexModel::Choice> PrefixIndexModel::Choices(uint32_t block, uint32_t needed,
                                                                const LocateQuery& query,
                                                                const PrefixIndex& classes) const {
  std::vector<Choice> choices;
  for (const auto& [id, source] : sources_) {
    const auto held = source.blocks.find(block);
    if (!source.visible || held == source.blocks.end() || source.node >= query.nodes.size() ||
        query.nodes[source.node].use == NodeStanding::Use::kHidden) {
      continue;
    }
    for (const IndexedForm& form : held->second) {
      const FormClass& form_class = classes.Class(form.form_class);
      if ((form_class.group_mask & needed) == needed &&
          Acceptable(*query.accept, form_class, form.error_mean)) {
        choices.push_back(Choice{source.node, query.nodes[source.node], form});
      }
    }
  }
  return choices;
}

const PrefixIndexModel::Choice* PrefixIndexModel::Best(const std::vector<Choice>& choices,
                                                       std::optional<NodeSlot> before,
                                                       const LocateQuery& query,
                                                       const PrefixIndex& classes) {
  const auto order = [&](const Choice& choice) {
    const FormClass& form_class = classes.Class(choice.form.form_class);
    return std::make_tuple(choice.standing.use != NodeStanding::Use::kUsable, before != choice.node,
                           choice.standing.load, choice.node,
                           RankOf(*query.accept, form_class.codec), form_class.fidelity,
                           choice.form.error_mean, choice.form.stored_bytes,
                           choice.form.form_class);
  };
  const auto best =
      std::min_element(choices.begin(), choices.end(),
                       [&](const Choice& a, const Choice& b) { return order(a) < order(b); });
  return best == choices.end() ? nullptr : &*best;
}

size_t PrefixIndexModel::Usable(const std::vector<uint32_t>& chain, const LocateQuery& query,
                                const PrefixIndex& classes) const {
  for (size_t blocks = chain.size(); blocks > 0; --blocks) {
    bool all = true;
    for (size_t i = 0; i < blocks && all; ++i) {
      all = !Choices(chain[i], query.rule.Needed(i, blocks), query, classes).empty();
    }
    if (all) {
      return blocks;
    }
  }
  return 0;
}

LocateResult PrefixIndexModel::Locate(const std::vector<uint32_t>& chain, const LocateQuery& query,
                                      const PrefixIndex& classes) const {
  LocateResult result;
  const size_t usable = Usable(chain, query, classes);
  result.prefix_blocks = static_cast<uint32_t>(usable);
  std::vector<std::vector<float>> errors;
  std::vector<std::vector<float>> alternate_errors;
  const auto as_run = [](const Choice& choice, uint32_t i) {
    return IndexRun{choice.node,
                    choice.form.form_class,
                    i,
                    1,
                    choice.form.stored_bytes,
                    choice.form.error_mean,
                    choice.form.error_max};
  };
  for (uint32_t i = 0; i < usable; ++i) {
    std::vector<Choice> choices = Choices(chain[i], query.rule.Needed(i, usable), query, classes);
    const Choice chosen = *Best(choices, NodeBefore(result.runs, i), query, classes);
    AddToRuns(result.runs, errors, as_run(chosen, i));
    choices.erase(std::remove_if(choices.begin(), choices.end(),
                                 [&](const Choice& choice) {
                                   return choice.node == chosen.node ||
                                          choice.standing.use != NodeStanding::Use::kUsable;
                                 }),
                  choices.end());
    if (const Choice* other = Best(choices, NodeBefore(result.alternates, i), query, classes)) {
      AddToRuns(result.alternates, alternate_errors, as_run(*other, i));
    }
  }
  return result;
}

std::vector<NodeSlot> PrefixIndexModel::Holders(uint32_t block, const HeldQuery& query,
                                                const PrefixIndex& classes) const {
  std::set<NodeSlot> nodes;
  for (const auto& [id, source] : sources_) {
    const auto held = source.blocks.find(block);
    if (!source.visible || held == source.blocks.end() || source.node >= query.nodes.size() ||
        query.nodes[source.node].use != NodeStanding::Use::kUsable) {
      continue;
    }
    for (const IndexedForm& form : held->second) {
      const FormClass& form_class = classes.Class(form.form_class);
      if ((form_class.codec == query.codec || form_class.fidelity == kWireExact) &&
          (form_class.group_mask & query.group_mask) == query.group_mask) {
        nodes.insert(source.node);
      }
    }
  }
  std::vector<NodeSlot> lowest(nodes.begin(), nodes.end());
  lowest.resize(std::min(lowest.size(), BlockHolders::kMax));
  return lowest;
}

}  // namespace tokura::coordinator
