import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rm } from "node:fs/promises";
import path from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { errorMessage } from "../../base/error-message.ts";
import { OutputDirectory } from "../../files/output-directory.ts";
import { InputError, type JobTask } from "../job.ts";
import { formatFromExtension, type TableFormat, type TableParseOptions } from "./table.ts";

/** A table that can be read repeatedly, and the hash of its content. */
export interface TableInput extends AsyncDisposable {
  /** The file to read. */
  path: string;
  /** Name in messages, as the user gave it. */
  name: string;
  format: TableFormat;
  parseOptions: TableParseOptions;
  sha256: string;
}

export interface InputOptions {
  /** Path, or `-` for standard input. */
  input: string;
  cwd: string;
  stdin: Readable;
  format?: TableFormat | undefined;
  parseOptions?: TableParseOptions | undefined;
  /** Directory for a copy of standard input, which can be read only once. */
  spoolDirectory: string;
}

export async function prepareInput(options: InputOptions): Promise<TableInput> {
  const isStdin = options.input === "-";
  const file = isStdin
    ? await spoolStdin(options.stdin, options.spoolDirectory)
    : path.resolve(options.cwd, options.input);
  const name = isStdin ? "stdin" : options.input;
  const dispose = async () => {
    if (isStdin) await rm(file, { force: true });
  };
  try {
    const format = options.format ?? formatFromExtension(options.input) ?? (await detectFormat(file));
    const { parseOptions = {} } = options;
    const sha256 = await hashFile(file);
    return { path: file, name, format, parseOptions, sha256, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await dispose();
    throw new InputError(`failed to read csv input ${name}: ${errorMessage(error)}`, {
      cause: error,
    });
  }
}

/**
 * Returns the key of a job. Equal tables, instructions, schemas, models and tools have the same key, regardless of the
 * path.
 */
export function jobKey(input: TableInput, task: JobTask): string {
  // Without parse options, the key does not contain them.
  const reading = Object.values(input.parseOptions).some((value) => value !== undefined)
    ? input.parseOptions
    : undefined;
  const parts = { version: 1, input: input.sha256, format: input.format, task, reading };
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

async function spoolStdin(stdin: Readable, jobsHome: string): Promise<string> {
  // A later run removes the file if no process with this pid exists.
  const name = `stdin-${process.pid}-${randomUUID()}.partial`;
  using directory = OutputDirectory.open(jobsHome, { make: true });
  await using spooled = await directory.create(0o600);
  await spooled.handle.writeFile(stdin);
  spooled.commit(name);
  return path.join(jobsHome, name);
}

/** Bytes per read. The default of 64 KiB needs a third more processor time for a large table. */
const HASH_CHUNK_BYTES = 4 * 1024 * 1024;

async function hashFile(file: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(file, { highWaterMark: HASH_CHUNK_BYTES }), hash);
  return hash.digest("hex");
}

/** Detects the format from the content: JSON lines begin with `{`, an array of objects with `[` and `{`. */
async function detectFormat(file: string): Promise<TableFormat> {
  const handle = await open(file);
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(512), 0, 512, 0);
    const beginning = buffer.toString("utf8", 0, bytesRead);
    if (beginning.startsWith("PK\x03\x04")) throw new Error("it is a ZIP archive or a workbook; export it as CSV");
    if (/^\uFEFF?\s*\[\s*(\{|\]|$)/.test(beginning)) return "json";
    return /^\uFEFF?\s*\{/.test(beginning) ? "jsonl" : "csv";
  } finally {
    await handle.close();
  }
}
