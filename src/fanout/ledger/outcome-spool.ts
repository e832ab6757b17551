import { randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { OutputDirectory } from "../../files/output-directory.ts";
import { ERROR_CLASSES } from "../../protocol/console/console-job-schemas.ts";
import {
  boolean,
  enumOf,
  f64,
  type Infer,
  nullable,
  object,
  optional,
  string,
  taggedUnion,
} from "../../protocol/schema.ts";
import type { AttemptFailure, ItemLease, Report } from "./job-ledger.ts";
import { processExists } from "./process-exists.ts";

const LEASED_ATTEMPT = object("LeasedAttempt", () => ({ rowIndex: f64, token: string, startedAtMs: nullable(f64) }));

/** Identifies an attempt. The row changes only if the ledger still has this token. */
export type LeasedAttempt = Infer<typeof LEASED_ATTEMPT>;

export function attemptOf({ item, leaseToken }: ItemLease): LeasedAttempt {
  return { rowIndex: item.rowIndex, token: leaseToken, startedAtMs: item.startedAtMs };
}

const usage = object("TokenUsage", () => ({
  inputTokens: f64,
  cachedInputTokens: f64,
  outputTokens: f64,
  reasoningOutputTokens: f64,
}));

const SPOOLED_OUTCOME = taggedUnion("SpooledOutcome", {
  reported: {
    attempt: LEASED_ATTEMPT,
    report: object("Report", () => ({ result: string, usage, stop: boolean, transcript: optional(string) })),
  },
  failed: {
    attempt: LEASED_ATTEMPT,
    failure: object("AttemptFailure", () => ({
      errorClass: enumOf(...ERROR_CLASSES),
      message: string,
      usage,
      transcript: optional(string),
    })),
  },
});

/** An outcome that the ledger cannot store for now. */
export type SpooledOutcome =
  | { type: "reported"; attempt: LeasedAttempt; report: Report }
  | { type: "failed"; attempt: LeasedAttempt; failure: AttemptFailure };

export interface OutcomeSpoolOptions {
  jobId: string;
  /** Path of the ledger, if it is a local file. */
  ledgerFile?: string;
  report: (message: string) => void;
}

/**
 * Stores paid outcomes in a file while the ledger is unavailable, because its disk is full or its database is
 * unreachable. The file is next to the job's output, or in the directory for temporary files. If this process dies, the
 * next run of the job on this host applies the outcomes without a model call. The file is removed once the ledger
 * has them.
 */
export class OutcomeSpool implements Disposable {
  #options: OutcomeSpoolOptions;
  #directories: OutputDirectory[] = [];
  #file: { directory: OutputDirectory; name: string; fd: number } | null = null;
  #spooledCount = 0;

  constructor(options: OutcomeSpoolOptions) {
    this.#options = options;
  }

  /**
   * Opens the directories for outcomes: the output's, unless it is undefined, and the one for temporary files. Call it
   * before the first command runs. A directory that cannot be opened is skipped.
   */
  open(outputPath: string | undefined): void {
    for (const directory of spoolDirectories(outputPath)) {
      try {
        this.#directories.push(OutputDirectory.open(directory));
      } catch {
        // For example, the directory is missing on this host.
      }
    }
  }

  /** Stores an outcome. If no directory is writable, the outcome stays in memory and a warning is reported. */
  add(outcome: SpooledOutcome): void {
    this.#spooledCount++;
    const line = `${JSON.stringify(outcome)}\n`;
    if (this.#file ? tryAppend(this.#file.fd, line) : this.#createFile(line)) return;
    this.#options.report(
      `cannot spool the outcome of row ${outcome.attempt.rowIndex + 1}: no directory is writable; it is lost if this process ends`,
    );
  }

  /** Removes one outcome that the ledger has stored. The file is deleted with the last outcome. */
  remove(): void {
    this.#spooledCount--;
    if (this.#spooledCount > 0 || this.#file === null) return;
    closeSync(this.#file.fd);
    this.#file.directory.remove(this.#file.name);
    this.#file = null;
  }

  /**
   * Returns the outcomes that earlier runs left, with their files. `outputPath`: where those runs wrote the output.
   * `dead`: only outcomes of processes that no longer exist.
   */
  pending(outputPath: string, options: { dead?: boolean } = {}): { file: string; outcomes: SpooledOutcome[] }[] {
    const found: { file: string; outcomes: SpooledOutcome[] }[] = [];
    const prefix = this.#prefix();
    for (const directory of spoolDirectories(outputPath)) {
      for (const name of this.#readNames(directory)) {
        if (!name.startsWith(prefix)) continue;
        if (options.dead && processExists(Number.parseInt(name.slice(prefix.length), 10))) continue;
        const file = path.join(directory, name);
        try {
          found.push({ file, outcomes: readOwnFile(file) });
        } catch (error) {
          this.#reportUnread(file, error);
        }
      }
    }
    return found;
  }

  #readNames(directory: string): string[] {
    try {
      return readdirSync(directory);
    } catch (error) {
      if (!hasErrorCode(error, "ENOENT")) this.#reportUnread(directory, error);
      return [];
    }
  }

  #reportUnread(file: string, error: unknown): void {
    this.#options.report(`cannot read ${file}: ${errorMessage(error)}; its rows are executed again`);
  }

  #prefix(): string {
    return `.procwire-reports-${this.#options.jobId}-`;
  }

  /** Opens a file in the first directory that accepts the line; later lines use the same file. */
  #createFile(line: string): boolean {
    const name = `${this.#prefix()}${process.pid}-${randomUUID()}.jsonl`;
    for (const directory of this.#directoriesByDisk()) {
      try {
        const fd = directory.openAppend(name);
        if (!tryAppend(fd, line)) {
          closeSync(fd);
          directory.remove(name);
          continue;
        }
        this.#file = { directory, name, fd };
        this.#options.report(`outcomes are spooled to ${path.join(directory.realPath, name)}`);
        return true;
      } catch {
        // Not writable: try the next directory.
      }
    }
    return false;
  }

  /** Returns the opened directories. Those on the disk of the ledger come last, because that disk is full. */
  #directoriesByDisk(): OutputDirectory[] {
    const { ledgerFile } = this.#options;
    const fullDevice = ledgerFile === undefined ? null : readDevice(path.dirname(ledgerFile));
    const rank = (directory: OutputDirectory) => Number(readDevice(directory.realPath) === fullDevice);
    return this.#directories.toSorted((a, b) => rank(a) - rank(b));
  }

  /** Closes the directories. A file with outcomes stays for the next run. */
  [Symbol.dispose](): void {
    if (this.#file) closeSync(this.#file.fd);
    this.#file = null;
    for (const directory of this.#directories.splice(0)) directory[Symbol.dispose]();
  }
}

function spoolDirectories(outputPath: string | undefined): string[] {
  const directories = outputPath === undefined ? [] : [path.dirname(path.resolve(outputPath))];
  return [...new Set([...directories, tmpdir()])];
}

/** Appends a line. Returns false and appends nothing if the disk is full. */
function tryAppend(fd: number, line: string): boolean {
  const { size } = fstatSync(fd);
  try {
    writeFileSync(fd, line);
    fsyncSync(fd);
    return true;
  } catch {
    ftruncateSync(fd, size);
    return false;
  }
}

/**
 * Reads a file of this user. Other users can write to the directory for temporary files: symbolic links are not
 * followed, and files of others are rejected.
 */
function readOwnFile(file: string): SpooledOutcome[] {
  // O_NONBLOCK: opening a named pipe of another user does not wait for a writer.
  const descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const found = fstatSync(descriptor);
    if (!found.isFile() || found.uid !== process.getuid?.()) throw new Error("not a regular file of this user");
    return readFileSync(descriptor, "utf8").split("\n").flatMap(decodeLine);
  } finally {
    closeSync(descriptor);
  }
}

/** Returns no outcome for a line that is truncated or invalid. */
function decodeLine(line: string): SpooledOutcome[] {
  try {
    return [SPOOLED_OUTCOME.decode(JSON.parse(line))];
  } catch {
    return [];
  }
}

function readDevice(directory: string): number | null {
  try {
    return statSync(directory).dev;
  } catch {
    return null;
  }
}
