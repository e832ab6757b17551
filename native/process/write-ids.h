// The ids of the writes a child was given, the newest of them: a write that is sent again is not done again.
#ifndef PROCWIRE_WRITE_IDS_H
#define PROCWIRE_WRITE_IDS_H

#include <atomic>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

namespace procwire {

// As src/exec/input-limits.ts has it: 4,096 ids of 64 bytes, the length of a UUID and more. Longer ones are forgotten
// earlier, so that a client that chooses its ids badly does not make every process cost megabytes.
constexpr size_t kMostWriteIdBytes = 256 * 1024;
// All processes together may have this much; above it, each that is written to keeps only its newest. A client resends
// what was not answered when it lost its connection, which are a few.
constexpr size_t kMostWriteIdBytesOfAll = 32 * 1024 * 1024;
constexpr size_t kFewWriteIdBytes = 16 * 1024;

class WriteIds {
 public:
  explicit WriteIds(size_t most) : most_(most) {}
  WriteIds(const WriteIds&) = delete;
  WriteIds& operator=(const WriteIds&) = delete;
  ~WriteIds() { ofAll() -= bytes_; }

  bool has(std::string_view id) const { return known_.count(id) > 0; }

  void add(std::string_view id) {
    if (has(id)) return;
    // A deque never moves what it holds, so the views stay good.
    known_.insert(inOrder_.emplace_back(id));
    bytes_ += id.size();
    ofAll() += id.size();
    while (inOrder_.size() > most_ || (bytes_ > mostBytes() && inOrder_.size() > 1)) {
      bytes_ -= inOrder_.front().size();
      ofAll() -= inOrder_.front().size();
      known_.erase(inOrder_.front());
      inOrder_.pop_front();
    }
  }

 private:
  // Processes of several loops, each on its thread.
  static std::atomic<size_t>& ofAll() {
    static std::atomic<size_t> bytes{0};
    return bytes;
  }

  static size_t mostBytes() { return ofAll() > kMostWriteIdBytesOfAll ? kFewWriteIdBytes : kMostWriteIdBytes; }

  const size_t most_;
  size_t bytes_ = 0;
  std::deque<std::string> inOrder_;
  std::unordered_set<std::string_view> known_;
};

}  // namespace procwire

#endif
