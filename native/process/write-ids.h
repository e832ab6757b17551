// The newest write ids of a child, so that a resent write is not written twice.
#ifndef PROCWIRE_PROCESS_WRITE_IDS_H
#define PROCWIRE_PROCESS_WRITE_IDS_H

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

namespace procwire {

// Maximum bytes of ids of all processes. Above it, a process that is written to keeps only its newest ids. A client
// resends only the few writes without a response.
constexpr size_t kMaxTotalWriteIdBytes = 32 * 1024 * 1024;
constexpr size_t kReducedWriteIdBytes = 16 * 1024;

class WriteIdCache {
 public:
  WriteIdCache(size_t maxIds, size_t maxBytes) : maxIds_(maxIds), maxBytes_(maxBytes) {}
  WriteIdCache(const WriteIdCache&) = delete;
  WriteIdCache& operator=(const WriteIdCache&) = delete;
  ~WriteIdCache() { totalBytes() -= bytes_; }

  bool has(std::string_view id) const { return known_.count(id) > 0; }

  void add(std::string_view id) {
    if (has(id)) return;
    // A deque never moves its elements, so the views stay valid.
    known_.insert(inOrder_.emplace_back(id));
    bytes_ += id.size();
    totalBytes() += id.size();
    while (inOrder_.size() > maxIds_ || (bytes_ > maxBytes() && inOrder_.size() > 1)) {
      bytes_ -= inOrder_.front().size();
      totalBytes() -= inOrder_.front().size();
      known_.erase(inOrder_.front());
      inOrder_.pop_front();
    }
  }

 private:
  // Shared by loops on several threads.
  static std::atomic<size_t>& totalBytes() {
    static std::atomic<size_t> bytes{0};
    return bytes;
  }

  // Long ids are evicted earlier, so that they do not cost megabytes per process.
  size_t maxBytes() const {
    return totalBytes() > kMaxTotalWriteIdBytes ? std::min(kReducedWriteIdBytes, maxBytes_) : maxBytes_;
  }

  const size_t maxIds_;
  const size_t maxBytes_;
  size_t bytes_ = 0;
  std::deque<std::string> inOrder_;
  std::unordered_set<std::string_view> known_;
};

}  // namespace procwire

#endif
