import { Readable } from "node:stream";
import type { WatchReceiver } from "../../async/watch.ts";
import type {
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExecProcess,
  OutputStream,
  ReadParams,
  ReadResult,
  SandboxType,
  Snapshot,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  WaitParams,
  WaitResult,
  WriteStatus,
} from "../../exec/exec-process.ts";
import { failureError } from "../../exec/failure.ts";
import { lines } from "../../exec/lines.ts";
import { type Match, type WaitForOptions, waitFor } from "../../exec/wait-for-output.ts";

export interface StreamOptions {
  /** Default: stdout, or the terminal's output. */
  stream?: OutputStream;
  signal?: AbortSignal;
}

/**
 * A process started by `environment.spawn`: every call of a process, and the usual ways to read one.
 *
 * @example
 * await using server = await environment.spawn(["npm", "start"]);
 * await server.waitFor(/listening on (\d+)/);
 * server.readable().pipe(process.stdout);
 */
export class SpawnedProcess implements ExecProcess {
  readonly #process: ExecProcess;

  constructor(process: ExecProcess) {
    this.#process = process;
  }

  get processId(): string {
    return this.#process.processId;
  }

  get pid(): number | null {
    return this.#process.pid;
  }

  get sandboxType(): SandboxType {
    return this.#process.sandboxType;
  }

  get droppedEnv(): readonly string[] | undefined {
    return this.#process.droppedEnv;
  }

  // ---- the usual ways to read it

  /** Its lines as they come; see `lines`. */
  lines(options: StreamOptions = {}): AsyncGenerator<string, void, undefined> {
    return lines(this.#process, options);
  }

  /** Waits until its output matches; see `waitFor`. */
  waitFor(pattern: RegExp | string, options?: WaitForOptions): Promise<Match> {
    return waitFor(this.#process, pattern, options);
  }

  /** The bytes of one stream, as Node reads them. A slow reader holds the process back. */
  readable(options: StreamOptions = {}): Readable {
    return Readable.from(this.#bytes(options), { objectMode: false });
  }

  /** The same as the web reads them. */
  readableStream(options: StreamOptions = {}): ReadableStream<Uint8Array> {
    const chunks = this.#bytes(options);
    return new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { value, done } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => chunks.return().then(() => undefined),
    });
  }

  async *#bytes({ stream, signal }: StreamOptions): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const event of this.#process.events({ lossless: true, signal })) {
      if (event.type === "failed") throw failureError(event.message);
      if (event.type === "gap")
        throw new Error(
          `output of process ${this.processId} is gone (events ${event.fromSeq} to ${event.toSeq})`,
        );
      if (event.type !== "output") continue;
      const isWanted = stream === undefined ? event.stream !== "stderr" : event.stream === stream;
      if (isWanted) yield event.chunk;
    }
    signal?.throwIfAborted();
  }

  // ---- every call of a process; text is taken as UTF-8

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    return this.#process.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.#process.subscribeWake();
  }

  read(params?: ReadParams): Promise<ReadResult> {
    return this.#process.read(params);
  }

  write(
    data: Uint8Array | string,
    options?: { writeId?: string | undefined },
  ): Promise<{ status: WriteStatus }> {
    return this.#process.write(typeof data === "string" ? new TextEncoder().encode(data) : data, options);
  }

  closeStdin(): Promise<{ status: CloseStdinStatus }> {
    return this.#process.closeStdin();
  }

  resize(size: TerminalSize): Promise<void> {
    return this.#process.resize(size);
  }

  signal(name: string): Promise<void> {
    return this.#process.signal(name);
  }

  terminate(mode?: TerminateMode): Promise<TerminateResult> {
    return this.#process.terminate(mode);
  }

  wait(params?: WaitParams): Promise<WaitResult> {
    return this.#process.wait(params);
  }

  snapshot(): Promise<Snapshot> {
    return this.#process.snapshot();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process[Symbol.asyncDispose]();
  }
}
