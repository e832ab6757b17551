// One connection of a server, or of a client.
//
// The descriptor of a server is an accepted socket. A bridge can replace it by two descriptors (stdio-transfer.h). A
// client has a socket, or two descriptors: the stdout and the stdin of the command that connects it.
// Initially it passes bytes through in both directions. After the upgrade it sends and receives WebSocket frames and
// handles direct input without JavaScript: a `process/write` for a routed child is written to the child's input. Whole
// messages are emitted as such. All other frames (fragments, control frames, oversized and invalid ones) are
// passed through as bytes.
#ifndef PROCWIRE_NET_SOCKET_H
#define PROCWIRE_NET_SOCKET_H

#include <node_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/loop.h"
#include "net/frame-header.h"
#include "net/frame-queue.h"
#include "net/incoming-block.h"
#include "net/stdio-transfer.h"

namespace procwire {

class Child;
struct WriteRequest;

// Callbacks of a socket. `src/native/addon.ts` declares their arguments.
struct SocketCallbacks {
  ValueRef onData;   // ("text", string), ("message" | "binary" | "bytes", bytes)
  ValueRef onWrite;  // (id, processId, writeId or undefined, chunk): a `process/write` that is not direct input
  ValueRef onEvent;  // (event): drain, end, close

  void reset() {
    for (ValueRef* callback : {&onData, &onWrite, &onEvent}) callback->reset();
  }
};

class Socket final : public LoopObject {
 public:
  // Takes ownership of the descriptor. With `isUnix`, the peer may be a bridge that transfers its stdio.
  Socket(Loop* loop, UniqueFd fd, bool isUnix);
  // The connection of a client. Takes ownership of the descriptor, which may still be connecting.
  Socket(Loop* loop, UniqueFd fd);
  // The connection of a client through a command. Takes ownership of both descriptors.
  Socket(Loop* loop, UniqueFd input, UniqueFd output);

  void onReady(Watch& watch, uint32_t events) override;
  void onFlush() override { flush(); }
  void destroyWithoutEvents() override { destroy(); }
  // Closes without an event. Queued data is lost.
  void destroy();
  // Returns the descriptor and gives up its ownership; none if the socket carries frames, has queued data or serves
  // transferred stdio.
  UniqueFd detach();

  // Starts reading. Called once. All methods below are no-ops after the socket has closed.
  void start(SocketCallbacks callbacks);
  // Switches to WebSocket frames. `received` holds frame bytes that were already emitted; they are modified in place.
  // Reading stops while more than `maxQueuedBytes` are queued, so that a peer that does not read its
  // responses cannot request more of them.
  void upgradeToFrames(size_t maxMessageBytes, size_t maxQueuedBytes, char* received, size_t length);
  // Queue a frame and return the address of its payload, which the caller fills immediately. Return null if nothing can
  // be sent anymore.
  char* textFrame(size_t payloadBytes, char opening = kWholeText);
  char* rawFrame(size_t bytes);
  void pause();
  void resume();
  // Sends the queue, then shuts down the sending side.
  void end();
  // Routes direct input for `processId` to the child until the route is removed.
  void route(std::string processId, Child* child);
  void unroute(const std::string& processId);
  // Pauses direct input while a message is sent in chunks, so that responses do not interleave.
  void pauseDirectInput(bool paused) { isDirectInputPaused_ = paused; }
  size_t queuedBytes() const { return queue_.bytes(); }
  uint64_t sentBytes() const { return queue_.sentBytes(); }
  uint64_t receivedBytes() const { return receivedBytes_; }

 private:
  // Sends the queue.
  void flush();
  void receive();
  void consume(char* bytes, size_t length);
  void moveTo(TransferredStdio stdio, std::string_view line);
  void storePartial(const char* bytes, size_t length, size_t total);
  bool beginBlock(const FrameHeader& header, const char* payload, size_t length);
  void emitBlock();
  void discardBlock();
  bool canAssemble(size_t bytes);
  void setPartialCapacity(size_t bytes);
  void handleFrame(const FrameHeader& header, char* payload);
  bool isWholeMessage(const FrameHeader& header);
  bool tryDirectWrite(const WriteRequest& request);
  bool emitWriteRequest(const WriteRequest& request);
  void emitText(const char* text, size_t length);
  void emitBytes(const char* type, const char* bytes, size_t length);
  void emitData(const char* type, napi_value data);
  void arm();
  void closeIfDone();
  void close(int err, const char* syscall);
  void releaseResources();
  void removeFromLoop();
  void clearRoutes();
  bool isOpen() const { return watch_.fd >= 0; }
  void shutDownOutput();
  char* orShutDown(char* space);

  Loop* loop_;
  SocketCallbacks callbacks_;
  const bool isClient_;
  bool hasTwoDescriptors_;
  Watch watch_;   // the socket, or the input of two descriptors
  Watch output_;  // only with two descriptors
  Watch bridge_;  // the socket after a transfer; its end is the end of the connection
  size_t maxMessageBytes_ = 0;
  size_t maxQueuedBytes_ = SIZE_MAX;
  FrameQueue queue_;
  std::unordered_map<std::string, Child*> routes_;

  // An incomplete frame: buffer, received bytes and total length with header. The total is 0 while the header is
  // incomplete.
  std::unique_ptr<char[]> partial_;
  size_t partialCapacity_ = 0;
  size_t partialBytes_ = 0;
  size_t partialTotal_ = 0;
  IncomingBlock block_;            // an incomplete large binary message, instead of a partial frame
  uint64_t passthroughBytes_ = 0;  // remaining bytes of a passed-through frame
  bool isFragmented_ = false;

  uint64_t receivedBytes_ = 0;
  bool mayTransfer_;  // the first bytes of a Unix connection may come with descriptors
  bool framed_ = false;
  bool isDirectInputPaused_ = false;
  bool paused_ = false;
  bool wantsDrain_ = false;
  bool ending_ = false;      // no frame is queued anymore; the queue is still sent
  bool isShutDown_ = false;  // the sending side is shut down
  bool peerEnded_ = false;
};

}  // namespace procwire

#endif
