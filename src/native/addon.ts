import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A started program, as the addon knows it. Nothing can be done with it but to hand it back. */
export type NativeChild = object & { readonly __nativeChild: never };

/** A socket, as the addon knows it. */
type NativeSocket = object;

/** Six numbers per process: pid, parent, group, session, start time, 1 when dead. */
export type NativeEntries = Float64Array;

/** The addon's functions; `native/addon.cc` has the same list. A block is a text of parts, each ended by a zero byte. */
export interface NativeSpawner {
  spawn(
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
  ): void;
  /** Returns what is queued then. */
  write(child: NativeChild, bytes: Uint8Array): number;
  queuedInput(child: NativeChild): number;
  closeStdin(child: NativeChild): void;
  pause(child: NativeChild): void;
  resume(child: NativeChild): void;
  cut(child: NativeChild): void;
  resize(child: NativeChild, rows: number, cols: number): boolean;
  terminalState(
    child: NativeChild,
  ): [rows: number, cols: number, echo: boolean, canonical: boolean] | undefined;
  signalGroup(child: NativeChild, signal: number): boolean;
  /** What comes for it by a route is left to JavaScript from now on. */
  refuseInput(child: NativeChild): void;
  knowsWrite(child: NativeChild, writeId: string): boolean;
  rememberWrite(child: NativeChild, writeId: string): void;

  entry(pid: number): NativeEntries;
  childPids(pid: number): number[];
  /** This program's own children, without what the spawner started or is starting. */
  orphanPids(): number[];
  descendants(pid: number): NativeEntries;
  holds(pid: number, pts: number, ...pipes: number[]): boolean;
  /** 0, or the errno. */
  signal(pid: number, startTime: number, signal: number): number;
  setSubreaper(on: boolean): number;
  reap(pid: number): boolean;

  /** `src/native/wire.ts` is their only caller and says what they do. */
  listenAt(
    host: string,
    port: number,
    backlog: number,
    onConnection: (socket: NativeSocket, peerName: string) => void,
  ): [listener: object, port: number] | number;
  closeListener(listener: object): void;
  startSocket(socket: NativeSocket, onEvent: NativeEventListener): void;
  carryFrames(socket: NativeSocket, maxMessageBytes: number, received: Uint8Array): void;
  sendText(socket: NativeSocket, text: string): void;
  sendChunk(socket: NativeSocket, head: string, bytes: Uint8Array, tail: string): void;
  sendBytes(socket: NativeSocket, bytes: Uint8Array): void;
  pauseSocket(socket: NativeSocket): void;
  resumeSocket(socket: NativeSocket): void;
  endSocket(socket: NativeSocket): void;
  destroySocket(socket: NativeSocket): void;
  queuedBytes(socket: NativeSocket): number;
  receivedBytes(socket: NativeSocket): number;
  routeInput(socket: NativeSocket, processId: string, input: object): void;
  unrouteInput(socket: NativeSocket, processId: string): void;

  /** Standard alphabet, with padding. Returns the bytes written, -1 when they do not fit. */
  base64Encode(from: Uint8Array, to: Uint8Array, toOffset: number): number;
  /** Strict. Returns the bytes written, -1 when the text is not canonical base64 or the bytes do not fit. */
  base64Decode(from: Uint8Array, fromOffset: number, fromLength: number, to: Uint8Array): number;
  /** XORs with the key's four bytes, highest first: a WebSocket mask read as a big-endian number. */
  unmask(bytes: Uint8Array, offset: number, length: number, key: number): void;
  /** The members of a plain `process/write` message; undefined for everything else. */
  parseWrite(
    message: Uint8Array,
  ): [id: string | number, processId: string, writeId: string | undefined, chunk: Buffer] | undefined;
  /** Takes what the processes have ready now, without waiting for the event loop's next round. */
  pump(): void;
  /** Keeps freed memory for the next chunk instead of giving it back each time. Changes the whole program; for a server. */
  keepFreedMemory(): void;
  /** Whether so many threads more can be made now. */
  canMakeThreads(count: number): boolean;
  /** Ends the program without waiting for its threads; nothing that should still happen happens. */
  exitNow(code: number): void;

  /** For tests: do without pidfds, close_range and wide instructions, as on an older kernel or another machine. */
  forcePlainPaths(on: boolean): void;
}

export type NativeSpawnDone = (
  errno: number,
  syscall: string,
  path: string,
  child: NativeChild,
  pid: number,
  startTime: number,
  pts: number,
  pipes: number[],
) => void;

/** `native/child.h` has the same numbers. */
export const NativeEvent = { stdout: 0, stderr: 1, terminal: 2, exit: 3, close: 4, drain: 5 } as const;

export type NativeEventListener = (
  event: number,
  first?: unknown,
  second?: unknown,
  third?: unknown,
  fourth?: unknown,
) => void;

export type LoadedNative = { type: "loaded"; spawner: NativeSpawner } | { type: "missing"; why: string };

let loaded: LoadedNative | null = null;

/** The native spawner, loaded once; or why it is not there. */
export function loadNative(): LoadedNative {
  loaded ??= load();
  return loaded;
}

/** Where a file that `native/build.mjs` makes is, or null: a prebuild first, then what was built here. */
export function findNativeFile(name: string): string | null {
  let folder = dirname(fileURLToPath(import.meta.url));
  // From src/local/ or from a bundle in dist/, up to the package.
  for (let up = 0; up < 5; up++) {
    const native = join(folder, "native");
    if (existsSync(join(native, "build.mjs"))) {
      const prebuilt = join(native, "prebuilds", `${process.platform}-${process.arch}`, name);
      const built = join(native, "build", name);
      return [prebuilt, built].find((path) => existsSync(path)) ?? null;
    }
    folder = dirname(folder);
  }
  return null;
}

function load(): LoadedNative {
  const path = process.env.PROCWIRE_NATIVE_SPAWNER ?? findNativeFile("procwire.node");
  if (path === null)
    return { type: "missing", why: "it was not built; run `npm rebuild` where there is a C++ compiler" };
  try {
    // Not by require, which would first resolve a path that is known.
    const addon: { exports: unknown } = { exports: {} };
    process.dlopen(addon, path);
    if (isSpawner(addon.exports)) return { type: "loaded", spawner: addon.exports };
    return { type: "missing", why: `${path} is not the native spawner of this version` };
  } catch (error) {
    return { type: "missing", why: error instanceof Error ? error.message : String(error) };
  }
}

const FUNCTIONS: readonly (keyof NativeSpawner)[] = [
  "spawn",
  "write",
  "queuedInput",
  "closeStdin",
  "pause",
  "resume",
  "cut",
  "resize",
  "terminalState",
  "signalGroup",
  "refuseInput",
  "knowsWrite",
  "rememberWrite",
  "listenAt",
  "closeListener",
  "startSocket",
  "carryFrames",
  "sendText",
  "sendChunk",
  "sendBytes",
  "pauseSocket",
  "resumeSocket",
  "endSocket",
  "destroySocket",
  "queuedBytes",
  "receivedBytes",
  "routeInput",
  "unrouteInput",
  "entry",
  "childPids",
  "orphanPids",
  "descendants",
  "holds",
  "signal",
  "setSubreaper",
  "reap",
  "base64Encode",
  "base64Decode",
  "unmask",
  "parseWrite",
  "pump",
  "keepFreedMemory",
  "canMakeThreads",
  "exitNow",
  "forcePlainPaths",
];

function isSpawner(addon: unknown): addon is NativeSpawner {
  if (typeof addon !== "object" || addon === null) return false;
  const members = new Map(Object.entries(addon));
  return FUNCTIONS.every((name) => typeof members.get(name) === "function");
}
