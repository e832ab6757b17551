// How another thread hands over to a loop what it has finished for it.
#ifndef PROCWIRE_MAILBOX_H
#define PROCWIRE_MAILBOX_H

#include <deque>
#include <memory>
#include <mutex>

#include "core/uv-lite.h"

namespace procwire {

class Loop;

class Mail {
 public:
  virtual ~Mail() = default;
  // On the loop's own thread.
  virtual void arrive(Loop& loop) = 0;
  // The loop no longer exists: gives back what it brought. On any thread.
  virtual void discard() = 0;
};

// Outlives its loop, since a thread may come late.
class Mailbox {
 public:
  // `async` is the loop's uv_async_t, valid until `close`.
  explicit Mailbox(void* async) : async_(async) {}

  void put(std::unique_ptr<Mail> mail) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!open_) return mail->discard();
    finished_.push_back(std::move(mail));
    uv_async_send(async_);
  }

  std::deque<std::unique_ptr<Mail>> take() {
    std::deque<std::unique_ptr<Mail>> taken;
    std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(finished_);
    return taken;
  }

  void close() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = false;
    for (std::unique_ptr<Mail>& mail : finished_) mail->discard();
    finished_.clear();
  }

 private:
  std::mutex mutex_;
  bool open_ = true;
  void* async_;
  std::deque<std::unique_ptr<Mail>> finished_;
};

}  // namespace procwire

#endif
