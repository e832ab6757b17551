import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, open, rm } from "node:fs/promises";
import path from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { messageOf } from "../../base/error-message.ts";
import { InputError, type JobTask } from "../job.ts";
import { formatOfName, type TableFormat, type TableReading } from "./table.ts";

/** A table that can be read repeatedly, and the hash of its content. */
export interface TableInput extends AsyncDisposable {
  /** The file to read. */
  path: string;
  /** The user's name for it. */
  name: string;
  format: TableFormat;
  reading: TableReading;
  sha256: string;
}

export interface InputOptions {
  /** A file, or `-` for standard input. */
  input: string;
  cwd: string;
  stdin: Readable;
  format?: TableFormat | undefined;
  reading?: TableReading | undefined;
  /** Standard input is copied into this folder, because it can be read only once. */
  spoolFolder: string;
}

export async function prepareInput(options: InputOptions): Promise<TableInput> {
  const fromStdin = options.input === "-";
  const file = fromStdin
    ? await spool(options.stdin, options.spoolFolder)
    : path.resolve(options.cwd, options.input);
  const name = fromStdin ? "stdin" : options.input;
  const dispose = async () => {
    if (fromStdin) await rm(file, { force: true });
  };
  try {
    const format = options.format ?? formatOfName(options.input) ?? (await sniff(file));
    const { reading = {} } = options;
    return {
      path: file,
      name,
      format,
      reading,
      sha256: await hashFile(file),
      [Symbol.asyncDispose]: dispose,
    };
  } catch (error) {
    await dispose();
    throw new InputError(`failed to read csv input ${name}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** The same table, instruction, schema, model and tools are the same job, whatever the path of the file. */
export function jobKey(input: TableInput, task: JobTask): string {
  // Without reading options the key is the one from before those options existed.
  const reading = Object.values(input.reading).some((value) => value !== undefined)
    ? input.reading
    : undefined;
  const parts = { version: 1, input: input.sha256, format: input.format, task, reading };
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}

async function spool(stdin: Readable, folder: string): Promise<string> {
  await mkdir(folder, { recursive: true });
  const file = path.join(folder, `stdin-${process.pid}.partial`);
  await pipeline(stdin, createWriteStream(file));
  return file;
}

/** Read at a time: the usual 64 KiB take a third more processor time for a large table. */
const HASHED_BYTES = 4 * 1024 * 1024;

async function hashFile(file: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(file, { highWaterMark: HASHED_BYTES }), hash);
  return hash.digest("hex");
}

/** Detects the format where the name does not tell: JSON lines begin with `{`, an array of objects with `[` and `{`. */
async function sniff(file: string): Promise<TableFormat> {
  const handle = await open(file);
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(512), 0, 512, 0);
    const beginning = buffer.toString("utf8", 0, bytesRead);
    if (/^\uFEFF?\s*\[\s*(\{|\]|$)/.test(beginning)) return "json";
    return /^\uFEFF?\s*\{/.test(beginning) ? "jsonl" : "csv";
  } finally {
    await handle.close();
  }
}
