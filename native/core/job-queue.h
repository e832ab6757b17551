// Runs jobs on separate threads and delivers them to their loop.
#ifndef PROCWIRE_CORE_JOB_QUEUE_H
#define PROCWIRE_CORE_JOB_QUEUE_H

#include <pthread.h>

#include <deque>
#include <memory>
#include <mutex>

#include "core/detached-thread.h"
#include "core/mailbox.h"

namespace procwire {

// Work for another thread. Owned by the queue, then by a thread, then by the mailbox.
class Job : public Mail {
 public:
  std::shared_ptr<Mailbox> mailbox;

  virtual void run() = 0;
  // Sets the result of a job that does not run, because no thread can be created.
  virtual void fail(int err) = 0;
  void discard() override {}
};

// Never destroyed, because its threads may outlive the environment that created them.
class JobQueue {
 public:
  // `threadName` has at most 15 characters. Further jobs than `maxThreads` wait.
  JobQueue(const char* threadName, size_t maxThreads) : threadName_(threadName), maxThreads_(maxThreads) {}

  // Runs the job on another thread and delivers it to the loop that reserved the mail.
  void submit(std::unique_ptr<Job> job, std::shared_ptr<Mailbox> mailbox) {
    job->mailbox = mailbox;
    const int err = enqueue(job);
    if (err == 0) return;
    // The reserved mail must arrive, so that the loop can end.
    job->fail(err);
    mailbox->post(std::move(job));
  }

 private:
  // Returns an errno and leaves the job with the caller if no thread can be created.
  int enqueue(std::unique_ptr<Job>& job) {
    // A new thread waits for this lock, and then finds the job.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (threads_ < maxThreads_) {
      const int err = startDetachedThread(threadMain, this);
      if (err == 0) threads_++;
      // Else a running thread takes the job.
      else if (threads_ == 0) return err;
    }
    waiting_.push_back(std::move(job));
    return 0;
  }

  // Runs jobs until none is left. No thread stays idle.
  static void* threadMain(void* argument) {
    JobQueue* const queue = static_cast<JobQueue*>(argument);
    pthread_setname_np(pthread_self(), queue->threadName_);
    while (std::unique_ptr<Job> job = queue->next()) {
      job->run();
      const std::shared_ptr<Mailbox> mailbox = job->mailbox;
      mailbox->post(std::move(job));
    }
    return nullptr;
  }

  // Returns null, and no longer counts the calling thread, if no job is left.
  std::unique_ptr<Job> next() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) {
      threads_--;
      return nullptr;
    }
    std::unique_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    return job;
  }

  const char* threadName_;
  size_t maxThreads_;
  std::mutex mutex_;  // all below
  std::deque<std::unique_ptr<Job>> waiting_;
  size_t threads_ = 0;
};

}  // namespace procwire

#endif
