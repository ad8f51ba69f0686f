#pragma once

#include "coordinator/prefix_index.h"
#include "coordinator/prefix_index_records.h"

namespace tokura::coordinator {

// Each node with a form of the record in a visible inventory, once.
template <typename Visit>
void PrefixIndex::VisitNodes(const Record& record, const Visit& visit) const {
  NodeSlot nodes[kFormsMax];
  size_t count = 0;
  records_->VisitForms(record, [&](const FormEntry& form) {
    const Source& source = sources_[form.source];
    if (source.state == SourceState::kVisible &&
        std::find(nodes, nodes + count, source.node) == nodes + count) {
      nodes[count++] = source.node;
      visit(source.node);
    }
  });
}

}  // namespace tokura::coordinator
