#include "wire/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fd.h"
#include "process/child.h"
#include "wire/bytes.h"
#include "wire/write-request.h"

namespace procwire {
namespace {

// A frame up to this size is put together here before it is looked at; a larger one is passed on as it comes. A write
// of 1 MiB, as much as a process may have queued, fits with its base64 and its envelope.
constexpr size_t kGatherBytes = 1536 * 1024;
// Memory for such a frame is kept for the next one up to this size: a write of 512 KiB, the largest our own client
// sends.
constexpr size_t kKeptPartialBytes = 768 * 1024;
// What all sockets may put together here at once. Above it such a frame is passed on as it comes to the reader in
// JavaScript, which asks for room; from half of it on nothing is kept for the next frame.
constexpr size_t kMostGatheredBytes = 32 * 1024 * 1024;
// A queue longer than this emits `drain` when it is empty.
constexpr size_t kDrainAboveBytes = 16 * 1024;
// After the head of a refused frame, nothing more is read as a frame.
constexpr uint64_t kForEver = UINT64_MAX;

constexpr uint8_t kText = 1;
constexpr uint8_t kFirstControl = 8;

}  // namespace

Socket::Socket(Loop* loop, int fd) : loop_(loop), queue_(loop->blocks()) {
  watch_.owner = this;
  watch_.fd = fd;
}

// ---- in

void Socket::start(napi_ref onEvent) {
  if (!isOpen() || onEvent_) {
    napi_delete_reference(loop_->env(), onEvent);
    return;
  }
  onEvent_ = onEvent;
  arm();
}

void Socket::carryFrames(size_t mostMessageBytes, size_t mostQueuedBytes, char* received, size_t length) {
  framed_ = true;
  mostMessageBytes_ = mostMessageBytes;
  mostQueuedBytes_ = mostQueuedBytes;
  take(received, length);
}

void Socket::onReady(Watch&, uint32_t events) {
  const bool broken = events & (EPOLLHUP | EPOLLERR);
  if ((watch_.armed & EPOLLOUT) && ((events & EPOLLOUT) || broken)) flush();
  if ((watch_.armed & EPOLLIN) && ((events & EPOLLIN) || broken)) receive();
}

void Socket::receive() {
  char* const fresh = loop_->received() + kMostHeadBytes;
  // The rest of a frame that has begun goes where its beginning is; of a head that has begun, the beginning comes here.
  const bool gathering = partialTotal_ > 0;
  const size_t before = gathering ? 0 : partialBytes_;
  const size_t missing = gathering ? partialTotal_ - partialBytes_ : 0;
  struct iovec parts[2] = {{partial_.get() + partialBytes_, missing}, {fresh, kReadBytes}};
  ssize_t count;
  do count = gathering ? readv(watch_.fd, parts, 2) : read(watch_.fd, fresh, kReadBytes);
  while (count < 0 && errno == EINTR);
  if (count < 0) {
    if (errno != EAGAIN) close(errno, "read");
    return;
  }
  if (count == 0) {
    peerEnded_ = true;
    arm();
    tell(SocketEvent::kEnd);
    considerClosing();
    return;
  }
  size_t length = static_cast<size_t>(count);
  receivedBytes_ += length;
  if (ending_) return;  // Nobody listens any more; only the end is waited for.
  if (!gathering) {
    if (before > 0) memcpy(fresh - before, partial_.get(), before);
    partialBytes_ = 0;
    take(fresh - before, before + length);
    return;
  }
  const size_t filled = std::min(length, missing);
  partialBytes_ += filled;
  if (partialBytes_ < partialTotal_) return;
  const FrameHead head(partial_.get(), partialTotal_);
  partialBytes_ = partialTotal_ = 0;
  takeFrame(partial_.get() + head.bytes, static_cast<size_t>(head.payloadBytes), head.key);
  if (partialCapacity_ > kKeptPartialBytes || loop_->gatheredBytes() > kMostGatheredBytes / 2) {
    partial_.reset();
    setPartialCapacity(0);
  }
  take(fresh, length - filled);
}

void Socket::take(char* bytes, size_t length) {
  if (!framed_) return tellBytes(SocketEvent::kBytes, bytes, length);
  while (length > 0 && isOpen() && !ending_) {
    if (passedOn_ > 0) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(passedOn_, length));
      passedOn_ -= part;
      tellBytes(SocketEvent::kBytes, bytes, part);
      bytes += part;
      length -= part;
      continue;
    }
    const FrameHead head(bytes, length);
    if (head.bytes == 0) return keep(bytes, length, 0);
    // The reader in JavaScript, which knows the rules, refuses it by its head. Its length must not be used: a
    // sum with it may wrap.
    if (head.payloadBytes > mostMessageBytes_) {
      passedOn_ = kForEver;
      continue;
    }
    const uint64_t total = head.bytes + head.payloadBytes;
    if (!isWhole(head)) {
      if (head.opcode < kFirstControl) inFragments_ = !head.fin;
      passedOn_ = total;
      continue;
    }
    if (length < total) {
      if (mayGather(static_cast<size_t>(total))) return keep(bytes, length, static_cast<size_t>(total));
      passedOn_ = total;
      continue;
    }
    takeFrame(bytes + head.bytes, static_cast<size_t>(head.payloadBytes), head.key);
    bytes += total;
    length -= static_cast<size_t>(total);
  }
}

// Whether the frame is a message of its own that needs no second look at the rules of the protocol.
bool Socket::isWhole(const FrameHead& head) {
  return head.fin && !head.reserved && head.masked && head.opcode == kText && !inFragments_ &&
         head.payloadBytes <= kGatherBytes;
}

bool Socket::mayGather(size_t bytes) {
  return bytes <= partialCapacity_ || loop_->gatheredBytes() - partialCapacity_ + bytes <= kMostGatheredBytes;
}

void Socket::setPartialCapacity(size_t bytes) {
  loop_->gatheredBytes() += bytes - partialCapacity_;
  partialCapacity_ = bytes;
}

void Socket::keep(const char* bytes, size_t length, size_t total) {
  const size_t needed = std::max(total, kMostHeadBytes);
  if (partialCapacity_ < needed) {
    partial_.reset(new char[needed]);
    setPartialCapacity(needed);
  }
  memcpy(partial_.get(), bytes, length);
  partialBytes_ = length;
  partialTotal_ = total;
}

void Socket::takeFrame(char* payload, size_t length, uint32_t key) {
  unmask(reinterpret_cast<uint8_t*>(payload), length, key);
  WriteRequest request;
  if (parseWriteRequest({payload, length}, request) && (writeThrough(request) || tellWrite(request))) return;
  if (isAscii(payload, length)) tellText(payload, length);
  else tellBytes(SocketEvent::kMessage, payload, length);
}

bool Socket::writeThrough(const WriteRequest& request) {
  if (routes_.empty() || routesHeld_) return false;
  const auto found = routes_.find(std::string(request.processId));
  if (found == routes_.end() || !found->second->writeThrough(request)) return false;
  constexpr std::string_view kBefore = "{\"id\":";
  constexpr std::string_view kAfter = ",\"result\":{\"status\":\"accepted\"}}";
  char* answer = textFrame(kBefore.size() + request.id.size() + kAfter.size());
  for (const std::string_view part : {kBefore, request.id, kAfter}) {
    if (!answer) break;
    memcpy(answer, part.data(), part.size());
    answer += part.size();
  }
  loop_->expectOutput(found->second->habit());
  return true;
}

// ---- out

char* Socket::textFrame(size_t payloadBytes) {
  if (!isOpen() || ending_) return nullptr;
  loop_->flushLater(this);
  return orBreak(queue_.text(payloadBytes));
}

char* Socket::rawFrame(size_t bytes) {
  if (!isOpen() || ending_) return nullptr;
  loop_->flushLater(this);
  return orBreak(queue_.raw(bytes));
}

// A message that cannot be sent must not be missing between two others.
char* Socket::orBreak(char* room) {
  if (!room) shutdown(watch_.fd, SHUT_RDWR);
  return room;
}

void Socket::flush() {
  if (queue_.bytes() > kDrainAboveBytes) wantsDrain_ = true;
  if (const int err = queue_.send(watch_.fd)) return close(err, "write");
  arm();
  if (queue_.bytes() > 0) return;
  if (ending_ && !shut_) {
    shut_ = true;
    shutdown(watch_.fd, SHUT_WR);
    considerClosing();
  }
  if (wantsDrain_) {
    wantsDrain_ = false;
    tell(SocketEvent::kDrain);
  }
}

void Socket::arm() {
  if (!isOpen()) return;
  uint32_t events = 0;
  if (onEvent_ && !paused_ && !peerEnded_ && (ending_ || queue_.bytes() <= mostQueuedBytes_)) events |= EPOLLIN;
  if (queue_.bytes() > 0 && !awaitsFlush()) events |= EPOLLOUT;
  loop_->arm(watch_, events);
}

void Socket::pause() {
  paused_ = true;
  arm();
}

void Socket::resume() {
  paused_ = false;
  arm();
}

void Socket::end() {
  if (!isOpen() || ending_) return;
  ending_ = true;
  // This is the only way to notice the peer's end.
  paused_ = false;
  forgetRoutes();
  loop_->flushLater(this);
}

void Socket::route(std::string processId, Child* child) {
  if (!isOpen() || ending_) return;
  unroute(processId);
  child->retain();
  routes_.emplace(std::move(processId), child);
}

void Socket::unroute(const std::string& processId) {
  const auto found = routes_.find(processId);
  if (found == routes_.end()) return;
  found->second->release();
  routes_.erase(found);
}

void Socket::forgetRoutes() {
  for (const auto& route : routes_) route.second->release();
  routes_.clear();
}

// ---- the end

void Socket::considerClosing() {
  if (peerEnded_ && shut_ && isOpen()) close(0, "");
}

void Socket::close(int err, const char* syscall) {
  giveBack();
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value argv[2];
  napi_create_int32(env, err, &argv[0]);
  napi_create_string_utf8(env, syscall, NAPI_AUTO_LENGTH, &argv[1]);
  tell(SocketEvent::kClose, 2, argv);
  napi_close_handle_scope(env, scope);
  leave();
}

void Socket::destroy() {
  if (!isOpen()) return;
  giveBack();
  leave();
}

int Socket::handOver() {
  if (!isOpen() || framed_ || queue_.bytes() > 0) return -1;
  loop_->arm(watch_, 0);
  const int fd = std::exchange(watch_.fd, -1);
  leave();
  return fd;
}

// No event follows.
void Socket::leave() {
  // The memory itself goes with this object: a frame in it may be what is looked at just now.
  setPartialCapacity(0);
  if (onEvent_) napi_delete_reference(loop_->env(), onEvent_);
  onEvent_ = nullptr;
  loop_->remove(this);
}

void Socket::giveBack() {
  loop_->arm(watch_, 0);
  closeFd(watch_.fd);
  queue_.clear();
  forgetRoutes();
}

// ---- events

void Socket::tell(SocketEvent event, size_t argc, const napi_value* argv) {
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value callback;
  if (onEvent_ && napi_get_reference_value(env, onEvent_, &callback) == napi_ok) {
    napi_value all[5];
    napi_create_int32(env, static_cast<int>(event), &all[0]);
    for (size_t at = 0; at < argc; at++) all[at + 1] = argv[at];
    loop_->call(callback, argc + 1, all);
  }
  napi_close_handle_scope(env, scope);
}

void Socket::tellText(const char* text, size_t length) {
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value made;
  if (napi_create_string_latin1(env, text, length, &made) == napi_ok) tell(SocketEvent::kText, 1, &made);
  napi_close_handle_scope(env, scope);
}

void Socket::tellBytes(SocketEvent event, const char* bytes, size_t length) {
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value made;
  if (napi_create_buffer_copy(env, length, bytes, nullptr, &made) == napi_ok) tell(event, 1, &made);
  napi_close_handle_scope(env, scope);
}

// False when its chunk is no base64: the general parser words the refusal.
bool Socket::tellWrite(const WriteRequest& request) {
  napi_env env = loop_->env();
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  napi_value members[4];
  const bool told = writeRequestMembers(env, request, members);
  if (told) tell(SocketEvent::kWrite, 4, members);
  napi_close_handle_scope(env, scope);
  return told;
}

}  // namespace procwire
