import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import path from "node:path";
import { type Clock, sleep, systemClock } from "../../../async/clock.ts";
import { hasErrorCode } from "../../../base/error-code.ts";
import { errorMessage } from "../../../base/error-message.ts";
import { OutputDirectory } from "../../../files/output-directory.ts";
import type { JobRecord, NewItem, NewJob, StoredAnswer } from "../../job.ts";
import type { AnswerSource, JobLedger, JobStore, TableState, UnreadableJob } from "../job-ledger.ts";
import { PreReleaseSchemaError } from "../migrations.ts";
import { createLedger } from "./create-ledger.ts";
import type { DiskFullOptions } from "./disk-full-retry.ts";
import { takeLock } from "./sqlite-database.ts";
import { SqliteLedger, type SqliteLedgerOptions } from "./sqlite-ledger.ts";
import { removeKeysOf, removeStaleFiles } from "./stale-files.ts";

const LEDGER_FILE = "ledger.sqlite";
/** Directory of key files: each is named by a key and contains the id of its job. */
const KEYS_DIRECTORY = "by-key";
/**
 * Suffix of the directory of a job that is being created. A crash leaves it behind, and the next creation removes it.
 */
const PARTIAL_SUFFIX = ".partial";

/**
 * Maximum number of jobs to reuse answers from. Each is an open file; the newest jobs are the most likely to have
 * answers.
 */
const MAX_ANSWERING_JOBS = 200;

/** Poll interval while another process creates the same job. */
const KEY_POLL_MS = 50;

export interface SqliteStoreOptions extends DiskFullOptions {
  newToken?: () => string;
}

/** Jobs of this host: one directory per job, with the ledger and the other files of the job. */
export class SqliteStore implements JobStore {
  #home: string;
  #clock: Clock;
  #ledgerOptions: SqliteLedgerOptions;

  constructor(home: string, options: SqliteStoreOptions = {}) {
    this.#home = home;
    this.#clock = options.clock ?? systemClock;
    const { newToken = () => crypto.randomUUID() } = options;
    this.#ledgerOptions = { ...options, clock: this.#clock, newToken };
  }

  async withKey<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    const directory = path.join(this.#home, KEYS_DIRECTORY);
    await mkdir(directory, { recursive: true });
    for (;;) {
      using lock = takeLock(path.join(directory, `${key}.lock`));
      if (lock) return await task();
      await sleep(this.#clock, KEY_POLL_MS, signal);
    }
  }

  async find(key: string): Promise<JobRecord | null> {
    const id = await readIfExists(path.join(this.#home, KEYS_DIRECTORY, key));
    if (id === null) return null;
    // The user may delete the directory of a job to remove the job.
    return await this.#readJob(id.trim());
  }

  async create(job: NewJob, rows: AsyncIterable<NewItem>, table: () => TableState): Promise<JobRecord> {
    const directory = path.join(this.#home, job.id);
    const partial = `${directory}${PARTIAL_SUFFIX}`;
    await mkdir(partial, { recursive: true });
    await this.removeStaleFiles();
    try {
      await createLedger(path.join(partial, LEDGER_FILE), job, rows, table);
      // Writes the key first: if this process dies here, the key names a job that does not exist, which counts as none.
      await this.#writeKey(job.key, job.id);
      await rename(partial, directory);
    } catch (error) {
      await rm(partial, { recursive: true, force: true });
      throw error;
    }
    const created = await this.#readJob(job.id);
    if (!created) throw new Error(`job ${job.id} has vanished from ${this.#home}`);
    return created;
  }

  async list(): Promise<JobRecord[]> {
    return (await this.#readAll()).jobs.sort((a, b) => b.createdAtMs - a.createdAtMs);
  }

  async unreadable(): Promise<UnreadableJob[]> {
    return (await this.#readAll()).unreadable;
  }

  async remove(idOrPrefix: string): Promise<string | null> {
    const id = await this.#resolve(idOrPrefix);
    if (id === null) return null;
    const directory = path.join(this.#home, id);
    using lock = takeLock(path.join(directory, `${LEDGER_FILE}.run-lock`));
    if (!lock) throw new Error(`job ${id.slice(0, 8)} is being run by another process; cancel it first`);
    await removeKeysOf(path.join(this.#home, KEYS_DIRECTORY), id);
    await rm(directory, { recursive: true, force: true });
    return id;
  }

  removeStaleFiles(): Promise<number> {
    return removeStaleFiles(this.#home, LEDGER_FILE, Date.now());
  }

  async open(idOrPrefix: string): Promise<JobLedger | null> {
    const id = await this.#resolve(idOrPrefix);
    return id === null ? null : this.#openExact(id);
  }

  async answersFromOtherJobs(jobId: string): Promise<AnswerSource> {
    const jobs = await this.list();
    const ownJob = jobs.find((job) => job.id === jobId);
    const others = jobs.filter((job) => job.id !== jobId && job.task.model === ownJob?.task.model);
    const ledgers: SqliteLedger[] = [];
    for (const { id } of others.slice(0, MAX_ANSWERING_JOBS)) {
      const ledger = await this.#openExact(id);
      if (ledger) ledgers.push(ledger);
    }
    return {
      find: async (questions) => ledgers.flatMap((ledger) => findAnswers(ledger, questions)),
      [Symbol.asyncDispose]: async () => {
        for (const ledger of ledgers) await ledger[Symbol.asyncDispose]();
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {}

  async #readAll(): Promise<{ jobs: JobRecord[]; unreadable: UnreadableJob[] }> {
    const jobs: JobRecord[] = [];
    const unreadable: UnreadableJob[] = [];
    for (const id of await this.#jobIds()) {
      try {
        const job = await this.#readJob(id);
        if (job) jobs.push(job);
      } catch (error) {
        unreadable.push({ id, reason: errorMessage(error) });
      }
    }
    return { jobs, unreadable };
  }

  async #resolve(idOrPrefix: string): Promise<string | null> {
    const matches = (await this.#jobIds()).filter(
      (id) => id.startsWith(idOrPrefix) && existsSync(path.join(this.#home, id, LEDGER_FILE)),
    );
    const [id, another] = matches;
    if (id === undefined || idOrPrefix === "") return null;
    if (another !== undefined) {
      throw new Error(`job \`${idOrPrefix}\` is ambiguous; it could be ${matches.join(" or ")}`);
    }
    return id;
  }

  async #readJob(id: string): Promise<JobRecord | null> {
    await using ledger = await this.#openExact(id);
    return ledger ? await ledger.job() : null;
  }

  async #openExact(id: string): Promise<SqliteLedger | null> {
    const file = path.join(this.#home, id, LEDGER_FILE);
    // Opening would create an empty ledger. A directory without a ledger belongs to a job in another store.
    if (!existsSync(file)) return null;
    try {
      return SqliteLedger.open(file, this.#ledgerOptions);
    } catch (error) {
      const short = id.slice(0, 8);
      const alternative = error instanceof PreReleaseSchemaError ? ", or use the version that created it" : "";
      throw new Error(
        `cannot read job ${short}: ${errorMessage(error)}; delete it with \`procwire jobs rm ${short}\`${alternative}`,
        { cause: error },
      );
    }
  }

  async #jobIds(): Promise<string[]> {
    try {
      const entries = await readdir(this.#home, { withFileTypes: true });
      return entries
        .filter((entry) => entry.isDirectory() && entry.name !== KEYS_DIRECTORY)
        .filter((entry) => !entry.name.endsWith(PARTIAL_SUFFIX))
        .map((entry) => entry.name);
    } catch (error) {
      if (hasErrorCode(error, "ENOENT")) return [];
      throw error;
    }
  }

  async #writeKey(key: string, id: string): Promise<void> {
    using keys = OutputDirectory.open(path.join(this.#home, KEYS_DIRECTORY), { make: true });
    await keys.replace(key, `${id}\n`);
  }
}

/** Returns no answers from a damaged ledger; a model answers instead. */
function findAnswers(ledger: SqliteLedger, questions: readonly string[]): StoredAnswer[] {
  try {
    return ledger.findAnswers(questions);
  } catch {
    return [];
  }
}

async function readIfExists(file: string): Promise<string | null> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (hasErrorCode(error, "ENOENT")) return null;
    throw error;
  }
}
