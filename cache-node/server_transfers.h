#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace tokura::node {

// Something that has payload transfers to start: a GET with parts to offer, a PUT with offered
// parts to receive.
class TransferSource {
 public:
  virtual ~TransferSource() = default;
  // Size of the next transfer; 0 when there is none (now or any more).
  virtual uint64_t next_bytes() = 0;
  enum class Started { kYes, kNo };
  // Start the next transfer, or find that it is not wanted any more (kNo). After kYes the source
  // calls TransferGate::Slot::Finish with the same bytes, exactly once and never inline.
  virtual Started StartNext() = 0;
};

// Admission of the payload transfers of one I/O thread. Connections take turns, sources of one
// connection go in order. A connection may have at most as many bytes under way as are still free,
// so that peers that stopped never hold everything: each of them leaves half of what it found to
// the others. A connection with nothing under way starts one transfer of any size while the limit
// is not reached, so that large parts do not starve: the bytes under way stay below the limit plus
// one transfer. Owned by its I/O thread.
class TransferGate {
 public:
  // One connection's queue. Outlived by the gate.
  class Slot {
   public:
    explicit Slot(TransferGate& gate);
    ~Slot();  // What is still under way (a teardown without Done calls) is given back.
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    // Queue `source` (again: adding a queued source changes nothing) and start what may start. The
    // slot shares it with the connection's table of requests until it has nothing to start.
    void Add(std::shared_ptr<TransferSource> source);
    // A transfer of `bytes` has ended.
    void Finish(uint64_t bytes);
    // Drop what is queued. Transfers under way still call Finish.
    void Clear();
    uint64_t bytes_under_way() const { return under_way_; }

   private:
    friend class TransferGate;
    TransferGate& gate_;
    std::deque<std::shared_ptr<TransferSource>> queue_;
    uint64_t under_way_ = 0;
  };

  explicit TransferGate(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  TransferGate(const TransferGate&) = delete;
  TransferGate& operator=(const TransferGate&) = delete;

  uint64_t bytes_under_way() const { return under_way_; }
  // Sources that wait for their turn.
  size_t waiting() const;

 private:
  enum class Turn { kStarted, kNothing, kFull };
  void Pump();
  Turn TryOne(Slot& slot);
  bool Fits(const Slot& slot, uint64_t bytes) const;

  const uint64_t bytes_max_;
  uint64_t under_way_ = 0;
  std::vector<Slot*> slots_;  // in the order of connecting
  size_t next_ = 0;           // whose turn it is
  bool pumping_ = false;
};

}  // namespace tokura::node
