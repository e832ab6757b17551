// One connection of a server. At first it only passes bytes on, both ways. Once it is told that it carries WebSocket
// frames, it sends frames, and handles what needs no JavaScript at all: a `process/write` for a child with a route goes
// from the socket into the child's input. Whole text messages are emitted as such; any other frame (fragments, control
// frames, oversized and wrong ones) is passed on as the bytes it came in.
#ifndef PROCWIRE_SOCKET_H
#define PROCWIRE_SOCKET_H

#include <node_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/loop.h"
#include "wire/frame-head.h"
#include "wire/frame-queue.h"

namespace procwire {

class Child;
struct WriteRequest;

// The first argument of a socket's event callback.
enum class SocketEvent : int {
  kText = 0,     // a whole text message in ASCII, as a string
  kMessage = 1,  // a whole text message, as bytes not looked at
  kBytes = 2,    // bytes, frames, or parts of one, as they came
  kWrite = 3,    // a `process/write` that has no route here: id, processId, writeId or undefined, chunk
  kDrain = 4,    // what had piled up is sent
  kEnd = 5,      // the peer sends nothing more
  kClose = 6,    // the last event: errno or 0, and the call it came from
};

// Their names in JavaScript, which is given this list.
constexpr const char* kSocketEventNames[] = {"text", "message", "bytes", "write", "drain", "end", "close"};

class Socket final : public Resident {
 public:
  // Takes over the descriptor.
  Socket(Loop* loop, int fd);

  void onReady(Watch& watch, uint32_t events) override;
  void onFlush() override { flush(); }
  void abandon() override { destroy(); }
  // Closes without an event; what is queued is lost.
  void destroy();
  // Gives the descriptor away and forgets it, for a connection that carries no frames and has nothing queued; else -1.
  int handOver();

  // What JavaScript asks for. All harmless after the end.
  // Begins to read; called once.
  void start(napi_ref onEvent);
  // Frames follow from here on. `received` are their bytes that were emitted already; they are changed in place.
  // While more than `mostQueuedBytes` wait to be sent, nothing is read: a peer that does not take its answers gets no
  // more.
  void carryFrames(size_t mostMessageBytes, size_t mostQueuedBytes, char* received, size_t length);
  // Where a payload of that size belongs, to be filled at once; null when nothing can be sent any more.
  char* textFrame(size_t payloadBytes);
  char* rawFrame(size_t bytes);
  void pause();
  void resume();
  // Sends what is queued, then says that nothing more comes.
  void end();
  // Writes for this process go straight to its child, until the route is removed.
  void route(std::string processId, Child* child);
  void unroute(const std::string& processId);
  // While a message is sent in parts nothing else may come between them: writes are left to JavaScript.
  void holdRoutes(bool held) { routesHeld_ = held; }
  size_t queuedBytes() const { return queue_.bytes(); }
  uint64_t sentBytes() const { return queue_.sentBytes(); }
  uint64_t receivedBytes() const { return receivedBytes_; }

 private:
  // Sends what is queued.
  void flush();
  void receive();
  void take(char* bytes, size_t length);
  void keep(const char* bytes, size_t length, size_t total);
  bool mayGather(size_t bytes);
  void setPartialCapacity(size_t bytes);
  void takeFrame(char* payload, size_t length, uint32_t key);
  bool isWhole(const FrameHead& head);
  bool writeThrough(const WriteRequest& request);
  bool tellWrite(const WriteRequest& request);
  void tellText(const char* text, size_t length);
  void tellBytes(SocketEvent event, const char* bytes, size_t length);
  void tell(SocketEvent event, size_t argc = 0, const napi_value* argv = nullptr);
  void arm();
  void considerClosing();
  void close(int err, const char* syscall);
  void giveBack();
  void leave();
  void forgetRoutes();
  bool isOpen() const { return watch_.fd >= 0; }
  char* orBreak(char* room);

  Loop* loop_;
  napi_ref onEvent_ = nullptr;
  Watch watch_;
  size_t mostMessageBytes_ = 0;
  size_t mostQueuedBytes_ = SIZE_MAX;
  FrameQueue queue_;
  std::unordered_map<std::string, Child*> routes_;

  // A frame that has begun: what is here of it, and how long it is with its head; 0 while the head is not whole.
  std::unique_ptr<char[]> partial_;
  size_t partialCapacity_ = 0;
  size_t partialBytes_ = 0;
  size_t partialTotal_ = 0;
  uint64_t passedOn_ = 0;  // bytes of a frame that is passed on as it comes, still to come
  bool inFragments_ = false;

  uint64_t receivedBytes_ = 0;
  bool framed_ = false;
  bool routesHeld_ = false;
  bool paused_ = false;
  bool wantsDrain_ = false;
  bool ending_ = false;  // nothing more is to be sent after what is queued
  bool shut_ = false;    // the peer was told so
  bool peerEnded_ = false;
};

}  // namespace procwire

#endif
