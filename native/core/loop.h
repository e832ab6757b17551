// The addon's part of one libuv event loop.
//
// Ownership and threads:
//
// - Descriptors: UniqueFd owns a descriptor and closes it. A raw `int fd` parameter is borrowed, a `UniqueFd` parameter
// transfers ownership. A Watch owns its descriptor after `open`, another object after `borrow`. A SpawnRequest owns its
// descriptors until a Child takes them; a StateSegment owns the segment and both eventfds. JavaScript owns the
// descriptors that it passes to `spawn`, and keeps them open until `onDone`. Descriptors that the addon returns belong
// to JavaScript; a listening descriptor that JavaScript passes to `listenAt` belongs to the addon. The channel of the
// supervisor and the directory of the process cgroups stay open until the process exits.
//
// - JavaScript values: every Node-API call goes through NAPI_CHECK or NAPI_OK (napi.h). A HandleScope surrounds each
// event that creates values. A ValueRef holds a callback from the registration to the last event, then `reset` frees
// it on the thread of its environment. The memory of a buffer is used during the call that passes it, or while a
// ValueRef holds the buffer.
//
// - Objects: the loop holds one reference to every LoopObject from `add` to `remove`, each JavaScript handle holds one,
// and each route of a Socket holds one to its Child. `release` frees the object with the last reference.
//
// - Threads: Loop, LoopObject, BlockPool and all N-API values belong to the thread of their environment. Spawner
// threads and the wait thread touch only SpawnRequest and Mailbox, threads of a JobQueue only Job and Mailbox; requests
// and jobs have one owner at a time. A job uses memory of JavaScript only within `Mailbox::whileOpen`. Process cgroups,
// the list of state segments, the supervisor channel, the pipe budget and the budget of write ids are process-wide and
// locked or atomic.
//
// - Shutdown: the cleanup hook closes the Mailbox, which waits for jobs that use memory of JavaScript. It destroys all
// objects, then closes the libuv handles; the last close callback deletes the loop. The Mailbox discards mail that
// arrives later.
#ifndef PROCWIRE_CORE_LOOP_H
#define PROCWIRE_CORE_LOOP_H

#include <node_api.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/block-pool.h"
#include "core/bulk-scheduler.h"
#include "core/loop-object.h"
#include "core/mailbox.h"
#include "core/memory-trimmer.h"
#include "core/spin-policy.h"
#include "core/uv-declarations.h"

namespace procwire {

// A stream that returns this many bytes in one read enters bulk mode: it is served last, in rotation with other bulk
// streams.
constexpr size_t kBulkEnterBytes = 32 * 1024;
// A bulk stream that returns fewer bytes leaves bulk mode.
constexpr size_t kBulkLeaveBytes = 4 * 1024;
// Space in front of each socket read, for the header bytes of a frame that the read before ended in.
constexpr size_t kReceivedFrontBytes = 16;
// Longer input is not interactive: the loop does not spin for a reply.
constexpr size_t kMaxInteractiveInput = 4 * 1024;

class Loop {
 public:
  static Loop* create(napi_env env);

  // Watches for exactly these events, level-triggered. 0 stops watching.
  void arm(Watch& watch, uint32_t events);
  // Sets whether the descriptor is served after all others.
  void setBulk(Watch& watch, bool bulk);
  // Records interactive input or output, which shortens bulk reads for a while.
  void noteInteractive() { bulk_.noteInteractive(nowNs()); }
  size_t bulkReadBytes() const { return bulk_.readBytes(nowNs(), exchange_.isActive()); }
  // Reads the descriptor after the coalescing delay instead of when it is readable.
  void delay(Watch& watch);
  void cancelDelay(Watch& watch);
  void add(LoopObject* object);
  // Unregisters an object. It is freed once nothing in the current poll can still touch it.
  void remove(LoopObject* object);
  // Lets the event loop end although the object is registered.
  void unref(LoopObject* object);
  // Calls `onSettle` from the event loop, outside of the current call.
  void deferSettle(LoopObject* object);
  // Calls `onFlush` at the end of the iteration, so that everything queued in it goes out in one send.
  void scheduleFlush(LoopObject* object);
  // Calls `onIdle` once the messages of this iteration were sent, for work that no client waits for.
  void scheduleIdle(LoopObject* object) { idle_.push_back(object); }
  // Expects a reply to the input just written, so that it can be sent together with the response that `connection` has
  // queued.
  void expectReply(ReplyPredictor* replyPredictor, const LoopObject* connection) {
    expected_ = replyPredictor;
    exchangeConnection_ = connection;
  }
  // Returns the mailbox through which another thread delivers one result to this loop. Call once per result.
  std::shared_ptr<Mailbox> reserveMail();

  // Calls JavaScript from the loop and runs its microtasks. Exceptions are reported as uncaught. No-op for a null
  // function.
  void call(napi_value function, size_t argc, napi_value* argv);
  // Calls an event callback with one object: `type` and the fields.
  void emit(const ValueRef& onEvent, const char* type,
            std::initializer_list<std::pair<const char*, napi_value>> fields = {});
  // Returns the JavaScript string of a literal, created once per literal. For callbacks of the hot path.
  napi_value intern(const char* literal);

  napi_env env() const { return env_; }
  // Scratch buffers: `scratch` for children, `received` for sockets. They are separate, because bytes of a socket may
  // be written to a child. `scratch` holds at least `bytes` bytes and is valid until the next call. `received` holds
  // `kReceivedFrontBytes` and one read.
  char* scratch(size_t bytes = kReadBytes);
  char* received();
  BlockPool& blocks() { return blocks_; }
  // Bytes that all sockets together hold for incomplete frames.
  size_t& partialFrameBytes() { return partialFrameBytes_; }
  MemoryTrimmer& trimmer() { return trimmer_; }

 private:
  explicit Loop(napi_env env) : env_(env), trimmer_(*this) {}
  bool open(struct uv_loop_s* loop);
  void onReady();
  void onTimer();
  void startTimer();
  // Retries a failed epoll_ctl when the timer fires. Without a retry, the descriptor would never report an event again.
  void retryArm(Watch& watch, uint32_t events);
  void retryRefusedArms();
  void onMail();
  int pollReady();
  void pollBulk();
  void serve(Watch& watch, uint32_t events);
  int pollNextInput();
  bool waitForReply();
  BulkActivity bulkActivity(int64_t now) const;
  void flushAll();
  void runIdle();
  void updateRef();
  void freeRemoved();
  void shutDown(napi_async_cleanup_hook_handle hook);
  void closeHandle(void*& handle);

  napi_env env_;
  napi_async_context context_ = nullptr;
  ValueRef receiver_;
  std::unordered_map<const char*, ValueRef> strings_;
  UniqueFd epoll_;
  UniqueFd bulkEpoll_;  // nested in epoll_
  bool isBulkReady_ = false;
  BulkScheduler bulk_;
  int libuvFd_ = -1;  // readable when libuv has events
  void* poll_ = nullptr;
  void* timer_ = nullptr;
  void* async_ = nullptr;
  void* prepare_ = nullptr;
  int openHandles_ = 0;
  bool timerRunning_ = false;
  int64_t timerDueNs_ = 0;
  bool closing_ = false;
  size_t reservedMail_ = 0;
  napi_async_cleanup_hook_handle hook_ = nullptr;
  std::shared_ptr<Mailbox> mailbox_;
  std::unordered_set<LoopObject*> objects_;
  std::unordered_set<LoopObject*> unreferenced_;  // part of `objects_`
  std::vector<LoopObject*> unflushed_;
  std::vector<LoopObject*> settling_;
  std::vector<LoopObject*> idle_;
  std::vector<LoopObject*> removed_;
  ReplyPredictor* expected_ = nullptr;
  const LoopObject* exchangeConnection_ = nullptr;  // only compared
  bool isBulkOnExchangeConnection_ = false;
  InteractiveExchange exchange_;
  std::vector<Watch*> delayed_;
  std::vector<Watch*> refused_;
  std::unique_ptr<char[]> scratch_;
  size_t scratchBytes_ = 0;
  std::unique_ptr<char[]> received_;
  BlockPool blocks_;
  size_t partialFrameBytes_ = 0;
  MemoryTrimmer trimmer_;
};

}  // namespace procwire

#endif
