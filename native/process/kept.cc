#include "process/kept.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/fd.h"
#include "process/keeper-channel.h"
#include "process/spawn.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

namespace procwire {
namespace {

constexpr size_t kIdsBytes = KEPT_WRITE_IDS * sizeof(kept_id);

size_t inPages(size_t bytes) { return (bytes + KEPT_PAGE - 1) / KEPT_PAGE * KEPT_PAGE; }

size_t entryBytes(size_t length) { return sizeof(kept_entry) + (length + 7) / 8 * 8; }

bool isOutput(uint32_t stream) { return stream <= KEPT_TERMINAL; }

// A ring mapped twice in a row, so that reads and writes need no split at its end.
char* mapTwice(int fd, size_t offset, size_t bytes) {
  void* room = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  char* first = static_cast<char*>(room);
  for (char* half : {first, first + bytes}) {
    if (mmap(half, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset)) != MAP_FAILED)
      continue;
    munmap(room, 2 * bytes);
    return nullptr;
  }
  return first;
}

uint64_t nextId() {
  static std::atomic<uint64_t> count{0};
  return (static_cast<uint64_t>(keeperCount()) << 32) + ++count;
}

}  // namespace

KeptWriteId::KeptWriteId(std::string_view text) {
  // FNV-1a from two starts, each finished by a mix of its own.
  uint64_t hash[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
  for (const char letter : text)
    for (uint64_t& part : hash) part = (part ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  for (int at = 0; at < 2; at++) {
    hash[at] ^= hash[at] >> (29 + at * 4);
    hash[at] *= 0xbf58476d1ce4e5b9u;
    id.hash[at] = hash[at] ^ (hash[at] >> 32);
  }
  id.hash[1] |= 1;
}

std::unique_ptr<Kept> Kept::make(const std::string& record, uint64_t mostOutputBytes) {
  if (record.size() > KEPT_MOST_RECORD_BYTES) {
    errno = E2BIG;
    return nullptr;
  }
  std::unique_ptr<Kept> kept(new Kept);
  const size_t idsAt = inPages(sizeof(kept_header));
  const size_t recordAt = idsAt + kIdsBytes;
  const size_t outputAt = recordAt + inPages(record.size());
  const size_t inputAt = outputAt + KEPT_OUTPUT_BYTES;
  const size_t bytes = inputAt + KEPT_INPUT_BYTES;
  kept->id_ = nextId();
  kept->memory_ = static_cast<int>(syscall(SYS_memfd_create, "procwire-kept", MFD_CLOEXEC));
  if (kept->memory_ < 0 || ftruncate(kept->memory_, static_cast<off_t>(bytes)) < 0) return nullptr;
  kept->toKeeper_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  kept->toServer_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (kept->toKeeper_ < 0 || kept->toServer_ < 0) return nullptr;
  const kept_header fresh = [&] {
    kept_header made = {};
    made.magic = KEPT_MAGIC;
    made.version = KEPT_VERSION;
    made.file_bytes = bytes;
    made.ids_at = idsAt;
    made.record_at = recordAt;
    made.record_bytes = record.size();
    made.output_at = outputAt;
    made.input_at = inputAt;
    made.most_output_bytes = mostOutputBytes;
    return made;
  }();
  if (pwrite(kept->memory_, &fresh, sizeof fresh, 0) != sizeof fresh ||
      pwrite(kept->memory_, record.data(), record.size(), static_cast<off_t>(recordAt)) !=
          static_cast<ssize_t>(record.size()))
    return nullptr;
  return kept->map(bytes) ? std::move(kept) : nullptr;
}

std::unique_ptr<Kept> Kept::adopt(uint64_t id, int memory, int toKeeper, int toServer) {
  std::unique_ptr<Kept> kept(new Kept);
  kept->id_ = id;
  kept->memory_ = memory;
  kept->toKeeper_ = toKeeper;
  kept->toServer_ = toServer;
  struct stat info;
  if (fstat(memory, &info) < 0 || !kept->map(static_cast<size_t>(info.st_size))) return nullptr;
  kept_header& header = *kept->header_;
  kept->lastSeq_ = header.gone_seq;
  kept->totalBytes_ = header.gone_bytes;
  kept->each([&](const kept_entry& entry, const char*) {
    kept->lastSeq_ = entry.seq;
    kept->totalBytes_ = entry.offset + (isOutput(entry.stream) ? entry.length : 0);
  });
  // The server died between the note of an end and its entry: that number is still free.
  if (header.exit_seq > kept->lastSeq_) header.exit_seq = 0;
  if (header.close_seq > kept->lastSeq_) header.close_seq = 0;
  // The server died with a read under way: what that took, if anything, is lost.
  if (header.intent != 0) {
    kept->makeRoom(entryBytes(0));
    kept->append(KEPT_HOLE, 0);
    kept->nothing();
  }
  const uint64_t remembered = std::min<uint64_t>(header.ids, KEPT_WRITE_IDS);
  for (uint64_t index = 0; index < remembered; index++) kept->known_.insert(kept->ids_[index].hash[0]);
  KeptWriteId last;
  last.id = header.write_id;
  if (last.isSome()) {
    if (header.in_head >= header.write_from + header.write_bytes) {
      if (!kept->knows(last)) kept->endWrite(last);
    } else {
      header.half_done = header.in_head - header.write_from;
      header.half_id = last.id;
    }
    header.write_id = {};
  }
  header.in_awaited = 0;
  closeFd(kept->memory_);
  // It may have ended while there was no server: wake the watcher, so that it looks once in any case.
  const uint64_t one = 1;
  if (toServer >= 0 && ::write(toServer, &one, sizeof one) < 0) errno = 0;
  return kept;
}

Kept::~Kept() {
  closeFd(memory_);
  closeFd(toKeeper_);
  closeFd(toServer_);
  if (header_) munmap(header_, frontBytes_);
  if (output_) munmap(output_, 2 * KEPT_OUTPUT_BYTES);
  if (input_) munmap(input_, 2 * KEPT_INPUT_BYTES);
}

bool Kept::map(size_t bytes) {
  kept_header header = {};
  if (bytes < sizeof header || pread(memory_, &header, sizeof header, 0) != sizeof header) return false;
  const size_t front = header.output_at;
  if (header.magic != KEPT_MAGIC || header.version != KEPT_VERSION || header.file_bytes != bytes) return false;
  if (header.ids_at < sizeof header || header.record_at < header.ids_at + kIdsBytes ||
      header.record_bytes > KEPT_MOST_RECORD_BYTES || front < header.record_at + header.record_bytes ||
      header.input_at != front + KEPT_OUTPUT_BYTES || bytes != header.input_at + KEPT_INPUT_BYTES ||
      front % KEPT_PAGE != 0 || header.out_tail > header.out_head ||
      header.out_head - header.out_tail > KEPT_OUTPUT_BYTES || header.in_tail > header.in_head ||
      header.in_head - header.in_tail > KEPT_INPUT_BYTES)
    return false;
  void* mapped = mmap(nullptr, front, PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
  if (mapped == MAP_FAILED) return false;
  header_ = static_cast<kept_header*>(mapped);
  frontBytes_ = front;
  ids_ = reinterpret_cast<kept_id*>(static_cast<char*>(mapped) + header.ids_at);
  output_ = mapTwice(memory_, header.output_at, KEPT_OUTPUT_BYTES);
  input_ = mapTwice(memory_, header.input_at, KEPT_INPUT_BYTES);
  return output_ && input_;
}

bool Kept::started(const SpawnRequest& request) {
  kept_header& header = *header_;
  header.pid = request.pid;
  header.start_time = request.startTime;
  header.mark = request.mark;
  std::copy(request.pipeInodes, request.pipeInodes + 3, header.pipes);
  header.pts = request.pts;
  header.is_terminal = request.terminal;
  header.has_stdin = request.terminal || request.pipeStdin;
  header.in_ended = header.has_stdin ? 0 : 1;
  header.rows = request.rows;
  header.cols = request.cols;
  int fds[KEPT_FDS];
  fds[KEPT_MEMORY] = memory_;
  fds[KEPT_PIDFD] = request.exitFd;
  fds[KEPT_OUT] = request.stdoutFd;
  fds[KEPT_ERR] = request.stderrFd;
  // A terminal is one descriptor for both directions.
  fds[KEPT_IN] = request.terminal ? request.stdoutFd : request.stdinFd;
  fds[KEPT_SLAVE] = request.slaveFd;
  fds[KEPT_TO_KEEPER] = toKeeper_;
  fds[KEPT_TO_SERVER] = toServer_;
  const bool told = tellKeeper(KEEPER_KEEP, id_, fds);
  closeFd(memory_);
  return told;
}

// ---- output

// Evicts the oldest entries until this much fits.
void Kept::makeRoom(size_t bytes) {
  kept_header& header = *header_;
  while (header.out_head + bytes - header.out_tail > KEPT_OUTPUT_BYTES) {
    const kept_entry* oldest = reinterpret_cast<const kept_entry*>(at(header.out_tail));
    const size_t size = entryBytes(oldest->length);
    header.gone_bytes = oldest->offset + (isOutput(oldest->stream) ? oldest->length : 0);
    header.gone_seq = oldest->seq;
    KEPT_STORE(header.out_tail, header.out_tail + size);
  }
}

char* Kept::reserve() {
  makeRoom(entryBytes(KEPT_READ_BYTES));
  KEPT_STORE(header_->intent, 1u);
  return at(header_->out_head) + sizeof(kept_entry);
}

void Kept::commit(kept_stream stream, size_t length) {
  const uint64_t most = header_->most_output_bytes;
  const uint64_t left = most > totalBytes_ ? most - totalBytes_ : 0;
  length = static_cast<size_t>(std::min<uint64_t>(length, left));
  if (length > 0) append(stream, length);
  nothing();
}

void Kept::noteExit(std::string_view status) {
  const size_t length = std::min<size_t>(status.size(), KEPT_STATUS_BYTES);
  memcpy(header_->exit_status, status.data(), length);
  header_->exit_status_bytes = static_cast<uint32_t>(length);
  KEPT_STORE(header_->exit_seq, lastSeq_ + 1);
  makeRoom(entryBytes(0));
  append(KEPT_EXIT, 0);
}

void Kept::noteClosed() {
  KEPT_STORE(header_->close_seq, lastSeq_ + 1);
  makeRoom(entryBytes(0));
  append(KEPT_CLOSE, 0);
}

// Its bytes are in their place.
void Kept::append(kept_stream stream, size_t length) {
  kept_entry* entry = reinterpret_cast<kept_entry*>(at(header_->out_head));
  entry->seq = ++lastSeq_;
  entry->offset = totalBytes_;
  entry->length = static_cast<uint32_t>(length);
  entry->stream = stream;
  if (isOutput(stream)) totalBytes_ += length;
  KEPT_STORE(header_->out_head, header_->out_head + entryBytes(length));
}

void Kept::each(const std::function<void(const kept_entry& entry, const char* bytes)>& tell) const {
  for (uint64_t position = header_->out_tail; position < header_->out_head;) {
    const kept_entry* entry = reinterpret_cast<const kept_entry*>(at(position));
    if (entry->length > KEPT_OUTPUT_BYTES - sizeof *entry) return;
    tell(*entry, reinterpret_cast<const char*>(entry + 1));
    position += entryBytes(entry->length);
  }
}

// ---- input

bool Kept::knows(const KeptWriteId& id) const {
  if (known_.count(id.id.hash[0]) == 0) return false;
  const uint64_t count = std::min<uint64_t>(header_->ids, KEPT_WRITE_IDS);
  return std::any_of(ids_, ids_ + count, [&](const kept_id& other) { return id.is(other); });
}

size_t Kept::beginWrite(const KeptWriteId& id, size_t length) {
  kept_header& header = *header_;
  size_t done = 0;
  header.write_id = {};
  if (id.isSome() && id.is(header.half_id)) done = std::min<size_t>(header.half_done, length);
  header.write_from = header.in_head - done;
  header.write_bytes = length;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  header.write_id = id.id;
  if (done > 0) header.half_id = {};
  return done;
}

size_t Kept::put(const char* bytes, size_t length) {
  kept_header& header = *header_;
  const size_t taken = std::min(length, room());
  if (taken == 0) return 0;
  memcpy(input_ + header.in_head % KEPT_INPUT_BYTES, bytes, taken);
  if (header.is_terminal) header.line_open = bytes[taken - 1] != '\n' && bytes[taken - 1] != '\r';
  KEPT_STORE(header.in_head, header.in_head + taken);
  return taken;
}

void Kept::endWrite(const KeptWriteId& id) {
  if (!id.isSome()) return;
  kept_id& place = ids_[header_->ids % KEPT_WRITE_IDS];
  if (header_->ids >= KEPT_WRITE_IDS) known_.erase(place.hash[0]);
  place = id.id;
  known_.insert(id.id.hash[0]);
  KEPT_STORE(header_->ids, header_->ids + 1);
  header_->write_id = {};
}

void Kept::poke() {
  const uint64_t one = 1;
  if (::write(toKeeper_, &one, sizeof one) < 0) errno = 0;
}

bool Kept::takePoke() {
  uint64_t count = 0;
  if (::read(toServer_, &count, sizeof count) < 0) errno = 0;
  return count >= KEPT_REFUSED;
}

void Kept::noteKilled() {
  header_->exit_code = -1;
  header_->exit_signal = SIGKILL;
  KEPT_STORE(header_->ended, 1u);
}

}  // namespace procwire
