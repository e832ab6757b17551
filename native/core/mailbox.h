// Delivers results of other threads to a loop.
#ifndef PROCWIRE_CORE_MAILBOX_H
#define PROCWIRE_CORE_MAILBOX_H

#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "core/uv-declarations.h"

namespace procwire {

class Loop;

class Mail {
 public:
  virtual ~Mail() = default;
  // Runs on the loop's thread.
  virtual void deliver(Loop& loop) = 0;
  // Releases the resources of the mail after the loop has shut down. Runs on any thread.
  virtual void discard() = 0;
};

// Thread-safe queue of results. Outlives its loop, because a thread may post late.
class Mailbox {
 public:
  // `async` is the loop's uv_async_t and stays valid until `close`.
  explicit Mailbox(void* async) : async_(async) {}

  void post(std::unique_ptr<Mail> mail) {
    // The loop must not wait for this lock when the send wakes it: it would sleep again.
    std::lock_guard<std::mutex> sending(sendMutex_);
    if (!open_) return mail->discard();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      finished_.push_back(std::move(mail));
    }
    uv_async_send(async_);
  }

  std::deque<std::unique_ptr<Mail>> drain() {
    std::deque<std::unique_ptr<Mail>> drained;
    std::lock_guard<std::mutex> lock(mutex_);
    drained.swap(finished_);
    return drained;
  }

  // Runs work that uses memory of JavaScript, unless the loop has shut down. `close` waits for it.
  template <class Work>
  void whileOpen(Work work) {
    std::shared_lock<std::shared_mutex> working(workMutex_);
    if (open_) work();
  }

  void close() {
    std::lock_guard<std::shared_mutex> working(workMutex_);
    std::lock_guard<std::mutex> sending(sendMutex_);
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
    for (std::unique_ptr<Mail>& mail : finished_) mail->discard();
    finished_.clear();
  }

 private:
  std::shared_mutex workMutex_;  // locked before `sendMutex_`
  std::mutex sendMutex_;         // the use of `async_`; locked before `mutex_`
  bool open_ = true;             // read under one of these two locks, changed under both
  void* async_;
  std::mutex mutex_;  // `finished_`
  std::deque<std::unique_ptr<Mail>> finished_;
};

}  // namespace procwire

#endif
