import { createReadStream } from "node:fs";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { errorMessage } from "../../base/error-message.ts";
import { parseLosslessJson } from "../../base/lossless-json.ts";
import { isObject } from "../../base/type-guards.ts";
import { InputError, type Row, rowIdFromIndex } from "../job.ts";
import { jsonElements } from "./json-objects.ts";

export const TABLE_FORMATS = ["csv", "tsv", "jsonl", "json"] as const;
export type TableFormat = (typeof TABLE_FORMATS)[number];

/** Options that change how a table is read. */
export interface TableParseOptions {
  /** Field delimiter. Default: that of the format. */
  delimiter?: string | undefined;
  /** Label of the Encoding Standard. Default: UTF-8. */
  encoding?: string | undefined;
  /** Whether to skip invalid rows instead of rejecting the table. */
  keepGoing?: boolean | undefined;
  /** Number of rows to select at random; absent: all rows. */
  randomSample?: number | undefined;
  /** Seed of the random sample. Default: the hash of the table. */
  seed?: string | undefined;
}

/** A table that is read once, row by row, and never held in memory as a whole. */
export interface Table {
  /** Columns so far. For CSV and TSV complete from the first row, otherwise after the last. */
  readonly headers: readonly string[];
  /** Number of skipped rows, and the reason for the first. */
  readonly skipped: { readonly count: number; readonly first: string };
  rows(): AsyncGenerator<Row, void, undefined>;
}

/** Rejects the table at an invalid row, or skips the row with `keepGoing`. */
class BadRowPolicy {
  count = 0;
  first = "";
  #keepGoing: boolean;

  constructor(keepGoing: boolean) {
    this.#keepGoing = keepGoing;
  }

  refuse(error: InputError): void {
    if (!this.#keepGoing) throw error;
    if (this.count === 0) this.first = error.message;
    this.count++;
  }
}

/** Returns the format by file name extension, ignoring a final `.gz`, or null if the extension is unknown. */
export function formatFromExtension(path: string): TableFormat | null {
  const name = path.toLowerCase().replace(/\.gz$/, "");
  if (name.endsWith(".csv")) return "csv";
  if (name.endsWith(".tsv") || name.endsWith(".tab")) return "tsv";
  if (name.endsWith(".jsonl") || name.endsWith(".ndjson")) return "jsonl";
  if (name.endsWith(".json")) return "json";
  return null;
}

/** Opens a file as a table. `name` appears in errors. */
export function openTable(
  path: string,
  format: TableFormat,
  name: string = path,
  options: TableParseOptions = {},
): Table {
  const bytes = async function* () {
    const file = createReadStream(path);
    try {
      yield* path.toLowerCase().endsWith(".gz") ? gunzip(file) : file;
    } catch (error) {
      throw new InputError(`failed to read ${format} input ${name}: ${errorMessage(error)}`, {
        cause: error,
      });
    } finally {
      file.destroy();
    }
  };
  const text = decodeText(bytes(), format, name, options.encoding ?? "utf-8");
  const skipped = new BadRowPolicy(options.keepGoing ?? false);
  if (format === "jsonl") return new JsonTable(lines(text), "jsonl line", skipped);
  if (format === "json") return new JsonTable(jsonElements(text, name), "json item", skipped);
  return new DelimitedTable(text, format, name, skipped, options.delimiter);
}

/** Delimiters that a table may have instead of the one of its format. */
const DELIMITERS = [";", "\t", "|", ","];

class DelimitedTable implements Table {
  headers: readonly string[] = [];
  readonly skipped: BadRowPolicy;
  #text: AsyncIterable<string>;
  #format: "csv" | "tsv";
  #name: string;
  #delimiter: string;
  #isDelimiterGiven: boolean;

  constructor(
    text: AsyncIterable<string>,
    format: "csv" | "tsv",
    name: string,
    skipped: BadRowPolicy,
    delimiter: string | undefined,
  ) {
    this.#text = text;
    this.#format = format;
    this.#name = name;
    this.skipped = skipped;
    this.#isDelimiterGiven = delimiter !== undefined;
    this.#delimiter = delimiter ?? (format === "tsv" ? "\t" : ",");
  }

  async *rows(): AsyncGenerator<Row, void, undefined> {
    let recordNumber = 0;
    for await (const record of this.#records()) {
      recordNumber++;
      if (recordNumber === 1) {
        this.#checkDelimiter(record);
        this.headers = checkHeaders(record, this.#format);
        continue;
      }
      if (record.every((field) => field === "")) continue;
      if (record.length !== this.headers.length) {
        this.skipped.refuse(
          new InputError(
            `${this.#format} row ${recordNumber} has ${record.length} fields but header has ${this.headers.length}`,
            // Codex counts the header as row 1.
            { hint: `row 1 is the header, so this is ${rowIdFromIndex(recordNumber - 2)}` },
          ),
        );
        continue;
      }
      yield Object.fromEntries(this.headers.map((header, index) => [header, record[index] ?? ""]));
    }
    if (recordNumber === 0) throw new InputError(`${this.#format} input must include a header row`);
  }

  /** Rejects a header of one column that contains another delimiter, unless the user named the delimiter. */
  #checkDelimiter(header: readonly string[]): void {
    if (this.#isDelimiterGiven || header.length !== 1) return;
    const other = DELIMITERS.find((delimiter) => delimiter !== this.#delimiter && header[0]?.includes(delimiter));
    if (other === undefined) return;
    const shown = other === "\t" ? "tab" : `'${other}'`;
    throw new InputError(
      `${this.#format} input ${this.#name} has one column, \`${header[0]}\`; its fields seem to be separated by ${shown}`,
      { hint: `read it with --delimiter ${shown}, or with --delimiter '${this.#delimiter}' if it has one column` },
    );
  }

  async *#records(): AsyncGenerator<string[], void, undefined> {
    const { parse } = await import("csv-parse");
    const parser = parse({
      delimiter: this.#delimiter,
      record_delimiter: ["\r\n", "\n", "\r"],
      relax_column_count: true,
      // A quote within an unquoted field is an ordinary character.
      relax_quotes: true,
    });
    const feeding = pipeline(Readable.from(this.#text), parser);
    feeding.catch(() => undefined);
    try {
      for await (const record of parser) yield record;
      await feeding;
    } catch (error) {
      if (error instanceof InputError) throw error;
      throw new InputError(`failed to parse ${this.#format} input ${this.#name}: ${errorMessage(error)}`, {
        cause: error,
      });
    } finally {
      parser.destroy();
    }
  }
}

/** A table of JSON objects. */
class JsonTable implements Table {
  readonly skipped: BadRowPolicy;
  #columns = new Set<string>();
  #objects: AsyncIterable<string>;
  #elementName: string;

  constructor(objects: AsyncIterable<string>, elementName: string, skipped: BadRowPolicy) {
    this.#objects = objects;
    this.#elementName = elementName;
    this.skipped = skipped;
  }

  get headers(): readonly string[] {
    return [...this.#columns];
  }

  async *rows(): AsyncGenerator<Row, void, undefined> {
    let number = 0;
    for await (const text of this.#objects) {
      number++;
      if (text.trim() === "") continue;
      const row = parseRow(text, `${this.#elementName} ${number}`);
      if (row instanceof InputError) {
        this.skipped.refuse(row);
        continue;
      }
      for (const column of Object.keys(row)) this.#columns.add(column);
      yield row;
    }
  }
}

function parseRow(text: string, elementName: string): Row | InputError {
  let value: unknown;
  try {
    value = parseLosslessJson(text);
  } catch (error) {
    return new InputError(`${elementName} is not JSON: ${errorMessage(error)}`, { cause: error });
  }
  return isObject(value) ? value : new InputError(`${elementName} is not an object`);
}

function checkHeaders(record: readonly string[], format: string): readonly string[] {
  const seen = new Set<string>();
  for (const header of record) {
    if (seen.has(header)) throw new InputError(`${format} header ${header} is duplicated`);
    seen.add(header);
  }
  return record;
}

/** Decodes text and removes a byte order mark. */
async function* decodeText(
  bytes: AsyncIterable<Uint8Array>,
  format: string,
  name: string,
  encoding: string,
): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder(encoding, { fatal: true });
  let beginning: Uint8Array | null = null;
  try {
    for await (const chunk of bytes) {
      beginning ??= chunk.subarray(0, 2);
      const text = decoder.decode(chunk, { stream: true });
      if (text !== "") yield text;
    }
    const rest = decoder.decode();
    if (rest !== "") yield rest;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new InputError(
      `failed to read ${format} input ${name}: stream did not contain valid ${encoding.toUpperCase()}`,
      { cause: error, hint: `read it with --encoding ${guessEncoding(beginning)}` },
    );
  }
}

/** Guesses the encoding of text that is not UTF-8: UTF-16 by its byte order mark, else Latin-1 as of spreadsheets. */
function guessEncoding(beginning: Uint8Array | null): string {
  if (beginning?.[0] === 0xff && beginning[1] === 0xfe) return "utf-16le";
  return beginning?.[0] === 0xfe && beginning[1] === 0xff ? "utf-16be" : "windows-1252";
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
