// The ids of the writes a child was given, the newest of them: a write that is sent again is not done again.
#ifndef PROCWIRE_WRITE_IDS_H
#define PROCWIRE_WRITE_IDS_H

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

namespace procwire {

// As src/exec/input-limits.ts has it: 4,096 ids of 64 bytes, the length of a UUID and more. Longer ones are forgotten
// earlier, so that a client that chooses its ids badly does not make every process cost megabytes.
constexpr size_t kMostWriteIdBytes = 256 * 1024;

class WriteIds {
 public:
  explicit WriteIds(size_t most) : most_(most) {}

  bool has(std::string_view id) const { return known_.count(id) > 0; }

  void add(std::string_view id) {
    if (has(id)) return;
    // A deque never moves what it holds, so the views stay good.
    known_.insert(inOrder_.emplace_back(id));
    bytes_ += id.size();
    while (inOrder_.size() > most_ || (bytes_ > kMostWriteIdBytes && inOrder_.size() > 1)) {
      bytes_ -= inOrder_.front().size();
      known_.erase(inOrder_.front());
      inOrder_.pop_front();
    }
  }

 private:
  const size_t most_;
  size_t bytes_ = 0;
  std::deque<std::string> inOrder_;
  std::unordered_set<std::string_view> known_;
};

}  // namespace procwire

#endif
