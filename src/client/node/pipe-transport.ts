import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { Duplex } from "node:stream";
import { TimeoutError } from "../../async/deadline.ts";
import { GREETING, MISSING } from "./connect-url.ts";

/** A login shell may greet, but not for ever. */
const MAX_NOISE_BYTES = 64 * 1024;
/** So much of what the program complained about stands in an error. */
const SHOWN_STDERR_CHARS = 600;
/** What it said last may come a moment after its exit. */
const LAST_WORDS_MS = 200;
/** Between the end of its input, TERM and KILL. */
const GRACE_MS = 2_000;

export interface PipeOptions {
  /** What errors call it. */
  url: string;
  argv: readonly string[];
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/** A host without procwire, as it tells itself. */
export interface BareHost {
  /** `Linux x86_64`. */
  platform: string;
  libc: "glibc" | "musl" | null;
  /** `v24.1.0`; null where there is none on the PATH. */
  nodeVersion: string | null;
}

/** The way to a server could not be opened. */
export class PipeError extends Error {
  override readonly name = "PipeError";
  /** `MISSING`: the far host has no procwire. */
  readonly code: "PIPE" | "MISSING";
  /** The far host that has no procwire. */
  readonly bareHost: BareHost | null;

  constructor(message: string, bareHost: BareHost | null = null) {
    super(message);
    this.code = bareHost === null ? "PIPE" : "MISSING";
    this.bareHost = bareHost;
  }
}

/** Runs a program that ends in `procwire connect`, and gives its stdio once that has said that it is there. */
export async function openPipe(options: PipeOptions): Promise<Duplex> {
  const { url, timeoutMs, signal } = options;
  signal?.throwIfAborted();
  const program = new PipeProgram(options);
  const failed = Promise.withResolvers<never>();
  const onAbort = () => failed.reject(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  const timer = setTimeout(
    () => failed.reject(new TimeoutError(`a connection to ${url}`, timeoutMs)),
    timeoutMs,
  );
  try {
    const rest = await Promise.race([program.greeted(), failed.promise]);
    return new PipeStream(program, rest);
  } catch (error) {
    program.end();
    throw error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
  }
}

class PipeProgram {
  readonly child: ChildProcessWithoutNullStreams;
  readonly #url: string;
  readonly #name: string;
  #stderr = "";
  /** Resolves with what can be said about its end, when that was no good one. */
  readonly ended: Promise<string | null>;

  constructor({ url, argv }: PipeOptions) {
    const [program = "", ...words] = argv;
    this.#url = url;
    this.#name = program === "/bin/sh" && words[2] === "sh" ? (words[3] ?? "sh") : program;
    this.child = spawn(program, words, { stdio: ["pipe", "pipe", "pipe"] });
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-SHOWN_STDERR_CHARS);
    });
    // Its end is told by its other stream.
    this.child.stdin.on("error", () => undefined);
    // Not by the end of its streams: a master of ssh's own connections goes on with its stderr.
    const complained = new Promise<void>((resolve) => {
      this.child.stderr.once("close", resolve);
      this.child.once("exit", () => setTimeout(resolve, LAST_WORDS_MS));
    });
    this.ended = new Promise((resolve) => {
      this.child.once("error", (error) => resolve(`cannot run \`${program}\`: ${error.message}`));
      this.child.once("exit", (code, signal) => {
        void complained.then(() => resolve(code === 0 ? null : this.#how(code, signal)));
      });
    });
  }

  /** Reads until the greeting, and gives what came behind it. */
  greeted(): Promise<Buffer> {
    const { stdout } = this.child;
    let seen: Buffer = Buffer.alloc(0);
    return new Promise((resolve, reject) => {
      const stop = () => {
        stdout.off("data", take);
        stdout.off("close", over);
        stdout.pause();
      };
      const take = (chunk: Buffer) => {
        seen = Buffer.concat([seen, chunk]);
        const found = lineAfter(seen, GREETING);
        if (found) {
          stop();
          resolve(found.rest);
        } else if (seen.length > MAX_NOISE_BYTES) {
          stop();
          reject(
            new PipeError(
              `${this.#url}: expected \`procwire connect\` to answer, but something else wrote ${seen.length} bytes`,
            ),
          );
        }
      };
      const over = () => {
        stop();
        const missing = lineAfter(seen, MISSING);
        void this.ended.then((how) => {
          if (missing) reject(this.#missing(missing.line));
          else
            reject(
              new PipeError(
                `${this.#url}: ${how ?? `\`${this.#name}\` ended before it had reached a server`}`,
              ),
            );
        });
      };
      stdout.on("data", take);
      stdout.on("close", over);
    });
  }

  /** By the end of its input, then TERM, then KILL. */
  end(): void {
    const { child } = this;
    child.stdin.end();
    // What it has started may hold them open for longer than it lives.
    child.stdout.destroy();
    child.stderr.destroy();
    if (child.exitCode !== null || child.signalCode !== null) return;
    const kill = setTimeout(() => child.kill("SIGKILL"), 2 * GRACE_MS).unref();
    const term = setTimeout(() => child.kill("SIGTERM"), GRACE_MS).unref();
    void this.ended.then(() => {
      clearTimeout(term);
      clearTimeout(kill);
    });
  }

  #missing(line: string): PipeError {
    const [system = "", processor = "", libc, node] = line.slice(MISSING.length).trim().split(/\s+/);
    const platform = `${system} ${processor}`.trim();
    // What a shell's command leads to is not known well enough to copy something there.
    const copied = this.#url.startsWith("exec:") ? "" : "`procwire run --install` copies it there, or ";
    return new PipeError(
      `${this.#url}: there is no procwire on that host (${platform}); ${copied}put it on the PATH of its non-interactive shells`,
      {
        platform,
        libc: libc === "glibc" || libc === "musl" ? libc : null,
        nodeVersion: node?.startsWith("v") ? node : null,
      },
    );
  }

  #how(code: number | null, signal: string | null): string {
    const said = this.#stderr.trim();
    if (said !== "") return said;
    if (code === 127) return `\`${this.#name}\` was not found`;
    return `\`${this.#name}\` ended with ${code === null ? signal : `exit code ${code}`}`;
  }
}

/** The stdio of the program as one stream: destroyed, it is ended; ended by something bad, it says so. */
class PipeStream extends Duplex {
  readonly #program: PipeProgram;

  constructor(program: PipeProgram, head: Buffer) {
    super({ allowHalfOpen: true });
    this.#program = program;
    const { stdout } = program.child;
    if (head.length > 0) this.push(head);
    stdout.on("data", (chunk: Buffer) => {
      if (!this.push(chunk)) stdout.pause();
    });
    stdout.on("error", (error) => this.destroy(error));
    stdout.on("end", () => {
      // How the program ended is why the connection was lost.
      void program.ended.then((how) => {
        if (how === null) this.push(null);
        else this.destroy(new PipeError(how));
      });
    });
  }

  override _read(): void {
    this.#program.child.stdout.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#program.child.stdin.write(chunk, done);
  }

  override _final(done: () => void): void {
    this.#program.child.stdin.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#program.end();
    done(error);
  }
}

/** The first line that begins so, whatever came before it, and all that is behind it. */
function lineAfter(bytes: Buffer, beginning: string): { line: string; rest: Buffer } | null {
  for (let from = 0; ; ) {
    const end = bytes.indexOf(10, from);
    if (end < 0) return null;
    const line = bytes.toString("utf8", from, end);
    if (line.startsWith(beginning)) return { line, rest: bytes.subarray(end + 1) };
    from = end + 1;
  }
}
