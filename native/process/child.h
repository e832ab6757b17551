// A started program, seen from the loop that started it: its streams, its input queue, its end.
#ifndef PROCWIRE_CHILD_H
#define PROCWIRE_CHILD_H

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
#include "process/kept.h"
#include "process/spawn.h"
#include "process/write-ids.h"

namespace procwire {

struct Inherited;
struct WriteRequest;

// The first argument of a child's event callback, and its name in JavaScript, which is given this list.
enum class Event : int { kStdout, kStderr, kTerminal, kExit, kClose, kDrain, kUnreadable, kRefused };
constexpr const char* kEventNames[] = {"stdout", "stderr", "terminal",   "exit",
                                       "close",  "drain",  "unreadable", "refused"};

// A terminal gives at most 4 KiB per read; up to this much is combined into one chunk.
constexpr size_t kTerminalChunkBytes = 64 * 1024;

// What a read answers when it failed and nothing more can be read.
constexpr ssize_t kReadFailed = -2;

// One stream the child writes to and we read from.
struct OutStream {
  Watch watch;
  Event event = Event::kStdout;
  bool terminal = false;
  bool grown = false;      // its pipe has been enlarged out of the shared budget
  bool readLarge = false;  // the last read was large: worth asking how much there is before the next
  int quickChunks = 0;     // chunks in a row that followed each other closely
  int64_t lastChunkNs = 0;
  uint64_t totalBytes = 0;
};

class Child final : public Resident {
 public:
  Child(Loop* loop, SpawnRequest& request, napi_ref onEvent);

  // A child that an earlier server started.
  Child(Loop* loop, Inherited& inherited, std::unique_ptr<Kept> kept, napi_ref onEvent);

  // Starts watching.
  void begin();

  void onReady(Watch& watch, uint32_t events) override;
  void onDelayOver(Watch& watch) override;
  void onSettle() override { settle(); }
  // Kills it.
  void abandon() override;

  // What JavaScript asks for. All harmless after the end.
  void write(const char* bytes, size_t length, const std::string* id = nullptr);
  bool knowsWrite(std::string_view id) const;
  size_t queuedBytes() const { return queuedBytes_; }
  // All that it was given so far.
  uint64_t writtenBytes() const { return writtenBytes_; }
  void closeStdin();
  void pause();
  void resume();
  bool resize(unsigned short rows, unsigned short cols);
  bool terminalState(unsigned short& rows, unsigned short& cols, bool& echo, bool& canonical) const;
  bool signalGroup(int signal);
  void cut();
  // It is being ended: writes from now on are left to JavaScript, which refuses them.
  void refuseInput() { refusesInput_ = true; }
  // Null for one that ends with the server.
  Kept* kept() { return kept_.get(); }
  // What the next server must know of its end.
  void recordExit(std::string_view status);
  void recordClosed();
  void forgetKept();

  // Takes a write that came by a socket, when it can be accepted at once; false leaves it to JavaScript.
  bool writeThrough(const WriteRequest& request);
  // Whether it usually has output soon after input, so that the two are worth sending together.
  AnswerHabit* habit() { return &habit_; }

 private:
  // Emits `close` when everything has ended.
  void settle();
  OutStream* outStreamOf(Watch& watch);
  void armOut(OutStream& stream);
  void readOnce(OutStream& stream);
  void drainAtExit(OutStream& stream, size_t most);
  ssize_t readChunk(OutStream& stream, size_t most, napi_value& chunk);
  ssize_t readPipe(OutStream& stream, size_t most, napi_value& chunk);
  ssize_t readTerminal(OutStream& stream, size_t most, napi_value& chunk);
  void chunkDone(OutStream& stream, size_t length, size_t asked);
  void endOut(OutStream& stream);
  void failOut(OutStream& stream, int error);
  void onExit();
  void awaitTracer();
  void flush(bool hungUp);
  void endStdin();
  int stdinFd() const;
  size_t endOfFileKeys(bool lineOpen, char (&keys)[2]) const;
  ssize_t readTerminalInto(OutStream& stream, char* to, size_t most);
  ssize_t readKept(OutStream& stream, size_t most, napi_value& chunk);
  void writeKept(const char* bytes, size_t length, const KeptWriteId& id);
  bool writeKeptThrough(const char* bytes, size_t length, std::string_view id, bool hasId);
  void flushKept();
  void closeKeptStdin();
  void endKeptInput();
  void onPoke();
  void keptStatus(siginfo_t& info) const;
  void forgetBurst();
  void tell(Event event, napi_value first = nullptr, napi_value second = nullptr);

  Loop* loop_;
  napi_ref onEvent_;
  const pid_t pid_;
  const GroupLease lease_;
  const bool terminal_;
  const bool pipeStdin_;
  Watch exit_;
  Watch in_;
  OutStream out_[2];
  int slave_;
  bool paused_ = false;
  bool reaped_ = false;
  bool exitTold_ = false;
  bool closed_ = false;

  std::deque<std::string> queue_;
  size_t queueOffset_ = 0;
  size_t queuedBytes_ = 0;
  uint64_t writtenBytes_ = 0;
  bool stdinGrown_ = false;
  bool stdinEnding_ = false;
  bool lineOpen_ = false;  // the last byte written to a terminal did not end its line
  bool wantsDrain_ = false;
  bool refusesInput_ = false;
  // Of a process that outlives the server: input that has found no room yet.
  struct KeptWrite {
    std::string bytes;
    KeptWriteId id;
    size_t done;
    bool begun;
  };
  std::unique_ptr<Kept> kept_;
  std::deque<KeptWrite> keptQueue_;
  const InputLimits limits_;
  WriteIds writeIds_;
  AnswerHabit habit_;
};

}  // namespace procwire

#endif
