// Jobs on directory trees, and the threads that run them.
#ifndef PROCWIRE_FILES_TREE_JOB_H
#define PROCWIRE_FILES_TREE_JOB_H

#include <dirent.h>

#include <memory>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/job-queue.h"
#include "core/loop.h"
#include "core/napi.h"

namespace procwire {

// Why a job failed, besides a system error.
enum class TreeFailure {
  kNone,
  // A path is neither a regular file nor a directory nor a link.
  kUnsupportedKind,
  // A file without a size, such as those below /proc, exceeds the limit.
  kUnsizedTooLarge,
};

// Outcome of one operation on a tree.
struct TreeResult {
  int err = 0;
  TreeFailure failure = TreeFailure::kNone;
  // Path of the failed entry, relative to the root of the tree.
  std::string path;

  bool ok() const { return err == 0 && failure == TreeFailure::kNone; }
};

// Copies the contents of the directory `source` into the existing directory `destination`. Copies links as links, skips
// entries that are not files, links or directories, and replaces the contents of existing files.
TreeResult copyTree(const std::string& source, const std::string& destination, uint64_t maxUnsizedBytes);

// Removes the directory and its contents. Does not follow links.
TreeResult removeTree(const std::string& path);

// One call from JavaScript.
class TreeJob : public Job {
 public:
  // With a destination the job copies, else it removes.
  std::string source;
  std::string destination;
  uint64_t maxUnsizedBytes = 0;
  ValueRef onDone;
  TreeResult result;

  void run() override {
    result = destination.empty() ? removeTree(source) : copyTree(source, destination, maxUnsizedBytes);
  }
  void fail(int err) override { result = {err, TreeFailure::kNone, ""}; }
  void deliver(Loop& loop) override;
};

// The queue of all jobs on trees.
JobQueue& treeJobs();

// Kind of a directory entry, without following links.
enum class EntryKind { kFile, kDirectory, kLink, kOther };

struct TreeEntry {
  std::string name;
  EntryKind kind;
};

// Reads all entries of a directory. Returns 0 or the errno.
int readEntries(int directory, std::vector<TreeEntry>& entries);

// Joins a path relative to a root with a name.
inline std::string joinPath(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + '/' + name;
}

// Opens a directory below `root`; the empty path is the root itself. Follows no link, because a process that can write
// to the tree may replace a directory by a link meanwhile. Sets errno on failure.
UniqueFd openDirectory(int root, const std::string& path);

}  // namespace procwire

#endif
