import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import type { JsonObject } from "../../agent/api/response-events.ts";
import { IMAGE_TYPES } from "../../agent/image-types.ts";
import type { Row } from "../job.ts";

const PDF = "application/pdf";
const URL_SCHEME = /^(https?|data):/i;

/** Maximum file size; providers reject larger files. */
const MAX_FILE_BYTES = 20 * 1024 * 1024;

/**
 * Returns the images and files that the cells of a row name, as parts of the agent's message. A cell is an http URL, a
 * `data:` URL, or a local path. An empty cell attaches nothing. Rejects if a cell cannot be attached.
 */
export async function attachmentsOf(row: Row, columns: readonly string[]): Promise<JsonObject[]> {
  const parts = await Promise.all(columns.map((column) => toAttachment(row[column], column)));
  return parts.filter((part) => part !== null);
}

/** Returns the row without the cells whose content is attached. */
export function withoutAttached(row: Row, columns: readonly string[]): Row {
  const isData = (value: unknown) => typeof value === "string" && value.startsWith("data:");
  if (!columns.some((column) => isData(row[column]))) return row;
  const cells = Object.entries(row).map(([column, value]) => [
    column,
    columns.includes(column) && isData(value) ? "(attached)" : value,
  ]);
  return Object.fromEntries(cells);
}

/** Returns the local path in a cell, or null if the cell is empty or a URL. */
export function attachedFile(value: unknown): string | null {
  const cell = typeof value === "string" ? value.trim() : "";
  return cell === "" || URL_SCHEME.test(cell) ? null : cell;
}

async function toAttachment(value: unknown, column: string): Promise<JsonObject | null> {
  if (value === undefined || value === null) return null;
  if (typeof value !== "string") throw new Error(`the cell in ${column} is not a string with a path or URL`);
  const cell = value.trim();
  if (cell === "") return null;
  if (URL_SCHEME.test(cell)) {
    const isPdf = /^data:application\/pdf/i.test(cell) || /\.pdf(\?|#|$)/i.test(cell);
    return isPdf ? filePart(cell, path.posix.basename(URL.parse(cell)?.pathname ?? "")) : imagePart(cell);
  }
  const extension = path.extname(cell).toLowerCase();
  const type = extension === ".pdf" ? PDF : IMAGE_TYPES.get(extension);
  if (type === undefined) {
    throw new Error(
      `${cell} in ${column} cannot be attached; expected an http URL, or a file with the extension .pdf, ${[...IMAGE_TYPES.keys()].join(", ")}`,
    );
  }
  const { size } = await stat(cell);
  if (size > MAX_FILE_BYTES) {
    throw new Error(`${cell} in ${column} has ${size} bytes; at most ${MAX_FILE_BYTES} can be attached`);
  }
  const url = `data:${type};base64,${(await readFile(cell)).toString("base64")}`;
  return type === PDF ? filePart(url, path.basename(cell)) : imagePart(url);
}

function imagePart(url: string): JsonObject {
  return { type: "input_image", image_url: url };
}

function filePart(url: string, name: string): JsonObject {
  return url.startsWith("data:")
    ? { type: "input_file", filename: name.endsWith(".pdf") ? name : "file.pdf", file_data: url }
    : { type: "input_file", file_url: url };
}
