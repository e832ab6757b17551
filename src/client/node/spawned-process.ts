import { Readable } from "node:stream";
import type { WatchReceiver } from "../../async/watch.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type {
  CallOptions,
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExecProcess,
  Gap,
  ReadParams,
  ReadResult,
  SandboxType,
  Snapshot,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  WaitParams,
  WaitResult,
  WriteOptions,
  WriteStatus,
} from "../../exec/exec-process.ts";
import type { InputData } from "../../exec/options/input-bytes.ts";
import { checkArgument, checkOptions } from "../../exec/options/option-schema.ts";
import { linesOptions, streamOptions } from "../../exec/options/process-options.ts";
import { type LinesOptions, lines } from "../../exec/run/lines.ts";
import { type StreamOptions, streamBytes } from "../../exec/run/stream-bytes.ts";
import { type Match, type WaitForOptions, waitFor } from "../../exec/wait/wait-for-output.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { MethodName } from "../../protocol/methods.ts";
import { RemoteProcess } from "../process/remote-process.ts";
import { pipeOptions, pipeTarget } from "./node-options.ts";
import { type PipeOutputOptions, type PipeTarget, pipeOutput } from "./pipe-output.ts";

/**
 * A process started by `environment.spawn`: all process calls, and helpers to read its output.
 *
 * @example
 * await using server = await environment.spawn(["npm", "start"]);
 * await server.waitFor(/listening on (\d+)/);
 * await server.pipe(process.stdout, { end: false });
 */
export class SpawnedProcess implements ExecProcess {
  readonly #process: ExecProcess;
  readonly #argv: readonly string[];

  /** @internal */
  constructor(process: ExecProcess, argv: readonly string[]) {
    this.#process = process;
    this.#argv = argv;
  }

  get processId(): string {
    return this.#process.processId;
  }

  /** Handle by which `environment.attach` finds the process; null without a procwire server. */
  get handle(): string | null {
    return this.#process.handle ?? null;
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

  get canCloseStdin(): boolean | undefined {
    return this.#process.canCloseStdin;
  }

  // ---- output helpers

  /** Yields the lines of the output; see `lines`. */
  lines(options: LinesOptions & { onGap: "yield" }): AsyncGenerator<string | Gap, void, undefined>;
  lines(options?: LinesOptions & { onGap?: "throw" | undefined }): AsyncGenerator<string, void, undefined>;
  lines(options: LinesOptions = {}): AsyncGenerator<string | Gap, void, undefined> {
    checkOptions("lines", options, linesOptions);
    const { onGap } = options;
    return onGap === "yield"
      ? lines(this.#process, { ...options, onGap })
      : lines(this.#process, { ...options, onGap });
  }

  /** Waits until the output matches; see `waitFor`. */
  waitFor(pattern: RegExp | string, options?: WaitForOptions): Promise<Match> {
    return waitFor(this.#process, pattern, options);
  }

  /** Returns one stream as a Node stream. A slow reader pauses the process. */
  readable(options: StreamOptions = {}): Readable {
    checkOptions("readable", options, streamOptions);
    return Readable.from(streamBytes(this.#process, options), { objectMode: false });
  }

  /** Returns one stream as a web stream. */
  readableStream(options: StreamOptions = {}): ReadableStream<Uint8Array> {
    checkOptions("readableStream", options, streamOptions);
    const chunks = streamBytes(this.#process, options);
    return new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { value, done } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => chunks.return().then(() => undefined),
    });
  }

  /**
   * Copies one stream to a Node or web stream, or to the stdin of another process, with backpressure. Resolves after the
   * last byte.
   *
   * @example
   * await using sort = await environment.spawn("sort");
   * await log.pipe(sort);
   */
  pipe(target: PipeTarget, options: PipeOutputOptions = {}): Promise<void> {
    const check = () => {
      checkArgument("pipe", "target", target, pipeTarget);
      checkOptions("pipe", options, pipeOptions);
    };
    const pipe = () => {
      const { stream, signal } = options;
      const source = { process: this.#process, readable: () => this.readable({ stream, signal }) };
      return pipeOutput(source, target, options);
    };
    return withCallErrors({ method: "process/output" }, pipe, undefined, check);
  }

  // ---- process calls

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    return this.#process.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.#process.subscribeWake();
  }

  read(params: ReadParams = {}): Promise<ReadResult> {
    return this.#withCallErrors("process/read", () => this.#process.read(params));
  }

  write(data: InputData, options: WriteOptions = {}): Promise<{ status: WriteStatus }> {
    return this.#withCallErrors("process/write", () => this.#process.write(data, options));
  }

  closeStdin(options: CallOptions = {}): Promise<{ status: CloseStdinStatus }> {
    return this.#withCallErrors("process/closeStdin", () => this.#process.closeStdin(options));
  }

  resize(size: TerminalSize, options: CallOptions = {}): Promise<void> {
    return this.#withCallErrors("process/resize", () => this.#process.resize(size, options));
  }

  signal(name: string, options: CallOptions = {}): Promise<void> {
    return this.#withCallErrors("process/signal", () => this.#process.signal(name, options));
  }

  /**
   * Sends a signal to the whole process group. Resolves to false if the process has exited, so that no signal was sent.
   * Default signal: SIGTERM.
   */
  kill(signal?: string, options: CallOptions = {}): Promise<boolean> {
    return this.#withCallErrors("process/signal", () => this.#process.kill(signal, options));
  }

  terminate(mode?: TerminateMode, options: CallOptions = {}): Promise<TerminateResult> {
    return this.#withCallErrors("process/terminate", () => this.#process.terminate(mode, options));
  }

  wait(params: WaitParams = {}): Promise<WaitResult> {
    return this.#withCallErrors("process/wait", () => this.#process.wait(params));
  }

  snapshot(options: CallOptions = {}): Promise<Snapshot> {
    return this.#withCallErrors("process/snapshot", () => this.#process.snapshot(options));
  }

  /**
   * Leaves a process of lifetime `server` or `persistent` to its server: it continues to run, this object gets no more
   * events, and `environment.attach` finds it by its handle.
   */
  detach(): Promise<void> {
    return this.#withCallErrors("process/detach", async () => {
      if (this.#process instanceof RemoteProcess) return this.#process.detach();
      throw new ExecServerError("detach: not supported by a local environment; requires procwire serve", "UNSUPPORTED");
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process[Symbol.asyncDispose]();
  }

  #withCallErrors<T>(method: MethodName, call: () => Promise<T>): Promise<T> {
    return withCallErrors({ method, argv: this.#argv }, call);
  }
}
