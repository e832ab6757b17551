#include "files/list-directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/fd.h"

namespace procwire {
namespace {

// Directories that are listed at once. Further jobs wait.
constexpr size_t kMaxThreads = 2;

// Indices of kListedKinds.
constexpr uint8_t kFile = 0;
constexpr uint8_t kDirectory = 1;
constexpr uint8_t kOther = 2;

struct Found {
  std::string name;
  uint8_t kind;
};

uint8_t kindOfMode(mode_t mode) { return S_ISREG(mode) ? kFile : S_ISDIR(mode) ? kDirectory : kOther; }

// Returns false for an entry that no longer exists, and for a broken link.
bool resolveKind(int directory, const struct dirent& entry, uint8_t& kind) {
  switch (entry.d_type) {
    case DT_REG: kind = kFile; return true;
    case DT_DIR: kind = kDirectory; return true;
    case DT_LNK:
    case DT_UNKNOWN: break;
    default: kind = kOther; return true;
  }
  struct stat found;
  bool isLink = entry.d_type == DT_LNK;
  if (!isLink) {
    if (fstatat(directory, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) return false;
    isLink = S_ISLNK(found.st_mode);
  }
  if (fstatat(directory, entry.d_name, &found, 0) != 0) return false;
  kind = static_cast<uint8_t>(kindOfMode(found.st_mode) | (isLink ? kLinkBit : 0));
  return true;
}

}  // namespace

void ListJob::run() {
  const UniqueDirectory listing = listingOf(UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!listing) {
    err_ = errno;
    return;
  }
  std::vector<Found> found;
  size_t entries = 0;
  for (;;) {
    errno = 0;
    const struct dirent* entry = readdir(listing.get());
    if (!entry) {
      err_ = errno;
      break;
    }
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (entries++ == maxEntries) {
      isTruncated_ = true;
      break;
    }
    uint8_t kind;
    if (resolveKind(dirfd(listing.get()), *entry, kind)) found.push_back({entry->d_name, kind});
  }
  // `std::string` compares bytes as unsigned numbers.
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.name < b.name; });
  for (const Found& one : found) {
    names_ += one.name;
    names_ += '/';
    kinds_.push_back(one.kind);
  }
}

// `src/native/addon.ts` declares the result as NativeListing.
void ListJob::deliver(Loop& loop) {
  napi_env env = loop.env();
  HandleScope scope(env);
  ObjectBuilder value(env);
  value.set("errno", nonZero(err_));
  value.set("truncated", isTruncated_);
  napi_value names, kinds;
  if (NAPI_OK(napi_create_string_latin1(env, names_.data(), names_.size(), &names))) value.set("names", names);
  if (copyToBuffer(env, reinterpret_cast<const char*>(kinds_.data()), kinds_.size(), kinds)) value.set("kinds", kinds);
  napi_value argument = value.get();
  napi_value done = onDone.get();
  onDone.reset();
  loop.call(done, 1, &argument);
}

JobQueue& listJobs() {
  static JobQueue* const shared = new JobQueue("procwire-list", kMaxThreads);
  return *shared;
}

}  // namespace procwire
