// One event loop's share of the addon: the children it started, the sockets it was given, and the one place where their
// descriptors are watched.
#ifndef PROCWIRE_LOOP_H
#define PROCWIRE_LOOP_H

#include <node_api.h>

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/awake.h"
#include "core/flood-turns.h"
#include "core/uv-lite.h"
#include "process/spawn.h"
#include "wire/frame-queue.h"

namespace procwire {

class Child;
class Listener;
class Socket;
struct Watch;

// A stream that gives this much at once is bulk: it waits for everybody else, and takes turns with its kind.
constexpr size_t kBulkFromBytes = 32 * 1024;
// A bulk stream that gives less than this is none any more.
constexpr size_t kBulkUntilBytes = 4 * 1024;
// Input longer than this is no line of somebody who waits for its answer.
constexpr size_t kLineBytes = 4 * 1024;

// Whose descriptor it is.
class Watched {
 public:
  virtual void onReady(Watch& watch, uint32_t events) = 0;
  // The coalescing timer has come to a descriptor that was delayed.
  virtual void onDelayOver(Watch&) {}

 protected:
  ~Watched() = default;
};

// What a child's input keeps to, whichever way it comes; `src/native/addon.ts` sets it when it loads the addon.
struct InputLimits {
  size_t queuedBytes = 0;
  size_t rememberedWriteIds = 0;
};

// One watched descriptor. `fd` is -1 once it is closed, so an event that was already on its way is recognised as stale.
struct Watch {
  Watched* owner = nullptr;
  int fd = -1;
  uint32_t armed = 0;    // epoll events asked for now; 0: not registered
  bool delayed = false;  // waiting for the coalescing timer instead
  bool refused = false;  // epoll had no room; `wanted` is asked for again by the timer
  uint32_t wanted = 0;
  bool bulk = false;  // its events come after everybody else's
};

class Loop {
 public:
  static Loop* create(napi_env env);

  void spawn(std::unique_ptr<SpawnRequest> request, napi_value onDone, napi_value onEvent);

  // Watches for exactly these events; 0 stops. Level-triggered.
  void arm(Watch& watch, uint32_t events);
  // Whether its events wait for those of others.
  void setBulk(Watch& watch, bool bulk);
  // A process that is no flood was heard of, or written a line: floods are read in short pieces for a while.
  void heardOfOne() { floods_.heardOfOne(nowNs()); }
  size_t bulkReadBytes() const { return floods_.readBytes(nowNs(), dialogue_.goesOn()); }
  // Reads this one again in a moment instead of when it is readable.
  void delay(Watch& watch);
  void undelay(Watch& watch);
  // Lets `Child::settle` run on the loop, outside the call that is going on.
  void settleSoon(Child* child);
  // The child has closed: it is freed once nobody in the current round can still touch it.
  void remove(Child* child);
  void add(Socket* socket);
  void remove(Socket* socket);
  void add(Listener* listener);
  void remove(Listener* listener);
  // What this socket has queued is sent at the end of the turn, together with all that the turn still adds to it.
  void flushLater(Socket* socket);
  // Something was written to this child, and its answer could leave together with what is queued now.
  void expectOutput(Child* child) { expected_ = child; }

  // Calls JavaScript from the loop; runs its microtasks; reports what it throws as uncaught.
  void call(napi_value function, size_t argc, napi_value* argv);

  napi_env env() const { return env_; }
  const InputLimits& inputLimits() const { return inputLimits_; }
  void setInputLimits(const InputLimits& limits) { inputLimits_ = limits; }
  // Memory for what is looked at once, for children and for sockets: a socket's bytes may be written to a child.
  // At least this much of the former, until the next that asks.
  char* scratch(size_t bytes = kReadBytes);
  char* received();
  BlockPool& blocks() { return blocks_; }
  // Keeps what is freed until it has been quiet for a while; then JavaScript is asked to let go of what it can, and all
  // that is free goes back to the system.
  void keepFreedMemory(napi_value onQuiet);

 private:
  struct Callbacks {
    napi_ref onDone;
    napi_ref onEvent;
  };

  explicit Loop(napi_env env) : env_(env) {}
  bool open(struct uv_loop_s* loop);
  void onReady();
  void onTimer();
  void startTimer();
  void wasBusy();
  void onQuietTimer();
  // Asks again a little later: memory comes back, and a descriptor nobody watches would be silent for ever.
  void armLater(Watch& watch, uint32_t events);
  void armRefused();
  void forget(Watched* owner);
  void onMail();
  int takeReady();
  void takeBulk();
  void serve(Watch& watch, uint32_t events);
  int takeNextLine();
  bool awaitExpected();
  void flushSockets();
  void answer(SpawnRequest& request);
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
  void* quiet_ = nullptr;
  napi_ref onQuiet_ = nullptr;
  int64_t busyNs_ = 0;
  size_t nextQuiet_ = 0;  // which of the moments after `busyNs_` is waited for
  bool quietTimerRunning_ = false;
  int openHandles_ = 0;
  bool timerRunning_ = false;
  int64_t timerDueNs_ = 0;
  bool closing_ = false;
  size_t pendingSpawns_ = 0;
  napi_async_cleanup_hook_handle hook_ = nullptr;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_set<Child*> children_;
  std::unordered_set<Socket*> sockets_;
  std::vector<Socket*> unflushed_;
  std::vector<Socket*> deadSockets_;
  std::unordered_set<Listener*> listeners_;
  std::vector<Listener*> deadListeners_;
  Child* expected_ = nullptr;
  Dialogue dialogue_;
  std::vector<Watch*> delayed_;
  std::vector<Watch*> refused_;
  std::vector<Child*> settling_;
  std::vector<Child*> dead_;
  InputLimits inputLimits_;
  std::unique_ptr<char[]> scratch_;
  size_t scratchBytes_ = 0;
  std::unique_ptr<char[]> received_;
  BlockPool blocks_;
};

}  // namespace procwire

#endif
