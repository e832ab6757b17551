import { randomUUID } from "node:crypto";
import { mkdtemp, rmdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ArchiveLimits, OutputArchive } from "./output-archive.ts";

/** Maximum ended sessions with retained output, and their maximum total size. */
const MAX_ENDED = 64;
const MAX_ENDED_BYTES = 256 * 1024 * 1024;

/** The output archives of running and ended exec sessions, and the directory of their files. */
export class OutputArchiveStore {
  readonly #parent: string;
  readonly #limits: ArchiveLimits;
  readonly #archives = new Map<number, OutputArchive>();
  /** Oldest first. */
  readonly #ended = new Set<number>();
  #directory: Promise<string> | null = null;
  #isClosed = false;

  constructor(parent: string | undefined, limits: ArchiveLimits) {
    this.#parent = parent ?? tmpdir();
    this.#limits = limits;
  }

  /** Creates an archive for this session id. Disposes of an existing one. */
  async open(sessionId: number): Promise<OutputArchive> {
    await this.#dispose(sessionId);
    const archive = new OutputArchive(() => this.#newFile(), this.#limits);
    this.#archives.set(sessionId, archive);
    return archive;
  }

  get(sessionId: number): OutputArchive | null {
    return this.#archives.get(sessionId) ?? null;
  }

  /** Marks a session as ended, which makes its archive evictable. */
  async markEnded(sessionId: number): Promise<void> {
    if (!this.#archives.has(sessionId)) return;
    this.#ended.add(sessionId);
    for (const oldest of this.#ended) {
      const bytes = [...this.#ended].reduce((sum, id) => sum + (this.get(id)?.totalBytes ?? 0), 0);
      if (this.#ended.size <= MAX_ENDED && bytes <= MAX_ENDED_BYTES) break;
      await this.#dispose(oldest);
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const sessionId of [...this.#archives.keys()]) await this.#dispose(sessionId);
    // Not recursive: a sandboxed command may have replaced the directory. All files are removed by now.
    if (this.#directory) await rmdir(await this.#directory).catch(() => undefined);
  }

  async #dispose(sessionId: number): Promise<void> {
    const archive = this.#archives.get(sessionId);
    this.#archives.delete(sessionId);
    this.#ended.delete(sessionId);
    await archive?.dispose();
  }

  /** Returns a new file path. Creates the directory on first use, accessible only to this user; `close` removes it. */
  async #newFile(): Promise<string> {
    if (this.#isClosed) throw new Error("closed");
    this.#directory ??= mkdtemp(join(this.#parent, "procwire-output-"));
    return join(await this.#directory, randomUUID());
  }
}
