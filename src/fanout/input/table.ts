import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { parseExactJson } from "../../agent/exact-json.ts";
import { isObject } from "../../agent/response-events.ts";
import { InputError, type Row } from "../job.ts";

export type TableFormat = "csv" | "tsv" | "jsonl";

/** A table that is read once, row by row; it is never whole in memory. */
export interface Table {
  /** The columns seen so far: all of them once the rows have been read, for CSV and TSV from the first row on. */
  readonly headers: readonly string[];
  rows(): AsyncGenerator<Row, void, undefined>;
}

/** By the name's ending; `.gz` after it is looked through. Null: the name does not say. */
export function formatOfName(path: string): TableFormat | null {
  const name = path.toLowerCase().replace(/\.gz$/, "");
  if (name.endsWith(".csv")) return "csv";
  if (name.endsWith(".tsv") || name.endsWith(".tab")) return "tsv";
  if (name.endsWith(".jsonl") || name.endsWith(".ndjson")) return "jsonl";
  return null;
}

/** Opens a file as a table. `name` is what errors call it. */
export function openTable(path: string, format: TableFormat, name: string = path): Table {
  const bytes = async function* () {
    const file = createReadStream(path);
    try {
      yield* path.toLowerCase().endsWith(".gz") ? gunzip(file) : file;
    } catch (error) {
      throw new InputError(`failed to read ${format} input ${name}: ${messageOf(error)}`, { cause: error });
    } finally {
      file.destroy();
    }
  };
  return format === "jsonl" ? new JsonLinesTable(bytes(), name) : new DelimitedTable(bytes(), format, name);
}

class DelimitedTable implements Table {
  headers: readonly string[] = [];
  #bytes: AsyncIterable<Uint8Array>;
  #format: "csv" | "tsv";
  #name: string;

  constructor(bytes: AsyncIterable<Uint8Array>, format: "csv" | "tsv", name: string) {
    this.#bytes = bytes;
    this.#format = format;
    this.#name = name;
  }

  async *rows(): AsyncGenerator<Row, void, undefined> {
    let recordNumber = 0;
    for await (const record of this.#records()) {
      recordNumber++;
      if (recordNumber === 1) {
        this.headers = checkHeaders(record, this.#format);
        continue;
      }
      if (record.every((field) => field === "")) continue;
      if (record.length !== this.headers.length) {
        throw new InputError(
          `${this.#format} row ${recordNumber} has ${record.length} fields but header has ${this.headers.length}`,
        );
      }
      yield Object.fromEntries(this.headers.map((header, index) => [header, record[index] ?? ""]));
    }
    if (recordNumber === 0) throw new InputError(`${this.#format} input must include a header row`);
  }

  async *#records(): AsyncGenerator<string[], void, undefined> {
    const { parse } = await import("csv-parse");
    const parser = parse({
      delimiter: this.#format === "tsv" ? "\t" : ",",
      record_delimiter: ["\r\n", "\n", "\r"],
      relax_column_count: true,
      // A quote in the middle of an unquoted field is a character like any other.
      relax_quotes: true,
    });
    const feeding = pipeline(Readable.from(decodeUtf8(this.#bytes, this.#format, this.#name)), parser);
    feeding.catch(() => undefined);
    try {
      for await (const record of parser) yield record;
      await feeding;
    } catch (error) {
      if (error instanceof InputError) throw error;
      throw new InputError(`failed to parse ${this.#format} input ${this.#name}: ${messageOf(error)}`, {
        cause: error,
      });
    } finally {
      parser.destroy();
    }
  }
}

class JsonLinesTable implements Table {
  #columns = new Set<string>();
  #bytes: AsyncIterable<Uint8Array>;
  #name: string;

  constructor(bytes: AsyncIterable<Uint8Array>, name: string) {
    this.#bytes = bytes;
    this.#name = name;
  }

  get headers(): readonly string[] {
    return [...this.#columns];
  }

  async *rows(): AsyncGenerator<Row, void, undefined> {
    let lineNumber = 0;
    for await (const line of lines(decodeUtf8(this.#bytes, "jsonl", this.#name))) {
      lineNumber++;
      if (line.trim() === "") continue;
      const row = parseRow(line, lineNumber);
      for (const column of Object.keys(row)) this.#columns.add(column);
      yield row;
    }
  }
}

function parseRow(line: string, lineNumber: number): Row {
  let value: unknown;
  try {
    value = parseExactJson(line);
  } catch (error) {
    throw new InputError(`jsonl line ${lineNumber} is not JSON: ${messageOf(error)}`, { cause: error });
  }
  if (!isObject(value)) throw new InputError(`jsonl line ${lineNumber} is not an object`);
  return value;
}

function checkHeaders(record: readonly string[], format: string): readonly string[] {
  const seen = new Set<string>();
  for (const header of record) {
    if (seen.has(header)) throw new InputError(`${format} header ${header} is duplicated`);
    seen.add(header);
  }
  return record;
}

/** Also takes away a byte order mark. */
async function* decodeUtf8(
  bytes: AsyncIterable<Uint8Array>,
  format: string,
  name: string,
): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  try {
    for await (const chunk of bytes) {
      const text = decoder.decode(chunk, { stream: true });
      if (text !== "") yield text;
    }
    const rest = decoder.decode();
    if (rest !== "") yield rest;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new InputError(`failed to read ${format} input ${name}: stream did not contain valid UTF-8`, {
      cause: error,
    });
  }
}

async function* lines(text: AsyncIterable<string>): AsyncGenerator<string, void, undefined> {
  let rest = "";
  for await (const chunk of text) {
    const parts = (rest + chunk).split("\n");
    rest = parts.pop() ?? "";
    yield* parts;
  }
  if (rest !== "") yield rest;
}

async function* gunzip(file: Readable): AsyncGenerator<Uint8Array, void, undefined> {
  const unzip = createGunzip();
  const feeding = pipeline(file, unzip);
  feeding.catch(() => undefined);
  yield* unzip;
  await feeding;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
