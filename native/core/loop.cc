// All descriptors are registered with one epoll instance of the addon, and libuv watches only that instance. Children
// and sockets therefore need no libuv handles. Bulk streams are registered with a second epoll instance nested in the
// first: each iteration serves all other streams, then one bulk stream, and epoll rotates among the bulk streams.
#include "core/loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace procwire {
namespace {

// Maximum events per poll. Further events wait, so that other parts of the server run in between.
constexpr int kMaxEventsPerPoll = 64;
// Pause between two reads of a stream of small chunks.
constexpr int64_t kCoalesceMs = 1;

bool isExpectedLibuv() {
  const auto is = [](int type, const char* name) {
    const char* found = uv_handle_type_name(type);
    return found && strcmp(found, name) == 0;
  };
  return is(kUvAsync, "async") && is(kUvPoll, "poll") && is(kUvPrepare, "prepare") && is(kUvTimer, "timer");
}

void* newHandle(int type) { return calloc(1, uv_handle_size(type)); }

template <class Value>
void eraseFrom(std::vector<Value>& values, Value value) {
  values.erase(std::remove(values.begin(), values.end(), value), values.end());
}

}  // namespace

Loop* Loop::create(napi_env env) {
  struct uv_loop_s* loop = nullptr;
  if (!isExpectedLibuv() || !NAPI_OK(napi_get_uv_event_loop(env, &loop))) return nullptr;
  Loop* created = new Loop(env);
  if (created->open(loop)) return created;
  delete created;
  return nullptr;
}

bool Loop::open(struct uv_loop_s* loop) {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  bulkEpoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  // Without a Watch, which identifies it in `pollReady`.
  struct epoll_event bulk = {};
  bulk.events = EPOLLIN;
  if (!epoll_ || !bulkEpoll_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bulkEpoll_.get(), &bulk) < 0) return false;
  receiver_ = ValueRef(env_, ObjectBuilder(env_).get());
  if (!NAPI_OK(napi_async_init(env_, nullptr, toValue(env_, "procwire"), &context_))) return false;
  poll_ = newHandle(kUvPoll);
  if (!poll_ || uv_poll_init(loop, poll_, epoll_.get()) != 0) {
    free(poll_);
    return false;
  }
  libuvFd_ = uv_backend_fd(loop);
  timer_ = newHandle(kUvTimer);
  async_ = newHandle(kUvAsync);
  prepare_ = newHandle(kUvPrepare);
  trimmer_.timer() = newHandle(kUvTimer);
  uv_timer_init(loop, timer_);
  uv_timer_init(loop, trimmer_.timer());
  uv_prepare_init(loop, prepare_);
  uv_async_init(loop, async_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->onMail(); });
  // Runs last in every loop iteration, before libuv blocks.
  uv_prepare_start(prepare_, [](void* handle) {
    Loop* self = static_cast<Loop*>(uv_handle_get_data(handle));
    if (!self->unflushed_.empty()) self->flushAll();
    self->runIdle();
    self->freeRemoved();
  });
  for (void* handle : {poll_, timer_, async_, prepare_, trimmer_.timer()}) {
    uv_handle_set_data(handle, this);
    uv_unref(handle);
    openHandles_++;
  }
  uv_poll_start(poll_, kUvReadable,
                [](void* handle, int, int) { static_cast<Loop*>(uv_handle_get_data(handle))->onReady(); });
  mailbox_ = std::make_shared<Mailbox>(async_);
  const auto cleanUp = [](napi_async_cleanup_hook_handle hook, void* self) {
    static_cast<Loop*>(self)->shutDown(hook);
  };
  NAPI_CHECK(napi_add_async_cleanup_hook(env_, cleanUp, this, &hook_));
  return true;
}

void Loop::arm(Watch& watch, uint32_t events) {
  if (watch.refused) {
    watch.refused = false;
    eraseFrom(refused_, &watch);
  }
  if (watch.fd < 0 || watch.armed == events) return;
  struct epoll_event event = {};
  event.events = events;
  event.data.ptr = &watch;
  // epoll reports hang-ups even without requested events. Only removing the descriptor stops that.
  int operation = events == 0 ? EPOLL_CTL_DEL : watch.armed == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl((watch.bulk ? bulkEpoll_ : epoll_).get(), operation, watch.fd, &event) == 0) watch.armed = events;
  else retryArm(watch, events);
}

void Loop::setBulk(Watch& watch, bool bulk) {
  if (watch.bulk == bulk) return;
  const uint32_t events = watch.refused ? watch.pendingEvents : watch.armed;
  arm(watch, 0);
  watch.bulk = bulk;
  arm(watch, events);
}

void Loop::retryArm(Watch& watch, uint32_t events) {
  watch.refused = true;
  watch.pendingEvents = events;
  refused_.push_back(&watch);
  startTimer();
}

void Loop::retryRefusedArms() {
  std::vector<Watch*> retries;
  retries.swap(refused_);
  for (Watch* watch : retries) watch->refused = false;
  for (Watch* watch : retries) arm(*watch, watch->pendingEvents);
}

void Loop::delay(Watch& watch) {
  if (watch.delayed) return;
  watch.delayed = true;
  delayed_.push_back(&watch);
  startTimer();
}

void Loop::startTimer() {
  if (timerRunning_) return;
  timerRunning_ = true;
  timerDueNs_ = nowNs() + kCoalesceMs * kNsPerMs;
  uv_timer_start(
      timer_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->onTimer(); }, kCoalesceMs, 0);
}

void Loop::cancelDelay(Watch& watch) {
  if (!watch.delayed) return;
  watch.delayed = false;
  eraseFrom(delayed_, &watch);
}

void Loop::deferSettle(LoopObject* object) {
  settling_.push_back(object);
  uv_async_send(async_);
}

void Loop::add(LoopObject* object) {
  objects_.insert(object);
  updateRef();
}

void Loop::unref(LoopObject* object) {
  unreferenced_.insert(object);
  updateRef();
}

void Loop::remove(LoopObject* object) {
  refused_.erase(
      std::remove_if(refused_.begin(), refused_.end(), [object](Watch* watch) { return watch->owner == object; }),
      refused_.end());
  objects_.erase(object);
  unreferenced_.erase(object);
  eraseFrom(settling_, object);
  eraseFrom(idle_, object);
  if (std::exchange(object->awaitsFlush_, false)) eraseFrom(unflushed_, object);
  removed_.push_back(object);
  trimmer_.noteActivity();
  updateRef();
}

void Loop::scheduleFlush(LoopObject* object) {
  if (!std::exchange(object->awaitsFlush_, true)) unflushed_.push_back(object);
}

std::shared_ptr<Mailbox> Loop::reserveMail() {
  reservedMail_++;
  updateRef();
  return mailbox_;
}

void Loop::onReady() {
  exchange_.enter(nowNs());
  int count = pollReady();
  for (;;) {
    const bool hasReply = count > 0 && waitForReply();
    flushAll();
    freeRemoved();
    const int64_t now = nowNs();
    if (hasReply) exchange_.onReply(now);
    const bool awaitsInput = !closing_ && exchange_.awaitsInput(now, hasReply, bulkActivity(now));
    if (!awaitsInput || bulk_.isDue(now)) pollBulk();
    if (!awaitsInput) return;
    count = pollNextInput();
    if (count == 0) return;
  }
}

// Spins for the next input and serves due bulk streams meanwhile. Stops when libuv has events to handle.
int Loop::pollNextInput() {
  int count = 0;
  const bool found = spinUntil(exchange_.awaitsInputUntil(bulkActivity(nowNs())), [&] {
    count = pollReady();
    if (count > 0) return true;
    if (bulk_.isDue(nowNs())) pollBulk();
    if (timerRunning_ && nowNs() >= timerDueNs_) return true;
    struct pollfd libuv = {libuvFd_, POLLIN, 0};
    return poll(&libuv, 1, 0) != 0;
  });
  if (!found) exchange_.end();
  return count;
}

// Returns the number of events served, without bulk events.
int Loop::pollReady() {
  expected_ = nullptr;
  isBulkReady_ = false;
  struct epoll_event events[kMaxEventsPerPoll];
  int count = epoll_wait(epoll_.get(), events, kMaxEventsPerPoll, 0);
  int served = 0;
  for (int at = 0; at < count && !closing_; at++) {
    Watch* watch = static_cast<Watch*>(events[at].data.ptr);
    if (!watch) {
      isBulkReady_ = true;
      continue;
    }
    serve(*watch, events[at].events);
    served++;
  }
  return served;
}

// Serves one bulk stream, if one is ready.
void Loop::pollBulk() {
  if (!isBulkReady_ || closing_) return;
  isBulkReady_ = false;
  struct epoll_event event;
  if (epoll_wait(bulkEpoll_.get(), &event, 1, 0) != 1) return;
  bulk_.begin(nowNs());
  serve(*static_cast<Watch*>(event.data.ptr), event.events);
  if (!unflushed_.empty())
    isBulkOnExchangeConnection_ = unflushed_.size() == 1 && unflushed_.front() == exchangeConnection_;
  flushAll();
  freeRemoved();
  bulk_.end(nowNs());
  trimmer_.noteActivity();
}

BulkActivity Loop::bulkActivity(int64_t now) const {
  if (!bulk_.isActive(now)) return BulkActivity::none;
  return isBulkOnExchangeConnection_ ? BulkActivity::sameConnection : BulkActivity::otherConnection;
}

// Skips descriptors that an earlier event of this poll closed or disarmed.
void Loop::serve(Watch& watch, uint32_t events) {
  if (watch.fd >= 0 && watch.armed != 0) watch.owner->onReady(watch, events);
}

// Reports whether a process got input and has replied.
bool Loop::waitForReply() {
  ReplyPredictor* const replyPredictor = expected_;
  if (closing_ || !replyPredictor || unflushed_.empty() || !replyPredictor->repliesImmediately()) return false;
  // Any event ends the wait, so that other streams do not wait on a busy loop.
  spinUntil(nowNs() + (bulk_.isActive(nowNs()) ? kReplyWaitInBulkNs : kReplyWaitNs),
            [this] { return pollReady() > 0; });
  return replyPredictor->recordWait();
}

void Loop::flushAll() {
  std::vector<LoopObject*> now;
  now.swap(unflushed_);
  for (LoopObject* object : now) object->awaitsFlush_ = false;
  for (LoopObject* object : now)
    if (!closing_ && objects_.count(object)) object->onFlush();
  // An owner queued more data when its socket or child reported free space. Other objects run before that data is sent.
  if (!unflushed_.empty()) uv_async_send(async_);
}

void Loop::runIdle() {
  std::vector<LoopObject*> now;
  now.swap(idle_);
  for (LoopObject* object : now)
    if (!closing_ && objects_.count(object)) object->onIdle();
}

void Loop::onTimer() {
  timerRunning_ = false;
  retryRefusedArms();
  std::vector<Watch*> due;
  due.swap(delayed_);
  for (Watch* watch : due) watch->delayed = false;
  for (Watch* watch : due) {
    if (closing_) break;
    // Serving one watch may have closed another. Closed objects are freed below.
    if (watch->fd >= 0) watch->owner->onDelayElapsed(*watch);
  }
  freeRemoved();
}

void Loop::onMail() {
  for (std::unique_ptr<Mail>& mail : mailbox_->drain()) {
    reservedMail_--;
    if (closing_) mail->discard();
    else mail->deliver(*this);
  }
  updateRef();
  std::vector<LoopObject*> settling;
  settling.swap(settling_);
  for (LoopObject* object : settling)
    if (!closing_ && objects_.count(object)) object->onSettle();
  freeRemoved();
}

void Loop::call(napi_value function, size_t argc, napi_value* argv) {
  napi_value result;
  if (!function || NAPI_OK(napi_make_callback(env_, context_, receiver_.get(), function, argc, argv, &result))) return;
  bool pending = false;
  napi_value error;
  if (NAPI_CHECK(napi_is_exception_pending(env_, &pending)) && pending &&
      NAPI_CHECK(napi_get_and_clear_last_exception(env_, &error)))
    NAPI_CHECK(napi_fatal_exception(env_, error));
}

void Loop::emit(const ValueRef& onEvent, const char* type,
                std::initializer_list<std::pair<const char*, napi_value>> fields) {
  HandleScope scope(env_);
  ObjectBuilder event(env_);
  event.set("type", intern(type));
  for (const auto& [name, value] : fields) event.set(name, value);
  napi_value argument = event.get();
  call(onEvent.get(), 1, &argument);
}

napi_value Loop::intern(const char* literal) {
  ValueRef& string = strings_[literal];
  if (!string) string = ValueRef(env_, toValue(env_, literal));
  return string.get();
}

napi_value propertyKey(napi_env env, const char* name) {
  void* loop = nullptr;
  NAPI_CHECK(napi_get_instance_data(env, &loop));
  // The loop does not exist yet while the addon loads.
  return loop ? static_cast<Loop*>(loop)->intern(name) : toValue(env, name);
}

char* Loop::scratch(size_t bytes) {
  if (scratchBytes_ < bytes) {
    scratchBytes_ = std::max(bytes, kReadBytes);
    scratch_.reset(new char[scratchBytes_]);
  }
  return scratch_.get();
}

char* Loop::received() {
  if (!received_) received_.reset(new char[kReceivedFrontBytes + kReadBytes]);
  return received_.get();
}

// Registered objects and reserved mail keep the event loop alive, as Node's own handles do. An idle addon does not.
void Loop::updateRef() {
  if (closing_) return;
  if (reservedMail_ > 0 || objects_.size() > unreferenced_.size()) uv_ref(poll_);
  else uv_unref(poll_);
}

void Loop::freeRemoved() {
  for (LoopObject* object : removed_) object->release();
  removed_.clear();
}

// Runs when the environment ends: a worker is terminated, or the whole process exits. Destroys all objects.
void Loop::shutDown(napi_async_cleanup_hook_handle hook) {
  hook_ = hook;
  closing_ = true;
  mailbox_->close();
  while (!objects_.empty()) {
    LoopObject* const object = *objects_.begin();
    object->destroyWithoutEvents();
    // Some objects remove themselves from the loop.
    if (objects_.erase(object) > 0) removed_.push_back(object);
  }
  delayed_.clear();
  refused_.clear();
  settling_.clear();
  idle_.clear();
  freeRemoved();
  trimmer_.close();
  NAPI_CHECK(napi_async_destroy(env_, context_));
  closeHandle(poll_);
  closeHandle(timer_);
  closeHandle(async_);
  closeHandle(prepare_);
  closeHandle(trimmer_.timer());
}

void Loop::closeHandle(void*& handle) {
  uv_close(handle, [](void* closed) {
    Loop* self = static_cast<Loop*>(uv_handle_get_data(closed));
    free(closed);
    if (--self->openHandles_ > 0) return;
    const napi_async_cleanup_hook_handle hook = self->hook_;
    delete self;
    NAPI_CHECK(napi_remove_async_cleanup_hook(hook));
  });
  handle = nullptr;
}

}  // namespace procwire
