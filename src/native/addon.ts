import { messageOf } from "../base/error-message.ts";
import { MAX_QUEUED_INPUT_BYTES, REMEMBERED_WRITE_IDS } from "../exec/input-limits.ts";
import { buildAtFirstUse, nativeFiles } from "./native-files.ts";

/** A started program, as the addon knows it. Opaque: it can only be passed back to the addon. */
export type NativeChild = object & { readonly __nativeChild: never };

/** The same for a socket. */
export type NativeSocket = object & { readonly __nativeSocket: never };

/** The same for a socket that listens. */
export type NativeListener = object & { readonly __nativeListener: never };

/** Six numbers per process: pid, parent, group, session, start time, 1 when dead. */
export type NativeEntries = Float64Array;

/** An event's number, an index into its list of names, and the event's values. */
export type NativeEventListener = (
  event: number,
  first?: unknown,
  second?: unknown,
  third?: unknown,
  fourth?: unknown,
) => void;

export type NativeSpawnDone = (
  errno: number,
  syscall: string,
  path: string,
  child: NativeChild,
  pid: number,
  startTime: number,
  pts: number,
  pipes: number[],
  mark: number,
  /** Its lease of a cgroup; 0: none can be made here; below 0: the errno, negated, of one that could not be made. */
  group: number,
) => void;

export type NativeInherited = [
  child: NativeChild,
  pid: number,
  startTime: number,
  pts: number,
  pipes: number[],
  mark: number,
  record: string,
  hasLeft: boolean,
  attachments: number,
  rows: number,
  cols: number,
  isStdinClosed: boolean,
  entries: [stream: number, seq: number, offset: number, bytes: Uint8Array][],
  goneSeq: number,
  goneBytes: number,
  exitSeq?: number,
  exitStatus?: string,
];

/**
 * What the addon exports. A class, so that the names exist at run time: a file is the addon of this version when it has
 * them all, and a test checks that it has no others. Only that check makes an instance.
 */
export class NativeAddon {
  // ---- processes. A block is a text of parts, each ended by a zero byte.
  /** Returns the mark the program is about to get; 0: none. */
  readonly spawn!: (
    file: string,
    argvBlock: string,
    envBlock: string,
    cwd: string,
    terminal: boolean,
    pipeStdin: boolean,
    rows: number,
    cols: number,
    onDone: NativeSpawnDone,
    onEvent: NativeEventListener,
    /** Become 3, 4 and so on in the child. Stay the caller's, who keeps them open until `onDone`. */
    descriptors: Int32Array,
    /** Three numbers each: resource, soft and hard limit. */
    limits: Float64Array,
    cgroupsBlock: string,
    /** A descriptor of the directory to start in; -1: `cwd` is looked up. Stays the caller's until `onDone`. */
    directory: number,
    /** The record of a process that outlives this program, for the next server; "" for all others. */
    record: string,
    /** Limit of such a process: output beyond it is not recorded. */
    maxOutputBytes: number,
    /** Whether it is to have a cgroup of its own; not where it enters one of version 2 for its limits. */
    wantsGroup: boolean,
  ) => number;
  /** Names of a child's events, each at its number. */
  readonly childEvents!: readonly string[];
  readonly write!: (child: NativeChild, bytes: Uint8Array, writeId: string | undefined) => void;
  readonly queuedInput!: (child: NativeChild) => number;
  readonly writtenInput!: (child: NativeChild) => number;
  readonly knowsWrite!: (child: NativeChild, writeId: string) => boolean;
  /** From now on, writes that come for it by a route are left to JavaScript. */
  readonly refuseInput!: (child: NativeChild) => void;
  readonly closeStdin!: (child: NativeChild) => void;
  readonly pause!: (child: NativeChild) => void;
  readonly resume!: (child: NativeChild) => void;
  readonly cut!: (child: NativeChild) => void;
  readonly resize!: (child: NativeChild, rows: number, cols: number) => boolean;
  readonly terminalState!: (
    child: NativeChild,
  ) => [rows: number, cols: number, echo: boolean, canonical: boolean] | undefined;
  readonly signalGroup!: (child: NativeChild, signal: number) => boolean;
  /** For children started from now on. */
  readonly setInputLimits!: (maxQueuedBytes: number, rememberedWriteIds: number) => void;

  // ---- the process table
  readonly entry!: (pid: number) => NativeEntries;
  readonly childPids!: (pid: number) => number[];
  /** This program's own children, without those that the addon started or is starting. */
  readonly orphanPids!: () => number[];
  readonly descendants!: (pid: number) => NativeEntries;
  readonly holds!: (pid: number, pts: number, ...pipes: number[]) => boolean;
  /** What a process's descendants share with it; 0 for one that has no mark, or is gone, and negated where it has changed a half. */
  readonly markOf!: (pid: number) => number;
  /** 0, or the errno. */
  readonly signal!: (pid: number, startTime: number, signal: number) => number;
  /** Cgroups for programs that are started from now on are made in this directory. 0, or the errno. */
  readonly openTreeGroups!: (directory: string, keptMarks: Float64Array) => number;
  /** The living processes in a leased cgroup; none once the lease is over. */
  readonly treeGroupPids!: (lease: number) => number[];
  readonly killTreeGroup!: (lease: number) => void;
  readonly setSubreaper!: (on: boolean) => number;
  readonly reap!: (pid: number) => boolean;

  // ---- the keeper
  /** Returns the descriptor of a listening socket, -1 if there is none; or why there is no keeper. */
  readonly openKeeper!: (fd: number, count: number, hungAfterMs: number) => number | string;
  /** Of the memory of kept processes: what the keeper reads, and what is written here. */
  readonly keptVersions!: () => [keeper: number, server: number];
  readonly watchKeeper!: (onLeave: () => void) => void;
  /** 8: this server is ready; 9: it lives. */
  readonly tellKeeper!: (word: 8 | 9) => boolean;
  /** The next process that an earlier server left; true for one that could not be read and was ended. */
  readonly takeKept!: (onEvent: NativeEventListener) => NativeInherited | true | undefined;
  readonly beginKept!: (child: NativeChild) => void;
  readonly recordExit!: (child: NativeChild, status: string) => void;
  readonly recordClosed!: (child: NativeChild) => void;
  readonly noteSession!: (child: NativeChild, hasLeft: boolean, attachments: number) => void;
  readonly forgetKept!: (child: NativeChild) => void;

  // ---- sockets
  /** Port -1: the host is a unix socket's path. Returns the listener with its real port, or an errno. */
  readonly listenAt!: (
    host: string,
    port: number,
    backlog: number,
    /** The uid is that of a unix socket's peer, else -1. */
    onConnection: (socket: NativeSocket, peerName: string, peerUid: number) => void,
    /** A socket that listens already, of the server before this one; -1: none. */
    descriptor: number,
  ) => [listener: NativeListener, port: number] | number;
  readonly closeListener!: (listener: NativeListener) => void;
  /** Names of a socket's events, each at its number. */
  readonly socketEvents!: readonly string[];
  /** Begins to read. */
  readonly startSocket!: (socket: NativeSocket, onEvent: NativeEventListener) => void;
  /** Frames follow from here on; `received` are bytes emitted already. Above `maxQueuedBytes` nothing is read. */
  readonly carryFrames!: (
    socket: NativeSocket,
    maxMessageBytes: number,
    maxQueuedBytes: number,
    received: Uint8Array,
  ) => void;
  readonly sendText!: (socket: NativeSocket, text: string) => void;
  readonly sendChunk!: (socket: NativeSocket, head: string, bytes: Uint8Array, tail: string) => void;
  readonly sendBytes!: (socket: NativeSocket, bytes: Uint8Array) => void;
  readonly pauseSocket!: (socket: NativeSocket) => void;
  readonly resumeSocket!: (socket: NativeSocket) => void;
  readonly endSocket!: (socket: NativeSocket) => void;
  readonly destroySocket!: (socket: NativeSocket) => void;
  /** Its descriptor, which is the caller's from now on; -1 when it carries frames, has something queued or is closed. */
  readonly handOverSocket!: (socket: NativeSocket) => number;
  readonly queuedBytes!: (socket: NativeSocket) => number;
  readonly sentBytes!: (socket: NativeSocket) => number;
  readonly receivedBytes!: (socket: NativeSocket) => number;
  /** `input` is a child of this addon. */
  readonly routeInput!: (socket: NativeSocket, processId: string, input: object) => void;
  readonly unrouteInput!: (socket: NativeSocket, processId: string) => void;
  /** While held, what comes for a route is left to JavaScript. */
  readonly holdRoutes!: (socket: NativeSocket, held: boolean) => void;

  // ---- bytes
  /** Standard alphabet, with padding. Returns the bytes written, -1 when they do not fit. */
  readonly base64Encode!: (from: Uint8Array, to: Uint8Array, toOffset: number) => number;
  /** Strict. Returns the bytes written, -1 when the text is not canonical base64 or the bytes do not fit. */
  readonly base64Decode!: (
    from: Uint8Array,
    fromOffset: number,
    fromLength: number,
    to: Uint8Array,
  ) => number;
  /** A `process/write`, recognised and decoded by its bytes; undefined for everything else. */
  readonly readWrite!: (
    message: Uint8Array,
  ) => [id: string | number, processId: string, writeId: string | undefined, chunk: Uint8Array] | undefined;
  /** XORs with the key's four bytes, highest first: a WebSocket mask read as a big-endian number. */
  readonly unmask!: (bytes: Uint8Array, offset: number, length: number, key: number) => void;

  // ---- the whole program
  /**
   * Keeps freed memory for the next chunk instead of returning it each time; for a program that is a server. When it
   * has been quiet for a while, `onQuiet` frees what it can, and all free memory is returned to the system.
   */
  readonly keepFreedMemory!: (onQuiet: () => void) => void;
  /** Whether this many more threads can be made now. */
  readonly canMakeThreads!: (count: number) => boolean;
  /** Ends the program without waiting for its threads or running anything that is still to come. */
  readonly exitNow!: (code: number) => void;
  /** Locks the whole file until the descriptor is closed. 0, or the errno: EAGAIN while another program has it. */
  readonly lockFile!: (fd: number) => number;
  /** Descriptors that this program inherited, beyond its standard streams, are not passed to programs it starts. */
  readonly closeOnExec!: () => void;
  /** For tests: do without pidfds, close_range and wide instructions, as on an older kernel or another machine. */
  readonly forcePlainPaths!: (on: boolean) => void;
  /** For tests: start programs by fork, as under an emulator that refuses vfork. */
  readonly forceFork!: (on: boolean) => void;
}

export type LoadedAddon = { type: "loaded"; addon: NativeAddon } | { type: "missing"; why: string };

let loaded: LoadedAddon | null = null;

/** The addon, loaded once; or why it could not be loaded. */
export function loadAddon(): LoadedAddon {
  loaded ??= load();
  return loaded;
}

/** The addon emitted an event that this version does not understand: a bug, which must not go unnoticed. */
export class NativeEventError extends Error {
  override readonly name = "NativeEventError";

  constructor(of: "child" | "socket" | "start", event: number | string, values: readonly unknown[]) {
    const shapes = values.map((value) => (value instanceof Uint8Array ? "bytes" : typeof value));
    super(`the addon told a ${of} event that is not known here: ${event} (${shapes.join(", ")})`);
  }
}

function load(): LoadedAddon {
  const named = process.env.PROCWIRE_NATIVE_SPAWNER;
  if (named !== undefined) return loadFile(named);
  const problems: string[] = [];
  for (const path of nativeFiles("procwire.node")) {
    const found = loadFile(path);
    if (found.type === "loaded") return found;
    problems.push(found.why);
  }
  const built = buildAtFirstUse();
  if (built.type === "built") return loadFile(built.path);
  return { type: "missing", why: [...problems, built.why].join("; ") };
}

function loadFile(path: string): LoadedAddon {
  try {
    // Not by `require`, which would resolve a path that is known already.
    const module: { exports: unknown } = { exports: {} };
    process.dlopen(module, path);
    if (!isAddon(module.exports))
      return { type: "missing", why: `${path} is not the native addon of this version` };
    module.exports.setInputLimits(MAX_QUEUED_INPUT_BYTES, REMEMBERED_WRITE_IDS);
    return { type: "loaded", addon: module.exports };
  } catch (error) {
    return { type: "missing", why: messageOf(error) };
  }
}

function isAddon(exports: unknown): exports is NativeAddon {
  if (typeof exports !== "object" || exports === null) return false;
  return Object.keys(new NativeAddon()).every((name) => name in exports);
}
