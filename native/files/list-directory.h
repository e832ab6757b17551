// Lists one directory on another thread.
#ifndef PROCWIRE_FILES_LIST_DIRECTORY_H
#define PROCWIRE_FILES_LIST_DIRECTORY_H

#include <cstdint>
#include <string>
#include <vector>

#include "core/job-queue.h"
#include "core/loop.h"
#include "core/napi.h"

namespace procwire {

// Names of the kinds of a listed entry, in the order of their numbers.
constexpr const char* kListedKinds[] = {"file", "directory", "other"};
// Added to the number of a link, whose target has that kind.
constexpr uint8_t kLinkBit = 4;

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
  // One number per name: an index of kListedKinds, plus kLinkBit for a link.
  std::vector<uint8_t> kinds_;
};

// The queue of all listings. Separate from trees, which take longer.
JobQueue& listJobs();

}  // namespace procwire

#endif
