// Lists one directory on another thread.
#ifndef PROCWIRE_FILES_LIST_DIRECTORY_H
#define PROCWIRE_FILES_LIST_DIRECTORY_H

#include <string>
#include <vector>

#include "core/job-queue.h"
#include "core/loop.h"
#include "core/napi.h"

namespace procwire {

// One call from JavaScript.
class ListJob : public Job {
 public:
  std::string path;
  size_t maxEntries = 0;
  ValueRef onDone;

  void run() override;
  void fail(int err) override { err_ = err; }
  void deliver(Loop& loop) override;

 private:
  int err_ = 0;
  bool isTruncated_ = false;
  // Names in the order of their bytes, each followed by a slash, which no name contains.
  std::string names_;
  // One byte per name: 0 file, 1 directory, 2 other; plus 4 for a link, whose target has that kind.
  std::vector<uint8_t> kinds_;
};

// The queue of all listings. Separate from trees, which take longer.
JobQueue& listJobs();

}  // namespace procwire

#endif
