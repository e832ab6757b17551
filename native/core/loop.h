// One event loop's share of the addon: what lives on it, and the one place where its descriptors are watched.
#ifndef PROCWIRE_LOOP_H
#define PROCWIRE_LOOP_H

#include <node_api.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/awake.h"
#include "core/block-pool.h"
#include "core/flood-turns.h"
#include "core/mailbox.h"
#include "core/quiet-memory.h"
#include "core/resident.h"
#include "core/uv-lite.h"

namespace procwire {

// A stream that gives this much at once is bulk: it waits for everybody else, and takes turns with its kind.
constexpr size_t kBulkFromBytes = 32 * 1024;
// A bulk stream that gives less than this is no longer bulk.
constexpr size_t kBulkUntilBytes = 4 * 1024;
// Input longer than this is not a line of a dialogue, and the loop does not spin for its answer.
constexpr size_t kLineBytes = 4 * 1024;

class Loop {
 public:
  static Loop* create(napi_env env);

  // Watches for exactly these events; 0 stops. Level-triggered.
  void arm(Watch& watch, uint32_t events);
  // Whether its events wait for those of others.
  void setBulk(Watch& watch, bool bulk);
  // A process that does not flood had output or got a line of input: floods are read in short pieces for a while.
  void heardOfOne() { floods_.heardOfOne(nowNs()); }
  size_t bulkReadBytes() const { return floods_.readBytes(nowNs(), dialogue_.goesOn()); }
  // Reads this one again in a moment instead of when it is readable.
  void delay(Watch& watch);
  void undelay(Watch& watch);
  void add(Resident* resident);
  // It has ended: it is freed once nothing in the current round can still touch it.
  void remove(Resident* resident);
  // Calls `onSettle` on the loop, outside the call that is going on.
  void settleSoon(Resident* resident);
  // Calls `onFlush` at the end of the turn, so that all that the turn queues is sent together.
  void flushLater(Resident* resident);
  // Input was written to the process with this habit, and its answer could be sent together with what is queued now.
  void expectOutput(AnswerHabit* habit) { expected_ = habit; }
  // Where another thread delivers what it has finished for this loop, one mail for each call of this.
  std::shared_ptr<Mailbox> expectMail();

  // Calls JavaScript from the loop; runs its microtasks; reports what it throws as uncaught.
  void call(napi_value function, size_t argc, napi_value* argv);

  napi_env env() const { return env_; }
  // Scratch buffers, one for children and one for sockets: a socket's bytes may be written to a child. The children's
  // is at least this large, and valid until the next call.
  char* scratch(size_t bytes = kReadBytes);
  char* received();
  BlockPool& blocks() { return blocks_; }
  // What all sockets together hold for frames that have not come whole.
  size_t& gatheredBytes() { return gatheredBytes_; }
  QuietMemory& memory() { return memory_; }

 private:
  explicit Loop(napi_env env) : env_(env), memory_(*this) {}
  bool open(struct uv_loop_s* loop);
  void onReady();
  void onTimer();
  void startTimer();
  // Retries a little later: memory becomes free, and an unwatched descriptor would be silent for ever.
  void armLater(Watch& watch, uint32_t events);
  void armRefused();
  void onMail();
  int takeReady();
  void takeBulk();
  void serve(Watch& watch, uint32_t events);
  int takeNextLine();
  bool awaitExpected();
  void flushAll();
  void updateRef();
  void bury();
  void shutDown(napi_async_cleanup_hook_handle hook);
  void closeHandle(void*& handle);
  void closeEpolls();

  napi_env env_;
  napi_async_context context_ = nullptr;
  napi_ref receiver_ = nullptr;
  int epoll_ = -1;
  int bulkEpoll_ = -1;  // within the other one
  bool bulkIsReady_ = false;
  FloodTurns floods_;
  int libuvFd_ = -1;  // readable when something of libuv's own is ready
  void* poll_ = nullptr;
  void* timer_ = nullptr;
  void* async_ = nullptr;
  void* prepare_ = nullptr;
  int openHandles_ = 0;
  bool timerRunning_ = false;
  int64_t timerDueNs_ = 0;
  bool closing_ = false;
  size_t awaitedMail_ = 0;
  napi_async_cleanup_hook_handle hook_ = nullptr;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_set<Resident*> residents_;
  std::vector<Resident*> unflushed_;
  std::vector<Resident*> settling_;
  std::vector<Resident*> dead_;
  AnswerHabit* expected_ = nullptr;
  Dialogue dialogue_;
  std::vector<Watch*> delayed_;
  std::vector<Watch*> refused_;
  std::unique_ptr<char[]> scratch_;
  size_t scratchBytes_ = 0;
  std::unique_ptr<char[]> received_;
  BlockPool blocks_;
  size_t gatheredBytes_ = 0;
  QuietMemory memory_;
};

}  // namespace procwire

#endif
