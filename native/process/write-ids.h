// The ids of the writes a child was given, the newest few thousand: a write that is sent again is not done again.
#ifndef PROCWIRE_WRITE_IDS_H
#define PROCWIRE_WRITE_IDS_H

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>

namespace procwire {

class WriteIds {
 public:
  bool has(std::string_view id) const { return known_.count(id) > 0; }

  void add(std::string_view id) {
    if (has(id)) return;
    // A deque never moves what it holds, so the views stay good.
    known_.insert(inOrder_.emplace_back(id));
    if (inOrder_.size() <= kRemembered) return;
    known_.erase(inOrder_.front());
    inOrder_.pop_front();
  }

 private:
  // As many as the reference server keeps; `write-ids.ts` has the same number.
  static constexpr size_t kRemembered = 4096;

  std::deque<std::string> inOrder_;
  std::unordered_set<std::string_view> known_;
};

}  // namespace procwire

#endif
