#include "operation.h"

#include <algorithm>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "errors.h"

namespace nb = nanobind;

namespace tokura::python {
namespace {

// How long a signal may wait for its handler.
constexpr int64_t kSliceNs = 50'000'000;

int64_t Nanoseconds(double seconds) {
  constexpr double kLimit = 9e9;  // beyond it nanoseconds do not fit
  if (seconds < 0 || !(seconds < kLimit)) {
    return TOKURA_FOREVER;
  }
  return static_cast<int64_t>(seconds * 1e9);
}

// Call `wait(nanoseconds)` in slices until it returns true or `seconds` are over.
template <typename Wait>
bool WaitInSlices(double seconds, Wait wait) {
  int64_t left = Nanoseconds(seconds);
  while (true) {
    const int64_t slice = std::min(left, kSliceNs);
    bool over = false;
    {
      const nb::gil_scoped_release unlocked;
      over = wait(slice);
    }
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
    left -= left == TOKURA_FOREVER ? 0 : slice;
    if (over || left <= 0) {
      return over;
    }
  }
}

struct Ending {
  std::shared_ptr<EndingQueue> queue;  // owners: Python and the operations under way
  uint64_t number;
};

nb::list Texts(const char* const* texts, size_t count) {
  nb::list list;
  for (size_t i = 0; texts != nullptr && i < count; ++i) {
    list.append(texts[i]);
  }
  return list;
}

template <typename T>
nb::list Values(const T* values, size_t count) {
  nb::list list;
  for (size_t i = 0; values != nullptr && i < count; ++i) {
    list.append(values[i]);
  }
  return list;
}

}  // namespace

void EndingQueue::Push(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.push_back(number);
  changed_.notify_one();
}

std::optional<uint64_t> EndingQueue::Pop() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !numbers_.empty(); });
  if (numbers_.empty()) {
    return std::nullopt;
  }
  const uint64_t number = numbers_.front();
  numbers_.pop_front();
  return number;
}

void EndingQueue::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Endings::~Endings() {
  if (getpid() != process) {
    // A forked child: the thread that waits does not exist there, and the end of what it waits on
    // would wait for it.
    static_cast<void>(new std::shared_ptr<EndingQueue>(std::move(queue)));
  }
}

Operation::Operation(tokura_operation* handle, nb::object kept)
    : handle_(handle, &tokura_operation_free), kept_(std::move(kept)) {}

Operation::~Operation() {
  if (handle_ && !done()) {
    const nb::gil_scoped_release unlocked;
    handle_.reset();
  }
}

bool Operation::Wait(double seconds) const {
  return WaitInSlices(seconds,
                      [this](int64_t ns) { return tokura_operation_wait(handle_.get(), ns) == 1; });
}

bool Operation::WaitReleased(double seconds) const {
  return WaitInSlices(seconds, [this](int64_t ns) {
    return tokura_operation_wait_released(handle_.get(), ns) == 1;
  });
}

bool Operation::WaitLayer(uint32_t group, uint32_t layer, double seconds) const {
  return WaitInSlices(seconds, [&](int64_t ns) {
    return tokura_operation_wait_layer(handle_.get(), group, layer, ns) == 1;
  });
}

void Operation::WaitQuiet() const {
  const nb::gil_scoped_release unlocked;
  // Of a put the release is enough; of all others it is the end.
  if (tokura_operation_wait_released(handle_.get(), TOKURA_FOREVER) != 1) {
    tokura_operation_wait(handle_.get(), TOKURA_FOREVER);
  }
}

void Operation::Notify(const Endings& endings, uint64_t number) const {
  auto ending = std::make_unique<Ending>(Ending{endings.queue, number});
  Error error;
  error.Check(tokura_operation_notify(
      handle_.get(),
      [](void* context) {
        const std::unique_ptr<Ending> ended(static_cast<Ending*>(context));
        ended->queue->Push(ended->number);
      },
      ending.get(), error));
  static_cast<void>(ending.release());  // the callback's now
}

void Operation::Check() const {
  Error error;
  error.Check(tokura_operation_status(handle_.get(), error));
}

Match Operation::TakeMatch() const {
  Error error;
  return Match(error.Check(tokura_operation_match(handle_.get(), error)), seconds());
}

BlocksResult Operation::Result() const {
  tokura_blocks_result result{};
  result.struct_size = sizeof(result);
  Error error;
  error.Check(tokura_operation_result(handle_.get(), &result, error));
  return BlocksResult(handle_, result);
}

nb::list Operation::Nodes() const {
  nb::list nodes;
  const size_t count = tokura_operation_nodes(handle_.get());
  for (size_t i = 0; i < count; ++i) {
    tokura_node_stat stat{};
    stat.struct_size = sizeof(stat);
    Error error;
    error.Check(tokura_operation_node_stat(handle_.get(), i, &stat, error));
    nodes.append(
        nb::make_tuple(stat.code, stat.message,
                       nb::make_tuple(stat.node, stat.incarnation, stat.blocks, stat.forms,
                                      stat.bytes_stored, stat.bytes_logical, stat.capacity_bytes,
                                      stat.largest_free_bytes, stat.pinned_bytes, stat.leases)));
  }
  return nodes;
}

void BindOperation(nb::module_& module) {
  nb::class_<Endings>(module, "Endings")
      .def(nb::init<>())
      .def("pop",
           [](const Endings& endings) {
             const std::shared_ptr<EndingQueue> queue = endings.queue;
             const nb::gil_scoped_release unlocked;
             return queue->Pop();
           })
      .def("close", [](const Endings& endings) { endings.queue->Close(); });
  nb::class_<BlocksResult>(module, "BlocksResult")
      .def_prop_ro("codes",
                   [](const BlocksResult& r) { return nb::bytes(r.get().codes, r.get().blocks); })
      .def_prop_ro("messages",
                   [](const BlocksResult& r) { return Texts(r.get().messages, r.get().blocks); })
      .def_prop_ro("codecs",
                   [](const BlocksResult& r) { return Texts(r.get().codecs, r.get().blocks); })
      .def_prop_ro(
          "declared_error",
          [](const BlocksResult& r) { return Values(r.get().declared_error, r.get().blocks); })
      .def_prop_ro("proxy_error",
                   [](const BlocksResult& r) {
                     return nb::bytes(r.get().proxy_error,
                                      r.get().proxy_error != nullptr ? r.get().blocks : 0);
                   })
      .def_prop_ro("blocks", [](const BlocksResult& r) { return r.get().blocks; })
      .def_prop_ro("blocks_ok", [](const BlocksResult& r) { return r.get().blocks_ok; })
      .def_prop_ro("prefix_ok", [](const BlocksResult& r) { return r.get().prefix_ok; })
      .def_prop_ro("bytes_moved", [](const BlocksResult& r) { return r.get().bytes_moved; })
      .def_prop_ro("bytes_logical", [](const BlocksResult& r) { return r.get().bytes_logical; })
      .def_prop_ro("wire_ns", [](const BlocksResult& r) { return r.get().wire_ns; })
      .def_prop_ro("codec_ns", [](const BlocksResult& r) { return r.get().codec_ns; })
      .def_prop_ro("seconds", &BlocksResult::seconds);
  nb::class_<Operation>(module, "Operation")
      .def("done", &Operation::done)
      .def("released", &Operation::released)
      .def("wait", &Operation::Wait, nb::arg("seconds"))
      .def("wait_released", &Operation::WaitReleased, nb::arg("seconds"))
      .def("wait_layer", &Operation::WaitLayer, nb::arg("group"), nb::arg("layer"),
           nb::arg("seconds"))
      .def("wait_quiet", &Operation::WaitQuiet)
      .def("cancel", &Operation::Cancel)
      .def("notify", &Operation::Notify, nb::arg("endings"), nb::arg("number"))
      .def("check", &Operation::Check)
      .def("match", &Operation::TakeMatch)
      .def("result", &Operation::Result)
      .def("nodes", &Operation::Nodes)
      .def_prop_ro("seconds", &Operation::seconds);
}

}  // namespace tokura::python
