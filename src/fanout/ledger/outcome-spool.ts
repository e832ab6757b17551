import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { isObject } from "../../agent/api/response-events.ts";
import { messageOf } from "../../base/error-message.ts";
import { ERROR_CLASSES } from "../../protocol/console-job-schemas.ts";
import type { AttemptFailure, Claim, Report } from "./job-ledger.ts";
import { oneOf } from "./record-codec.ts";

/** Identifies the attempt: the row is settled only if the ledger still holds it for this token. */
export interface KeptAttempt {
  rowIndex: number;
  token: string;
  startedAtMs: number | null;
}

export function attemptOf({ item, token }: Claim): KeptAttempt {
  return { rowIndex: item.rowIndex, token, startedAtMs: item.startedAtMs };
}

/** The outcome of a row that the ledger cannot store for now. */
export type KeptSettlement =
  | { type: "reported"; attempt: KeptAttempt; report: Report }
  | { type: "failed"; attempt: KeptAttempt; failure: AttemptFailure };

export interface KeptSettlementsOptions {
  jobId: string;
  /** The ledger itself, where it is a file of this machine. */
  ledgerFile?: string;
  /** Path of the job's output: a place where its user can write. */
  outputPath: () => string;
  tell: (message: string) => void;
}

/**
 * Keeps paid outcomes of rows in a file while the ledger cannot store them, because its disk is full or its database away:
 * beside the job's output, else in the folder for temporary files. However this process ends, the next run of the job on this
 * machine settles them without asking a model. The file is removed once the ledger has them.
 */
export class KeptSettlements {
  #options: KeptSettlementsOptions;
  #file: string | null = null;
  #open = 0;

  constructor(options: KeptSettlementsOptions) {
    this.#options = options;
  }

  /** Where no place is writable the settlement stays in memory, and that is reported. */
  keep(settlement: KeptSettlement): void {
    this.#open++;
    const line = `${JSON.stringify(settlement)}\n`;
    const isFirst = this.#file === null;
    for (const file of this.#file ? [this.#file] : this.#places()) {
      try {
        append(file, line);
        this.#file = file;
        if (isFirst) this.#options.tell(`what rows reported meanwhile is kept in ${file}`);
        return;
      } catch {
        // Full as well, or not writable: try the next place.
      }
    }
    this.#options.tell(
      `what row ${settlement.attempt.rowIndex + 1} reported can be kept nowhere else; it is lost should this process end`,
    );
  }

  /** The ledger has stored one of them. */
  settled(): void {
    this.#open--;
    if (this.#open > 0 || this.#file === null) return;
    rmSync(this.#file, { force: true });
    this.#file = null;
  }

  /** Settlements that earlier runs of the job left, with their files. `dead`: only those of processes that are no more. */
  left(options: { dead?: boolean } = {}): { file: string; settlements: KeptSettlement[] }[] {
    const found: { file: string; settlements: KeptSettlement[] }[] = [];
    const prefix = this.#prefix();
    for (const folder of this.#folders()) {
      const names = readNames(folder).filter((name) => name.startsWith(prefix));
      for (const name of names) {
        if (options.dead && isAlive(Number.parseInt(name.slice(prefix.length), 10))) continue;
        const file = path.join(folder, name);
        try {
          found.push({ file, settlements: readOwn(file) });
        } catch (error) {
          this.#options.tell(`${file} cannot be read: ${messageOf(error)}; its rows are asked again`);
        }
      }
    }
    return found;
  }

  #prefix(): string {
    return `.procwire-reports-${this.#options.jobId}-`;
  }

  #places(): string[] {
    const name = `${this.#prefix()}${process.pid}.jsonl`;
    const { ledgerFile } = this.#options;
    // The ledger's own disk comes last: it has no room.
    const full = ledgerFile === undefined ? null : deviceOf(path.dirname(ledgerFile));
    return this.#folders()
      .toSorted((a, b) => Number(deviceOf(a) === full) - Number(deviceOf(b) === full))
      .map((folder) => path.join(folder, name));
  }

  #folders(): string[] {
    const { outputPath } = this.#options;
    return [...new Set([path.dirname(path.resolve(outputPath())), tmpdir()])];
  }
}

/** Other users can write to the folder for temporary files, so links there are not followed and files not trusted. */
function append(file: string, line: string): void {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  const descriptor = openSync(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  try {
    if (fstatSync(descriptor).uid !== process.getuid?.()) throw new Error("the file is another user's");
    writeSync(descriptor, line);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function readOwn(file: string): KeptSettlement[] {
  const descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const found = fstatSync(descriptor);
    if (!found.isFile() || found.uid !== process.getuid?.()) throw new Error("it is not a file of this user");
    return readFileSync(descriptor, "utf8").split("\n").flatMap(decodeLine);
  } finally {
    closeSync(descriptor);
  }
}

/** A truncated line is ignored. */
function decodeLine(line: string): KeptSettlement[] {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    return [];
  }
  if (!isObject(value) || !isObject(value.attempt)) return [];
  const { rowIndex, token, startedAtMs } = value.attempt;
  if (typeof rowIndex !== "number" || typeof token !== "string") return [];
  const attempt = { rowIndex, token, startedAtMs: typeof startedAtMs === "number" ? startedAtMs : null };
  if (value.type === "reported" && isObject(value.report)) {
    const { result, stop } = value.report;
    if (typeof result !== "string") return [];
    const report = { result, stop: stop === true, ...spentIn(value.report) };
    return [{ type: "reported", attempt, report }];
  }
  if (value.type === "failed" && isObject(value.failure)) {
    const { errorClass, message } = value.failure;
    const failure = {
      errorClass: oneOf(ERROR_CLASSES, errorClass),
      message: String(message),
      ...spentIn(value.failure),
    };
    return [{ type: "failed", attempt, failure }];
  }
  return [];
}

function spentIn(value: Readonly<Record<string, unknown>>): Pick<Report, "usage" | "transcript"> {
  const usage = isObject(value.usage) ? value.usage : {};
  const count = (name: string) => (typeof usage[name] === "number" ? usage[name] : 0);
  return {
    usage: {
      inputTokens: count("inputTokens"),
      cachedInputTokens: count("cachedInputTokens"),
      outputTokens: count("outputTokens"),
      reasoningOutputTokens: count("reasoningOutputTokens"),
    },
    transcript: typeof value.transcript === "string" ? value.transcript : undefined,
  };
}

function readNames(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/** Also true for another user's process, whose files are not ours to settle. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return isObject(error) && error.code === "EPERM";
  }
}

function deviceOf(folder: string): number | null {
  try {
    return statSync(folder).dev;
  } catch {
    return null;
  }
}
