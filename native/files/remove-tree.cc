#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
  explicit Remover(int root) : root_(root) {}

  // Empties the root directory.
  TreeResult run() {
    // A stack of paths, because a tree may be deeper than the call stack and than the limit of descriptors.
    std::vector<Pending> pending = {{"", 0}};
    while (!pending.empty()) {
      const std::string path = pending.back().path;
      std::vector<std::string> children;
      const int err = removeEntries(path, children);
      if (err != 0) return {err, TreeFailure::kNone, path};
      if (!children.empty() && pending.back().passes++ < kMaxPasses) {
        for (const std::string& name : children) pending.push_back({joinPath(path, name), 0});
        continue;
      }
      pending.pop_back();
      if (path.empty()) continue;
      if (unlinkat(root_, path.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
        if (errno != ENOTEMPTY) return {errno, TreeFailure::kNone, path};
        // The parent's next pass lists it again.
      }
    }
    return {};
  }

 private:
  struct Pending {
    std::string path;
    int passes;
  };

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
  std::vector<TreeEntry> entries_;
};

}  // namespace

TreeResult removeTree(const std::string& path) {
  {
    const UniqueFd root(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!root) return {errno, TreeFailure::kNone, ""};
    const TreeResult emptied = Remover(root.get()).run();
    if (!emptied.ok()) return emptied;
  }
  return {rmdir(path.c_str()) == 0 ? 0 : errno, TreeFailure::kNone, ""};
}

}  // namespace procwire
