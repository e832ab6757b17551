import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import type { JsonObject } from "../../agent/api/response-events.ts";
import type { Row } from "../job.ts";

const IMAGE_TYPES: Readonly<Record<string, string>> = {
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
};
const PDF = "application/pdf";
const ADDRESS = /^(https?|data):/i;

/** Providers refuse larger files in one request. */
const MAX_FILE_BYTES = 20 * 1024 * 1024;

/**
 * The images and files that a row's cells name, as parts of its agent's message. A cell is an http URL, a `data:` URL, or a
 * file of this machine. Rejects with what is wrong with a cell; an empty cell attaches nothing.
 */
export async function attachmentsOf(row: Row, columns: readonly string[]): Promise<JsonObject[]> {
  const parts = await Promise.all(columns.map((column) => attachmentOf(row[column], column)));
  return parts.filter((part) => part !== null);
}

/** The row for the prompt, without the cells whose content is attached. */
export function withoutAttached(row: Row, columns: readonly string[]): Row {
  const isData = (value: unknown) => typeof value === "string" && value.startsWith("data:");
  if (!columns.some((column) => isData(row[column]))) return row;
  const cells = Object.entries(row).map(([column, value]) => [
    column,
    columns.includes(column) && isData(value) ? "(attached)" : value,
  ]);
  return Object.fromEntries(cells);
}

/** The file of this machine that a cell names; null: it names none. */
export function attachedFile(value: unknown): string | null {
  const cell = typeof value === "string" ? value.trim() : "";
  return cell === "" || ADDRESS.test(cell) ? null : cell;
}

async function attachmentOf(value: unknown, column: string): Promise<JsonObject | null> {
  if (value === undefined || value === null || value === "") return null;
  if (typeof value !== "string")
    throw new Error(`the cell in ${column} is not a text that could name an image`);
  const cell = value.trim();
  if (ADDRESS.test(cell)) {
    const isPdf = /^data:application\/pdf/i.test(cell) || /\.pdf(\?|#|$)/i.test(cell);
    return isPdf ? filePart(cell, path.posix.basename(URL.parse(cell)?.pathname ?? "")) : imagePart(cell);
  }
  const extension = path.extname(cell).toLowerCase();
  const type = extension === ".pdf" ? PDF : IMAGE_TYPES[extension];
  if (type === undefined) {
    throw new Error(
      `${cell} in ${column} cannot be attached; expected an http address, or a file that ends in .pdf, ${Object.keys(IMAGE_TYPES).join(", ")}`,
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
