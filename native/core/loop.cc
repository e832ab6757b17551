// One event loop's share of the addon. All descriptors hang in one epoll instance of our own, and only that one hangs
// in libuv: a child or a socket then needs no libuv handle with a life of its own. Streams in flood hang in a second
// epoll instance within the first: each turn serves all other streams, then one flood, and epoll lets the floods take
// turns.
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

// Events taken per round; more wait for the next, so that other parts of the program get their turn.
constexpr int kEventsPerRound = 64;
// How long a stream of small chunks is left alone between two reads.
constexpr int64_t kCoalesceMs = 1;
constexpr int64_t kNsPerMs = 1000 * 1000;
// What a socket may give at once, with room before it for the beginning of a frame.
constexpr size_t kReceivedBytes = kReadBytes + 64;

bool libuvIsAsExpected() {
  const auto is = [](int type, const char* name) {
    const char* found = uv_handle_type_name(type);
    return found && strcmp(found, name) == 0;
  };
  return is(kUvAsync, "async") && is(kUvPoll, "poll") && is(kUvPrepare, "prepare") && is(kUvTimer, "timer");
}

void* newHandle(int type) { return calloc(1, uv_handle_size(type)); }

}  // namespace

Loop* Loop::create(napi_env env) {
  struct uv_loop_s* loop = nullptr;
  if (!libuvIsAsExpected() || napi_get_uv_event_loop(env, &loop) != napi_ok) return nullptr;
  Loop* made = new Loop(env);
  if (made->open(loop)) return made;
  delete made;
  return nullptr;
}

bool Loop::open(struct uv_loop_s* loop) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  bulkEpoll_ = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event bulk = {};
  bulk.events = EPOLLIN;
  if (epoll_ < 0 || bulkEpoll_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, bulkEpoll_, &bulk) < 0) {
    closeEpolls();
    return false;
  }
  napi_value name, receiver;
  if (napi_create_string_utf8(env_, "procwire", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_object(env_, &receiver) != napi_ok ||
      napi_create_reference(env_, receiver, 1, &receiver_) != napi_ok ||
      napi_async_init(env_, nullptr, name, &context_) != napi_ok) {
    closeEpolls();
    return false;
  }
  poll_ = newHandle(kUvPoll);
  if (!poll_ || uv_poll_init(loop, poll_, epoll_) != 0) {
    free(poll_);
    closeEpolls();
    return false;
  }
  libuvFd_ = uv_backend_fd(loop);
  timer_ = newHandle(kUvTimer);
  async_ = newHandle(kUvAsync);
  prepare_ = newHandle(kUvPrepare);
  memory_.timer() = newHandle(kUvTimer);
  uv_timer_init(loop, timer_);
  uv_timer_init(loop, memory_.timer());
  uv_prepare_init(loop, prepare_);
  uv_async_init(loop, async_, [](void* handle) { static_cast<Loop*>(uv_handle_get_data(handle))->onMail(); });
  // The last thing of every turn, before the loop sleeps.
  uv_prepare_start(prepare_, [](void* handle) {
    Loop* self = static_cast<Loop*>(uv_handle_get_data(handle));
    if (self->unflushed_.empty()) return;
    self->flushAll();
    self->bury();
  });
  for (void* handle : {poll_, timer_, async_, prepare_, memory_.timer()}) {
    uv_handle_set_data(handle, this);
    uv_unref(handle);
  }
  openHandles_ = 5;
  uv_poll_start(poll_, kUvReadable,
                [](void* handle, int, int) { static_cast<Loop*>(uv_handle_get_data(handle))->onReady(); });
  mailbox_ = std::make_shared<Mailbox>(async_);
  napi_add_async_cleanup_hook(
      env_, [](napi_async_cleanup_hook_handle hook, void* self) { static_cast<Loop*>(self)->shutDown(hook); }, this,
      &hook_);
  return true;
}

void Loop::arm(Watch& watch, uint32_t events) {
  if (watch.refused) {
    watch.refused = false;
    refused_.erase(std::remove(refused_.begin(), refused_.end(), &watch), refused_.end());
  }
  if (watch.fd < 0 || watch.armed == events) return;
  struct epoll_event event = {};
  event.events = events;
  event.data.ptr = &watch;
  // With no event asked for, epoll would still report a hang-up for ever: only removing the descriptor silences it.
  int operation = events == 0 ? EPOLL_CTL_DEL : watch.armed == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(watch.bulk ? bulkEpoll_ : epoll_, operation, watch.fd, &event) == 0) watch.armed = events;
  else armLater(watch, events);
}

void Loop::setBulk(Watch& watch, bool bulk) {
  if (watch.bulk == bulk) return;
  const uint32_t events = watch.refused ? watch.wanted : watch.armed;
  arm(watch, 0);
  watch.bulk = bulk;
  arm(watch, events);
}

void Loop::armLater(Watch& watch, uint32_t events) {
  watch.refused = true;
  watch.wanted = events;
  refused_.push_back(&watch);
  startTimer();
}

void Loop::armRefused() {
  std::vector<Watch*> again;
  again.swap(refused_);
  for (Watch* watch : again) watch->refused = false;
  for (Watch* watch : again) arm(*watch, watch->wanted);
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

void Loop::undelay(Watch& watch) {
  if (!watch.delayed) return;
  watch.delayed = false;
  delayed_.erase(std::remove(delayed_.begin(), delayed_.end(), &watch), delayed_.end());
}

void Loop::settleSoon(Resident* resident) {
  settling_.push_back(resident);
  uv_async_send(async_);
}

void Loop::add(Resident* resident) {
  residents_.insert(resident);
  updateRef();
}

void Loop::remove(Resident* resident) {
  refused_.erase(
      std::remove_if(refused_.begin(), refused_.end(), [resident](Watch* watch) { return watch->owner == resident; }),
      refused_.end());
  residents_.erase(resident);
  settling_.erase(std::remove(settling_.begin(), settling_.end(), resident), settling_.end());
  if (std::exchange(resident->awaitsFlush_, false))
    unflushed_.erase(std::remove(unflushed_.begin(), unflushed_.end(), resident), unflushed_.end());
  dead_.push_back(resident);
  memory_.wasBusy();
  updateRef();
}

void Loop::flushLater(Resident* resident) {
  if (!std::exchange(resident->awaitsFlush_, true)) unflushed_.push_back(resident);
}

std::shared_ptr<Mailbox> Loop::expectMail() {
  awaitedMail_++;
  updateRef();
  return mailbox_;
}

void Loop::onReady() {
  dialogue_.enter(nowNs());
  int count = takeReady();
  for (;;) {
    const bool replied = count > 0 && awaitExpected();
    flushAll();
    bury();
    const bool goesOn = replied && !closing_ && dialogue_.replied(nowNs());
    if (!goesOn || floods_.isDue(nowNs())) takeBulk();
    if (!goesOn) return;
    count = takeNextLine();
    if (count == 0) return;
  }
}

// libuv's own events come first. A flood whose turn has come fills the time.
int Loop::takeNextLine() {
  int count = 0;
  const bool found = lookUntil(dialogue_.repliedNs() + (floods_.goesOn(nowNs()) ? kAwaitInFloodNs : kNextLineNs), [&] {
    count = takeReady();
    if (count > 0) return true;
    if (floods_.isDue(nowNs())) takeBulk();
    if (timerRunning_ && nowNs() >= timerDueNs_) return true;
    struct pollfd libuv = {libuvFd_, POLLIN, 0};
    return poll(&libuv, 1, 0) != 0;
  });
  if (!found) dialogue_.over();
  return count;
}

// How many events there were, without those of floods.
int Loop::takeReady() {
  expected_ = nullptr;
  bulkIsReady_ = false;
  struct epoll_event events[kEventsPerRound];
  int count = epoll_wait(epoll_, events, kEventsPerRound, 0);
  int served = 0;
  for (int at = 0; at < count && !closing_; at++) {
    Watch* watch = static_cast<Watch*>(events[at].data.ptr);
    if (!watch) {
      bulkIsReady_ = true;
      continue;
    }
    serve(*watch, events[at].events);
    served++;
  }
  return served;
}

// One flood, if there is one and its turn has come.
void Loop::takeBulk() {
  if (!bulkIsReady_ || closing_) return;
  bulkIsReady_ = false;
  struct epoll_event event;
  if (epoll_wait(bulkEpoll_, &event, 1, 0) != 1) return;
  floods_.begin(nowNs());
  serve(*static_cast<Watch*>(event.data.ptr), event.events);
  flushAll();
  bury();
  floods_.end(nowNs());
  memory_.wasBusy();
}

// An earlier event of this round may have closed or silenced it.
void Loop::serve(Watch& watch, uint32_t events) {
  if (watch.fd >= 0 && watch.armed != 0) watch.owner->onReady(watch, events);
}

// True when there was input for a process and it has answered.
bool Loop::awaitExpected() {
  AnswerHabit* const habit = expected_;
  if (closing_ || !habit || unflushed_.empty() || !habit->answersAtOnce()) return false;
  // Any event ends the wait: on a busy loop others do not wait for this one.
  lookUntil(nowNs() + (floods_.goesOn(nowNs()) ? kAwaitInFloodNs : kAwaitOutputNs), [this] { return takeReady() > 0; });
  return habit->wasAwaited();
}

void Loop::flushAll() {
  std::vector<Resident*> now;
  now.swap(unflushed_);
  for (Resident* resident : now) resident->awaitsFlush_ = false;
  for (Resident* resident : now)
    if (!closing_ && residents_.count(resident)) resident->onFlush();
  // The owner was told that there is room and had more to send. Others get their turn first.
  if (!unflushed_.empty()) uv_async_send(async_);
}

void Loop::onTimer() {
  timerRunning_ = false;
  armRefused();
  std::vector<Watch*> due;
  due.swap(delayed_);
  for (Watch* watch : due) watch->delayed = false;
  for (Watch* watch : due) {
    if (closing_) break;
    // Reading for one may have closed another; the closed ones are freed only below.
    if (watch->fd >= 0) watch->owner->onDelayOver(*watch);
  }
  bury();
}

void Loop::onMail() {
  for (std::unique_ptr<Mail>& mail : mailbox_->take()) {
    awaitedMail_--;
    if (closing_) mail->discard();
    else mail->arrive(*this);
  }
  updateRef();
  std::vector<Resident*> settling;
  settling.swap(settling_);
  for (Resident* resident : settling)
    if (!closing_ && residents_.count(resident)) resident->onSettle();
  bury();
}

void Loop::call(napi_value function, size_t argc, napi_value* argv) {
  napi_value receiver, result;
  if (napi_get_reference_value(env_, receiver_, &receiver) != napi_ok) return;
  if (napi_make_callback(env_, context_, receiver, function, argc, argv, &result) == napi_ok) return;
  bool pending = false;
  napi_value error;
  if (napi_is_exception_pending(env_, &pending) == napi_ok && pending &&
      napi_get_and_clear_last_exception(env_, &error) == napi_ok)
    napi_fatal_exception(env_, error);
}

char* Loop::scratch(size_t bytes) {
  if (scratchBytes_ < bytes) {
    scratchBytes_ = std::max(bytes, kReadBytes);
    scratch_.reset(new char[scratchBytes_]);
  }
  return scratch_.get();
}

char* Loop::received() {
  if (!received_) received_.reset(new char[kReceivedBytes]);
  return received_.get();
}

void Loop::closeEpolls() {
  for (int fd : {bulkEpoll_, epoll_})
    if (fd >= 0) close(fd);
}

// Residents and expected mail keep the program running, as Node's own handles do; an idle addon does not.
void Loop::updateRef() {
  if (closing_) return;
  if (awaitedMail_ > 0 || !residents_.empty()) uv_ref(poll_);
  else uv_unref(poll_);
}

void Loop::bury() {
  for (Resident* resident : dead_) resident->release();
  dead_.clear();
}

// The environment ends: a worker that is terminated, or the whole program. What lives here ends with it.
void Loop::shutDown(napi_async_cleanup_hook_handle hook) {
  hook_ = hook;
  closing_ = true;
  mailbox_->close();
  while (!residents_.empty()) {
    Resident* const resident = *residents_.begin();
    resident->abandon();
    // Some remove themselves from the loop.
    if (residents_.erase(resident) > 0) dead_.push_back(resident);
  }
  delayed_.clear();
  refused_.clear();
  settling_.clear();
  bury();
  memory_.close();
  napi_async_destroy(env_, context_);
  closeHandle(poll_);
  closeHandle(timer_);
  closeHandle(async_);
  closeHandle(prepare_);
  closeHandle(memory_.timer());
}

void Loop::closeHandle(void*& handle) {
  uv_close(handle, [](void* closed) {
    Loop* self = static_cast<Loop*>(uv_handle_get_data(closed));
    free(closed);
    if (--self->openHandles_ > 0) return;
    self->closeEpolls();
    napi_remove_async_cleanup_hook(self->hook_);
    delete self;
  });
  handle = nullptr;
}

}  // namespace procwire
