import type { FrameOpening } from "../connection/frame-socket.ts";
import type { OutputStream, TtyState } from "../exec/exec-process.ts";
import type { ListedEntry } from "../files/file-trees.ts";
import type { ResourceLimit } from "../local/enforced-limits.ts";
import type { ProcessTag } from "../local/tree/process-table.ts";

/** A child in the addon. Opaque: it can only be passed back to the addon. */
export type NativeChild = object & { readonly __nativeChild: never };

/** A socket in the addon. Opaque. */
export type NativeSocket = object & { readonly __nativeSocket: never };

/** A listening socket in the addon. Opaque. */
export type NativeListener = object & { readonly __nativeListener: never };

/** A channel that receives the listeners of a sandbox, in the addon. Opaque. */
export type NativeListenerChannel = object & { readonly __nativeListenerChannel: never };

/** The fields `processEntryFields` of each process, one process after another. */
export type NativeEntries = Float64Array;

/** Receives the output of a child. */
export type NativeOutputListener = (stream: OutputStream, chunk: Uint8Array) => void;

/** An event of a child, besides its output. */
export type NativeChildEvent =
  /** The leader ended. */
  | { type: "exit"; code: number }
  | { type: "exit"; signal: number }
  /** All output streams have ended. The last event. */
  | { type: "close" }
  /** The input queue is empty again. */
  | { type: "drain" }
  | { type: "unreadable"; errno: number }
  /** The supervisor could not persist the process and killed it. */
  | { type: "refused" };

/** The fields of a `process/write`, decoded from its bytes. */
export type NativeWriteRequest = [
  id: string | number,
  processId: string,
  writeId: string | undefined,
  chunk: Uint8Array,
];

export interface NativeSocketListener {
  /**
   * Received data: a whole ASCII text message, a whole text message that is not validated, a whole binary message, or
   * bytes as received.
   */
  onData(...data: [type: "text", text: string] | [type: "message" | "binary" | "bytes", bytes: Buffer]): void;
  /** A `process/write` that is not direct input. */
  onWrite(...request: NativeWriteRequest): void;
  onEvent(event: NativeSocketEvent): void;
}

export type NativeSocketEvent =
  /** The send queue is empty again. */
  | { type: "drain" }
  /** The peer closed its sending side. */
  | { type: "end" }
  /** The last event. `errno` is null after a normal close. */
  | { type: "close"; errno: number | null; syscall: string };

/** A start. A block is a string of parts, each terminated by a zero byte. */
export interface NativeSpawnOptions {
  file: string;
  /** Block. */
  argv: string;
  /** Block of `NAME=VALUE` parts. */
  env: string;
  cwd: string;
  /** Descriptor of the working directory, or null to use `cwd`. Stays with the caller, who keeps it open until `onDone`. */
  directory: number | null;
  terminal: boolean;
  rows: number;
  cols: number;
  /** Whether stdin is a pipe; else /dev/null. */
  pipeStdin: boolean;
  /** Become 3, 4 and so on in the child. Stay with the caller, who keeps them open until `onDone`. */
  descriptors: Int32Array;
  /** Three numbers each: resource, soft and hard limit. */
  limits: Float64Array;
  /** Block of cgroup.procs files that the child enters. */
  cgroups: string;
  /** Enters a Landlock domain if the kernel supports it. */
  landlock: boolean;
  /** Whether the process gets its own cgroup; false if `cgroups` contains one of version 2. */
  wantsCgroup: boolean;
  /** Record of a persistent process, for the next server; null for all others. */
  persistentRecord: string | null;
  /** Output limit of a persistent process, or null. Further output is not recorded. */
  maxOutputBytes: number | null;
  onDone: (result: NativeSpawnResult) => void;
  onOutput: NativeOutputListener;
  onEvent: (event: NativeChildEvent) => void;
}

/** Outcome of a start. */
export type NativeSpawnResult =
  | {
      child: NativeChild;
      pid: number;
      /** Null without a terminal. */
      pts: number | null;
      /** Inodes of its pipes. */
      pipes: number[];
      /** Null if the process is untagged. */
      treeTag: number | null;
      /** Null if there is no process cgroup. */
      cgroupLease: number | null;
      /** Why no process cgroup could be created; null if there is one, or none is available. */
      cgroupErrno: number | null;
    }
  | { errno: number; syscall: string; path: string };

/** Tokens of a JSON message. */
export interface NativeScanResult {
  isUtf8: boolean;
  /** Null for a valid message. */
  problem: string | null;
  /** Three numbers per token: index of `tokenKinds`, start and end in the message. */
  tokens: Uint32Array;
  /** Descriptions of invalid base64; the start of its token is the index. */
  texts: string[];
}

/** Outcome of an operation on a directory tree. */
export interface NativeTreeResult {
  /** Null without a system error. */
  errno: number | null;
  /** Index of `treeFailures`; null without a failure of that kind. */
  failure: number | null;
  /** Path of the failed entry, relative to the tree. */
  path: Buffer;
}

export type TreeCallback = (result: NativeTreeResult) => void;

/** Entries of a directory without broken links. */
export interface NativeListing {
  /** Null without a system error. */
  errno: number | null;
  truncated: boolean;
  /** Sorted names, one character per byte, each followed by a slash. */
  names: string;
  /** One byte per name: an index of `listedKinds`, plus `linkBit` for a link, whose target has that kind. */
  kinds: Buffer;
}

/** A persistent process of an earlier server. */
export interface NativeRestored {
  pid: number;
  /** Null without a terminal. */
  pts: number | null;
  pipes: number[];
  /** Null if the process is untagged. */
  treeTag: number | null;
  record: string;
  isReleased: boolean;
  attachments: number;
  rows: number;
  cols: number;
  isStdinClosed: boolean;
  entries: { stream: number; seq: number; bytes: Uint8Array }[];
  evictedSeq: number;
  evictedBytes: number;
  /** Present once the exit event was emitted. */
  exitSeq?: number;
  exitStatus?: string;
}

/**
 * The exports of the addon. A class, so that their names exist at run time: a file is the addon of this version if it has
 * all of them, and a test checks that it has no others. Only that check creates an instance.
 */
export class NativeAddon {
  // ---- numbers and names that the addon defines
  /** Names of the fields of `NativeEntries`, in order. */
  readonly processEntryFields!: readonly string[];
  /** Kernel numbers of the resource limits. */
  readonly resourceLimits!: Readonly<Record<ResourceLimit["resource"], number>>;
  /** Names of the entries of a state segment, indexed by `stream`. */
  readonly segmentEntries!: readonly string[];
  /** Sizes of the state segment, and offsets in its header (`native/programs/state-segment-layout.h`). */
  readonly segmentLayout!: {
    readonly outputBytes: number;
    readonly readBytes: number;
    readonly writeIds: number;
    readonly writeIdBytes: number;
    readonly versionAt: number;
    readonly idsAt: number;
    readonly pidAt: number;
    readonly readInProgressAt: number;
    readonly exitSeqAt: number;
    readonly writeIdAt: number;
    readonly idCountAt: number;
  };
  /** Numbers for `notifySupervisor`. */
  readonly supervisorMessages!: { readonly ready: number; readonly heartbeat: number };

  // ---- processes
  /** Starts a process. Returns the tree tag that it will get, or null if it gets none. */
  readonly spawn!: (options: NativeSpawnOptions) => number | null;
  readonly write!: (child: NativeChild, bytes: Uint8Array, writeId: string | undefined) => void;
  readonly queuedInput!: (child: NativeChild) => number;
  readonly writtenInput!: (child: NativeChild) => number;
  readonly hasWriteId!: (child: NativeChild, writeId: string) => boolean;
  /** Leaves all further direct input to JavaScript. */
  readonly rejectDirectInput!: (child: NativeChild) => void;
  /** Start time of the child in the process table; null if it could not be read. */
  readonly startTime!: (child: NativeChild) => number | null;
  readonly closeStdin!: (child: NativeChild) => void;
  readonly pause!: (child: NativeChild) => void;
  readonly resume!: (child: NativeChild) => void;
  readonly closeStreams!: (child: NativeChild) => void;
  readonly resize!: (child: NativeChild, rows: number, cols: number) => boolean;
  readonly terminalState!: (child: NativeChild) => TtyState | undefined;
  readonly signalGroup!: (child: NativeChild, signal: number) => boolean;
  /** Applies to children that start from now on. */
  readonly setInputLimits!: (maxQueuedBytes: number, maxWriteIds: number, maxWriteIdBytes: number) => void;

  // ---- the process table
  readonly entry!: (pid: number) => NativeEntries;
  readonly childPids!: (pid: number) => number[];
  /** Children of this process that the addon neither started nor is starting. */
  readonly orphanPids!: () => number[];
  readonly descendants!: (pid: number) => NativeEntries;
  /** Reports whether the process has this terminal or one of these pipes open. */
  readonly hasStdioOpen!: (pid: number, pts: number | null, ...pipes: number[]) => boolean;
  /** Returns the tree tag, or null if the process has none or does not exist. */
  readonly tagOf!: (pid: number) => ProcessTag | null;
  /** Returns the errno, or null. */
  readonly signal!: (pid: number, startTime: number, signal: number) => number | null;
  /** Creates process cgroups in this directory from now on. Returns the errno, or null. */
  readonly openProcessCgroups!: (directory: string, persistentTags: Float64Array) => number | null;
  /** Returns the live processes in a leased cgroup; none once the lease has expired. */
  readonly processCgroupPids!: (lease: number) => number[];
  readonly killProcessCgroup!: (lease: number) => void;
  readonly setSubreaper!: (on: boolean) => number;
  readonly reap!: (pid: number) => boolean;
  /** Returns the version of Landlock; null if it is unavailable. */
  readonly landlockAbi!: () => number | null;
  /** Hides memory, descriptors and secrets of this process from other processes of the same user. */
  readonly makeProcessPrivate!: () => void;

  // ---- the supervisor
  /** Returns the listening descriptor, null if there is none, or the reason why the supervisor is unavailable. */
  readonly openSupervisor!: (
    fd: number,
    generation: number,
    livenessTimeoutMs: number | null,
    giveUpAfter: number | null,
  ) => number | string | null;
  /** Versions of the state segment: read by the supervisor, and written by this server. */
  readonly stateVersions!: () => [supervisor: number, server: number];
  readonly watchSupervisor!: (onHandoff: () => void) => void;
  /** Sends one of `supervisorMessages`. Returns false if the supervisor has exited. */
  readonly notifySupervisor!: (message: number) => boolean;
  /**
   * Returns the next process of an earlier server; true if its state segment is unreadable, so that the supervisor kills
   * it; undefined if no process is left.
   */
  readonly takePersistent!: (
    onOutput: NativeOutputListener,
    onEvent: (event: NativeChildEvent) => void,
  ) => [child: NativeChild, restored: NativeRestored] | true | undefined;
  readonly resumePersistent!: (child: NativeChild) => void;
  readonly recordExit!: (child: NativeChild, status: string) => void;
  readonly recordClosed!: (child: NativeChild) => void;
  readonly saveSession!: (child: NativeChild, isReleased: boolean, attachments: number) => void;
  readonly removePersistent!: (child: NativeChild) => void;

  // ---- directory trees
  /** Names of `NativeTreeResult.failure`. */
  readonly treeFailures!: readonly string[];
  /** Kinds of the entries of a directory. */
  readonly listedKinds!: readonly ListedEntry["kind"][];
  /** Added to the kind of a link. */
  readonly linkBit!: number;
  /** Copies the contents of a directory into an existing directory. A file without a size may have `maxUnsizedBytes`. */
  readonly copyTree!: (source: Uint8Array, target: Uint8Array, maxUnsizedBytes: number, onDone: TreeCallback) => void;
  readonly removeTree!: (path: Uint8Array, onDone: TreeCallback) => void;
  readonly listDirectory!: (path: Uint8Array, maxEntries: number, onDone: (listing: NativeListing) => void) => void;

  // ---- sockets
  /** Without a port, `host` is the path of a Unix socket. Returns the listener with its bound port, or an errno. */
  readonly listenAt!: (
    host: string,
    port: number | null,
    backlog: number,
    /** `peerUid` is null unless the peer is connected through a Unix socket. */
    onConnection: (socket: NativeSocket, peerName: string, peerUid: number | null) => void,
    /** Listening descriptor of the previous server, or null. The listener takes ownership. */
    descriptor: number | null,
  ) => [listener: NativeListener, port: number | null] | number;
  /**
   * Returns a channel and the sandbox's end, which the caller owns; or an errno. Calls `onListeners` once, with
   * descriptors that the callee owns; with none if the sandbox closed its end before. Never after the channel is closed.
   */
  readonly openListenerChannel!: (
    onListeners: (descriptors: number[]) => void,
  ) => [channel: NativeListenerChannel, sandboxEnd: number] | number;
  readonly closeListenerChannel!: (channel: NativeListenerChannel) => void;
  /** Returns a connected, non-blocking Unix datagram socket, which the caller owns, or the errno. */
  readonly connectDatagram!: (path: string) => [descriptor: number] | number;
  readonly closeListener!: (listener: NativeListener) => void;
  /** Returns a socket of a client that reads `input` and writes `output`, which it duplicates; or an errno. */
  readonly openClientSocket!: (input: number, output: number) => NativeSocket | number;
  /**
   * Returns a socket of a client, which may still be connecting; or an errno; or null if `host` is a name or an invalid
   * path. Without a port, `host` is the path of a Unix socket.
   */
  readonly connectSocket!: (host: string, port: number | null) => NativeSocket | number | null;
  /** Starts reading. */
  readonly startSocket!: (socket: NativeSocket, listener: NativeSocketListener) => void;
  /**
   * Switches to WebSocket frames. `received` holds frame bytes that were already emitted. Reading stops while more than
   * `maxQueuedBytes` are queued.
   */
  readonly upgradeToFrames!: (
    socket: NativeSocket,
    maxMessageBytes: number,
    maxQueuedBytes: number,
    received: Uint8Array,
  ) => void;
  readonly sendText!: (socket: NativeSocket, text: string) => void;
  /** `opening` is the first byte of the frame: FIN and opcode. */
  readonly sendChunk!: (
    socket: NativeSocket,
    head: string,
    bytes: Uint8Array,
    tail: string,
    opening: FrameOpening,
  ) => void;
  readonly sendBytes!: (socket: NativeSocket, bytes: Uint8Array) => void;
  /** Passes two descriptors to the server at the other end of a Unix connection. Returns the errno, or null. */
  readonly transferStdio!: (connection: number, input: number, output: number) => number | null;
  /** Line with which the server confirms a transfer. */
  readonly transferLine!: string;
  readonly pauseSocket!: (socket: NativeSocket) => void;
  readonly resumeSocket!: (socket: NativeSocket) => void;
  readonly endSocket!: (socket: NativeSocket) => void;
  readonly destroySocket!: (socket: NativeSocket) => void;
  /**
   * Returns the descriptor, which the caller then owns; null if the socket carries frames, has queued data, serves transferred
   * stdio or is closed.
   */
  readonly detachSocket!: (socket: NativeSocket) => number | null;
  readonly queuedBytes!: (socket: NativeSocket) => number;
  readonly sentBytes!: (socket: NativeSocket) => number;
  readonly receivedBytes!: (socket: NativeSocket) => number;
  /** `input` is a `NativeChild`. */
  readonly routeDirectInput!: (socket: NativeSocket, processId: string, input: object) => void;
  readonly unrouteDirectInput!: (socket: NativeSocket, processId: string) => void;
  /** While paused, direct input is left to JavaScript. */
  readonly pauseDirectInput!: (socket: NativeSocket, paused: boolean) => void;

  // ---- bytes
  /** Encodes with the standard alphabet and padding. Returns the number of bytes written, -1 if they do not fit. */
  readonly base64Encode!: (from: Uint8Array, to: Uint8Array, toOffset: number) => number;
  /** Decodes strictly. Returns the number of bytes written, -1 if the text is not canonical base64 or does not fit. */
  readonly base64Decode!: (from: Uint8Array, fromOffset: number, fromLength: number, to: Uint8Array) => number;
  /** Returns the memory of the bytes to the system, except that of pages at their ends. Their content is lost. */
  readonly releasePages!: (bytes: Uint8Array) => void;
  /** Names of the kinds of a token. */
  readonly tokenKinds!: readonly string[];
  /**
   * Splits a JSON message into tokens on another thread. Decodes long strings and the base64 of `params` in place; the
   * caller must not use the message meanwhile.
   */
  readonly scanMessage!: (
    message: Uint8Array,
    maxValues: number,
    maxDepth: number,
    onDone: (result: NativeScanResult) => void,
  ) => void;
  /** XORs with the four bytes of the key, highest first: a WebSocket mask read as a big-endian number. */
  readonly unmask!: (bytes: Uint8Array, offset: number, length: number, key: number) => void;

  // ---- the whole process
  /**
   * Retains freed memory for the next chunk, for a server. After an idle period, the addon calls `onIdle` and returns all
   * free memory to the system.
   */
  readonly retainFreedMemory!: (onIdle: () => void) => void;
  /** Returns free memory to the system now. */
  readonly releaseFreeMemory!: () => void;
  /** Reports whether `count` more threads can be created now. */
  readonly canMakeThreads!: (count: number) => boolean;
  /** Exits without waiting for threads or running exit handlers. */
  readonly exitNow!: (code: number) => void;
  /** Locks the file until the descriptor is closed. Returns null or the errno: EAGAIN while another process holds the lock. */
  readonly lockFile!: (fd: number) => number | null;
  /** Reserves disk space for a range of the file without changing its size. Returns the errno, or null. */
  readonly reserveSpace!: (fd: number, offset: number, length: number) => number | null;
  /** Sets close-on-exec on all inherited descriptors except stdio. */
  readonly closeOnExec!: () => void;
  /** For tests: disables pidfds, close_range and wide instructions, as on an older host. */
  readonly forcePlainPaths!: (on: boolean) => void;
  /** For tests: starts processes by fork, as under an emulator that rejects vfork. */
  readonly forceFork!: (on: boolean) => void;
}

/** The addon emitted an unknown event: it is not the addon of this version. */
export class NativeEventError extends Error {
  override readonly name = "NativeEventError";

  constructor(of: "child" | "socket", { type }: { type: string }) {
    super(`unknown ${of} event of the native addon: ${type}`);
  }
}
