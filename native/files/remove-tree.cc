#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "files/tree-job.h"

namespace procwire {
namespace {

// Passes over a directory whose entries another program creates meanwhile.
constexpr int kMaxPasses = 3;

// Removes one entry that is not a directory. Sets `isDirectory` if it is one.
int removeEntry(int directory, const TreeEntry& entry, bool& isDirectory) {
  isDirectory = entry.kind == EntryKind::kDirectory;
  if (isDirectory) return 0;
  if (unlinkat(directory, entry.name.c_str(), 0) == 0 || errno == ENOENT) return 0;
  // Another program replaced the entry by a directory.
  isDirectory = errno == EISDIR;
  return isDirectory ? 0 : errno;
}

class Remover {
 public:
  // `splits`: removes the first two or more subdirectories that it finds in one directory on two threads.
  Remover(int root, bool splits) : root_(root), splits_(splits) {}

  // Removes the directory below the root. The empty path is the root, which is only emptied.
  TreeResult remove(const std::string& top) {
    // A stack of paths, because a tree may be deeper than the call stack and than the limit of descriptors.
    std::vector<Pending> pending = {{top, 0}};
    while (!pending.empty()) {
      const std::string path = pending.back().path;
      std::vector<std::string> children;
      const int err = removeEntries(path, children);
      if (err != 0) return {err, TreeFailure::kNone, path};
      if (!children.empty() && pending.back().passes++ < kMaxPasses) {
        for (std::string& name : children) name = joinPath(path, name);
        if (splits_ && children.size() > 1) {
          splits_ = false;
          TreeResult removed = removeOnTwoThreads(children);
          if (!removed.ok()) return removed;
        } else {
          for (std::string& child : children) pending.push_back({std::move(child), 0});
        }
        continue;
      }
      pending.pop_back();
      if (path.empty()) continue;
      // If it has new entries, the parent's next pass lists it again.
      const int removeErr = removeEmpty(path);
      if (removeErr != 0 && removeErr != ENOTEMPTY) return {removeErr, TreeFailure::kNone, path};
    }
    return {};
  }

 private:
  struct Pending {
    std::string path;
    int passes;
  };

  // Directories that two threads remove. Each takes the next one until none is left or one failed.
  struct Shared {
    int root;
    const std::vector<std::string>& paths;
    std::atomic<size_t> next{0};
  };
  struct Share {
    Shared* shared;
    TreeResult result;
  };

  static void* removeShare(void* argument) {
    auto& [shared, result] = *static_cast<Share*>(argument);
    Remover remover(shared->root, false);
    for (size_t at = shared->next++; at < shared->paths.size(); at = shared->next++) {
      result = remover.remove(shared->paths[at]);
      if (!result.ok()) shared->next = shared->paths.size();
    }
    return nullptr;
  }

  // Most of a removal is kernel work below the lock of one directory, so a second thread nearly doubles the rate.
  TreeResult removeOnTwoThreads(const std::vector<std::string>& paths) {
    Shared shared = {root_, paths};
    Share own = {&shared, {}}, other = {&shared, {}};
    pthread_t thread;
    const bool hasThread = pthread_create(&thread, nullptr, removeShare, &other) == 0;
    removeShare(&own);
    if (hasThread) pthread_join(thread, nullptr);
    return own.result.ok() ? other.result : own.result;
  }

  // Removes an empty directory. Returns 0 or the errno.
  int removeEmpty(const std::string& path) {
    const size_t slash = path.rfind('/');
    const bool isInRoot = slash == std::string::npos;
    const UniqueFd parent = openDirectory(root_, isInRoot ? "" : path.substr(0, slash));
    const char* const name = path.c_str() + (isInRoot ? 0 : slash + 1);
    const bool isRemoved = parent && unlinkat(parent.get(), name, AT_REMOVEDIR) == 0;
    return isRemoved || errno == ENOENT ? 0 : errno;
  }

  // Removes all entries of a directory that are not directories, and returns the names of the others.
  int removeEntries(const std::string& path, std::vector<std::string>& children) {
    const UniqueFd directory = openDirectory(root_, path);
    if (!directory) return errno == ENOENT && !path.empty() ? 0 : errno;
    const int readErr = readEntries(directory.get(), entries_);
    if (readErr != 0) return readErr;
    for (const TreeEntry& entry : entries_) {
      bool isDirectory;
      const int err = removeEntry(directory.get(), entry, isDirectory);
      if (err != 0) return err;
      // Most directories are empty or leaf directories: try the cheap way first.
      if (isDirectory && unlinkat(directory.get(), entry.name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        if (errno != ENOTEMPTY && errno != EEXIST) return errno;
        children.push_back(entry.name);
      }
    }
    return 0;
  }

  int root_;
  bool splits_;
  std::vector<TreeEntry> entries_;
};

}  // namespace

TreeResult removeTree(const std::string& path) {
  {
    const UniqueFd root(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!root) return {errno, TreeFailure::kNone, ""};
    const TreeResult emptied = Remover(root.get(), true).remove("");
    if (!emptied.ok()) return emptied;
  }
  return {rmdir(path.c_str()) == 0 ? 0 : errno, TreeFailure::kNone, ""};
}

}  // namespace procwire
