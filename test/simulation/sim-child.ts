import { constants } from "node:os";
import type { OutputStream } from "../../src/exec/exec-process.ts";
import type { Child, ChildEvents, ChildInput, WaitStatus } from "../../src/local/child.ts";
import { NO_STDIO_IDENTITY } from "../../src/local/child.ts";
import { WriteIdCache } from "../../src/local/write-id-cache.ts";
import { firstMismatch, patternBytes } from "./pattern.ts";
import { chunkBytesOf, type Program } from "./program.ts";
import type { SimClock } from "./sim-clock.ts";

/** Capacity of a pipe before its writer blocks. */
const PIPE_BYTES = 64 * 1024;

export interface SimChildOptions {
  pid: number;
  program: Program;
  pipeStdin: boolean;
  clock: SimClock;
  events: ChildEvents;
  /** Called if the input does not match the pattern. */
  onWrongInput: (text: string) => void;
}

/** A simulated process. Only its `Program` and the clock determine its behavior. */
export class SimChild implements Child {
  readonly pid: number;
  readonly startTime = 1;
  readonly treeTag = null;
  readonly stdioIdentity = NO_STDIO_IDENTITY;
  readonly input: ChildInput;
  readonly #options: SimChildOptions;
  /** Output that the host has not read yet. */
  readonly #pipe: { stream: OutputStream; chunk: Uint8Array }[] = [];
  #pipeBytes = 0;
  readonly #unread: Uint8Array[] = [];
  #queuedBytes = 0;
  #isInputClosed = false;
  /** Bytes of output written so far. */
  #writtenBytes = 0;
  readonly #offsets = { stdout: 0, stderr: 0, pty: 0 };
  readBytes = 0;
  readonly signals: number[] = [];
  exit: WaitStatus | null = null;
  #isExitTold = false;
  #lateBytes: number;
  #isReading = false;
  /** Whether the program waits for capacity in its output pipe. */
  #isBlocked = false;
  #isPaused = false;
  #isCut = false;
  isClosed = false;

  constructor(options: SimChildOptions) {
    this.#options = options;
    this.pid = options.pid;
    this.#lateBytes = options.program.lateBytes;
    this.#isInputClosed = !options.pipeStdin;
    this.input = this.#childInput();
    this.#later(0, () => this.#write());
    this.#readSoon(0);
  }

  // ---- calls by the host

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#flushSoon();
  }

  resize(): void {}

  ttyState(): null {
    return null;
  }

  signalGroup(signal: number): boolean {
    if (this.exit) return false;
    this.signals.push(signal);
    const { SIGTERM, SIGKILL } = constants.signals;
    if (signal === SIGKILL || (signal === SIGTERM && !this.#options.program.ignoresTerm))
      this.#later(1, () => this.#end({ type: "signal", signal }));
    return true;
  }

  closeStreams(): void {
    this.#isCut = true;
    this.#flushSoon();
  }

  #childInput(): ChildInput {
    const writeIds = new WriteIdCache();
    const queuedBytes = () => (this.exit ? 0 : this.#queuedBytes);
    return {
      writtenBytes: 0,
      direct: null,
      get queuedBytes() {
        return queuedBytes();
      },
      hasWriteId: (writeId) => writeIds.has(writeId),
      write: (bytes, writeId) => {
        if (writeId !== undefined) writeIds.add(writeId);
        if (this.exit) return;
        this.#unread.push(bytes);
        this.#queuedBytes += bytes.length;
        this.#readSoon(this.#options.program.readEveryMs);
      },
      close: () => {
        this.#isInputClosed = true;
        this.#readSoon(this.#options.program.readEveryMs);
      },
      closeDirect: () => {
        this.#unread.length = 0;
        this.#queuedBytes = 0;
      },
    };
  }

  // ---- actions of the program

  #write(): void {
    const { program } = this.#options;
    if (this.exit) return;
    const rest = program.outputBytes - this.#writtenBytes;
    if (rest <= 0) {
      if (program.input === "none") this.#later(program.lingerMs, () => this.#exitByItself());
      else this.#readSoon(0);
      return;
    }
    this.#isBlocked = this.#pipeBytes >= PIPE_BYTES;
    if (!this.#isBlocked) {
      const bytes = Math.min(rest, chunkBytesOf(program));
      const isStderr = program.usesStderr && (this.#writtenBytes / chunkBytesOf(program)) % 2 >= 1;
      this.#print(isStderr ? "stderr" : "stdout", bytes);
      this.#writtenBytes += bytes;
      this.#later(program.everyMs, () => this.#write());
    }
  }

  #readSoon(ms: number): void {
    if (this.#isReading || this.#options.program.input === "none") return;
    this.#isReading = true;
    this.#later(ms, () => {
      this.#isReading = false;
      this.#read();
    });
  }

  #read(): void {
    const { program, events, onWrongInput } = this.#options;
    if (this.exit) return;
    for (let remaining = program.readBytes; remaining > 0; ) {
      const head = this.#unread.shift();
      if (!head) break;
      const taken = head.subarray(0, remaining);
      if (taken.length < head.length) this.#unread.unshift(head.subarray(remaining));
      remaining -= taken.length;
      const wrongAt = firstMismatch(program.key, this.readBytes, taken);
      if (wrongAt >= 0) onWrongInput(`input of pid ${this.pid} is wrong at byte ${this.readBytes + wrongAt}`);
      this.readBytes += taken.length;
      this.#queuedBytes -= taken.length;
      if (program.input === "echo") this.#print("stdout", taken.length);
    }
    if (this.#queuedBytes === 0) {
      events.drain();
      if (this.#isInputClosed && this.#writtenBytes >= program.outputBytes) {
        this.#later(program.lingerMs, () => this.#exitByItself());
      }
      return;
    }
    this.#readSoon(program.readEveryMs);
  }

  #print(stream: "stdout" | "stderr", bytes: number): void {
    const chunk = patternBytes(this.#options.program.key, this.#offsets[stream], bytes);
    this.#offsets[stream] += bytes;
    this.#pipe.push({ stream, chunk });
    this.#pipeBytes += bytes;
    this.#flushSoon();
  }

  #exitByItself(): void {
    this.#end({ type: "code", code: this.#options.program.exitCode });
  }

  #end(exit: WaitStatus): void {
    if (this.exit) return;
    this.exit = exit;
    this.#options.events.drain();
    this.#flushSoon();
  }

  // ---- output to the host

  #flushSoon(): void {
    this.#later(0, () => this.#flush());
  }

  #flush(): void {
    const { events } = this.#options;
    if (this.isClosed) return;
    if (this.#isCut) {
      this.#pipe.length = 0;
      this.#pipeBytes = 0;
    }
    while (!this.#isPaused) {
      const head = this.#pipe.shift();
      if (!head) break;
      this.#pipeBytes -= head.chunk.length;
      events.output(head.stream, head.chunk);
    }
    if (this.#isBlocked && this.#pipeBytes < PIPE_BYTES) {
      this.#isBlocked = false;
      this.#later(0, () => this.#write());
    }
    if (!this.exit || this.#pipe.length > 0) return;
    if (!this.#isExitTold) {
      this.#isExitTold = true;
      events.exit(this.exit);
    }
    if (this.#lateBytes > 0 && !this.#isCut) {
      const bytes = this.#lateBytes;
      this.#lateBytes = 0;
      this.#later(this.#options.program.everyMs, () => this.#print("stdout", bytes));
      return;
    }
    if (this.#isPaused && !this.#isCut) return;
    this.isClosed = true;
    events.close();
  }

  #later(ms: number, fn: () => void): void {
    this.#options.clock.after(ms, fn, "program");
  }
}
