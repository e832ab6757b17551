#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/syscall-numbers.h"
#include "files/tree-job.h"

namespace procwire {
namespace {

constexpr mode_t kNewFileMode = 0644;
constexpr mode_t kModeBits = 07777;
constexpr size_t kBlockBytes = 256 * 1024;
// A pipe or device that replaces a file must neither block nor become the controlling terminal.
constexpr int kOpenFlags = O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

// Result of one entry: an errno, or a failure.
struct EntryResult {
  int err = 0;
  TreeFailure failure = TreeFailure::kNone;

  static EntryResult fromErrno() { return {errno, TreeFailure::kNone}; }
  static EntryResult unsupported() { return {0, TreeFailure::kUnsupportedKind}; }
  bool ok() const { return err == 0 && failure == TreeFailure::kNone; }
};

class Copier {
 public:
  Copier(int source, int destination, uint64_t maxUnsizedBytes)
      : source_(source), destination_(destination), maxUnsizedBytes_(maxUnsizedBytes) {}

  TreeResult run() {
    // A list of paths, because a tree may be deeper than the call stack and than the limit of descriptors.
    std::vector<std::string> pending = {""};
    while (!pending.empty()) {
      const std::string path = std::move(pending.back());
      pending.pop_back();
      const UniqueFd from = openDirectory(source_, path);
      if (!from) return {errno, TreeFailure::kNone, path};
      // An existing directory of the destination may be reached through a link.
      const UniqueFd to(openat(destination_, path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!to) return {errno, TreeFailure::kNone, path};
      const int readErr = readEntries(from.get(), entries_);
      if (readErr != 0) return {readErr, TreeFailure::kNone, path};
      for (const TreeEntry& entry : entries_) {
        const EntryResult result = copyEntry(from.get(), to.get(), entry);
        if (!result.ok()) return {result.err, result.failure, joinPath(path, entry.name)};
        if (entry.kind == EntryKind::kDirectory) pending.push_back(joinPath(path, entry.name));
      }
    }
    return {};
  }

 private:
  EntryResult copyEntry(int from, int to, const TreeEntry& entry) {
    const char* name = entry.name.c_str();
    switch (entry.kind) {
      case EntryKind::kFile: return copyFile(from, to, name);
      case EntryKind::kDirectory: return makeDirectory(to, name);
      case EntryKind::kLink: return copyLink(from, to, name);
      case EntryKind::kOther: break;
    }
    return {};
  }

  static EntryResult makeDirectory(int to, const char* name) {
    if (mkdirat(to, name, 0777) == 0) return {};
    if (errno != EEXIST) return EntryResult::fromErrno();
    struct stat found;
    const bool isDirectory = fstatat(to, name, &found, 0) == 0 && S_ISDIR(found.st_mode);
    return {isDirectory ? 0 : EEXIST, TreeFailure::kNone};
  }

  static EntryResult copyLink(int from, int to, const char* name) {
    std::string target(256, 0);
    for (;;) {
      const ssize_t length = readlinkat(from, name, &target[0], target.size());
      if (length < 0) return EntryResult::fromErrno();
      if (static_cast<size_t>(length) < target.size()) {
        target.resize(static_cast<size_t>(length));
        break;
      }
      target.resize(target.size() * 2);
    }
    return symlinkat(target.c_str(), to, name) == 0 ? EntryResult{} : EntryResult::fromErrno();
  }

  EntryResult copyFile(int fromDirectory, int toDirectory, const char* name) {
    const UniqueFd from(openat(fromDirectory, name, O_RDONLY | O_NOFOLLOW | kOpenFlags));
    if (!from) return EntryResult::fromErrno();
    struct stat wanted;
    if (fstat(from.get(), &wanted) != 0) return EntryResult::fromErrno();
    if (!S_ISREG(wanted.st_mode)) return EntryResult::unsupported();
    const mode_t mode = wanted.st_mode & kNewFileMode;
    UniqueFd to(openat(toDirectory, name, O_WRONLY | O_CREAT | O_EXCL | kOpenFlags, mode));
    if (to) {
      if (clone(from.get(), to.get())) return setMode(to.get(), wanted.st_mode);
    } else {
      if (errno != EEXIST) return EntryResult::fromErrno();
      bool isSame = false;
      const EntryResult opened = openExisting(toDirectory, name, wanted, to, isSame);
      // Copying a file onto itself changes nothing.
      if (!opened.ok() || isSame) return opened;
    }
    const EntryResult moded = setMode(to.get(), wanted.st_mode);
    return moded.ok() ? copyBytes(from.get(), to.get(), static_cast<uint64_t>(wanted.st_size)) : moded;
  }

  static EntryResult setMode(int to, mode_t mode) {
    return fchmod(to, mode & kModeBits) == 0 ? EntryResult{} : EntryResult::fromErrno();
  }

  // Opens and empties an existing file. Checks its kind before the open, so that no device is opened, and afterwards,
  // in case the path changed.
  static EntryResult openExisting(int directory, const char* name, const struct stat& wanted, UniqueFd& to,
                                  bool& isSame) {
    struct stat found;
    const bool exists = fstatat(directory, name, &found, 0) == 0;
    if (exists && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode)) return EntryResult::unsupported();
    if (!exists && errno != ENOENT) return EntryResult::fromErrno();
    to.reset(openat(directory, name, O_WRONLY | O_CREAT | kOpenFlags, wanted.st_mode & kNewFileMode));
    if (!to || fstat(to.get(), &found) != 0) return EntryResult::fromErrno();
    if (!S_ISREG(found.st_mode)) return EntryResult::unsupported();
    isSame = found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino;
    if (isSame || ftruncate(to.get(), 0) == 0) return {};
    return EntryResult::fromErrno();
  }

  // Shares the blocks of the files if the file system can.
  bool clone(int from, int to) {
    if (!canClone_) return false;
    if (ioctl(to, FICLONE, from) == 0) return true;
    // The whole tree is usually on one file system. Bytes are copied from now on.
    canClone_ = false;
    return false;
  }

  // Copies the size at open time. A file without a size, such as those below /proc, is copied until its end.
  EntryResult copyBytes(int from, int to, uint64_t size) {
    const uint64_t limit = size > 0 ? size : maxUnsizedBytes_;
    uint64_t copied = 0;
    while (copied < limit) {
      const size_t wanted = static_cast<size_t>(std::min<uint64_t>(limit - copied, kBlockBytes * 64));
      const ssize_t moved = size > 0 ? moveBlock(from, to, wanted) : moveThroughBuffer(from, to, wanted);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0) return EntryResult::fromErrno();
      // Linux 5.3 to 5.18 reports 0 bytes for files of some file systems, such as those below /proc. A read finds the
      // end.
      if (moved == 0 && size > 0 && copied == 0 && std::exchange(canCopyRange_, false)) continue;
      if (moved == 0) return {};
      copied += static_cast<uint64_t>(moved);
    }
    if (size > 0) return {};
    char more;
    return read(from, &more, 1) > 0 ? EntryResult{0, TreeFailure::kUnsizedTooLarge} : EntryResult{};
  }

  ssize_t moveBlock(int from, int to, size_t bytes) {
    if (canCopyRange_) {
      const ssize_t moved = syscall(SYS_copy_file_range, from, nullptr, to, nullptr, bytes, 0);
      if (moved >= 0 || errno == EINTR || errno == ENOSPC || errno == EDQUOT || errno == EIO) return moved;
      // The file systems or the kernel do not support it.
      canCopyRange_ = false;
    }
    return moveThroughBuffer(from, to, bytes);
  }

  ssize_t moveThroughBuffer(int from, int to, size_t bytes) {
    if (buffer_.empty()) buffer_.resize(kBlockBytes);
    const ssize_t length = read(from, buffer_.data(), std::min(bytes, buffer_.size()));
    for (ssize_t written = 0; written < length;) {
      const ssize_t count = write(to, buffer_.data() + written, static_cast<size_t>(length - written));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return -1;
      written += count;
    }
    return length;
  }

  int source_;
  int destination_;
  uint64_t maxUnsizedBytes_;
  bool canClone_ = true;
  bool canCopyRange_ = true;
  std::vector<TreeEntry> entries_;
  std::vector<char> buffer_;
};

}  // namespace

TreeResult copyTree(const std::string& source, const std::string& destination, uint64_t maxUnsizedBytes) {
  const UniqueFd from(open(source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!from) return {errno, TreeFailure::kNone, ""};
  const UniqueFd to(open(destination.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!to) return {errno, TreeFailure::kNone, ""};
  return Copier(from.get(), to.get(), maxUnsizedBytes).run();
}

}  // namespace procwire
