#include "process/state-segment.h"

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
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/fd.h"
#include "process/spawn.h"
#include "process/supervisor-channel.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

namespace procwire {
namespace {

constexpr size_t kIdsBytes = SEGMENT_WRITE_IDS * sizeof(write_id_hash);

size_t roundToPages(size_t bytes) { return (bytes + SEGMENT_PAGE_BYTES - 1) / SEGMENT_PAGE_BYTES * SEGMENT_PAGE_BYTES; }

// Positions of the parts of a segment, which depend only on the length of its record.
struct Layout {
  uint64_t idsAt, recordAt, outputAt, inputAt, fileBytes;

  explicit Layout(size_t recordBytes)
      : idsAt(roundToPages(sizeof(segment_header))),
        recordAt(idsAt + kIdsBytes),
        outputAt(recordAt + roundToPages(recordBytes)),
        inputAt(outputAt + SEGMENT_OUTPUT_BYTES),
        fileBytes(inputAt + SEGMENT_INPUT_BYTES) {}

  bool is(const segment_header& header) const {
    return header.ids_at == idsAt && header.record_at == recordAt && header.output_at == outputAt &&
           header.input_at == inputAt && header.file_bytes == fileBytes;
  }
};

size_t entryBytes(size_t length) { return sizeof(segment_entry) + (length + 7) / 8 * 8; }

bool isOutput(uint32_t stream) { return stream <= SEGMENT_TERMINAL; }

// Maps a ring twice in a row, so that reads and writes never split at its end.
char* mapTwice(int fd, size_t offset, size_t bytes) {
  void* reserved = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* first = static_cast<char*>(reserved);
  for (char* half : {first, first + bytes}) {
    if (mmap(half, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset)) != MAP_FAILED)
      continue;
    munmap(reserved, 2 * bytes);
    return nullptr;
  }
  return first;
}

// Added to the server's eventfd of a process that the supervisor rejected. All other wake-ups add 1.
constexpr uint64_t kRejected = uint64_t{1} << 32;

// All segments of this server. Spawner threads create segments, the loop destroys them.
struct Segments {
  std::mutex mutex;
  std::unordered_map<uint64_t, const StateSegment*> byId;
};

// Never destroyed, because spawner threads use it until the process exits.
Segments& segments() {
  static Segments* const all = new Segments;
  return *all;
}

// Wakes the reader of an eventfd. A write fails only if the counter is full, and then the reader is awake already.
void wake(const UniqueFd& eventFd, uint64_t count) {
  if (::write(eventFd.get(), &count, sizeof count) < 0) return;
}

uint64_t nextId() {
  static std::atomic<uint64_t> count{0};
  return (static_cast<uint64_t>(serverGeneration()) << 32) + ++count;
}

}  // namespace

WriteIdHash::WriteIdHash(std::string_view text) {
  // FNV-1a with two seeds, each with its own final mix.
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

std::unique_ptr<StateSegment> StateSegment::create(const std::string& record, uint64_t maxOutputBytes) {
  if (record.size() > SEGMENT_MAX_RECORD_BYTES) {
    errno = E2BIG;
    return nullptr;
  }
  std::unique_ptr<StateSegment> segment(new StateSegment(nextId()));
  const Layout layout(record.size());
  segment->segmentFd_.reset(static_cast<int>(syscall(SYS_memfd_create, "procwire-state", MFD_CLOEXEC)));
  const int fd = segment->segmentFd_.get();
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(layout.fileBytes)) < 0) return nullptr;
  segment->supervisorWakeFd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  segment->serverWakeFd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!segment->supervisorWakeFd_ || !segment->serverWakeFd_) return nullptr;
  segment_header fresh = {};
  fresh.magic = SEGMENT_MAGIC;
  fresh.version = SEGMENT_VERSION;
  fresh.file_bytes = layout.fileBytes;
  fresh.ids_at = layout.idsAt;
  fresh.record_at = layout.recordAt;
  fresh.record_bytes = record.size();
  fresh.output_at = layout.outputAt;
  fresh.input_at = layout.inputAt;
  fresh.max_output_bytes = maxOutputBytes;
  const off_t recordAt = static_cast<off_t>(layout.recordAt);
  if (pwrite(fd, &fresh, sizeof fresh, 0) != sizeof fresh ||
      pwrite(fd, record.data(), record.size(), recordAt) != static_cast<ssize_t>(record.size()))
    return nullptr;
  return segment->map(layout.fileBytes) ? std::move(segment) : nullptr;
}

std::unique_ptr<StateSegment> StateSegment::attach(uint64_t id, UniqueFd segmentFd, UniqueFd supervisorWakeFd,
                                                   UniqueFd serverWakeFd) {
  std::unique_ptr<StateSegment> segment(new StateSegment(id));
  segment->segmentFd_ = std::move(segmentFd);
  segment->supervisorWakeFd_ = std::move(supervisorWakeFd);
  segment->serverWakeFd_ = std::move(serverWakeFd);
  struct stat info;
  if (fstat(segment->segmentFd_.get(), &info) < 0 || !segment->map(static_cast<size_t>(info.st_size))) return nullptr;
  segment_header& header = *segment->header_;
  segment->lastSeq_ = header.evicted_seq;
  segment->totalBytes_ = header.evicted_bytes;
  segment->forEachEntry([&](const segment_entry& entry, const char*) {
    segment->lastSeq_ = entry.seq;
    segment->totalBytes_ = entry.offset + (isOutput(entry.stream) ? entry.length : 0);
  });
  // The earlier server died after it stored the sequence number of the exit or close, before it appended the entry.
  if (header.exit_seq > segment->lastSeq_) header.exit_seq = 0;
  if (header.close_seq > segment->lastSeq_) header.close_seq = 0;
  // The earlier server died during a read. The bytes of that read, if any, are lost.
  if (header.read_in_progress != 0) {
    segment->evictOutput(entryBytes(0));
    segment->append(SEGMENT_GAP, 0);
    segment->cancelReserve();
  }
  const uint64_t remembered = std::min<uint64_t>(header.ids, SEGMENT_WRITE_IDS);
  for (uint64_t index = 0; index < remembered; index++) segment->known_.insert(segment->ids_[index].hash[0]);
  WriteIdHash last;
  last.id = header.write_id;
  if (last.isSome()) {
    if (header.in_head >= header.write_from + header.write_bytes) {
      if (!segment->hasWriteId(last)) segment->endWrite(last);
    } else {
      header.partial_write_bytes = header.in_head - header.write_from;
      header.partial_write_id = last.id;
    }
    header.write_id = {};
  }
  header.server_waits_for_input_space = 0;
  segment->segmentFd_.reset();
  // The process may have exited while no server ran. Wakes the loop of this server, so that it checks once.
  wake(segment->serverWakeFd_, 1);
  return segment;
}

StateSegment::StateSegment(uint64_t id) : id_(id) {
  const std::lock_guard<std::mutex> lock(segments().mutex);
  segments().byId[id] = this;
}

void StateSegment::onRejected(uint64_t id) {
  const std::lock_guard<std::mutex> lock(segments().mutex);
  const auto found = segments().byId.find(id);
  if (found != segments().byId.end()) wake(found->second->serverWakeFd_, kRejected);
}

StateSegment::~StateSegment() {
  {
    const std::lock_guard<std::mutex> lock(segments().mutex);
    segments().byId.erase(id_);
  }
  if (header_) munmap(header_, frontBytes_);
  if (output_) munmap(output_, 2 * SEGMENT_OUTPUT_BYTES);
  if (input_) munmap(input_, 2 * SEGMENT_INPUT_BYTES);
}

bool StateSegment::map(size_t bytes) {
  segment_header header = {};
  if (bytes < sizeof header || pread(segmentFd_.get(), &header, sizeof header, 0) != sizeof header) return false;
  if (header.magic != SEGMENT_MAGIC || header.version != SEGMENT_VERSION || header.file_bytes != bytes ||
      header.record_bytes > SEGMENT_MAX_RECORD_BYTES || !Layout(header.record_bytes).is(header))
    return false;
  if (header.out_tail > header.out_head || header.out_head - header.out_tail > SEGMENT_OUTPUT_BYTES ||
      header.in_tail > header.in_head || header.in_head - header.in_tail > SEGMENT_INPUT_BYTES)
    return false;
  const size_t front = header.output_at;
  void* mapped = mmap(nullptr, front, PROT_READ | PROT_WRITE, MAP_SHARED, segmentFd_.get(), 0);
  if (mapped == MAP_FAILED) return false;
  header_ = static_cast<segment_header*>(mapped);
  frontBytes_ = front;
  ids_ = reinterpret_cast<write_id_hash*>(static_cast<char*>(mapped) + header.ids_at);
  output_ = mapTwice(segmentFd_.get(), header.output_at, SEGMENT_OUTPUT_BYTES);
  input_ = mapTwice(segmentFd_.get(), header.input_at, SEGMENT_INPUT_BYTES);
  return output_ && input_;
}

bool StateSegment::started(const SpawnRequest& request) {
  segment_header& header = *header_;
  header.pid = request.pid;
  header.start_time = request.startTime;
  header.tree_tag = request.treeTag;
  std::copy(request.pipeInodes, request.pipeInodes + 3, header.pipes);
  header.pts = request.pts;
  header.is_terminal = request.terminal;
  header.has_stdin = request.terminal || request.pipeStdin;
  header.in_ended = header.has_stdin ? 0 : 1;
  header.rows = request.rows;
  header.cols = request.cols;
  int fds[PERSIST_FD_COUNT];
  fds[PERSIST_SEGMENT] = segmentFd_.get();
  fds[PERSIST_PIDFD] = request.exitFd.get();
  fds[PERSIST_STDOUT] = request.stdoutFd.get();
  fds[PERSIST_STDERR] = request.stderrFd.get();
  // A terminal has one descriptor for both directions.
  fds[PERSIST_STDIN] = (request.terminal ? request.stdoutFd : request.stdinFd).get();
  fds[PERSIST_PTY_SLAVE] = request.ptySlaveFd.get();
  fds[PERSIST_SUPERVISOR_WAKE] = supervisorWakeFd_.get();
  fds[PERSIST_SERVER_WAKE] = serverWakeFd_.get();
  const bool sent = notifySupervisor(SUPERVISOR_PERSIST, id_, fds);
  segmentFd_.reset();
  return sent;
}

// ---- output

// Evicts the oldest entries until `bytes` bytes fit.
void StateSegment::evictOutput(size_t bytes) {
  segment_header& header = *header_;
  while (header.out_head + bytes - header.out_tail > SEGMENT_OUTPUT_BYTES) {
    const segment_entry* oldest = reinterpret_cast<const segment_entry*>(at(header.out_tail));
    const size_t size = entryBytes(oldest->length);
    header.evicted_bytes = oldest->offset + (isOutput(oldest->stream) ? oldest->length : 0);
    header.evicted_seq = oldest->seq;
    SEGMENT_STORE(header.out_tail, header.out_tail + size);
  }
}

char* StateSegment::reserve() {
  evictOutput(entryBytes(SEGMENT_READ_BYTES));
  SEGMENT_STORE(header_->read_in_progress, 1u);
  return at(header_->out_head) + sizeof(segment_entry);
}

void StateSegment::commit(segment_stream stream, size_t length) {
  const uint64_t max = header_->max_output_bytes;
  const uint64_t remaining = max > totalBytes_ ? max - totalBytes_ : 0;
  length = static_cast<size_t>(std::min<uint64_t>(length, remaining));
  if (length > 0) append(stream, length);
  cancelReserve();
}

void StateSegment::recordExit(std::string_view status) {
  const size_t length = std::min<size_t>(status.size(), SEGMENT_STATUS_BYTES);
  memcpy(header_->exit_status, status.data(), length);
  header_->exit_status_bytes = static_cast<uint32_t>(length);
  SEGMENT_STORE(header_->exit_seq, lastSeq_ + 1);
  evictOutput(entryBytes(0));
  append(SEGMENT_EXIT, 0);
}

void StateSegment::recordClosed() {
  SEGMENT_STORE(header_->close_seq, lastSeq_ + 1);
  evictOutput(entryBytes(0));
  append(SEGMENT_CLOSE, 0);
}

// Commits an entry whose bytes are already in place.
void StateSegment::append(segment_stream stream, size_t length) {
  segment_entry* entry = reinterpret_cast<segment_entry*>(at(header_->out_head));
  entry->seq = ++lastSeq_;
  entry->offset = totalBytes_;
  entry->length = static_cast<uint32_t>(length);
  entry->stream = stream;
  if (isOutput(stream)) totalBytes_ += length;
  SEGMENT_STORE(header_->out_head, header_->out_head + entryBytes(length));
}

void StateSegment::forEachEntry(const std::function<void(const segment_entry& entry, const char* bytes)>& visit) const {
  for (uint64_t position = header_->out_tail; position < header_->out_head;) {
    const segment_entry* entry = reinterpret_cast<const segment_entry*>(at(position));
    if (entry->length > SEGMENT_OUTPUT_BYTES - sizeof *entry) return;
    visit(*entry, reinterpret_cast<const char*>(entry + 1));
    position += entryBytes(entry->length);
  }
}

// ---- input

bool StateSegment::hasWriteId(const WriteIdHash& id) const {
  if (known_.count(id.id.hash[0]) == 0) return false;
  const uint64_t count = std::min<uint64_t>(header_->ids, SEGMENT_WRITE_IDS);
  return std::any_of(ids_, ids_ + count, [&](const write_id_hash& other) { return id.is(other); });
}

size_t StateSegment::beginWrite(const WriteIdHash& id, size_t length) {
  segment_header& header = *header_;
  size_t done = 0;
  header.write_id = {};
  if (id.isSome() && id.is(header.partial_write_id)) done = std::min<size_t>(header.partial_write_bytes, length);
  header.write_from = header.in_head - done;
  header.write_bytes = length;
  // A server that is killed before it stores the id leaves no write. The id is valid only with its positions.
  __atomic_thread_fence(__ATOMIC_RELEASE);
  header.write_id = id.id;
  if (done > 0) header.partial_write_id = {};
  return done;
}

size_t StateSegment::writeInput(const char* bytes, size_t length) {
  segment_header& header = *header_;
  const size_t written = std::min(length, inputCapacity());
  if (written == 0) return 0;
  memcpy(input_ + header.in_head % SEGMENT_INPUT_BYTES, bytes, written);
  if (header.is_terminal) header.has_partial_line = bytes[written - 1] != '\n' && bytes[written - 1] != '\r';
  SEGMENT_STORE(header.in_head, header.in_head + written);
  return written;
}

void StateSegment::endWrite(const WriteIdHash& id) {
  if (!id.isSome()) return;
  write_id_hash& slot = ids_[header_->ids % SEGMENT_WRITE_IDS];
  if (header_->ids >= SEGMENT_WRITE_IDS) known_.erase(slot.hash[0]);
  slot = id.id;
  known_.insert(id.id.hash[0]);
  SEGMENT_STORE(header_->ids, header_->ids + 1);
  header_->write_id = {};
}

void StateSegment::wakeSupervisor() { wake(supervisorWakeFd_, 1); }

bool StateSegment::consumeWake() {
  uint64_t count = 0;
  return ::read(serverWakeFd_.get(), &count, sizeof count) > 0 && count >= kRejected;
}

void StateSegment::recordKilled() {
  header_->exit_code = -1;
  header_->exit_signal = SIGKILL;
  SEGMENT_STORE(header_->ended, 1u);
}

}  // namespace procwire
