#include "net/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/fd.h"
#include "net/byte-codec.h"
#include "net/write-request.h"
#include "process/child.h"

namespace procwire {
namespace {

// Maximum size of a frame that is assembled here; larger frames are passed through to JavaScript. Fits a write of
// 1 MiB, the maximum queued input of a process, in base64 with its JSON envelope.
constexpr size_t kMaxAssembledFrameBytes = 1536 * 1024;
// Maximum buffer size that is reused for the next frame. Fits a write of 512 KiB, the largest that the client library
// sends.
constexpr size_t kMaxRetainedPartialBytes = 768 * 1024;
// Minimum size of a binary message that is received into its JavaScript buffer. Creating a buffer costs more than
// copying a smaller one.
constexpr size_t kMinBlockBytes = 256 * 1024;
// Minimum size of a text message that a client gets as bytes, because it is probably output: the client decodes output
// faster from bytes.
constexpr size_t kMinOutputBytes = 4096;
// Maximum bytes of incomplete frames of all sockets. Above it, frames are passed through to the JavaScript reader,
// which charges the memory budget. Above half of it, buffers are not reused.
constexpr size_t kMaxTotalPartialBytes = 32 * 1024 * 1024;
// A queue longer than this emits `drain` once it is empty.
constexpr size_t kDrainAboveBytes = 16 * 1024;
// After an invalid frame header, all further bytes are passed through.
constexpr uint64_t kPassthroughAll = UINT64_MAX;

static_assert(kMaxHeaderBytes <= kReceivedFrontBytes, "the start of a header fits in front of a read");

constexpr uint8_t kText = 1;
constexpr uint8_t kBinary = 2;
constexpr uint8_t kFirstControl = 8;

}  // namespace

Socket::Socket(Loop* loop, UniqueFd fd, bool isUnix)
    : loop_(loop), isClient_(false), hasTwoDescriptors_(false), queue_(loop->blocks()), mayTransfer_(isUnix) {
  for (Watch* watch : {&watch_, &output_, &bridge_}) watch->owner = this;
  watch_.open(std::move(fd));
}

Socket::Socket(Loop* loop, UniqueFd fd)
    : loop_(loop), isClient_(true), hasTwoDescriptors_(false), queue_(loop->blocks()), mayTransfer_(false) {
  watch_.owner = this;
  watch_.open(std::move(fd));
}

Socket::Socket(Loop* loop, UniqueFd input, UniqueFd output)
    : loop_(loop), isClient_(true), hasTwoDescriptors_(true), queue_(loop->blocks()), mayTransfer_(false) {
  for (Watch* watch : {&watch_, &output_}) watch->owner = this;
  watch_.open(std::move(input));
  output_.open(std::move(output));
}

// ---- in

void Socket::start(SocketCallbacks callbacks) {
  if (!isOpen() || callbacks_.onEvent) return callbacks.reset();
  callbacks_ = std::move(callbacks);
  arm();
}

void Socket::upgradeToFrames(size_t maxMessageBytes, size_t maxQueuedBytes, char* received, size_t length) {
  framed_ = true;
  maxMessageBytes_ = maxMessageBytes;
  maxQueuedBytes_ = maxQueuedBytes;
  consume(received, length);
}

void Socket::onReady(Watch& watch, uint32_t events) {
  if (&watch == &bridge_) return close(ECONNRESET, "read");
  const bool broken = events & (EPOLLHUP | EPOLLERR);
  if ((watch.armed & EPOLLOUT) && ((events & EPOLLOUT) || broken)) flush();
  if ((watch.armed & EPOLLIN) && ((events & EPOLLIN) || broken)) receive();
}

void Socket::receive() {
  char* const fresh = loop_->received() + kReceivedFrontBytes;
  // The rest of an incomplete frame is appended to its buffer. An incomplete header is moved in front of the new bytes.
  const bool isAssembling = block_ || partialTotal_ > 0;
  const size_t before = isAssembling ? 0 : partialBytes_;
  struct iovec parts[2] = {{nullptr, 0}, {fresh, kReadBytes}};
  if (block_) parts[0] = block_.missing();
  else if (isAssembling) parts[0] = {partial_.get() + partialBytes_, partialTotal_ - partialBytes_};
  TransferredStdio passed;
  ssize_t count;
  do
    count = isAssembling   ? readv(watch_.fd, parts, 2)
            : mayTransfer_ ? readWithStdio(watch_.fd, fresh, kReadBytes, passed)
                           : read(watch_.fd, fresh, kReadBytes);
  while (count < 0 && errno == EINTR);
  if (count < 0) {
    if (errno != EAGAIN) close(errno, "read");
    return;
  }
  if (count == 0) {
    peerEnded_ = true;
    arm();
    loop_->emit(callbacks_.onEvent, "end");
    closeIfDone();
    return;
  }
  size_t length = static_cast<size_t>(count);
  mayTransfer_ = false;
  if (passed) return moveTo(std::move(passed), {fresh, length});
  receivedBytes_ += length;
  if (ending_) return;  // only the end of the stream matters now
  if (!isAssembling) {
    if (before > 0) memcpy(fresh - before, partial_.get(), before);
    partialBytes_ = 0;
    consume(fresh - before, before + length);
    return;
  }
  const size_t filled = std::min(length, parts[0].iov_len);
  if (block_) {
    block_.add(filled);
    if (!block_.isComplete()) return;
    emitBlock();
    return consume(fresh, length - filled);
  }
  partialBytes_ += filled;
  if (partialBytes_ < partialTotal_) return;
  const FrameHeader header(partial_.get(), partialTotal_);
  partialBytes_ = partialTotal_ = 0;
  handleFrame(header, partial_.get() + header.bytes);
  if (partialCapacity_ > kMaxRetainedPartialBytes || loop_->partialFrameBytes() > kMaxTotalPartialBytes / 2) {
    partial_.reset();
    setPartialCapacity(0);
  }
  consume(fresh, length - filled);
}

// Serves the client on the passed descriptors from now on. The bridge sends only the line before the confirmation.
void Socket::moveTo(TransferredStdio stdio, std::string_view line) {
  if (line != kTransferLine || !stdio.prepare()) return close(EPROTO, "transfer");
  loop_->arm(watch_, 0);
  hasTwoDescriptors_ = true;
  bridge_.open(watch_.release());
  watch_.open(std::move(stdio.input));
  output_.open(std::move(stdio.output));
  if (const int err = confirmTransfer(bridge_.fd)) return close(err, "write");
  loop_->arm(bridge_, EPOLLIN);
  arm();
}

void Socket::consume(char* bytes, size_t length) {
  if (!framed_) return emitBytes("bytes", bytes, length);
  while (length > 0 && isOpen() && !ending_) {
    if (passthroughBytes_ > 0) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(passthroughBytes_, length));
      passthroughBytes_ -= part;
      emitBytes("bytes", bytes, part);
      bytes += part;
      length -= part;
      continue;
    }
    const FrameHeader header(bytes, length);
    if (header.bytes == 0) return storePartial(bytes, length, 0);
    // The JavaScript reader rejects the frame by its header. The length must not be used, because a sum with it may
    // overflow.
    if (header.payloadBytes > maxMessageBytes_) {
      passthroughBytes_ = kPassthroughAll;
      continue;
    }
    const uint64_t total = header.bytes + header.payloadBytes;
    if (!isWholeMessage(header)) {
      if (header.opcode < kFirstControl) isFragmented_ = !header.fin;
      passthroughBytes_ = total;
      continue;
    }
    if (length < total) {
      if (beginBlock(header, bytes + header.bytes, length - header.bytes)) return;
      if (canAssemble(static_cast<size_t>(total))) return storePartial(bytes, length, static_cast<size_t>(total));
      passthroughBytes_ = total;
      continue;
    }
    handleFrame(header, bytes + header.bytes);
    bytes += total;
    length -= static_cast<size_t>(total);
  }
}

// Reports whether the frame is a complete message that needs no further protocol checks.
bool Socket::isWholeMessage(const FrameHeader& header) {
  return header.fin && !header.reserved && header.masked != isClient_ &&
         (header.opcode == kText || header.opcode == kBinary) && !isFragmented_ &&
         header.payloadBytes <= kMaxAssembledFrameBytes;
}

bool Socket::canAssemble(size_t bytes) {
  return bytes <= partialCapacity_ || loop_->partialFrameBytes() - partialCapacity_ + bytes <= kMaxTotalPartialBytes;
}

void Socket::setPartialCapacity(size_t bytes) {
  loop_->partialFrameBytes() += bytes - partialCapacity_;
  partialCapacity_ = bytes;
}

void Socket::storePartial(const char* bytes, size_t length, size_t total) {
  const size_t needed = std::max(total, kMaxHeaderBytes);
  if (partialCapacity_ < needed) {
    partial_.reset(new char[needed]);
    setPartialCapacity(needed);
  }
  memcpy(partial_.get(), bytes, length);
  partialBytes_ = length;
  partialTotal_ = total;
}

bool Socket::beginBlock(const FrameHeader& header, const char* payload, size_t length) {
  if (header.opcode != kBinary || header.payloadBytes < kMinBlockBytes) return false;
  if (loop_->partialFrameBytes() + header.payloadBytes > kMaxTotalPartialBytes) return false;
  if (!block_.begin(loop_->env(), header, payload, length)) return false;
  loop_->partialFrameBytes() += block_.totalBytes();
  return true;
}

void Socket::emitBlock() {
  HandleScope scope(loop_->env());
  loop_->partialFrameBytes() -= block_.totalBytes();
  emitData("binary", block_.take());
}

void Socket::discardBlock() {
  loop_->partialFrameBytes() -= block_.totalBytes();
  block_.reset();
}

void Socket::handleFrame(const FrameHeader& header, char* payload) {
  const size_t length = static_cast<size_t>(header.payloadBytes);
  if (header.key != 0) unmask(reinterpret_cast<uint8_t*>(payload), length, header.key);
  if (header.opcode == kBinary) return emitBytes("binary", payload, length);
  WriteRequest request;
  if (!isClient_ && parseWriteRequest({payload, length}, request) &&
      (tryDirectWrite(request) || emitWriteRequest(request)))
    return;
  const bool isOutput = isClient_ && length >= kMinOutputBytes;
  if (!isOutput && isAscii(payload, length)) emitText(payload, length);
  else emitBytes("message", payload, length);
}

bool Socket::tryDirectWrite(const WriteRequest& request) {
  if (routes_.empty() || isDirectInputPaused_) return false;
  const auto found = routes_.find(std::string(request.processId));
  if (found == routes_.end()) return false;
  // The write may emit `drain`, whose listener may remove the route.
  Child* const child = found->second;
  if (!child->tryDirectWrite(request)) return false;
  constexpr std::string_view kBefore = "{\"id\":";
  constexpr std::string_view kAfter = ",\"result\":{\"status\":\"accepted\"}}";
  char* response = textFrame(kBefore.size() + request.id.size() + kAfter.size());
  for (const std::string_view part : {kBefore, request.id, kAfter}) {
    if (!response) break;
    memcpy(response, part.data(), part.size());
    response += part.size();
  }
  loop_->expectReply(child->replyPredictor(), this);
  return true;
}

// ---- out

char* Socket::textFrame(size_t payloadBytes, char opening) {
  if (!isOpen() || ending_) return nullptr;
  loop_->scheduleFlush(this);
  return orShutDown(queue_.beginTextFrame(payloadBytes, opening));
}

char* Socket::rawFrame(size_t bytes) {
  if (!isOpen() || ending_) return nullptr;
  loop_->scheduleFlush(this);
  return orShutDown(queue_.beginRawFrame(bytes));
}

// Shuts the socket down if a message could not be queued. A gap between messages would corrupt the protocol.
char* Socket::orShutDown(char* space) {
  if (!space) shutdown(bridge_.fd >= 0 ? bridge_.fd : watch_.fd, SHUT_RDWR);
  return space;
}

void Socket::flush() {
  if (queue_.bytes() > kDrainAboveBytes) wantsDrain_ = true;
  const int err =
      hasTwoDescriptors_ ? queue_.send(output_.fd, SinkKind::kPipe) : queue_.send(watch_.fd, SinkKind::kSocket);
  if (err != 0) return close(err, "write");
  arm();
  if (queue_.bytes() > 0) return;
  if (ending_ && !isShutDown_) {
    isShutDown_ = true;
    shutDownOutput();
    // A client that has nothing else to do exits without waiting for the peer.
    if (isClient_ && !hasTwoDescriptors_) loop_->unref(this);
    closeIfDone();
  }
  if (wantsDrain_) {
    wantsDrain_ = false;
    loop_->emit(callbacks_.onEvent, "drain");
  }
}

void Socket::shutDownOutput() {
  if (!hasTwoDescriptors_) {
    shutdown(watch_.fd, SHUT_WR);
    return;
  }
  loop_->arm(output_, 0);
  output_.close();
}

void Socket::arm() {
  if (!isOpen()) return;
  const bool reads = callbacks_.onEvent && !paused_ && !peerEnded_ && (ending_ || queue_.bytes() <= maxQueuedBytes_);
  const uint32_t in = reads ? uint32_t{EPOLLIN} : 0;
  const uint32_t out = queue_.bytes() > 0 && !awaitsFlush() ? uint32_t{EPOLLOUT} : 0;
  loop_->arm(watch_, hasTwoDescriptors_ ? in : in | out);
  if (output_.fd >= 0) loop_->arm(output_, out);
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
  // Reading is the only way to detect the peer's end of stream.
  paused_ = false;
  clearRoutes();
  loop_->scheduleFlush(this);
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

void Socket::clearRoutes() {
  for (const auto& route : routes_) route.second->release();
  routes_.clear();
}

// ---- close

void Socket::closeIfDone() {
  if (peerEnded_ && isShutDown_ && isOpen()) close(0, "");
}

void Socket::close(int err, const char* syscall) {
  releaseResources();
  {
    HandleScope scope(loop_->env());
    loop_->emit(callbacks_.onEvent, "close",
                {{"errno", toValue(loop_->env(), nonZero(err))}, {"syscall", toValue(loop_->env(), syscall)}});
  }
  removeFromLoop();
}

void Socket::destroy() {
  if (!isOpen()) return;
  releaseResources();
  removeFromLoop();
}

UniqueFd Socket::detach() {
  if (!isOpen() || framed_ || queue_.bytes() > 0 || hasTwoDescriptors_) return UniqueFd();
  loop_->arm(watch_, 0);
  UniqueFd fd = watch_.release();
  removeFromLoop();
  return fd;
}

// Removes the socket from the loop, after its last event.
void Socket::removeFromLoop() {
  // The buffer is freed with this object, because the frame that is being processed may be in it.
  setPartialCapacity(0);
  discardBlock();
  callbacks_.reset();
  loop_->remove(this);
}

void Socket::releaseResources() {
  for (Watch* watch : {&watch_, &output_, &bridge_}) {
    if (watch->fd < 0) continue;
    loop_->arm(*watch, 0);
    watch->close();
  }
  queue_.clear();
  clearRoutes();
}

// ---- events

void Socket::emitData(const char* type, napi_value data) {
  napi_value argv[] = {loop_->intern(type), data};
  loop_->call(callbacks_.onData.get(), 2, argv);
}

void Socket::emitText(const char* text, size_t length) {
  HandleScope scope(loop_->env());
  napi_value value;
  if (NAPI_OK(napi_create_string_latin1(loop_->env(), text, length, &value))) emitData("text", value);
}

void Socket::emitBytes(const char* type, const char* bytes, size_t length) {
  HandleScope scope(loop_->env());
  napi_value value;
  if (copyToBuffer(loop_->env(), bytes, length, value)) emitData(type, value);
}

// Returns false if the chunk is not base64. The general parser then builds the error response.
bool Socket::emitWriteRequest(const WriteRequest& request) {
  HandleScope scope(loop_->env());
  napi_value members[4];
  const bool isValid = writeRequestMembers(loop_->env(), request, members);
  if (isValid) loop_->call(callbacks_.onWrite.get(), 4, members);
  return isValid;
}

}  // namespace procwire
