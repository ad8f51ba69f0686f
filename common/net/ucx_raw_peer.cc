#include "common/net/ucx_raw_peer.h"

#include <cstring>

#include <poll.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/net/ucx_resolver.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

enum RawMessage : unsigned { kRequest = 11, kReply = 12, kBlock = 13 };

constexpr int kSleepMilliseconds = 10;

void Fill(std::span<std::byte> bytes) {
  uint64_t x = 0x9e3779b97f4a7c15;
  for (size_t i = 0; i + sizeof(x) <= bytes.size(); i += sizeof(x)) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(bytes.data() + i, &x, sizeof(x));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxRawPeer>> UcxRawPeer::Listen(UcxContext& context,
                                                               Options options) {
  std::unique_ptr<UcxRawPeer> peer(new UcxRawPeer(static_cast<UcxContextImpl&>(context), options));
  TOKURA_RETURN_IF_ERROR(peer->Start());
  // A store asks for huge pages; only a hint. The other end's memory is an engine's, of plain
  // pages.
  static_cast<void>(madvise(peer->memory_.data(), peer->memory_.size(), MADV_HUGEPAGE));
  Fill(peer->memory_);
  TOKURA_ASSIGN_OR_RETURN(const SocketAddress where, SocketAddress::FromLiteral({"127.0.0.1", 0}));
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = where.get();
  params.sockaddr.addrlen = where.size;
  params.conn_handler.cb = OnConnection;
  params.conn_handler.arg = peer.get();
  ucs_status_t status = ucp_listener_create(peer->worker_, &params, &peer->listener_);
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (status == UCS_OK) {
    status = ucp_listener_query(peer->listener_, &attributes);
  }
  if (status != UCS_OK) {
    return UcxStatus(status, "cannot listen on loopback");
  }
  SocketAddress real;
  real.storage = attributes.sockaddr;
  peer->address_ = real.ToAddress();
  return peer;
}

absl::StatusOr<std::unique_ptr<UcxRawPeer>> UcxRawPeer::Connect(UcxContext& context,
                                                                Options options,
                                                                const Address& server) {
  std::unique_ptr<UcxRawPeer> peer(new UcxRawPeer(static_cast<UcxContextImpl&>(context), options));
  TOKURA_RETURN_IF_ERROR(peer->Start());
  peer->address_ = server;
  TOKURA_ASSIGN_OR_RETURN(const SocketAddress where, SocketAddress::FromLiteral(server));
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = where.get();
  params.sockaddr.addrlen = where.size;
  TOKURA_RETURN_IF_ERROR(peer->CreateEndpoint(&params));
  TOKURA_RETURN_IF_ERROR(peer->Do({.ask = Ask::kHello}));
  return peer;
}

absl::Status UcxRawPeer::Start() {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_.handle(), &params, &worker_);
  if (status != UCS_OK) {
    return UcxStatus(status, "cannot create a UCX worker");
  }
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kRequest, OnRequest}, {kReply, OnReply}, {kBlock, OnBlock}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = id;
    handler.cb = callback;
    handler.arg = this;
    TOKURA_RETURN_IF_ERROR(
        UcxStatus(ucp_worker_set_am_recv_handler(worker_, &handler), "cannot set a handler"));
  }
  TOKURA_RETURN_IF_ERROR(UcxStatus(ucp_worker_get_efd(worker_, &worker_fd_), "UCX has no wake-up"));
  void* memory = mmap(nullptr, options_.memory_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", options_.memory_bytes, " bytes"));
  }
  memory_ = {static_cast<std::byte*>(memory), options_.memory_bytes};
  TOKURA_ASSIGN_OR_RETURN(region_, context_.Register(memory_));
  for (uint32_t i = 0; i < kBlocksMax; ++i) {
    slots_[i] = {this, i};
  }
  return absl::OkStatus();
}

UcxRawPeer::~UcxRawPeer() {
  if (endpoint_ != nullptr) {
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &param);
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(worker_);
      }
      ucp_request_free(request);
    }
  }
  while (worker_ != nullptr && sends_ > 0) {
    ucp_worker_progress(worker_);
  }
  if (listener_ != nullptr) {
    ucp_listener_destroy(listener_);
  }
  region_.reset();
  if (worker_ != nullptr) {
    ucp_worker_destroy(worker_);
  }
  if (!memory_.empty()) {
    munmap(memory_.data(), memory_.size());
  }
}

absl::Status UcxRawPeer::CreateEndpoint(ucp_ep_params_t* params) {
  params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler.cb = OnError;
  params->err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker_, params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
  }
  return UcxStatus(status, "cannot create a UCX endpoint");
}

// ---- asking ----

absl::Status UcxRawPeer::Do(const Request& request) {
  TOKURA_CHECK(request.blocks <= kBlocksMax);
  TOKURA_CHECK(request.block_bytes * request.blocks <= memory_.size());
  request_ = request;
  replied_ = false;
  blocks_received_ = 0;
  received_crc_ = 0;
  SendSmall(kRequest, &request_, sizeof(request_));
  if (request.ask == Ask::kPut) {
    SendBlocks();
  }
  const uint32_t expected = request.ask == Ask::kGet ? request.blocks : 0;
  const bool reply = request.ask != Ask::kGet;
  Wait([&] { return blocks_received_ == expected && (!reply || replied_) && sends_ == 0; });
  return lost_ ? absl::UnavailableError(absl::StrCat("lost the raw peer at ", address_.ToString()))
               : absl::OkStatus();
}

void UcxRawPeer::ChoosePages(Pages pages) {
  copies_ = pages == Pages::kCopied;
  if (copies_ && pages_.empty()) {
    pages_.assign(memory_.begin(), memory_.end());
  }
}

absl::Status UcxRawPeer::Get(const Transfer& transfer) {
  ChoosePages(transfer.pages);
  return Do({.ask = Ask::kGet,
             .checksum = transfer.checksum,
             .blocks = transfer.blocks,
             .block_bytes = transfer.block_bytes});
}

absl::Status UcxRawPeer::Put(const Transfer& transfer) {
  ChoosePages(transfer.pages);
  TOKURA_RETURN_IF_ERROR(Do({.ask = Ask::kPut,
                             .checksum = transfer.checksum,
                             .blocks = transfer.blocks,
                             .room = transfer.room,
                             .block_bytes = transfer.block_bytes}));
  received_crc_ = reply_crc_;
  return absl::OkStatus();
}

absl::Status UcxRawPeer::Echo() {
  return Do({.ask = Ask::kEcho});
}

// ---- serving ----

void UcxRawPeer::Serve() {
  Wait([&] { return pending_ != nullptr; });
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = pending_;
  if (!CreateEndpoint(&params).ok()) {
    return;
  }
  while (!lost_) {
    Wait([&] {
      return asked_ && (request_.ask != Ask::kPut || blocks_received_ == request_.blocks);
    });
    if (!asked_) {
      break;
    }
    asked_ = false;
    if (request_.ask == Ask::kGet) {
      SendBlocks();
    } else {
      SendSmall(kReply, &received_crc_, sizeof(received_crc_));
    }
    blocks_received_ = 0;
  }
}

void UcxRawPeer::OnConnection(ucp_conn_request_h request, void* argument) {
  auto* self = static_cast<UcxRawPeer*>(argument);
  if (self->pending_ != nullptr) {
    ucp_listener_reject(self->listener_, request);
    return;
  }
  self->pending_ = request;
}

void UcxRawPeer::OnError(void* argument, ucp_ep_h /*handle*/, ucs_status_t /*status*/) {
  static_cast<UcxRawPeer*>(argument)->lost_ = true;
}

// ---- messages ----

void UcxRawPeer::SendSmall(unsigned id, const void* header, size_t bytes) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.send = Sent;
  param.user_data = this;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint_, id, header, bytes, nullptr, 0, &param);
  sends_ += UCS_PTR_IS_PTR(request) ? 1 : 0;
  lost_ = lost_ || UCS_PTR_IS_ERR(request);
}

void UcxRawPeer::SendBlocks() {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                       UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_CALLBACK |
                       UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_AM_SEND_FLAG_RNDV;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.memh = static_cast<const UcxMemoryRegion*>(region_.get())->handle();
  param.cb.send = Sent;
  param.user_data = this;
  for (uint32_t i = 0; i < request_.blocks; ++i) {
    const size_t offset = i * request_.block_bytes;
    if (copies_) {
      std::memcpy(memory_.data() + offset, pages_.data() + offset, request_.block_bytes);
    }
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint_, kBlock, &slots_[i].index, sizeof(slots_[i].index),
                        memory_.data() + offset, request_.block_bytes, &param);
    sends_ += UCS_PTR_IS_PTR(request) ? 1 : 0;
    lost_ = lost_ || UCS_PTR_IS_ERR(request);
  }
}

void UcxRawPeer::Sent(void* request, ucs_status_t status, void* argument) {
  ucp_request_free(request);
  auto* self = static_cast<UcxRawPeer*>(argument);
  --self->sends_;
  self->lost_ = self->lost_ || status != UCS_OK;
}

ucs_status_t UcxRawPeer::OnRequest(void* argument, const void* header, size_t header_bytes,
                                   void* /*data*/, size_t /*size*/,
                                   const ucp_am_recv_param_t* /*param*/) {
  auto* self = static_cast<UcxRawPeer*>(argument);
  if (header_bytes == sizeof(Request)) {
    std::memcpy(&self->request_, header, sizeof(Request));
    const bool fits = self->request_.blocks <= kBlocksMax &&
                      self->request_.block_bytes <= self->memory_.size() / kBlocksMax;
    self->lost_ = self->lost_ || !(fits || self->request_.block_bytes * self->request_.blocks <=
                                               self->memory_.size());
    self->asked_ = true;
    self->received_crc_ = 0;
    if (self->request_.ask == Ask::kPut && !self->lost_) {
      self->ChooseRoom();
    }
  }
  return UCS_OK;
}

void UcxRawPeer::ChooseRoom() {
  if (request_.room == Room::kSame) {
    receive_offset_ = 0;
    return;
  }
  const size_t bytes = request_.block_bytes * request_.blocks;
  receive_offset_ = bytes <= memory_.size() - put_offset_ ? put_offset_ : 0;
  put_offset_ = receive_offset_ + bytes;
}

ucs_status_t UcxRawPeer::OnReply(void* argument, const void* header, size_t header_bytes,
                                 void* /*data*/, size_t /*size*/,
                                 const ucp_am_recv_param_t* /*param*/) {
  auto* self = static_cast<UcxRawPeer*>(argument);
  if (header_bytes == sizeof(self->reply_crc_)) {
    std::memcpy(&self->reply_crc_, header, sizeof(self->reply_crc_));
    self->replied_ = true;
  }
  return UCS_OK;
}

ucs_status_t UcxRawPeer::OnBlock(void* argument, const void* header, size_t header_bytes,
                                 void* data, size_t size, const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxRawPeer*>(argument);
  uint32_t index = 0;
  if (header_bytes != sizeof(index) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
    return UCS_ERR_INVALID_PARAM;
  }
  std::memcpy(&index, header, sizeof(index));
  if (index >= self->request_.blocks || size != self->request_.block_bytes) {
    return UCS_ERR_INVALID_PARAM;
  }
  ucp_request_param_t receive = {};
  receive.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH |
                         UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  receive.memory_type = UCS_MEMORY_TYPE_HOST;
  receive.memh = static_cast<const UcxMemoryRegion*>(self->region_.get())->handle();
  receive.cb.recv_am = Received;
  receive.user_data = &self->slots_[index];
  ucp_am_recv_data_nbx(self->worker_, data,
                       self->memory_.data() + self->receive_offset_ + index * size, size, &receive);
  return UCS_INPROGRESS;
}

void UcxRawPeer::Received(void* request, ucs_status_t status, size_t size, void* argument) {
  ucp_request_free(request);
  const Slot& slot = *static_cast<Slot*>(argument);
  UcxRawPeer& self = *slot.peer;
  self.lost_ = self.lost_ || status != UCS_OK;
  const size_t offset = self.receive_offset_ + slot.index * self.request_.block_bytes;
  if (self.request_.checksum == Checksum::kAtReceiver && status == UCS_OK) {
    self.received_crc_ ^= Crc32c({self.memory_.data() + offset, size});
  }
  if (self.copies_ && status == UCS_OK) {
    std::memcpy(self.pages_.data() + offset, self.memory_.data() + offset, size);
  }
  ++self.blocks_received_;
}

// ---- waiting ----

void UcxRawPeer::Wait(const std::function<bool()>& done) {
  TimePoint idle_since = kNever;
  while (!done() && !lost_) {
    if (ucp_worker_progress(worker_) != 0) {
      idle_since = kNever;
      continue;
    }
    if (options_.wake == UcxTransport::Options::Wake::kSpin) {
      continue;
    }
    const TimePoint now = SystemClock().Now();
    if (idle_since == kNever) {
      idle_since = now;
    } else if (now - idle_since >= options_.spin) {
      Sleep();
      idle_since = kNever;
    }
  }
}

void UcxRawPeer::Sleep() {
  if (ucp_worker_arm(worker_) == UCS_OK) {
    pollfd readable = {worker_fd_, POLLIN, 0};
    ::poll(&readable, 1, kSleepMilliseconds);
  }
}

}  // namespace tokura::net
