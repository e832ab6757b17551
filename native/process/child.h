// A started process as seen from its loop: output streams, input queue and exit.
#ifndef PROCWIRE_PROCESS_CHILD_H
#define PROCWIRE_PROCESS_CHILD_H

#include <node_api.h>
#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "core/loop.h"
#include "process/input-limits.h"
#include "process/spawn.h"
#include "process/state-segment.h"
#include "process/write-ids.h"

namespace procwire {

struct RestoredProcess;
struct WriteRequest;

// A terminal returns at most 4 KiB per read. Several reads are combined up to this size.
constexpr size_t kTerminalChunkBytes = 64 * 1024;

// Result of a read that failed permanently.
constexpr ssize_t kReadFailed = -2;

// One output stream of the child.
struct OutputStream {
  Watch watch;
  const char* name = "stdout";  // for JavaScript
  bool terminal = false;
  bool isPipeEnlarged = false;  // charged to the budget of enlarged pipes
  bool readLarge = false;       // the last read was large, so query the available bytes first
  int burstChunks = 0;          // consecutive chunks within the burst gap
  int64_t lastChunkNs = 0;
  uint64_t totalBytes = 0;
};

class Child final : public LoopObject {
 public:
  // Takes the descriptors and the callbacks of the request.
  Child(Loop* loop, SpawnRequest& request);

  // Restores a child of an earlier server. Takes its output descriptors and pty slave.
  Child(Loop* loop, RestoredProcess& restored, std::unique_ptr<StateSegment> segment, ChildCallbacks callbacks);

  // Starts watching the descriptors.
  void begin();

  void onReady(Watch& watch, uint32_t events) override;
  void onDelayElapsed(Watch& watch) override;
  void onSettle() override { settle(); }
  void onIdle() override { startTime(); }
  // Kills the process, unless it is persistent.
  void destroyWithoutEvents() override;

  // Methods for JavaScript. All are no-ops after the `close` event.
  void write(const char* bytes, size_t length, const std::string* id = nullptr);
  bool hasWriteId(std::string_view id) const;
  size_t queuedBytes() const { return queuedBytes_; }
  // Start time of the process in the process table; 0 if it could not be read.
  uint64_t startTime();
  // Total bytes written so far.
  uint64_t writtenBytes() const { return writtenBytes_; }
  void closeStdin();
  void pause();
  void resume();
  bool resize(unsigned short rows, unsigned short cols);
  bool terminalState(unsigned short& rows, unsigned short& cols, bool& echo, bool& canonical) const;
  bool signalGroup(int signal);
  void closeStreams();
  // Leaves all further direct writes to JavaScript, which rejects them because the process is being terminated.
  void rejectDirectInput() { rejectsDirectInput_ = true; }
  // The state segment of a persistent process, else null.
  StateSegment* stateSegment() { return segment_.get(); }
  // Record the end of the process in the segment, for the next server.
  void recordExit(std::string_view status);
  void recordClosed();
  void releaseSegment();

  // Accepts a direct write if it fits immediately. Returns false to leave it to JavaScript.
  bool tryDirectWrite(const WriteRequest& request);
  // Predicts replies, so that they can be sent together with the response to a write.
  ReplyPredictor* replyPredictor() { return &replyPredictor_; }

 private:
  void openOutput(UniqueFd stdoutFd, UniqueFd stderrFd);
  // Emits `close` once the process has exited and all streams have ended.
  void settle();
  OutputStream* findOutputStream(Watch& watch);
  void armOutput(OutputStream& stream);
  void readOnce(OutputStream& stream);
  void drainAtExit(OutputStream& stream, size_t maxBytes);
  ssize_t readChunk(OutputStream& stream, size_t maxBytes, napi_value& chunk);
  // Copies bytes into a chunk. Returns their number, or -1 with errno set.
  ssize_t copyChunk(const char* bytes, size_t length, napi_value& chunk);
  ssize_t readPipe(OutputStream& stream, size_t maxBytes, napi_value& chunk);
  ssize_t readTerminal(OutputStream& stream, size_t maxBytes, napi_value& chunk);
  void onChunkRead(OutputStream& stream, size_t length, size_t requestedBytes);
  void endOutput(OutputStream& stream);
  void failOutput(OutputStream& stream, int error);
  void onExit();
  void waitForTracer();
  void flush(bool hungUp);
  void endStdin();
  int stdinFd() const;
  size_t eofKeystrokes(bool hasPartialLine, char (&keys)[2]) const;
  ssize_t readTerminalInto(OutputStream& stream, char* to, size_t maxBytes);
  ssize_t readIntoSegment(OutputStream& stream, size_t maxBytes, napi_value& chunk);
  void writeToSegment(const char* bytes, size_t length, const WriteIdHash& id);
  bool tryDirectWriteToSegment(const char* bytes, size_t length, std::string_view id, bool hasId);
  void flushToSegment();
  void closeSegmentStdin();
  void endSegmentInput();
  void onSupervisorWake();
  void segmentExitStatus(siginfo_t& info) const;
  void resetBurst();
  void emitOutput(const OutputStream& stream, napi_value chunk);

  Loop* loop_;
  ChildCallbacks callbacks_;
  const pid_t pid_;
  uint64_t startTime_;
  const CgroupLease lease_;
  const bool terminal_;
  const bool pipeStdin_;
  Watch exit_;
  Watch in_;
  OutputStream out_[2];
  UniqueFd ptySlave_;
  bool paused_ = false;
  bool reaped_ = false;
  bool exitEmitted_ = false;
  bool closed_ = false;

  std::deque<std::string> queue_;
  size_t queueOffset_ = 0;
  size_t queuedBytes_ = 0;
  uint64_t writtenBytes_ = 0;
  bool isStdinEnlarged_ = false;
  bool stdinEnding_ = false;
  bool hasPartialLine_ = false;  // the last byte written to the terminal did not end a line
  bool wantsDrain_ = false;
  bool rejectsDirectInput_ = false;
  // Input of a persistent process that did not fit into the segment yet.
  struct SegmentWrite {
    std::string bytes;
    WriteIdHash id;
    size_t done;
    bool begun;
  };
  std::unique_ptr<StateSegment> segment_;
  std::deque<SegmentWrite> segmentQueue_;
  const InputLimits limits_;
  WriteIdCache writeIds_;
  ReplyPredictor replyPredictor_;
};

}  // namespace procwire

#endif
