import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { Duplex } from "node:stream";
import { abortable } from "../../async/abort.ts";
import { withDeadline } from "../../async/deadline.ts";
import { descriptorOf } from "../../base/descriptor-of.ts";
import type { ByteCodec } from "../../connection/byte-codec.ts";
import type { FrameSocket } from "../../connection/frame-socket.ts";
import { BRIDGE_MISSING_LINE, BRIDGE_READY_LINE } from "./connect-url.ts";

/** Maximum output of a login shell before the first line of the bridge. */
const MAX_NOISE_BYTES = 64 * 1024;
/** Maximum characters of the command's stderr in an error. */
const MAX_STDERR_CHARS = 600;
/** Maximum time to wait for the end of stderr after the exit. */
const STDERR_GRACE_MS = 200;
/** Time between end of input, SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;

export interface PipeTransportOptions {
  /** The address as given, for error messages. */
  url: string;
  argv: readonly string[];
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

/** A host without procwire, as the script reports it. */
export interface HostPlatform {
  /** `Linux x86_64`. */
  platform: string;
  libc: "glibc" | "musl" | null;
  /** `v24.1.0`; null if node is not on the PATH. */
  nodeVersion: string | null;
}

/** A failure to open a pipe to a server. */
export class PipeTransportError extends Error {
  override readonly name = "PipeTransportError";
  /** `MISSING`: the remote host has no procwire. */
  readonly code: "PIPE" | "MISSING";
  /** The remote host without procwire; null for other failures. */
  readonly bareHost: HostPlatform | null;

  constructor(message: string, bareHost: HostPlatform | null = null) {
    super(message);
    this.code = bareHost === null ? "PIPE" : "MISSING";
    this.bareHost = bareHost;
  }
}

/** Runs a command that ends in `procwire connect`, and returns its stdio after the ready line. */
export async function openPipeTransport(options: PipeTransportOptions): Promise<PipeStream> {
  const { url, timeoutMs, signal } = options;
  signal?.throwIfAborted();
  const bridge = new BridgeProcess(options);
  try {
    const ready = withDeadline(bridge.whenReady(), timeoutMs, `a connection to ${url}`);
    return new PipeStream(bridge, await abortable(ready, signal));
  } catch (error) {
    bridge.end();
    throw error;
  }
}

class BridgeProcess {
  readonly child: ChildProcessWithoutNullStreams;
  readonly #url: string;
  readonly #name: string;
  #stderr = "";
  /** Resolves with a description of the exit, or null for exit code 0. */
  readonly ended: Promise<string | null>;

  constructor({ url, argv }: PipeTransportOptions) {
    const [program = "", ...args] = argv;
    this.#url = url;
    this.#name = program === "/bin/sh" && args[2] === "sh" ? (args[3] ?? "sh") : program;
    this.child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"] });
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-MAX_STDERR_CHARS);
    });
    // Errors of stdin are ignored, because the end of stdout reports the failure.
    this.child.stdin.on("error", () => undefined);
    // Resolves also after a delay, because an ssh master process may keep stderr open. An open stderr keeps the loop alive.
    const stderrRead = new Promise<void>((resolve) => {
      this.child.stderr.once("close", resolve);
      this.child.once("exit", () => setTimeout(resolve, STDERR_GRACE_MS).unref());
    });
    this.ended = new Promise((resolve) => {
      this.child.once("error", (error) => resolve(`cannot run \`${program}\`: ${error.message}`));
      this.child.once("exit", (code, signal) => {
        void stderrRead.then(() => resolve(code === 0 ? null : this.#exitDescription(code, signal)));
      });
    });
  }

  /** Reads up to the ready line, and returns the bytes after it. */
  whenReady(): Promise<Buffer> {
    const { stdout } = this.child;
    let received: Buffer = Buffer.alloc(0);
    return new Promise((resolve, reject) => {
      const stopReading = () => {
        stdout.off("data", onData);
        stdout.off("close", onClose);
        stdout.pause();
      };
      const onData = (chunk: Buffer) => {
        received = Buffer.concat([received, chunk]);
        const found = findLine(received, BRIDGE_READY_LINE);
        if (found) {
          stopReading();
          resolve(found.rest);
        } else if (received.length > MAX_NOISE_BYTES) {
          stopReading();
          reject(
            new PipeTransportError(
              `${this.#url}: expected the ready line of \`procwire connect\`, got ${received.length} bytes of other output`,
            ),
          );
        }
      };
      const onClose = () => {
        stopReading();
        const missing = findLine(received, BRIDGE_MISSING_LINE);
        void this.ended.then((cause) => {
          if (missing) reject(this.#missingError(missing.line));
          else
            reject(
              new PipeTransportError(`${this.#url}: ${cause ?? `\`${this.#name}\` exited before it reached a server`}`),
            );
        });
      };
      stdout.on("data", onData);
      stdout.on("close", onClose);
    });
  }

  /** Ends the command: end of input, then SIGTERM, then SIGKILL. */
  end(): void {
    const { child } = this;
    child.stdin.end();
    // Descendants may keep the pipes open for longer than the command runs.
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

  #missingError(line: string): PipeTransportError {
    const [system = "", processor = "", libc, node] = line.slice(BRIDGE_MISSING_LINE.length).trim().split(/\s+/);
    const platform = `${system} ${processor}`.trim();
    // For `exec:` the target of the command is unknown, so `--install` is not suggested.
    const installHint = this.#url.startsWith("exec:") ? "" : "`procwire run --install` copies it there, or ";
    return new PipeTransportError(
      `${this.#url}: procwire is not installed on that host (${platform}); ${installHint}add it to the PATH of non-interactive shells`,
      {
        platform,
        libc: libc === "glibc" || libc === "musl" ? libc : null,
        nodeVersion: node?.startsWith("v") ? node : null,
      },
    );
  }

  #exitDescription(code: number | null, signal: string | null): string {
    const stderr = this.#stderr.trim();
    if (stderr !== "") return stderr;
    if (code === 127) return `\`${this.#name}\` was not found`;
    return `\`${this.#name}\` exited with ${code === null ? signal : `exit code ${code}`}`;
  }
}

/**
 * The stdio of the command as one stream. Destroying it ends the command; a failed command destroys it with an error.
 */
export class PipeStream extends Duplex {
  readonly #bridge: BridgeProcess;

  constructor(bridge: BridgeProcess, head: Buffer) {
    super({ allowHalfOpen: true });
    this.#bridge = bridge;
    const { stdout } = bridge.child;
    if (head.length > 0) this.push(head);
    stdout.on("data", (chunk: Buffer) => {
      if (!this.push(chunk)) stdout.pause();
    });
    stdout.on("error", (error) => this.destroy(error));
    stdout.on("end", () => {
      // The exit of the command is the reason of the lost connection.
      void bridge.ended.then((cause) => {
        if (cause === null) this.push(null);
        else this.destroy(new PipeTransportError(cause));
      });
    });
  }

  /**
   * Moves the connection to a socket of the addon, which bypasses Node's streams. Returns null, and changes nothing, if
   * there is no addon or the streams still hold bytes.
   */
  toFrameSocket(codec: ByteCodec | undefined, received: Buffer, maxMessageBytes: number): FrameSocket | null {
    const { child, ended } = this.#bridge;
    const stdin = descriptorOf(child.stdin);
    const stdout = descriptorOf(child.stdout);
    const heldBytes = [this, child.stdout].reduce((sum, stream) => sum + stream.readableLength, 0);
    if (stdin === null || stdout === null || heldBytes + this.writableLength + child.stdin.writableLength > 0)
      return null;
    const stdio = { stdin, stdout, ended, end: () => this.#bridge.end() };
    const socket = codec?.openCommandSocket?.(stdio, received, maxMessageBytes) ?? null;
    if (socket === null) return null;
    // The socket has duplicates of both descriptors.
    child.stdout.removeAllListeners("data").destroy();
    child.stdin.destroy();
    return socket;
  }

  override _read(): void {
    this.#bridge.child.stdout.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#bridge.child.stdin.write(chunk, done);
  }

  override _final(done: () => void): void {
    this.#bridge.child.stdin.end(done);
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#bridge.end();
    done(error);
  }
}

/** Returns the first line with this prefix, and the bytes after it; null if there is none. */
function findLine(bytes: Buffer, prefix: string): { line: string; rest: Buffer } | null {
  for (let from = 0; ; ) {
    const end = bytes.indexOf(10, from);
    if (end < 0) return null;
    const line = bytes.toString("utf8", from, end);
    if (line.startsWith(prefix)) return { line, rest: bytes.subarray(end + 1) };
    from = end + 1;
  }
}
